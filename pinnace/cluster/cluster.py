"""A local cluster of real processes: start, resume, status, kill, restart, stop and deletion.

    up -> state written -> etcd -> API servers -> schedulers, kubelets, controllers -> nodes Ready, a leader -> (runs) -> down
                                                                       resume <- stop, or all processes killed <---'

A start never deletes state: `up` creates a cluster where there is none, and `resume` starts an existing one. Only `down`
deletes a cluster. If `up` fails, it deletes what it has created.

The state file names a process from the time at which it is planned. A process that has ended is removed from the state before
its successor starts. So `down` finds every running process, even if this program was killed at any time. A start that fails or
is cancelled ends the processes that it has started, even if it is cancelled repeatedly.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from shlex import quote
from typing import Any

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.cluster import certificates, inputs, processes, startup, view
from pinnace.cluster.errors import AlreadyRunning, ClusterError, FolderError, NoCluster, StartFailed, join_errors
from pinnace.cluster.etcd import EtcdBinary, EtcdMissing, find_etcd
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.processes import PortAllocator, choose_service_network, is_port_free
from pinnace.cluster.spec import (
    ADDRESS,
    APISERVER,
    CONTROLLERS,
    DNS_PORT,
    ETCD,
    GATEWAY,
    KUBELET,
    PLAIN,
    PROCESS,
    PROXY,
    SCHEDULER,
    SERVICE_NETWORK,
    TAKE_OVER,
    UNPRIVILEGED_PORT,
    ClusterSpec,
    ClusterState,
    ProcessHooks,
    ProcessPlan,
    ProcessRecord,
    etcd_data_dir,
    etcd_folder,
    fleet_node_names,
    initial_state,
    kubeconfig_file,
    listening_addresses,
    pki_folder,
    plan_processes,
    with_current_installation,
)
from pinnace.cluster.startup import SILENT_PROGRESS, StartProgress
from pinnace.cluster.view import ProcessStatus
from pinnace.pki.folder import ADMIN
from pinnace.runtime import procfs
from pinnace.runtime.tls import TlsFiles

HTTPS_PORT = 443
PORT_PATIENCE, PORT_POLL = 2.0, 0.02
"""Seconds for which a taken port may be that of a process that was killed just now, and between looks at it."""
DNS_INDEX = 10
"""The number of the DNS server's address in the network of services, as in kubeadm."""
START_TIMEOUT = 60.0
STOP_GRACE = 10.0
"""Seconds until SIGKILL for processes whose data is kept."""
SETTLE_TIMEOUT = 15.0
"""Seconds for which a start waits for processes that are stopping; longer than their timeout (pinnace.runtime.process)."""
NODES_TIMEOUT = 20.0
"""Seconds for which a resume waits for Ready nodes."""
NODES_POLL = 0.2
STAGES = ((ETCD,), (APISERVER,), (SCHEDULER, CONTROLLERS, KUBELET, GATEWAY, PROXY))
"""Components that start together when their dependencies are ready."""
Hook = Callable[[ClusterState], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """The result of taking down a cluster. `killed`: processes that did not stop in time. `kept`: files in the directory that
    the cluster did not create.
    """

    killed: list[str]
    kept: list[Path]


class Cluster:
    """A cluster in a directory. Create one from a spec to start it, or `load` an existing one."""

    def __init__(
        self, spec: ClusterSpec, hooks: ProcessHooks = PLAIN, launch: processes.ProcessLauncher = processes.execute_program
    ) -> None:
        """`launch` starts the processes."""
        self.spec = spec
        self._fittings = hooks
        self._launch = launch
        self.folder = ClusterFolder(spec.data_dir)
        self._state: ClusterState | None = None
        self._ports = PortAllocator()
        self._children: dict[str, processes.ChildProcess] = {}
        self._waiting = startup.StartWaiter(self.folder)

    @classmethod
    def load(cls, data_dir: Path) -> "Cluster":
        """The cluster in this directory, running or not. Raises NoCluster and FolderError."""
        state = ClusterFolder(data_dir).read()
        if state is None:
            raise NoCluster(f"there is no cluster in {data_dir}", hint="start one with `pinnace up`, or use another --data-dir")
        if state.spec.data_dir.resolve() != data_dir.resolve():
            raise FolderError(
                f"the state in {data_dir} is that of a cluster in {state.spec.data_dir}: the directory was moved or copied",
                hint=f"move it back to {state.spec.data_dir}; a copy is removed with `rm -r`",
            )
        cluster = cls(replace(state.spec, data_dir=data_dir))
        cluster._state = state
        return cluster

    def reload(self) -> "Cluster":
        """This cluster with its current state. Raises NoCluster if it was removed, also if another one is in its directory."""
        cluster = Cluster.load(self.spec.data_dir)
        self._check_identity(cluster.state)
        return cluster

    @property
    def state(self) -> ClusterState:
        if self._state is None:
            raise NoCluster(f"the cluster in {self.spec.data_dir} has not been started")
        return self._state

    @property
    def endpoints(self) -> list[str]:
        """The addresses of the API servers, host:port."""
        return self.state.endpoints

    @property
    def gateway(self) -> str:
        """The address of the first gateway, host:port; "" if there is none."""
        return next((record.plan.address for record in self.state.processes_of(GATEWAY)), "")

    @property
    def tls(self) -> TlsFiles:
        """The client configuration of the administrator."""
        return certificates.component_files(pki_folder(self.spec.data_dir), ADMIN)

    @property
    def etcd_tls(self) -> TlsFiles:
        """The client certificate of API servers for etcd."""
        return certificates.etcd_client_files(pki_folder(self.spec.data_dir))

    @property
    def config(self) -> ClientConfig:
        """The administrator's configuration."""
        return ClientConfig(tuple(self.endpoints), data_dir=self.spec.data_dir, tls=self.tls, gateway=self.gateway)

    async def up(
        self, progress: StartProgress = SILENT_PROGRESS, *, timeout: float = START_TIMEOUT, with_etcd: Hook | None = None
    ) -> None:
        """Create a cluster. Return when all processes are ready, all nodes are Ready and a scheduler leads. `with_etcd` is
        called when etcd is ready, before other processes start. Raises ClusterError; then only the logs of failed processes
        remain.
        """
        binary = find_etcd_binary(progress)
        made = self.folder.create()
        try:
            with self.folder.locked():
                self._claim_folder(binary, made, progress)
                try:
                    with self.folder.translate_os_errors():
                        self._provide_certificates()
                        self._write_kubeconfig()
                    async with self._waiting.deadline(timeout):
                        await self._start_all(progress, with_etcd)
                except BaseException as error:
                    failed = isinstance(error, StartFailed)
                    await self._finish_despite_cancellation(self._stop_and_remove(keep_logs=failed))
                    if isinstance(error, StartFailed):
                        error.hint = error.hint or "check its log and try again; all other processes were stopped"
                    raise
        except BaseException:
            self.folder.remove_empty_directories(self._state.made if self._state else made)
            raise

    async def resume(self, progress: StartProgress = SILENT_PROGRESS, *, timeout: float = START_TIMEOUT) -> list[str]:
        """Start the stopped processes of an existing cluster. Return their names when they are ready, a scheduler leads, and
        the nodes are Ready or the wait for them has timed out. Raises ClusterError; started processes keep running.
        """
        began = time.monotonic()
        with self.folder.locked():
            self._refresh()
            pki = pki_folder(self.spec.data_dir)
            if not certificates.has_authorities(pki) and not any(
                map(_has_data, self._processes_of_stage((ETCD,)))
            ):  # `up` was killed
                with self.folder.translate_os_errors():
                    self._provide_certificates()
        await self.wait_until_stopped(progress)
        names = self.stopped_processes()
        if names:
            await self.restart(names, progress, timeout=timeout)
        async with self.client() as client, self._waiting.deadline(max(1.0, timeout - (time.monotonic() - began))):
            if self.state.processes_of(SCHEDULER):
                await self._waiting.wait_until(lambda: startup.check_leader(client), no_cleanup, progress)
                if election := await view.try_scheduler_leader(client):
                    progress.done(f"{election.holder} leads (token {election.token})")
            with suppress(TimeoutError):  # nodes of other kubelets may remain NotReady
                async with asyncio.timeout(NODES_TIMEOUT):
                    await self._waiting.wait_until(
                        lambda: startup.check_all_nodes(client), no_cleanup, progress, poll=NODES_POLL
                    )
        return names

    async def wait_until_stopped(self, progress: StartProgress = SILENT_PROGRESS, names: Sequence[str] | None = None) -> None:
        """Waits, up to a timeout, for processes that are stopping, all or the named ones."""
        known = [record.name for record in self.state.processes] if names is None else names

        def running() -> list[ProcessRecord]:
            return [record for record in map(self.state.find_process, known) if processes.find_running(record)]

        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT):
                await self._waiting.wait_until(lambda: startup.check_settled(running()), no_cleanup, progress)

    async def stop(self, grace: float = STOP_GRACE, names: Sequence[str] | None = None) -> list[str]:
        """Stop these processes, or all of them with the containers of a process runtime. Data is kept. Return the names of
        processes that had to be killed. Raises KeyError and ClusterError.
        """
        with self.folder.locked():
            self._refresh()
            records = self.state.processes if names is None else [self.state.find_process(name) for name in names]
            killed = await processes.stop_processes(records, grace, keep_data=True)
            for name in [record.name for record in records]:
                if child := self._children.get(name):
                    child.wait()
            if names is None:
                await processes.kill_pod_containers(self.folder.pod_directories(), keep=True)
                self._state = replace(self.state, stopped=True)
                self.folder.write(self._state)
        return killed

    async def down(self, grace: float = processes.GRACE) -> RemovalResult:
        """Stop all processes and remove the cluster's files. Raises NoCluster if another cluster is in its directory. After a
        cancellation, the rest can be taken down or started again.
        """
        with self.folder.locked():
            cluster_state = self.folder.read() or self.state
            self._check_identity(cluster_state)
            self._state = cluster_state
            removed = await self._stop_and_remove(grace)
        self.folder.remove_empty_directories(self.state.made)
        return removed

    async def take_down_at_exit(self) -> None:
        """`down` for cleanup: a cancellation does not stop it, but kills processes without grace."""
        await self._finish_despite_cancellation(self.down())

    async def stop_at_exit(self) -> None:
        """`stop`, with the same behavior."""
        await self._finish_despite_cancellation(self.stop())

    async def _finish_despite_cancellation(self, taking_down: Coroutine[Any, Any, object]) -> None:
        """A cluster that no other program knows must be removed completely. After an interrupt during the cleanup, all
        processes are killed immediately.
        """
        work = asyncio.ensure_future(taking_down)
        cancelled = False
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError:
                cancelled = True
                processes.kill_processes(self.state.processes)
        work.result()
        if cancelled:
            raise asyncio.CancelledError

    def _check_identity(self, found: ClusterState) -> None:
        """Raises NoCluster if the directory contains another cluster by now."""
        if found.created != self.state.created:
            raise NoCluster(
                f"the cluster in {self.folder.path} was taken down, and another cluster was started in its directory",
                hint="`pinnace status` shows it",
            )

    async def status(self) -> list[ProcessStatus]:
        async with self.client() as client:
            return await view.cluster_status(self.state, client)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of the API servers. Raises FolderError if the certificates are missing."""
        try:
            connection = Connection(self.endpoints, tls=self.tls)
        except OSError as error:
            raise FolderError(
                f"the certificates in {pki_folder(self.spec.data_dir)} cannot be used: {error.strerror or error}",
                hint="restore missing files, or remove the cluster and its data with `pinnace down`",
            ) from error
        try:
            yield Client(connection)
        finally:
            await connection.close()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process. Raises KeyError, and ClusterError if it does not run."""
        process = processes.find_running(self.state.find_process(name))
        if process is None or not procfs.send_signal(process, number):
            raise ClusterError(f"{name} does not run")

    def stopped_processes(self) -> list[str]:
        """The stopped processes, in starting order."""
        return [record.name for record in self.state.processes if not processes.find_running(record)]

    def exit_code(self, name: str) -> int | None:
        """The exit code of a process that this object has started; negative for a signal. None: it runs, or another program
        started it.
        """
        child = self._children.get(name)
        return child.poll() if child else None

    def pid(self, name: str) -> int:
        """The pid of a running process; 0 if it does not run. Raises KeyError."""
        process = processes.find_running(self.state.find_process(name))
        return process.pid if process else 0

    async def start(self, name: str, *, timeout: float = START_TIMEOUT) -> None:
        """Start a process that has ended, at the address it had; return when it is ready. Raises KeyError, ClusterError."""
        await self.restart([name], timeout=timeout)

    async def restart(
        self, names: Sequence[str], progress: StartProgress = SILENT_PROGRESS, *, timeout: float = START_TIMEOUT
    ) -> None:
        """Start processes that have ended, at the addresses they had; return when they are ready. Those that fail keep others
        back only where too few are left to serve these. What has been started stays. Raises KeyError, ClusterError; StartFailed
        at the end, with all failures."""
        for name in names:
            self.state.find_process(name)
        await self._wait_for_ports(names)
        self._replace_taken_ports(names, progress)
        failures: list[StartFailed] = []
        try:
            async with self._waiting.deadline(timeout):
                await self._restart_stages(names, failures, progress)
        except StartFailed as last:
            failures.append(last)
        if failures:
            raise join_errors(failures, hint="see what its log says, and try again; `pinnace status` shows what runs")

    async def _restart_stages(self, names: Sequence[str], failures: list[StartFailed], progress: StartProgress) -> None:
        """The lock is held only while a process is started: a wait for their start does not block `down`."""
        left: list[str] = []
        needed: Sequence[ProcessRecord] = ()

        def drop() -> None:
            for name in [name for name in left if not self.pid(name)]:
                left.remove(name)
                failures.append(self._exited_error(name))
            startup.require_quorum(needed)

        for stage in STAGES:
            here = [name for name in names if self.state.find_process(name).component in stage]
            if not here:
                continue
            await self._waiting.wait_until(partial(startup.check_quorum, needed), drop, progress)
            for name in here:
                try:
                    self.start_without_waiting([name])
                except StartFailed as failure:
                    failures.append(failure)
                else:
                    left.append(name)
            needed = self._processes_of_stage(stage)
        needed = ()
        await self._waiting.wait_until(
            lambda: startup.check_readiness(list(map(self.state.find_process, left))), drop, progress
        )
        if left:
            progress.done(f"{', '.join(left)} ready")

    def can_replace_by_successor(self, name: str) -> bool:
        """Whether `replace_by_successor` can replace the process. Raises KeyError."""
        record = self.state.find_process(name)
        return TAKE_OVER in record.plan.argv and processes.find_running(record) is not None

    async def replace_by_successor(self, name: str, *, timeout: float = START_TIMEOUT) -> None:
        """Replace a process by a successor that takes over its listeners. The process ends when the successor is ready. If
        the successor fails, the process continues. Raises KeyError, ClusterError, StartFailed."""
        with self.folder.locked():
            self._refresh()
            record = self.state.find_process(name)
            before = processes.find_running(record)
            if before is None:
                raise ClusterError(f"{name} does not run")
            anew = ProcessRecord(with_current_installation(record.plan))
            child = processes.spawn_process(anew.plan, self.folder.log(name), successor=True, launch=self._launch)
            try:
                if (process := procfs.identify_process(child.pid)) is not None:
                    anew = replace(anew, process=process)
                    async with asyncio.timeout(timeout):
                        while procfs.is_running(before) and child.poll() is None:  # noqa: ASYNC110 (a process)
                            await asyncio.sleep(processes.POLL)
                if child.poll() is not None:
                    raise startup.exited_during_start(name, child.returncode, self.folder)
            except BaseException as error:
                child.kill()
                child.wait()
                if isinstance(error, TimeoutError):
                    message = f"a successor of {name} was not ready within {timeout:g} s"
                    raise StartFailed(message, hint="the running process continues; see its log") from None
                raise
            if name in self._children:
                self._children[name].wait()
            self._children[name] = child
            self._state = self.state.with_record(anew)
            self.folder.write(self._state)

    def _processes_of_stage(self, stage: Sequence[str]) -> list[ProcessRecord]:
        return [record for record in self.state.processes if record.component in stage]

    def start_without_waiting(self, names: Sequence[str]) -> None:
        """Start processes that have ended, at the addresses they had, and do not wait for them. Raises KeyError,
        ClusterError."""
        with self.folder.locked():
            self._refresh()
            for name in names:
                if processes.find_running(self.state.find_process(name)):
                    raise ClusterError(f"{name} runs already")
                self._spawn_process(name)

    def change_plan(self, plan: ProcessPlan) -> None:
        """Change the plan of this process for its next start. Raises KeyError, and ClusterError as `start_without_waiting`."""
        with self.folder.locked():
            cluster_state = self.folder.read() or self.state
            self._check_identity(cluster_state)
            self._state = cluster_state.with_record(replace(cluster_state.find_process(plan.name), plan=plan))
            self.folder.write(self._state)

    def _refresh(self) -> None:
        """Reload the state, with the lock held. Raises NoCluster and FolderError."""
        cluster_state = self.folder.read()
        if cluster_state is None:
            raise NoCluster(f"the cluster in {self.folder.path} was taken down", hint="start one with `pinnace up`")
        self._check_identity(cluster_state)
        self._state = cluster_state

    async def _wait_for_ports(self, names: Sequence[str]) -> None:
        """Wait up to PORT_PATIENCE seconds for the ports of processes to start: the threads of a killed process release its
        sockets a moment after it has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PORT_PATIENCE):
                while any(self._taken_ports(self.state.find_process(name)) for name in names):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(PORT_POLL)

    def _taken_ports(self, record: ProcessRecord) -> list[str]:
        """Return the addresses of a process that has ended at which it cannot listen again."""
        addresses = listening_addresses(record.plan) if not processes.find_running(record) else ()
        return [item for item in addresses if not is_port_free(item, shared=record.plan.can_share_address(item))]

    def _replace_taken_ports(self, names: Sequence[str], progress: StartProgress) -> None:
        """Replace ports of processes to start that other programs use now, for example after a reboot. Raises StartFailed if
        running processes or other members of etcd depend on the old port.
        """
        with self.folder.locked():
            self._refresh()
            moved: dict[str, str] = {}
            for record in [self.state.find_process(name) for name in names]:
                for address in self._taken_ports(record):
                    if (hint := self._bound_to(address, record)) is not None:
                        message = f"{address}, an address of {record.name}, is in use by another program"
                        raise StartFailed(message, hint=hint)
                    moved[address] = f"127.0.0.1:{self._ports.next()}"
            if not moved:
                return
            before = [*self.state.endpoints, *([self.gateway] if self.gateway else [])]
            for record in self.state.processes:
                self._state = self.state.with_record(replace(record, plan=record.plan.with_addresses(moved)))
            self.folder.write(self.state)
            with self.folder.translate_os_errors():
                certificates.update_addresses(pki_folder(self.spec.data_dir), {old: moved.get(old, old) for old in before})
                self._write_kubeconfig()
        for old, new in moved.items():
            progress.warn(f"{old} is in use by another program: using {new} instead")

    def _provide_certificates(self) -> None:
        """Raises OSError."""
        pki = pki_folder(self.spec.data_dir)
        certificates.create_certificates(pki, self.endpoints, fleet_node_names(self.spec), local=True, gateway=self.gateway)

    def _write_kubeconfig(self) -> None:
        """Raises OSError."""
        if self.gateway:
            certificates.write_kubeconfig(kubeconfig_file(self.spec.data_dir), pki_folder(self.spec.data_dir), self.config)

    def _bound_to(self, address: str, owner: ProcessRecord) -> str | None:
        """A hint for an address that cannot be changed now. None: it can be changed."""
        if not ADDRESS.fullmatch(address):
            return "the files of pods name it: end that program (`ss -ltnp` shows it), and start again"
        if (
            owner.component == ETCD
            and len(self.state.processes_of(ETCD)) > 1
            and address not in (owner.plan.address, owner.plan.http)
        ):
            return "members of etcd know each other by it: end that program (`ss -ltnp` shows it), and start again"
        others = [record for record in self.state.processes if record.name != owner.name and processes.find_running(record)]
        if any(record.plan.mentions_address(address) for record in others):
            return "processes that run know it: `pinnace stop`, and then `pinnace start`, which chooses another one"
        return None

    def _claim_folder(self, binary: EtcdBinary, made: Sequence[Path], progress: StartProgress) -> None:
        """Lock the directory for this cluster. Raises AlreadyRunning if it belongs to another one."""
        if (cluster_state := self.folder.read()) is not None:
            raise _already_running_error(self.folder.path, cluster_state)
        processes.refuse_running(self.folder.path)
        made = self.folder.remove_failed_start() or made
        cwd = Path.cwd()
        given = inputs.with_environment(self.spec, os.environ)
        gathered = inputs.read_inputs(given, os.environ, cwd)
        low_ports = procfs.can_listen(HTTPS_PORT)
        network = choose_service_network((HTTPS_PORT if low_ports else UNPRIVILEGED_PORT,))
        dns = str(ip_network(network)[DNS_INDEX])
        has_dns_port = procfs.can_listen(DNS_PORT) and is_port_free(f"{dns}:{DNS_PORT}")
        plans = plan_processes(
            self.spec,
            binary,
            self._ports.next,
            self._fittings,
            os.sched_getaffinity(0),
            gathered,
            low_ports=low_ports,
            service_network=network if self.spec.runtime == PROCESS else SERVICE_NETWORK,
            pod_dns=dns if self.spec.runtime == PROCESS and has_dns_port else "",
        )
        for warning in (*gathered.notes, *inputs.overruled_variables(plans, os.environ)):
            progress.warn(warning)
        self.spec = inputs.with_absolute_paths(given, cwd)
        self._state = replace(initial_state(self.spec, plans, made, time.time()), digests=inputs.file_digests(given, cwd))
        self.folder.claim_folder(self._state, gathered.files)

    async def _start_all(self, progress: StartProgress, with_etcd: Hook | None) -> None:
        etcd, *others = STAGES
        await self._start_stage(etcd, progress)
        if with_etcd:
            await with_etcd(self.state)
        for stage in others:
            await self._start_stage(stage, progress)
        all_run = partial(self._require_all_running, [record.name for record in self.state.processes])
        async with self.client() as client:
            if self.spec.nodes:
                await self._waiting.wait_until(
                    lambda: startup.check_node_count(client, self.spec.nodes), all_run, progress, poll=NODES_POLL
                )
                progress.done(f"{self.spec.nodes:,} nodes are Ready")
            if self.spec.schedulers:
                await self._waiting.wait_until(lambda: startup.check_leader(client), all_run, progress)
                if election := await view.try_scheduler_leader(client):
                    progress.done(f"{election.holder} leads (token {election.token})")

    async def _start_stage(self, components: Sequence[str], progress: StartProgress) -> None:
        names = [record.name for record in self._processes_of_stage(components)]
        for name in names:
            self._spawn_process(name)
        await self._waiting.wait_until(
            lambda: startup.check_readiness(self._processes_of_stage(components)),
            partial(self._require_all_running, names),
            progress,
        )
        if names:
            progress.done(f"{', '.join(names)} ready")

    def _spawn_process(self, name: str) -> None:
        self._check_data(self.state.find_process(name))
        if name in self._children:
            self._children[name].wait()  # it has exited and only needs to be reaped
        before = self.state.find_process(name)
        anew = ProcessRecord(with_current_installation(before.plan))
        if anew != before:  # until the record is written, an exited process would hide this one
            self._state = self.state.with_record(anew)
            self.folder.write(self._state)
        child = self._children[name] = processes.spawn_process(anew.plan, self.folder.log(name), launch=self._launch)
        process = procfs.identify_process(child.pid)
        if process is None:
            raise self._exited_error(name)
        self._state = replace(self.state.with_process(name, process), stopped=False)
        self.folder.write(self._state)

    def _check_data(self, record: ProcessRecord) -> None:
        """Raises StartFailed if the data of a single etcd is missing, because the cluster would start without its objects."""
        served = any(server.process for server in self.state.processes_of(APISERVER))  # etcd was ready once
        if record.component == ETCD and served and len(self.state.processes_of(ETCD)) == 1 and _lacks_data(record):
            raise StartFailed(
                f"etcd's data is gone: {etcd_folder(self.folder.path)} has none",
                hint="restore it, or start over with `pinnace up --fresh`",
            )

    def _require_all_running(self, names: Sequence[str]) -> None:
        """Raises StartFailed."""
        for name in names:
            if not self.pid(name):
                raise self._exited_error(name)

    def _exited_error(self, name: str) -> StartFailed:
        return startup.exited_during_start(name, self.exit_code(name), self.folder)

    async def _stop_and_remove(self, grace: float = processes.GRACE, *, keep_logs: bool = False) -> RemovalResult:
        killed = await processes.stop_processes(self.state.processes, grace)
        for child in self._children.values():
            child.wait()
        await processes.kill_pod_containers(self.folder.pod_directories())
        return RemovalResult(killed, self.folder.remove(self.state, keep_logs=keep_logs))


def no_cleanup() -> None:
    pass


def _already_running_error(folder: Path, state: ClusterState) -> AlreadyRunning:
    named = f"--data-dir {quote(str(folder))}"
    pids = [process.pid for process in map(processes.find_running, state.processes) if process]
    runs = f"runs in {folder} already (pid {pids[0]}{', ...' * (len(pids) > 1)})" if pids else f"is in {folder} already"
    hint = f"`pinnace start {named}` starts its stopped processes, `pinnace down {named}` removes it; or use another --data-dir"
    return AlreadyRunning(f"a cluster {runs}", hint=hint)


def _has_data(record: ProcessRecord) -> bool:
    """Whether this member of etcd has data."""
    return any(Path(store, "member").exists() for store in etcd_data_dir(record.plan))


def _lacks_data(record: ProcessRecord) -> bool:
    return bool(etcd_data_dir(record.plan)) and not _has_data(record)


def find_etcd_binary(progress: StartProgress) -> EtcdBinary:
    """Return the etcd of this machine. Raises ClusterError."""
    try:
        binary = find_etcd()
    except EtcdMissing as error:
        raise ClusterError(str(error), hint=error.hint) from error
    if binary.fallback:
        version = ".".join(map(str, binary.version))
        progress.warn(f"using etcd {version}, because no better version was found: it can lose writes when it is killed")
    return binary
