"""The process that runs the cluster of a test session: `python -m pinnace.testing.server FOLDER OPTIONS`.

    starting --ready--> running --SIGTERM, or the owner has died--> all processes killed, FOLDER removed
        '--failed--> FOLDER removed, except its answer

It writes its answer to FOLDER/answer.json: how to reach the cluster, or why it did not start. It holds a lock on FOLDER/lock as
long as it lives, so that a later server recognizes the folders of servers that were killed, and removes them. After SIGUSR1 it
no longer watches the owner, and ends when `pinnace down` has removed the cluster.
"""

import asyncio
import fcntl
import gc
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from ctypes import CDLL, c_long
from pathlib import Path
from typing import Any

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import ClusterError, StartFailed
from pinnace.cluster.folder import SEGMENT
from pinnace.cluster.processes import kill_pod_containers
from pinnace.cluster.spec import FILE, ClusterSpec, kubeconfig_file
from pinnace.testing.forkserver import ForkServer
from pinnace.testing.sessions import ANSWER, PREFIX

LOCK, CLUSTER = "lock", "cluster"
KEPT_POLL = 0.5
"""Seconds between two looks at a cluster that is kept."""
_PUNCH_HOLE = 3
"""FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE. Source: fallocate(2)."""
_libc = CDLL(None, use_errno=True)
UNLOCKED_AGE = 60.0
"""Seconds after which a folder without a lock file belongs to no server that is starting."""


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    gc.freeze()
    forkserver = ForkServer()
    spec = ClusterSpec(
        nodes=options["nodes"], kubelets=1, schedulers=1, apiservers=1, controllers=1, gateways=1,
        runtime=options["runtime"], data_dir=folder / CLUSTER,
    )  # fmt: skip
    sys.exit(asyncio.run(serve(Cluster(spec, launch=forkserver.launch), folder, options["owner"], options["timeout"])))


async def serve(cluster: Cluster, folder: Path, owner: int, timeout: float) -> int:
    """Run the cluster until it is no longer needed. Return the exit code."""
    loop, state_file = asyncio.get_running_loop(), folder / CLUSTER / FILE
    ended, kept = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, kept.set)
    try:
        handle = os.pidfd_open(owner)
    except ProcessLookupError:
        shutil.rmtree(folder)
        return 1
    loop.add_reader(handle, ended.set)
    start = loop.create_task(cluster.up(timeout=timeout))
    waiting = loop.create_task(ended.wait())
    await asyncio.wait((start, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        start.cancel()
        with suppress(asyncio.CancelledError, ClusterError):
            await start
        shutil.rmtree(folder)
        return 0
    if isinstance(error := start.exception(), ClusterError):
        write_answer(folder, describe_error(error))
        return 1
    await start
    write_answer(folder, describe_cluster(cluster))
    await asyncio.to_thread(free_preallocated, folder)
    await asyncio.to_thread(remove_leftovers, folder.parent)
    keeping = loop.create_task(kept.wait())
    await asyncio.wait((waiting, keeping), return_when=asyncio.FIRST_COMPLETED)
    if not ended.is_set():
        loop.remove_reader(handle)
        while not ended.is_set() and state_file.exists():
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), KEPT_POLL)
    if state_file.exists():
        await cluster.down(grace=0)
    shutil.rmtree(folder)
    return 0


def describe_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return the description of a running cluster that a test needs."""
    tls, path = cluster.tls, cluster.folder.path
    return {
        "pid": os.getpid(), "server": f"https://{cluster.gateway}",
        "ca": str(tls.ca), "cert": str(tls.cert), "key": str(tls.key),
        "kubeconfig": str(kubeconfig_file(path)), "data_dir": str(path), "logs": str(cluster.folder.logs),
        "processes": {record.name: record.pid for record in cluster.state.processes},
    }  # fmt: skip


def describe_error(error: ClusterError) -> dict[str, Any]:
    logs = error.logs if isinstance(error, StartFailed) else {}
    return {"error": error.message, "hint": error.hint, "logs": {name: list(lines) for name, lines in logs.items()}}


def write_answer(folder: Path, answer: dict[str, Any]) -> None:
    """Write the answer. A reader finds all of it, or none."""
    draft = folder / f"{ANSWER}.new"
    draft.write_text(json.dumps(answer))
    draft.replace(folder / ANSWER)


def free_preallocated(folder: Path) -> None:
    """Free the memory of etcd's preallocated log, which is on tmpfs. Its two files of SEGMENT bytes are zeros after the first
    entries, and stay zeros: what etcd writes later is allocated then. Not even a busy start writes a quarter of one."""
    for path in folder.glob("cluster/etcd/*/member/wal/*"):
        with suppress(OSError), path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size >= SEGMENT:
                _libc.fallocate(file.fileno(), _PUNCH_HOLE, c_long(SEGMENT // 4), c_long(SEGMENT - SEGMENT // 4))


def remove_leftovers(base: Path) -> None:
    """Remove the folders of servers that were killed. Their processes died with them, but not the containers of a process
    runtime."""
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if has_ended(folder):
                asyncio.run(kill_pod_containers(sorted((folder / CLUSTER / "pods").glob("kubelet-*"))))
                shutil.rmtree(folder)


def has_ended(folder: Path) -> bool:
    """Return whether the server of this folder has ended. Raises OSError."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > UNLOCKED_AGE
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


if __name__ == "__main__":
    main()
