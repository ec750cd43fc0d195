"""Writes the files of a volume so that a reader sees all of an update, or nothing of it.

    volume/page        -> ..data/page
    volume/..data      -> ..2026_11_28_22_45_10.k3x9
    volume/..2026_11_28_22_45_10.k3x9/page      the file

An update writes a new folder with a time, and replaces the link `..data` by renaming. Then links of new names are made, those
of removed names are deleted, and the previous folder is deleted. A process that has opened a file keeps the previous content.

Paths come from users: one that is absolute, leads out of the volume, or begins with ".." is refused.

Source: pkg/volume/util/atomic_writer.go of Kubernetes
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DATA, NEW_DATA = "..data", "..data_tmp"
MAX_PATH, MAX_NAME = 4096, 255
"""Maximum bytes of a path, and of one part."""


class ProjectedFile(NamedTuple):
    content: bytes
    mode: int
    """Permissions."""


Payload = Mapping[str, ProjectedFile]
"""By relative path."""


def write_atomically(volume: Path, payload: Payload) -> bool:
    """Make these the files of the volume, an existing directory. Return whether anything has changed. Raises OSError, and
    ValueError for an invalid path.
    """
    for path in payload:
        _check_path(path)
    try:
        previous = str((volume / DATA).readlink())
    except OSError:
        previous = ""
    if previous and _is_own_folder(previous) and _read_files(volume / previous) == dict(payload):
        return False
    fresh = Path(tempfile.mkdtemp(prefix=time.strftime("..%Y_%m_%d_%H_%M_%S."), dir=volume))
    try:
        fresh.chmod(0o755)
        _write_files(fresh, payload)
        _remove_link(volume / NEW_DATA)
        (volume / NEW_DATA).symlink_to(fresh.name)
        (volume / NEW_DATA).replace(volume / DATA)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    _link_names(volume, {path.partition("/")[0] for path in payload})
    if previous and _is_own_folder(previous):
        shutil.rmtree(volume / previous, ignore_errors=True)
    return True


def _check_path(path: str) -> None:
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f'invalid path "{path:.100}": it must be relative, and lead to a file inside the volume')
    if path.startswith(".."):
        raise ValueError(f'invalid path "{path:.100}": it must not begin with ".."')
    if len(path.encode()) > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in parts):
        raise ValueError(f'invalid path "{path:.100}": too long')


def _is_own_folder(name: str) -> bool:
    """Whether this is a folder that this module has made. The container can replace links."""
    return name.startswith("..") and "/" not in name and name not in ("..", DATA, NEW_DATA)


def _read_files(folder: Path) -> dict[str, ProjectedFile] | None:
    """None: something else than regular files is there."""
    projected_files: dict[str, ProjectedFile] = {}
    try:
        for here, folders, names in os.walk(folder):
            for name in (*folders, *names):
                path = Path(here, name)
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    projected_files[str(path.relative_to(folder))] = ProjectedFile(
                        path.read_bytes(), stat.S_IMODE(status.st_mode)
                    )
                elif not stat.S_ISDIR(status.st_mode):
                    return None
    except OSError:
        return None
    return projected_files


def _write_files(folder: Path, payload: Payload) -> None:
    for path, file in payload.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)


def _link_names(volume: Path, names: Iterable[str]) -> None:
    wanted = set(names)
    for name in wanted:
        with suppress(FileExistsError):
            (volume / name).symlink_to(f"{DATA}/{name}")
    for path in list(volume.iterdir()):
        name = path.name
        if name in wanted or name.startswith("..") or not path.is_symlink():
            continue
        if str(path.readlink()) == f"{DATA}/{name}":
            _remove_link(path)


def _remove_link(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
