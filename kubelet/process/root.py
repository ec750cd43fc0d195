"""The folder in which a process runtime keeps its pods, and what becomes of those that it does not keep."""

import asyncio
import fcntl
import logging
import os
from itertools import count
from pathlib import Path

from kubelet.process import files, shims
from pinnace.runtime.clock import Clock
from pinnace.runtime.files import remove_tree

log = logging.getLogger(__name__)

NODE = "node"
ENTRIES = PODS, REMOVED, LOCK = "pods", "removed", "lock"
"""All that is in the folder."""
POLL = 0.02
"""Seconds between looks at something that is dying."""


class Root:
    """One kubelet's, for as long as it lives."""

    def __init__(self, path: Path) -> None:
        """Raises OSError: also when another kubelet has it."""
        self.path = path.absolute()
        self.burying: set[Path] = set()
        """Pods that were put away, and that somebody of this process sees to."""
        self._pods, self._removed = self.path / PODS, self.path / REMOVED
        for folder in (self._pods, self._removed):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise OSError(f"{self.path} is in use by another kubelet: give each a --root-dir of its own") from None

    def close(self) -> None:
        os.close(self._lock)

    def pod(self, uid: str) -> Path:
        return self._pods / uid

    def pods(self) -> list[Path]:
        return sorted(self._pods.iterdir())

    def removed(self) -> list[Path]:
        """Pods that an earlier kubelet has put away, and not been done with."""
        return sorted(self._removed.iterdir())

    def node(self, folder: Path) -> str:
        """On which node a pod is; empty when it was never said."""
        try:
            return (folder / NODE).read_text()
        except FileNotFoundError:
            return ""

    def attempts(self, uid: str, container: str) -> list[Path]:
        """The folders of the attempts at a container that are kept, the latest last. Both names may be a caller's: none that
        leads elsewhere has any."""
        if not all(name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in (uid, container)):
            return []
        home = self.pod(uid) / "containers" / container
        return [home / str(number) for number in sorted(int(each.name) for each in home.glob("[0-9]*"))]

    def put_away(self, folder: Path) -> Path:
        """Moves a pod out of the way: where to. Its containers may have made it read-only, and then it does not move."""
        folder.chmod(0o700)
        for number in count():
            target = self._removed / f"{folder.name}.{number}"
            if not target.exists():
                break
        return folder.rename(target)


async def bury(folder: Path, clock: Clock, one_by_one: asyncio.Lock) -> None:
    """Kills what is left of a pod that was put away, and removes it: in a thread, for a volume may have any number of files;
    one pod after the other, for there are few threads. When it is cancelled, the thread goes on to its end; the process waits
    for that, and keeps its lock so long."""
    await end(folder, clock)
    async with one_by_one:
        try:
            await asyncio.to_thread(remove_tree, folder)
        except OSError as error:
            log.warning("what a pod has left stays until the next start: %s", error)


async def end(folder: Path, clock: Clock) -> None:
    """Kills what runs of a pod."""
    while kill(folder):
        await clock.sleep(POLL)
    shims.reap_ended()


def kill(pod: Path) -> list[Path]:
    """Tells all shims of a pod to kill: see shims.kill. The folders of the attempts whose shims live still."""
    return [lock.parent for lock in pod.glob(f"containers/*/*/{files.LOCK}") if shims.kill(lock.parent)]
