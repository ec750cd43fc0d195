"""Removing what programs have left of which nothing is known: a tree of any shape."""

import os
import stat
from pathlib import Path
from uuid import uuid4


def remove_tree(folder: Path) -> None:
    """Removes a folder and all that is in it; what a symbolic link names stays. Raises OSError, and then a part may be gone.

    Beyond what shutil.rmtree does: directories that their owner has made read-only are made writable first (Go's module cache
    is full of them), and no depth is too deep. For that, directories further down are moved up into the folder.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        folder.unlink()
        return
    folder.chmod(stat.S_IRWXU)
    left = [folder]
    while left:
        here = left.pop()
        with os.scandir(here) as found:
            entries = list(found)
        for entry in entries:
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()
                continue
            path.chmod(stat.S_IRWXU)  # also to move it
            left.append(path if here == folder else path.rename(folder / uuid4().hex))
        if here != folder:
            here.rmdir()
    folder.rmdir()
