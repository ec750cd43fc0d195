"""Changes of the host for a run: wall clocks of single processes, and small disks for members of etcd.

Wall clocks are changed with libfaketime, for one process at a time; monotonic clocks are not changed. A process reads its
offset from a file at most once per second. libfaketime leaves shared memory of killed processes behind; `sweep` removes it.
Otherwise, a new process that reuses the pid could not start.

A disk is a tmpfs whose size is changed while it is mounted. A full disk is exactly as large as its contents: writes that need a
new page fail with ENOSPC, as on a real disk. Mounting requires root; `can_mount_tmpfs` returns whether it is possible.

Source: https://github.com/wolfcw/libfaketime (README, 4a to 4e).
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Self

from pinnace.verification.chaos import ChaosError

LIBRARIES = (
    "usr/lib/*/faketime/libfaketimeMT.so.1",
    "usr/lib*/faketime/libfaketimeMT.so.1",
    "usr/local/lib/faketime/libfaketimeMT.so.1",
)
"""Paths of the library for multithreaded processes, relative to the root, as installed by distributions and by its Makefile."""
_SHARED = Path("/dev/shm")
SIZE = 2 << 30
"""The initial size in bytes. A tmpfs only uses memory for its contents."""
ATTEMPTS = 20
"""The number of attempts to fill a disk. A disk cannot be smaller than its contents, which may grow during an attempt."""
_MOUNT, _UMOUNT = shutil.which("mount"), shutil.which("umount")


def find_library() -> Path | None:
    return next((path for pattern in LIBRARIES for path in sorted(Path("/").glob(pattern))), None)


class WallClocks:
    """A context manager for wall clocks. `environment` returns the environment variables of a process whose clock can be
    changed."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library = library
        self._folder = folder
        self._files: dict[str, Path] = {}

    def environment(self, process: str) -> Mapping[str, str]:
        self._files[process] = self._folder / f"{process}.clock"
        self.set_offset(process, 0)
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._files[process]),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_CACHE_DURATION": "1",
            "NO_FAKE_STAT": "1",  # file times are not used as dates, and an intercepted stat takes locks
        }

    def set_offset(self, process: str, seconds: float) -> None:
        """Set the offset of the process' wall clock in seconds. Durations are not affected."""
        draft = self._files[process].with_suffix(".tmp")
        draft.write_text(f"{seconds:+g}\n")
        draft.replace(self._files[process])

    def reset_offsets(self) -> None:
        for process in self._files:
            self.set_offset(process, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_stale_files()

    def remove_stale_files(self) -> None:
        """Remove the shared memory of dead processes."""
        for left in _SHARED.glob("*faketime_s?m_*"):
            pid = left.name.rpartition("_")[2]
            if pid.isdigit() and not Path("/proc", pid).exists() and left.stat().st_uid == os.getuid():
                left.unlink(missing_ok=True)


class TmpfsDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free(self) -> int:
        """Free space in bytes."""
        result = os.statvfs(self.path)
        return result.f_bavail * result.f_frsize

    async def shrink_to_contents(self) -> None:
        """Shrink the disk to its contents. Raises ChaosError."""
        for _ in range(ATTEMPTS):
            result = os.statvfs(self.path)
            used = (result.f_blocks - result.f_bfree) * result.f_frsize
            if await self._resize(used) and not self.free:
                return
        raise ChaosError(f"unable to fill the disk {self.path}")

    async def restore_size(self) -> None:
        """Restore the initial size. Raises ChaosError."""
        if not await self._resize(SIZE):
            raise ChaosError(f"unable to restore the size of the disk {self.path}")

    async def _resize(self, size: int) -> bool:
        command = (_MOUNT or "mount", "-o", f"remount,size={size}", str(self.path))
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        return await process.wait() == 0


@cache
def can_mount_tmpfs() -> bool:
    """Return whether a tmpfs can be mounted. The result of the first attempt is cached."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        mounted = _mount_tmpfs(Path(folder))
        if mounted:
            unmount_disk(Path(folder))
    return mounted


@asynccontextmanager
async def mount_disk(path: Path) -> AsyncIterator[TmpfsDisk]:
    """Mount a disk at `path`, which is created. It is unmounted afterwards, even if files on it are open. Raises ChaosError."""
    await asyncio.to_thread(path.mkdir, mode=0o700)
    if not _mount_tmpfs(path):
        raise ChaosError(f"unable to mount a tmpfs at {path}")
    try:
        yield TmpfsDisk(path)
    finally:
        unmount_disk(path)
        await asyncio.to_thread(path.rmdir)


def unmount_disk(path: Path) -> None:
    """Unmount the disk. Does nothing if no disk is mounted."""
    if _UMOUNT and path.is_mount():
        subprocess.run([_UMOUNT, "--lazy", str(path)], check=False, stderr=subprocess.DEVNULL)


def _mount_tmpfs(path: Path) -> bool:
    if _MOUNT is None:
        return False
    command = [_MOUNT, "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "pinnace-chaos", str(path)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
