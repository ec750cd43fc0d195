"""A disk of its own for one member of etcd, which can be full: a tmpfs whose size is changed while it is mounted.

A full disk is exactly as large as its contents: writes that need a new page fail with ENOSPC, as on a real disk. Mounting needs
root; `available` says whether it can be done here.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from pinnace.chaos.errors import ChaosError

SIZE = 2 << 30
"""Bytes, while it is not full. A tmpfs takes as much memory as it has contents."""
ATTEMPTS = 20
"""To make a disk full: it cannot be smaller than its contents, which grow meanwhile."""
_MOUNT, _UMOUNT = shutil.which("mount"), shutil.which("umount")


class Disk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free(self) -> int:
        """Bytes."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    async def fill(self) -> None:
        """Leaves no room. Raises ChaosError."""
        for _ in range(ATTEMPTS):
            found = os.statvfs(self.path)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            if await self._resize(used) and not self.free:
                return
        raise ChaosError(f"the disk {self.path} cannot be made full")

    async def empty(self) -> None:
        """Has its first size again. Raises ChaosError."""
        if not await self._resize(SIZE):
            raise ChaosError(f"the disk {self.path} cannot be given its first size")

    async def _resize(self, size: int) -> bool:
        command = (_MOUNT or "mount", "-o", f"remount,size={size}", str(self.path))
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        return await process.wait() == 0


@cache
def available() -> bool:
    """Whether a tmpfs can be mounted here: tried once."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        mounted = _mount(Path(folder))
        if mounted:
            unmount(Path(folder))
    return mounted


@asynccontextmanager
async def disk(path: Path) -> AsyncIterator[Disk]:
    """A disk at `path`, which is created. It is unmounted afterwards, also while somebody has a file on it open. Raises
    ChaosError."""
    await asyncio.to_thread(path.mkdir, mode=0o700)
    if not _mount(path):
        raise ChaosError(f"no tmpfs can be mounted at {path}")
    try:
        yield Disk(path)
    finally:
        unmount(path)
        await asyncio.to_thread(path.rmdir)


def unmount(path: Path) -> None:
    """Does nothing where nothing is mounted."""
    if _UMOUNT and path.is_mount():
        subprocess.run([_UMOUNT, "--lazy", str(path)], check=False, stderr=subprocess.DEVNULL)


def _mount(path: Path) -> bool:
    if _MOUNT is None:
        return False
    command = [_MOUNT, "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "pinnace-chaos", str(path)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
