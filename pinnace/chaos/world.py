"""What faults lay their hands on: the cluster, the links between its processes, and etcd behind its back."""

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Callable

from pinnace.chaos.clocks import Clocks
from pinnace.client.client import Client
from pinnace.cluster import processes, startup, view
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.helper import Helper, HelperError
from pinnace.cluster.links import Links
from pinnace.cluster.spec import ETCD, SCHEDULER
from pinnace.runtime import procfs

LEADER, STANDBY, ETCD_LEADER, ETCD_FOLLOWER = "leader", "standby", "etcd-leader", "etcd-follower"
"""Targets that are processes by what they are at that moment, not by name."""
READY_TIMEOUT = 60.0
END_TIMEOUT = 25.0
"""Seconds; our processes give themselves 11."""
POLL = 0.1
AS_ASKED = (0, -signal.SIGTERM, -signal.SIGKILL)
"""Exit codes of a process that was asked to end and did. One that is asked before it listens ends by the signal."""


class NotPossible(Exception):
    """The fault cannot happen now; the text says why."""


class World:
    """`recorded`: the revision up to which the recorder has etcd's history."""

    def __init__(
        self,
        cluster: Cluster,
        links: Links,
        surgeon: Helper,
        client: Client,
        clocks: Clocks | None,
        recorded: Callable[[], int],
    ) -> None:
        self.cluster = cluster
        self.links = links
        self.surgeon = surgeon
        self.client = client
        self.clocks = clocks
        self.recorded = recorded
        self.astray: list[str] = []
        """Processes that did not end when they were asked to, failed while they did, or ended and were not asked."""
        self._downed: set[str] = set()
        self._reviving: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find(self, target: str) -> str:
        """The name of the process that a target is now. Raises NotPossible."""
        names = [record.name for record in self.cluster.state.processes]
        if target in names:
            return target
        if target in (LEADER, STANDBY):
            leader = await self._leader()
            running = [name for name in self._of(SCHEDULER) if name != leader and self.cluster.pid(name)]
            found = leader if target == LEADER else next(iter(running), None)
        else:
            leader = await self._etcd_leader()
            running = [name for name in self._of(ETCD) if name != leader and self.cluster.pid(name)]
            found = leader if target == ETCD_LEADER else next(iter(running), None)
        if found is None:
            raise NotPossible(f"there is no {target} now")
        return found

    def down(self, name: str, number: signal.Signals) -> None:
        """Ends a process; until `revive` nobody else starts it. Raises NotPossible: one that has ended already crashed, and is
        left to whoever looks for crashes."""
        self.send(name, number)
        self._downed.add(name)

    def send(self, name: str, number: signal.Signals) -> None:
        """Raises NotPossible."""
        try:
            self.cluster.kill(name, number)
        except ClusterError as error:
            raise NotPossible(error.message) from error

    def resume(self, name: str) -> None:
        """Lets a process that was stopped go on; one that has ended since is left alone."""
        if process := processes.running(self.cluster.state.find(name)):
            procfs.send_signal(process, signal.SIGCONT)

    async def revive(self, name: str) -> None:
        """Starts a process that was taken down, if it does not run. Does not wait until it is ready."""
        async with self._reviving[name]:
            if name in self._downed:
                await self._until_gone(name)
                await self.start(name)
                self._downed.discard(name)

    async def _until_gone(self, name: str) -> None:
        process = self.cluster.state.find(name).process
        ending = [process] if process else []
        if not await processes.gone(ending, END_TIMEOUT):
            self.astray.append(f"{name} had not ended {END_TIMEOUT:g} s after it was asked to")
            procfs.send_signal(ending[0], signal.SIGKILL)
            await processes.gone(ending, END_TIMEOUT)
        code = self.cluster.exit_code(name)
        if code is not None and code not in AS_ASKED:
            self.astray.append(f"{name} was asked to end, and failed then: exit code {code}; its log says why")

    async def start(self, name: str) -> None:
        """Starts a process that has ended, and does not wait until it is ready. Tries for a while: another program may have
        taken its address meanwhile."""
        if self.clocks:
            self.clocks.sweep()
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            try:
                self.cluster.revive([name])
                return
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL)

    async def ready(self, name: str) -> bool:
        """Waits until it is. False: not in time."""
        deadline = time.monotonic() + READY_TIMEOUT
        while await startup.readiness([self.cluster.state.find(name)]):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL)
        return True

    def crashed(self) -> list[tuple[str, int]]:
        """The processes that have ended though nobody here has asked them to, with their exit codes."""
        ended = sorted(set(self.cluster.ended()) - self._downed)
        return [(name, code) for name in ended if (code := self.cluster.exit_code(name)) is not None]

    async def heal(self) -> None:
        """Undoes what faults may have left: links pass, clocks are right, nothing is frozen or down, etcd takes writes."""
        await self.links.heal()
        if self.clocks:
            self.clocks.heal()
        for record in self.cluster.state.processes:
            await self.revive(record.name)
            self.resume(record.name)
        await self.clear_alarms()

    async def clear_alarms(self) -> None:
        """Lets etcd take writes again, as soon as it has a leader. Raises HelperError when it has none for long."""
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            try:
                await self.surgeon.ask("alarm", on=False)
                return
            except HelperError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL)

    def _of(self, component: str) -> list[str]:
        return [record.name for record in self.cluster.state.of(component)]

    async def _leader(self) -> str | None:
        election = await view.try_leader(self.client)
        return election.holder if election else None

    async def _etcd_leader(self) -> str | None:
        address = await self.surgeon.ask("leader")
        return next((record.name for record in self.cluster.state.of(ETCD) if record.plan.address == address), None)
