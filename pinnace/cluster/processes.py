"""Starts and stops the processes of a cluster, selects free ports, and finds processes whose state is lost.

Each process runs in its own session, so that it survives the terminal and a Ctrl-C for `pinnace up`.

A component keeps its port for the lifetime of the cluster, also while it is down. Therefore ports are below the range of
ephemeral ports, and are reserved in blocks: another cluster does not use the port of a process that is down or does not listen
yet.

If the folder of a running cluster is deleted, its processes are identified by their arguments, which name files in that folder.
Only programs of a cluster are ended, not, for example, an editor that has a file of the folder open.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from shlex import quote
from typing import IO, Any, Protocol

from pinnace.cluster.certificates import LOCAL_SERVICE_NETWORKS
from pinnace.cluster.errors import AlreadyRunning, ClusterError, StartFailed
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.inputs import spawn_environment
from pinnace.cluster.spec import (
    APISERVER,
    CONTROLLERS,
    ETCD,
    GATEWAY,
    KUBELET,
    PROXY,
    SCHEDULER,
    STORE,
    ProcessPlan,
    ProcessRecord,
    etcd_folder,
    pki_folder,
    pods_folder,
)
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity

STOPPING_ORDER = (
    ((KUBELET, CONTROLLERS, SCHEDULER, GATEWAY, PROXY), signal.SIGTERM),
    ((APISERVER,), signal.SIGTERM),
    ((ETCD,), signal.SIGKILL),
)
"""Schedulers and controllers resign and kubelets close their sessions through API servers that still serve. etcd gets SIGTERM
where its data is kept. Otherwise it gets SIGKILL, because its members would try for seconds to hand over to each other."""
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
POLL = 0.02
BLOCK = 40
"""Number of ports in a block."""
ATTEMPTS = 1_000
_COMPONENTS = (APISERVER, SCHEDULER, CONTROLLERS, KUBELET, GATEWAY, PROXY)
MODULES = (*(f"pinnace.{component}.main" for component in _COMPONENTS), "pinnace.kubelet.runtime.process.shim")
"""Modules that run as `python -m MODULE`. A shim is the parent of a container process."""


class ChildProcess(Protocol):
    """A process that this program has started, as subprocess.Popen."""

    pid: int

    @property
    def returncode(self) -> int | Any: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...

    def kill(self) -> None: ...


class ProcessLauncher(Protocol):
    def __call__(self, argv: Sequence[str], output: IO[bytes], folder: Path, environment: Mapping[str, str]) -> ChildProcess:
        """Run `argv` in a new session and in this folder, without input. Raises OSError."""
        ...


def execute_program(
    argv: Sequence[str], output: IO[bytes], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Execute the program. The usual Launch."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment, start_new_session=True
    )


def spawn_process(
    plan: ProcessPlan, log: Path, *, successor: bool = False, launch: ProcessLauncher = execute_program
) -> ChildProcess:
    """Start a process, with its output appended to `log`. Keep the handle, so that the process is reaped when it exits.
    `successor`: it takes the addresses over from the running process. Raises StartFailed if it cannot be started, or if another
    program uses its address.
    """
    for address in sorted({plan.address, plan.http}) if not successor else ():
        if not is_port_free(address, shared=plan.can_share_address(address)):
            raise StartFailed(
                f"{address}, the address of {plan.name}, is in use by another program",
                hint="find it with `ss -ltnp`; `pinnace stop` and `pinnace start` select another address",
            )
    try:
        with log.open("ab") as output:
            return launch(plan.argv, output, log.parent, spawn_environment(plan, os.environ))
    except OSError as error:
        raise StartFailed(f"{plan.name} cannot be started: {plan.argv[0]}: {error.strerror or error}") from error


def suspended_processes(records: Iterable[ProcessRecord]) -> list[str]:
    """Return the names of the processes that are suspended by SIGSTOP."""
    return [record.name for record in records if (process := find_running(record)) and procfs.is_suspended(process)]


def find_running(record: ProcessRecord) -> ProcessIdentity | None:
    """The process of the record, if it runs. If `up` was killed before it could write the start, the process is found by its
    unique command line.
    """
    if record.process is None:
        return procfs.find_process(record.plan.argv)
    return record.process if procfs.is_running(record.process) else None


async def stop_processes(records: Sequence[ProcessRecord], grace: float = GRACE, *, keep_data: bool = False) -> list[str]:
    """Stop all processes in order, and return the names of those that had to be killed. Afterwards none of them runs."""
    killed: list[str] = []
    for components, order in STOPPING_ORDER:
        number = signal.SIGTERM if keep_data else order
        group = {r.name: process for r in records if r.component in components and (process := find_running(r))}
        for process in group.values():
            procfs.send_signal(process, number)
            procfs.send_signal(process, signal.SIGCONT)  # a stopped process does not handle other signals
        if await wait_ended(group.values(), grace):
            continue
        for name, process in group.items():
            if procfs.send_signal(process, signal.SIGKILL):
                killed.append(name)
        if not await wait_ended(group.values(), GRACE):
            stuck = ", ".join(f"{name} (pid {p.pid})" for name, p in group.items() if procfs.is_running(p))
            raise ClusterError(f"{stuck} cannot be killed", hint="`cat /proc/PID/stack` shows its system call")
    return killed


def kill_processes(records: Sequence[ProcessRecord]) -> None:
    """Kill all processes without order or grace, and do not wait for their exit."""
    for process in filter(None, map(find_running, records)):
        procfs.send_signal(process, signal.SIGKILL)


async def kill_pod_containers(folders: Sequence[Path], *, keep: bool = False) -> None:
    """Kill containers in the kubelets' directories, which survive their kubelets. With `keep`, the directories remain, and the
    next kubelet finds terminated containers.
    """
    for folder in folders:
        command = [sys.executable, "-m", "pinnace.kubelet.runtime.process.root", *(["--keep"] if keep else []), str(folder)]
        reset = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        _, why = await reset.communicate()
        if reset.returncode:
            raise ClusterError(
                f"the pods of {folder.name} cannot be stopped: {why.decode().strip()}", hint=f"look into {folder}"
            )


async def wait_ended(processes: Iterable[ProcessIdentity], timeout: float) -> bool:
    """Wait until none of them runs. False: some still run after `timeout` seconds."""
    waiting = list(processes)
    deadline = time.monotonic() + timeout
    while waiting := [process for process in waiting if procfs.is_running(process)]:
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL)
    return True


LOWEST, HIGHEST = 15_000, 32_000
"""Linux hands out 32768-60999 by default (ip_local_port_range)."""


class PortAllocator:
    """`next()` returns a different free port at each call. This object reserves blocks by listening on their first port, so no
    other process uses them.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._left: list[int] = []

    def next(self) -> int:
        while True:
            if not self._left:
                self._left = self._claim()
            port = self._left.pop()
            if is_port_free(f"127.0.0.1:{port}"):
                return port

    def _claim(self) -> list[int]:
        """The ports of a block. Raises ClusterError."""
        for _ in range(ATTEMPTS):
            first, *others = range(start := self._rng.randrange(LOWEST, HIGHEST, BLOCK), start + BLOCK)
            seat = _reserve_port(first)
            if seat is not None:
                if all(is_port_free(f"127.0.0.1:{port}") for port in others):
                    weakref.finalize(self, seat.close)
                    return others
                seat.close()
        raise ClusterError(
            f"no {BLOCK} free ports in a row between {LOWEST} and {HIGHEST} on 127.0.0.1",
            hint="stop the programs there (ss -ltnp)",
        )


