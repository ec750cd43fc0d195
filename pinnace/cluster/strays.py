"""Processes of a cluster whose state is gone: somebody has removed its folder while it ran, and they run on for good.

They are known by their arguments, which name their data, certificates or pods in that folder. Only programs of a cluster count:
whoever looks into the folder, as an editor or `tail` does, is none of ours to end.
"""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from pinnace.cluster.errors import AlreadyRunning, ClusterError
from pinnace.cluster.folder import Folder
from pinnace.cluster.processes import GRACE, gone
from pinnace.cluster.spec import APISERVER, CONTROLLERS, KUBELET, SCHEDULER, STORE, etcd_folder, pki_folder, pods_folder
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Identity

MODULES = (*(f"{component}.main" for component in (APISERVER, SCHEDULER, CONTROLLERS, KUBELET)), "kubelet.process.shim")
"""What runs as `python -m MODULE`; a shim is the parent of a container that is a process."""


def find(data_dir: Path) -> list[Identity]:
    """Those that run, by whatever links the folder was named when they were started. Takes a few milliseconds."""
    folder = data_dir.resolve()
    etcd, *others = (make(folder) for make in (etcd_folder, pki_folder, pods_folder))

    def inside(argument: str, *folders: Path) -> bool:
        return argument.startswith("/") and not set(Path(argument).resolve().parents).isdisjoint(folders)

    def ours(argv: Sequence[str]) -> bool:
        if "-m" in argv[:-1] and argv[argv.index("-m") + 1] in MODULES:
            return any(inside(argument, etcd, *others) for argument in argv)
        stores = (argument.removeprefix(STORE) for argument in argv if argument.startswith(STORE))
        return any(inside(store, etcd) for store in stores)

    return [process for pid, argv in procfs.own() if ours(argv) and (process := procfs.identify(pid))]


def refuse(data_dir: Path) -> None:
    """Raises AlreadyRunning when there are any."""
    if left := find(data_dir):
        pids = ", ".join(str(process.pid) for process in left)
        raise AlreadyRunning(
            f"processes of an earlier cluster in {data_dir}, whose state is gone, still run (pid {pids})",
            hint=f"end them with `pinnace down --data-dir {quote(str(data_dir))}`",
        )


async def end(data_dir: Path, patience: float = GRACE) -> int:
    """Kills them, with all that they have started: what they could save is gone. How many there were; 0, too, when the folder
    has a state, which says whose they are. Raises ClusterError."""
    if not find(data_dir):
        return 0
    folder = Folder(data_dir)
    made = folder.create()
    try:
        with folder.locked():
            return 0 if folder.read() else await _kill(data_dir, patience)
    finally:
        folder.prune(made)


async def _kill(data_dir: Path, patience: float) -> int:
    killed: set[Identity] = set()
    deadline = time.monotonic() + patience
    while found := find(data_dir):  # again: a kubelet may have started a container meanwhile
        for process in (*found, *procfs.descendants(found)):
            procfs.send_signal(process, signal.SIGKILL)
        killed.update(found)
        if not await gone(found, max(0.0, deadline - time.monotonic())):
            stuck = ", ".join(str(process.pid) for process in found if procfs.alive(process))
            raise ClusterError(f"pid {stuck} cannot be killed", hint="look at what it waits for: cat /proc/PID/stack")
    return len(killed)
