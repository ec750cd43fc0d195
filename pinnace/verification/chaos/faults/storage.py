"""Faults of etcd other than process faults, injected through direct access: `python -m
pinnace.apiserver.storage.etcd.surgery`."""

import asyncio
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

from pinnace.cluster.links import HelperError
from pinnace.verification.chaos.cluster_under_test import ETCD_FOLLOWER, ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults.base import MeasuringFault, ProcessFault

JOIN_TIMEOUT = 30.0
"""Seconds within which a removed member must have rejoined. etcd refuses for about 5 s after members were disconnected."""
POLL = 0.25
EXISTING = "--initial-cluster-state=existing"


class _EtcdOperation:
    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        self._under_test = under_test
        self.details = ""

    async def undo(self) -> None:
        """Nothing to undo."""

    async def _ask(self, do: str, **fields: object) -> None:
        try:
            await self._under_test.surgeon.request_result(do, **fields)
        except HelperError as error:
            raise NotPossible(f"etcd: {error}") from error


class EtcdCompaction(_EtcdOperation):
    """The history is compacted up to the recorded revision, and never beyond. Watches that are behind must list again."""

    async def inject(self) -> None:
        revision = self._under_test.recorded()
        if revision < 1:
            raise NotPossible("nothing has been recorded")
        self.details = f"revision {revision}"
        await self._ask("compact", revision=revision)


class EtcdLeaderTransfer(_EtcdOperation):
    """etcd's leader transfers leadership to another member."""

    async def inject(self) -> None:
        self.details = await self._under_test.resolve_target(ETCD_FOLLOWER)
        await self._ask("transfer", to=self._under_test.cluster.state.find_process(self.details).plan.address)


class NoSpaceAlarm(_EtcdOperation):
    """etcd's NOSPACE alarm is raised, as for a full disk: puts and new leases are rejected. It is cleared at the end."""

    _on = False

    async def inject(self) -> None:
        self._on = True
        await self._ask("alarm", on=True)

    async def undo(self) -> None:
        if self._on:
            await self._under_test.clear_alarms()
            self._on = False


class FullEtcdDisk(MeasuringFault):
    """The separate disks of etcd members are full. A member may end. It is restarted when the disk has space again."""

    def __init__(self, under_test: ClusterUnderTest, target: str, rng: random.Random) -> None:
        super().__init__()
        self._under_test = under_test
        self._members: list[str] = []
        self.ended: list[str] = []
        """The members that ended."""
        self.details = ""

    async def inject(self) -> None:
        members = list(self._under_test.disks)
        if down := [member for member in members if not self._under_test.cluster.pid(member)]:
            raise NotPossible(f"{down[0]} is not running")
        for member in members:
            self._members.append(member)
            self._under_test.allow_errors(member, may_end=True)
            await self._under_test.disks[member].shrink_to_contents()
            self.read(member, "free bytes on the disk", self._under_test.disks[member].free, most=0)
        self.details = ", ".join(members)

    async def undo(self) -> None:
        members, self._members = self._members, []
        for member in members:
            await self._under_test.disks[member].restore_size()
        for member in members:
            if await self._under_test.end_excuse(member):
                self.ended.append(member)
                self.details += f"; {member} ended"


class ReplaceMember(ProcessFault, MeasuringFault):
    """A member is removed from etcd, and added again at the end without its data, which it receives from the other members."""

    async def inject(self) -> None:
        name = self.details = await self._under_test.resolve_target(self._target)
        plan = self._under_test.cluster.state.find_process(name).plan
        self._name = name
        self._under_test.allow_errors(name, may_end=True)  # a removed member exits
        try:
            await self._under_test.surgeon.request_result("remove", member=plan.address)
        except HelperError as error:  # the response may have been lost; `end` checks the membership
            raise NotPossible(f"etcd: {error}") from error

    async def undo(self) -> None:
        name, self._name = self._name, ""
        if not name:
            return
        record = self._under_test.cluster.state.find_process(name)
        options = dict(argument.removeprefix("--").split("=", 1) for argument in record.plan.argv if "=" in argument)
        if not await self._join(options["initial-advertise-peer-urls"]):
            await self._under_test.end_excuse(name)  # the member was not removed
            return
        if self._under_test.cluster.pid(name):
            self._under_test.end_process(name, signal.SIGKILL)
            await self._under_test.wait_until_exited(name)
        await asyncio.to_thread(shutil.rmtree, Path(options["data-dir"]), ignore_errors=True)
        if EXISTING not in record.plan.argv:
            self._under_test.cluster.change_plan(replace(record.plan, argv=(*record.plan.argv, EXISTING)))
        await self._under_test.restart_stopped_process(name)
        await self._under_test.end_excuse(name)
        self.read(name, "ready", float(await self._under_test.wait_until_ready(name)), least=1)

    async def _join(self, peer: str) -> bool:
        """Add the member. Return False if it is already a member. Raises HelperError."""
        deadline = time.monotonic() + JOIN_TIMEOUT
        while True:
            try:
                return bool(await self._under_test.surgeon.request_result("add", peer=peer))
            except HelperError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(POLL)
