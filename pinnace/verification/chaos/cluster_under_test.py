"""The environment of faults: the cluster, the links between its processes, and direct access to etcd."""

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from pinnace.client.client import Client
from pinnace.cluster import processes, startup, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.links import HelperError, HelperProcess, Links
from pinnace.cluster.spec import ETCD, SCHEDULER, ProcessPlan
from pinnace.runtime import procfs
from pinnace.verification.chaos.host import TmpfsDisk, WallClocks
from pinnace.verification.chaos.log_scan import ErrorExcuse

LEADER, STANDBY, ETCD_LEADER, ETCD_FOLLOWER = "leader", "standby", "etcd-leader", "etcd-follower"
"""Targets that are resolved to a process when the fault starts."""
READY_TIMEOUT = 60.0
END_TIMEOUT = 25.0
"""Seconds within which a process must end. The components stop within 11 seconds."""
POLL = 0.1
AS_ASKED = (0, -signal.SIGTERM, -signal.SIGKILL)
"""The exit codes of a process that was asked to end. A process that has not installed its handlers is ended by the signal."""


class NotPossible(Exception):
    """The fault is not possible at the moment. The message is the reason."""


class ClusterUnderTest:
    """The cluster as seen by faults. `recorded` returns the revision up to which etcd's history is recorded."""

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        surgeon: HelperProcess,
        client: Client,
        clocks: WallClocks | None,
        recorded: Callable[[], int],
        disks: Mapping[str, TmpfsDisk] | None = None,
    ) -> None:
        self.cluster = cluster
        self.links = links
        self.surgeon = surgeon
        self.client = client
        self.clocks = clocks
        self.recorded = recorded
        self.disks = disks or {}
        """Disks by name of the etcd member whose data they contain."""
        self.unstoppable_processes: list[str] = []
        """Processes that did not stop on request, failed while stopping, or ended unexpectedly."""
        self.excuses: list[ErrorExcuse] = []
        """Periods in which a process was allowed to log errors and to end."""
        self._excused: dict[str, list[tuple[float, bool]]] = {}
        """By process: the start of each active excuse, and whether the process may end."""
        self._plans: dict[str, ProcessPlan] = {}
        """The original plans of processes that run with a different plan."""
        self._downed: set[str] = set()
        self._reviving: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def resolve_target(self, target: str) -> str:
        """Return the name of the process that a target refers to. Raises NotPossible."""
        names = [record.name for record in self.cluster.state.processes]
        if target in names:
            return target
        if target in (LEADER, STANDBY):
            leader = await self._find_leader()
            running = [name for name in self._running_processes(SCHEDULER) if name != leader and self.cluster.pid(name)]
            result = leader if target == LEADER else next(iter(running), None)
        else:
            leader = await self._find_etcd_leader()
            running = [name for name in self._running_processes(ETCD) if name != leader and self.cluster.pid(name)]
            result = leader if target == ETCD_LEADER else next(iter(running), None)
        if result is None:
            raise NotPossible(f"there is no {target}")
        return result

    def end_process(self, name: str, number: signal.Signals) -> None:
        """End a process. Only `restart_stopped_process` restarts it. Raises NotPossible if the process has already ended,
        because that is a crash."""
        self.send_signal(name, number)
        self._downed.add(name)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal. Raises NotPossible."""
        try:
            self.cluster.kill(name, number)
        except ClusterError as error:
            raise NotPossible(error.message) from error

    def resume_process(self, name: str) -> None:
        """Resume a stopped process. Does nothing if it has ended."""
        if process := processes.find_running(self.cluster.state.find_process(name)):
            procfs.send_signal(process, signal.SIGCONT)

    async def restart_stopped_process(self, name: str) -> None:
        """Start a process that was taken down, if it is not running. Does not wait until it is ready."""
        async with self._reviving[name]:
            if name in self._downed:
                await self.wait_until_exited(name)
                await self.start_process(name)
                self._downed.discard(name)

    async def restart_with_plan(self, name: str, plan: ProcessPlan) -> None:
        """Restart a process with a different plan. Does not wait until it is ready. Raises NotPossible."""
        original = self.cluster.state.find_process(name).plan
        self.end_process(name, signal.SIGKILL)
        self._plans.setdefault(name, original)
        self.cluster.change_plan(plan)
        await self.restart_stopped_process(name)

    async def restore_original_plan(self, name: str) -> None:
        """Undo `restart_with_plan`: restart the process with its original plan. Does not wait until it is ready."""
        original = self._plans.pop(name, None)
        if original is None:
            return
        if self.cluster.pid(name):
            self.end_process(name, signal.SIGKILL)
        self._downed.add(name)
        self.cluster.change_plan(original)
        await self.restart_stopped_process(name)

    def allow_errors(self, name: str, *, may_end: bool) -> None:
        """Allow the process to log errors until `end_excuse`, because a fault takes its resources. With `may_end`, the process
        may also end. Excuses of several faults nest: each requires one `end_excuse`."""
        self._excused.setdefault(name, []).append((time.time(), may_end))

    def allow_log_errors(self, name: str, since: float) -> None:
        """Allow errors in a log from `since` (Unix seconds) until now, for a process that is not part of the cluster."""
        self.excuses.append(ErrorExcuse(name, since, time.time()))

    async def end_excuse(self, name: str) -> bool:
        """End the oldest excuse of the process, and restart the process if it has ended. Return whether it had ended."""
        if not self._excused.get(name):
            return False
        began, may_end = self._excused[name].pop(0)
        self.excuses.append(ErrorExcuse(name, began, time.time(), may_end))
        if self.cluster.pid(name) or name in self._downed:
            return False
        await self.start_process(name)
        return True

    async def wait_until_exited(self, name: str) -> None:
        process = self.cluster.state.find_process(name).process
        ending = [process] if process else []
        if not await processes.wait_ended(ending, END_TIMEOUT):
            self.unstoppable_processes.append(f"{name} did not stop within {END_TIMEOUT:g} s")
            procfs.send_signal(ending[0], signal.SIGKILL)
            await processes.wait_ended(ending, END_TIMEOUT)
        code = self.cluster.exit_code(name)
        if code is not None and code not in AS_ASKED:
            self.unstoppable_processes.append(f"{name} failed while it was stopping: exit code {code}; see its log")

    async def start_process(self, name: str) -> None:
        """Start a process that has ended, without waiting until it is ready. Retries for READY_TIMEOUT, because another program
        may temporarily use its address."""
        if self.clocks:
            self.clocks.remove_stale_files()
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            try:
                self.cluster.start_without_waiting([name])
                return
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL)

    async def wait_until_ready(self, name: str) -> bool:
        """Wait until the process is ready. Return False on timeout."""
        deadline = time.monotonic() + READY_TIMEOUT
        while await startup.check_readiness([self.cluster.state.find_process(name)]):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL)
        return True

    async def wait_for_all_ready(self) -> list[str]:
        """Wait until all processes are ready. Return the names of those that are not ready at the timeout."""
        names = [record.name for record in self.cluster.state.processes]
        ready = await asyncio.gather(*map(self.wait_until_ready, names))
        return [name for name, well in zip(names, ready, strict=True) if not well]

    def find_crashed_processes(self) -> list[tuple[str, int]]:
        """Return the name and exit code of each process that ended without a request and without an excuse."""
        return [(name, code) for name, code in self._exited_processes() if not self._is_exit_excused(name)]

    def find_excused_exits_to_restart(self) -> list[str]:
        """Return processes that ended during an expired excuse. No fault will restart them."""
        return [name for name, _ in self._exited_processes() if not self._excused.get(name) and self._is_exit_excused(name)]

    def _exited_processes(self) -> list[tuple[str, int]]:
        ended = sorted(set(self.cluster.stopped_processes()) - self._downed)
        return [(name, code) for name in ended if (code := self.cluster.exit_code(name)) is not None]

    def _is_exit_excused(self, name: str) -> bool:
        """Compare the end of the process with its excuses. The last write to its log approximates the time of its end."""
        if any(may_end for _, may_end in self._excused.get(name, ())):
            return True
        try:
            ended = self.cluster.folder.log(name).stat().st_mtime
        except OSError:
            return False
        return any(excuse.process == name and excuse.may_end and excuse.covers(ended) for excuse in self.excuses)

    async def undo_all_faults(self) -> None:
        """Undo the effects of all faults: links, clocks, disks, frozen and stopped processes, changed plans, and etcd's
        alarms."""
        await self.links.reset_links()
        if self.clocks:
            self.clocks.reset_offsets()
        for disk in self.disks.values():
            await disk.restore_size()
        for record in self.cluster.state.processes:
            await self.restore_original_plan(record.name)
            while self._excused.get(record.name):
                await self.end_excuse(record.name)
            await self.restart_stopped_process(record.name)
            self.resume_process(record.name)
        await self.clear_alarms()

    async def clear_alarms(self) -> None:
        """Clear etcd's alarms as soon as it has a leader. Raises HelperError if it has none for READY_TIMEOUT."""
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            try:
                await self.surgeon.request_result("alarm", on=False)
                return
            except HelperError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL)

    def _running_processes(self, component: str) -> list[str]:
        return [record.name for record in self.cluster.state.processes_of(component)]

    async def _find_leader(self) -> str | None:
        election = await view.try_scheduler_leader(self.client)
        return election.holder if election else None

    async def _find_etcd_leader(self) -> str | None:
        address = await self.surgeon.request_result("leader")
        return next((record.name for record in self.cluster.state.processes_of(ETCD) if record.plan.address == address), None)
