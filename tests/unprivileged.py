"""Being somebody for whom permissions count: they mean nothing to root, as whom tests run in containers."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of one's own. (pytest's tmp_path is below one that only its owner can enter.)"""
    folder = Path(tempfile.mkdtemp(prefix="pinnace-"))
    root = os.geteuid() == 0
    try:
        if root:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder, ignore_errors=True)


def read_only(folder: Path) -> Path:
    """A directory that is not empty and that nobody may write to, as Go's module cache has them; with another one inside."""
    inner = folder / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    inner.chmod(0o555)
    inner.parent.chmod(0o500)
    return inner.parent
