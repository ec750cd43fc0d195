"""Start and end the server of a cluster from pytest's process. Standard library only.

The folder of a server is on tmpfs: BASE/NAME, with BASE = /dev/shm/pinnace-UID, or in the folder for temporary files if there
is no room. The server removes it.
"""

import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pinnace.testing.handle import PinnaceCluster, wait_until

SHARED_MEMORY = Path("/dev/shm")
ROOM = 256_000_000
"""Bytes that must be free on tmpfs: etcd allocates two files of 64 MB."""
ANSWER, LOG, STARTING = "answer.json", "server.log", "starting"
PREFIX = "cluster-"
"""What the names of clusters' folders begin with."""
POLL = 0.01
STOP_TIMEOUT = 15.0
LOG_LINES = 30
NOT_INHERITED = (
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
    "PYTHONINSPECT",
    "COVERAGE_PROCESS_START",
    "COV_CORE_SOURCE",
)
"""Variables of a test run that are not meant for a cluster."""


class ClusterFailed(Exception):
    """The cluster did not start. The message has all that a user needs."""


@dataclass(frozen=True)
class ClusterOptions:
    """`nodes`: virtual nodes; `runtime`: "fake" or "process"; `base`: the folder for clusters; None: see above; `timeout`:
    seconds for the start."""

    nodes: int = 1
    runtime: str = "fake"
    base: Path | None = None
    timeout: float = 60.0


class ClusterSession:
    """A cluster and its server. `pid`: of the server."""

    def __init__(self, folder: Path, pid: int, cluster: PinnaceCluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self._pid = pid

    def stop(self) -> None:
        """End the cluster, and return when nothing of it is left. Raises ClusterFailed."""
        stop_server(self.folder, self._pid)

    def keep(self) -> None:
        """Let the cluster run on after this process has ended."""
        os.kill(self._pid, signal.SIGUSR1)


def start_session(options: ClusterOptions, folder: Path, owner: int) -> ClusterSession:
    """Start a cluster that lives until the process `owner` dies. Raises ClusterFailed."""
    chosen = {name: value for name, value in asdict(options).items() if name != "base"} | {"owner": owner}
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    with (folder / LOG).open("wb") as log:
        # -P: a module of the user's project, such as yaml.py, is not imported instead of ours
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", "pinnace.testing.server", str(folder), json.dumps(chosen)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        answer = wait_for_answer(folder, server, options.timeout + STOP_TIMEOUT)
    except BaseException:  # such as KeyboardInterrupt
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)  # a server that had not begun to handle signals has left it
        raise
    return ClusterSession(folder, server.pid, PinnaceCluster.of(answer))


def wait_for_answer(folder: Path, server: "subprocess.Popen[bytes]", timeout: float) -> Mapping[str, Any]:
    """Return how to reach the cluster. Raises ClusterFailed."""
    wait_until(lambda: read_answer(folder) is not None or server.poll() is not None, timeout, POLL)
    answer = read_answer(folder)
    if answer is None:
        failure = {"error": "its server has ended", "logs": {"the server of the cluster": read_log(folder)}}
        raise ClusterFailed(describe_failure(failure))
    if "error" in answer:
        server.wait()
        answer = {**answer, "logs": {**answer["logs"], "the server of the cluster": read_log(folder)}}
        with suppress(OSError):
            shutil.rmtree(folder)
        raise ClusterFailed(describe_failure(answer))
    return answer


def read_answer(folder: Path) -> Mapping[str, Any] | None:
    try:
        answer: Mapping[str, Any] = json.loads((folder / ANSWER).read_text())
    except FileNotFoundError:
        return None
    return answer


def read_log(folder: Path) -> list[str]:
    """Return the last lines that a server has printed."""
    try:
        return (folder / LOG).read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []


def describe_failure(answer: Mapping[str, Any]) -> str:
    lines = [f"the cluster did not start: {answer['error']}"]
    if answer.get("hint"):
        lines.append(f"hint: {answer['hint']}")
    for name, tail in answer.get("logs", {}).items():
        lines += [f"last lines of the log of {name}:", *(f"  {line}" for line in tail)] if tail else []
    return "\n".join(lines)


def stop_server(folder: Path, pid: int) -> None:
    """End a server, and wait until it has removed its folder. Raises ClusterFailed."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if wait_until(lambda: not folder.exists(), STOP_TIMEOUT, POLL) is None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise ClusterFailed(f"the server of the cluster (pid {pid}) did not end within {STOP_TIMEOUT:g} s and was killed")
    with suppress(ChildProcessError):  # another process has started it
        os.waitpid(pid, 0)


def new_folder(base: Path | None) -> Path:
    """Create the folder of a server. Raises ClusterFailed."""
    try:
        parent = base if base is not None else private_folder(choose_parent())
        parent.mkdir(parents=True, exist_ok=True)
        folder = parent / f"{PREFIX}{secrets.token_hex(6)}"
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ClusterFailed(
            f"the folder of the cluster cannot be created: {error}; set another with --pinnace-data-dir"
        ) from None
    return folder


def choose_parent() -> Path:
    """Return the tmpfs if it has room (Docker's /dev/shm has 64 MB), and the folder for temporary files otherwise."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return Path(tempfile.gettempdir())
    has_room = status.f_bavail * status.f_frsize >= ROOM and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)
    return SHARED_MEMORY if has_room else Path(tempfile.gettempdir())


def private_folder(parent: Path) -> Path:
    """Return a folder of this user that nobody else can use, in a folder that everybody can write to. Raises OSError."""
    folder = parent / f"pinnace-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    return folder


def join_session(
    options: ClusterOptions, folder: Path, owner: int, install: Callable[[ClusterSession], None]
) -> ClusterSession:
    """Return the cluster that processes of one run share: the first one starts it, for `owner`, and calls `install`. Raises
    ClusterFailed."""
    try:
        with (folder / STARTING).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (shared := find_shared(folder)) is None:
                shared = start_session(options, folder, owner)
                install(shared)
            return shared
    except FileNotFoundError:
        raise ClusterFailed("the shared cluster did not start: see the first error") from None


def find_shared(folder: Path) -> ClusterSession | None:
    """Return the cluster in this folder. None: no process has needed it."""
    answer = read_answer(folder)
    return ClusterSession(folder, answer["pid"], PinnaceCluster.of(answer)) if answer is not None else None