def _reserve_port(port: int) -> socket.socket | None:
    """Reserve the port until closed. None: it is in use."""
    seat = socket.socket()
    try:
        seat.bind(("127.0.0.1", port))
    except OSError:
        seat.close()
        return None
    return seat


def is_port_free(address: str, *, shared: bool = False) -> bool:
    """Whether a server can listen at host:port. Lingering connections of an earlier server are ignored. `shared`: whether it
    permits others to listen there, too."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def choose_service_network(ports: Sequence[int], rng: random.Random | None = None) -> str:
    """Return the network of cluster IPs for pods that are processes: a random one at whose first address nobody listens, so
    that no other cluster of this machine uses it. `ports`: of the service `kubernetes`."""
    networks = (rng or random.Random()).sample(LOCAL_SERVICE_NETWORKS, len(LOCAL_SERVICE_NETWORKS))
    for network in networks:
        first = ip_network(network)[1]
        if all(is_port_free(f"{first}:{port}") for port in ports):
            return network
    return networks[0]


def find_processes(data_dir: Path) -> list[ProcessIdentity]:
    """The running processes of the directory, also if they were started with another path to it. Takes a few milliseconds."""
    folder = data_dir.resolve()
    etcd, *others = (make(folder) for make in (etcd_folder, pki_folder, pods_folder))

    def inside(argument: str, *folders: Path) -> bool:
        return argument.startswith("/") and not set(Path(argument).resolve().parents).isdisjoint(folders)

    def ours(argv: Sequence[str]) -> bool:
        if "-m" in argv[:-1] and argv[argv.index("-m") + 1] in MODULES:
            return any(inside(argument, etcd, *others) for argument in argv)
        stores = (argument.removeprefix(STORE) for argument in argv if argument.startswith(STORE))
        return any(inside(store, etcd) for store in stores)

    return [process for pid, argv in procfs.list_own_processes() if ours(argv) and (process := procfs.identify_process(pid))]


def refuse_running(data_dir: Path) -> None:
    """Raises AlreadyRunning if there are any."""
    if left := find_processes(data_dir):
        pids = ", ".join(str(process.pid) for process in left)
        raise AlreadyRunning(
            f"processes of an earlier cluster in {data_dir}, whose state is gone, still run (pid {pids})",
            hint=f"end them with `pinnace down --data-dir {quote(str(data_dir))}`",
        )


async def end_processes(data_dir: Path, patience: float = GRACE) -> int:
    """Kill them and their descendants without grace. Return their number; 0 also if the directory has a state. Raises
    ClusterError.
    """
    if not find_processes(data_dir):
        return 0
    folder = ClusterFolder(data_dir)
    made = folder.create()
    try:
        with folder.locked():
            return 0 if folder.read() else await _kill_identities(data_dir, patience)
    finally:
        folder.remove_empty_directories(made)


async def _kill_identities(data_dir: Path, patience: float) -> int:
    killed: set[ProcessIdentity] = set()
    deadline = time.monotonic() + patience
    while identities := find_processes(data_dir):  # again, because a kubelet may have started a container meanwhile
        for process in (*identities, *procfs.find_descendants(identities)):
            procfs.send_signal(process, signal.SIGKILL)
        killed.update(identities)
        if not await wait_ended(identities, max(0.0, deadline - time.monotonic())):
            stuck = ", ".join(str(process.pid) for process in identities if procfs.is_running(process))
            raise ClusterError(f"pid {stuck} cannot be killed", hint="`cat /proc/PID/stack` shows its system call")
    return len(killed)
