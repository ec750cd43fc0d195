"""A local cluster of real processes: start it, look at it, kill parts of it, start them again, take it down.

    up -> state written -> etcd -> API servers -> schedulers, kubelets, controllers -> nodes Ready, a leader -> (runs) -> down

A process is in the state from when it is planned, and one that has ended is struck out before another starts in its place. So
whatever dies at whatever moment, this program included, `down` finds what still runs, written down or not. A start that fails
or is cancelled takes down what it has started, however often it is cancelled meanwhile.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from pinnace.client.client import Client
from pinnace.client.config import ClientConfig
from pinnace.client.connection import Connection
from pinnace.cluster import certificates, processes, startup, strays, view
from pinnace.cluster.errors import AlreadyRunning, ClusterError, FolderError, NoCluster, StartFailed, joined
from pinnace.cluster.etcd import EtcdBinary, EtcdMissing, find_etcd
from pinnace.cluster.fittings import PLAIN, Fittings
from pinnace.cluster.folder import Folder
from pinnace.cluster.ports import Ports
from pinnace.cluster.progress import SILENT, Progress
from pinnace.cluster.spec import (
    APISERVER,
    CONTROLLERS,
    ETCD,
    KUBELET,
    SCHEDULER,
    ClusterSpec,
    Plan,
    by_us,
    fleets,
    pki_folder,
    plan,
)
from pinnace.cluster.state import ClusterState, ProcessRecord, planned
from pinnace.cluster.view import ProcessStatus
from pinnace.pki.folder import ADMIN
from pinnace.runtime import procfs
from pinnace.runtime.tls import TlsFiles

START_TIMEOUT = 60.0
NODES_POLL = 0.2
STAGES = ((ETCD,), (APISERVER,), (SCHEDULER, CONTROLLERS, KUBELET))
"""What starts together, once what it needs is ready."""
Hook = Callable[[ClusterState], Awaitable[None]]


class Cluster:
    """One cluster in one folder. Make one from a spec to start it, or `load` the one that is there."""

    def __init__(self, spec: ClusterSpec, fittings: Fittings = PLAIN) -> None:
        self.spec = spec
        self._fittings = fittings
        self.folder = Folder(spec.data_dir)
        self._state: ClusterState | None = None
        self._ports = Ports()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._waiting = startup.Waiting(self.folder)

    @classmethod
    def load(cls, data_dir: Path) -> "Cluster":
        """The cluster in this folder, whether or not its processes still run. Raises NoCluster, FolderError."""
        state = Folder(data_dir).read()
        if state is None:
            raise NoCluster(
                f"there is no cluster in {data_dir}", hint="start one with `pinnace up`, or name another folder with --data-dir"
            )
        cluster = cls(replace(state.spec, data_dir=data_dir))
        cluster._state = state
        return cluster

    def reloaded(self) -> "Cluster":
        """This cluster, as it is by now. Raises NoCluster when it is gone, also if there is another one in its folder."""
        found = Cluster.load(self.spec.data_dir)
        self._expect(found.state)
        return found

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
    def tls(self) -> TlsFiles:
        """Of somebody who may do everything."""
        return certificates.files(pki_folder(self.spec.data_dir), ADMIN)

    @property
    def etcd_tls(self) -> TlsFiles:
        """Of an API server, before etcd."""
        return certificates.etcd_client(pki_folder(self.spec.data_dir))

    @property
    def config(self) -> ClientConfig:
        """How its administrator finds it."""
        return ClientConfig(tuple(self.endpoints), data_dir=self.spec.data_dir, tls=self.tls)

    async def up(self, progress: Progress = SILENT, *, timeout: float = START_TIMEOUT, with_etcd: Hook | None = None) -> None:
        """Returns when all processes are ready, all nodes are Ready and a scheduler leads. `with_etcd` is called when etcd is
        ready and nothing else runs yet. Raises ClusterError; then nothing is left behind."""
        binary = _etcd(progress)
        made = self.folder.create()
        try:
            with self.folder.locked():
                await self._claim(binary, made, progress)
                try:
                    with self.folder.usable():
                        certificates.provide(pki_folder(self.spec.data_dir), self.endpoints, fleets(self.spec), local=True)
                    async with self._waiting.deadline(timeout):
                        await self._start_all(progress, with_etcd)
                except BaseException as error:
                    await self._to_the_end(self._stop_and_remove())
                    if isinstance(error, StartFailed):
                        error.hint = error.hint or "nothing was left running: see what its log says, and try again"
                    raise
        except BaseException:
            self.folder.prune(self._state.made if self._state else made)
            raise

    async def down(self, grace: float = processes.GRACE) -> list[str]:
        """Ends all processes and removes all that the cluster has left. The names of processes that had to be killed. Raises
        NoCluster when there is another one in its folder. Where it is cancelled, what is left is still a cluster: to be taken
        down, or started again."""
        with self.folder.locked():
            found = self.folder.read() or self.state
            self._expect(found)
            self._state = found
            killed = await self._stop_and_remove(grace)
        self.folder.prune(self.state.made)
        return killed

    async def end(self) -> None:
        """`down` for whoever cleans up: a cancellation does not stop it, it only ends without grace."""
        await self._to_the_end(self.down())

    async def _to_the_end(self, taking_down: Coroutine[Any, Any, object]) -> None:
        """Nobody else may know of this cluster, so it must not be left half taken down; but whoever interrupts a clean-up does
        not want to wait: then all processes are killed at once."""
        work = asyncio.ensure_future(taking_down)
        cancelled = False
        while not work.done():
            try:
                await asyncio.wait((work,))
            except asyncio.CancelledError:
                cancelled = True
                processes.kill(self.state.processes)
        work.result()
        if cancelled:
            raise asyncio.CancelledError

    def _expect(self, found: ClusterState) -> None:
        """A folder outlives its cluster: what is in it now may be another one, started by somebody else. Raises NoCluster."""
        if found.created != self.state.created:
            raise NoCluster(
                f"the cluster in {self.folder.path} has been taken down, and another one started there",
                hint="`pinnace status` shows it",
            )

    async def status(self) -> list[ProcessStatus]:
        async with self.client() as client:
            return await view.status(self.state, client)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of its API servers. Raises FolderError when its certificates are gone."""
        try:
            connection = Connection(self.endpoints, tls=self.tls)
        except OSError as error:
            raise FolderError(
                f"the certificates in {pki_folder(self.spec.data_dir)} cannot be used: {error.strerror or error}",
                hint="was a part of the folder removed? put it back: `pinnace down` would end the cluster with all that it has",
            ) from error
        try:
            yield Client(connection)
        finally:
            await connection.close()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to one process. Raises KeyError, or ClusterError when it does not run."""
        process = processes.running(self.state.find(name))
        if process is None or not procfs.send_signal(process, number):
            raise ClusterError(f"{name} does not run")

    def ended(self) -> list[str]:
        """The processes that do not run, in the order in which they start."""
        return [record.name for record in self.state.processes if not processes.running(record)]

    def exit_code(self, name: str) -> int | None:
        """Of a process that this cluster has started and that has ended, negative for the signal that ended it. None: it runs,
        or somebody else has started it."""
        child = self._children.get(name)
        return child.poll() if child else None

    def pid(self, name: str) -> int:
        """Of a process that runs; 0 when it does not. Raises KeyError."""
        process = processes.running(self.state.find(name))
        return process.pid if process else 0

    async def start(self, name: str, *, timeout: float = START_TIMEOUT) -> None:
        """Starts a process that has ended, at the address it had; returns when it is ready. Raises KeyError, ClusterError."""
        await self.restart([name], timeout=timeout)

    async def restart(self, names: Sequence[str], progress: Progress = SILENT, *, timeout: float = START_TIMEOUT) -> None:
        """Starts processes that have ended, at the addresses they had; returns when they are ready. Those that fail keep others
        back only where too few are left to serve these. What has been started stays. Raises KeyError, ClusterError; StartFailed
        at the end, with all failures."""
        for name in names:
            self.state.find(name)
        failures: list[StartFailed] = []
        try:
            async with self._waiting.deadline(timeout):
                await self._restart_stages(names, failures, progress)
        except StartFailed as last:
            failures.append(last)
        if failures:
            raise joined(failures, hint="see what its log says, and try again; `pinnace status` shows what runs")

    async def _restart_stages(self, names: Sequence[str], failures: list[StartFailed], progress: Progress) -> None:
        """The lock is held only while a process is started: whoever waits for them does not keep `down` out."""
        left: list[str] = []
        needed: Sequence[ProcessRecord] = ()

        def drop() -> None:
            for name in [name for name in left if not self.pid(name)]:
                left.remove(name)
                failures.append(self._ended(name))
            startup.enough(needed)

        for stage in STAGES:
            here = [name for name in names if self.state.find(name).component in stage]
            if not here:
                continue
            await self._waiting.until(partial(startup.service, needed), drop, progress)
            for name in here:
                try:
                    self.revive([name])
                except StartFailed as failure:
                    failures.append(failure)
                else:
                    left.append(name)
            needed = self._staged(stage)
        needed = ()
        await self._waiting.until(lambda: startup.readiness(list(map(self.state.find, left))), drop, progress)
        if left:
            progress.done(f"{', '.join(left)} ready")

    def _staged(self, stage: Sequence[str]) -> list[ProcessRecord]:
        return [record for record in self.state.processes if record.component in stage]

    def revive(self, names: Sequence[str]) -> None:
        """Starts processes that have ended, at the addresses they had, and does not wait for them. Raises KeyError,
        ClusterError."""
        with self.folder.locked():
            found = self.folder.read()
            if found is None:
                raise NoCluster(f"the cluster in {self.folder.path} has been taken down", hint="start one with `pinnace up`")
            self._expect(found)
            self._state = found
            for name in names:
                if processes.running(self.state.find(name)):
                    raise ClusterError(f"{name} runs already")
                self._spawn(name)

    def replan(self, plan: Plan) -> None:
        """From its next start on, the process of this name is started so. Raises KeyError, and ClusterError as `revive`."""
        with self.folder.locked():
            found = self.folder.read() or self.state
            self._expect(found)
            self._state = found.with_record(replace(found.find(plan.name), plan=plan))
            self.folder.write(self._state)

    async def _claim(self, binary: EtcdBinary, made: Sequence[Path], progress: Progress) -> None:
        """Makes the folder this cluster's. A state whose processes are all dead is stale, and is replaced; containers that are
        processes outlive their kubelet, and are ended."""
        stale = self.folder.read()
        if stale is not None:
            pids = [str(process.pid) for process in map(processes.running, stale.processes) if process]
            if pids:
                raise _already_running(self.folder.path, pids, dead=len(stale.processes) - len(pids))
            await processes.end_pods(self.folder.pods())
            self.folder.remove()
            progress.done(f"removed what a cluster whose processes had all ended left in {self.folder.path}")
        strays.refuse(self.folder.path)
        made = made or (stale.made if stale else ())
        plans = plan(self.spec, binary, self._ports.next, self._fittings, os.sched_getaffinity(0))
        self._state = planned(self.spec, plans, made, time.time())
        self.folder.claim(self._state)

    async def _start_all(self, progress: Progress, with_etcd: Hook | None) -> None:
        etcd, *others = STAGES
        await self._start_stage(etcd, progress)
        if with_etcd:
            await with_etcd(self.state)
        for stage in others:
            await self._start_stage(stage, progress)
        all_run = partial(self._all_run, [record.name for record in self.state.processes])
        async with self.client() as client:
            if self.spec.nodes:
                await self._waiting.until(lambda: startup.nodes(client, self.spec.nodes), all_run, progress, poll=NODES_POLL)
                progress.done(f"{self.spec.nodes:,} nodes are Ready")
            if self.spec.schedulers:
                await self._waiting.until(lambda: startup.leader(client), all_run, progress)
                if election := await view.try_leader(client):
                    progress.done(f"{election.holder} leads (token {election.token})")

    async def _start_stage(self, components: Sequence[str], progress: Progress) -> None:
        names = [record.name for record in self._staged(components)]
        for name in names:
            self._spawn(name)
        await self._waiting.until(lambda: startup.readiness(self._staged(components)), partial(self._all_run, names), progress)
        if names:
            progress.done(f"{', '.join(names)} ready")

    def _spawn(self, name: str) -> None:
        if name in self._children:
            self._children[name].wait()  # it has ended: this only reaps it
        before = self.state.find(name)
        anew = ProcessRecord(by_us(before.plan))
        if anew != before:  # one that has ended would hide this one, until it is written down
            self._state = self.state.with_record(anew)
            self.folder.write(self._state)
        child = self._children[name] = processes.spawn(anew.plan, self.folder.log(name))
        process = procfs.identify(child.pid)
        if process is None:
            raise self._ended(name)
        self._state = self.state.with_process(name, process)
        self.folder.write(self._state)

    def _all_run(self, names: Sequence[str]) -> None:
        """Raises StartFailed."""
        for name in names:
            if not self.pid(name):
                raise self._ended(name)

    def _ended(self, name: str) -> StartFailed:
        return startup.ended(name, self.exit_code(name), self.folder)

    async def _stop_and_remove(self, grace: float = processes.GRACE) -> list[str]:
        killed = await processes.stop(self.state.processes, grace)
        for child in self._children.values():
            child.wait()
        await processes.end_pods(self.folder.pods())
        self.folder.remove()
        return killed


def _already_running(folder: Path, pids: Sequence[str], *, dead: int) -> AlreadyRunning:
    several = len(pids) > 1
    named = f"--data-dir {quote(str(folder))}"
    again = f"start what has ended again with `pinnace restart {named}`, " if dead else ""
    return AlreadyRunning(
        f"a cluster of {len(pids)} process{'es' * several} (pid {pids[0]}{', ...' * several}) runs in {folder} already",
        hint=f"{again}stop it with `pinnace down {named}`, or choose another folder with --data-dir",
    )


def _etcd(progress: Progress) -> EtcdBinary:
    try:
        binary = find_etcd()
    except EtcdMissing as error:
        raise ClusterError(str(error), hint=error.hint) from error
    if binary.fallback:
        version = ".".join(map(str, binary.version))
        progress.warn(f"etcd {version} is used for want of a better one: it can lose writes when it is killed")
    return binary
