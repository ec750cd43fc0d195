"""Scenarios with failures of etcd: it loses its leader, its majority, its disk space or its history, or is restored from an
older backup."""

import asyncio
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pinnace.api.elections_pb2 import Election
from pinnace.client.errors import ApiError
from pinnace.cluster import view
from pinnace.cluster.spec import APISERVER, ELECTION, ETCD, ClusterSpec
from pinnace.history import records
from pinnace.history.records import CallItem, CallRecord, ContainerRun, Record, StoredChange, WatchMessage
from pinnace.verification.chaos.cluster_under_test import ETCD_LEADER, ClusterUnderTest
from pinnace.verification.chaos.faults import storage
from pinnace.verification.chaos.faults.table import KINDS
from pinnace.verification.chaos.scenarios.base import BurstWriter, Scenario, ScenarioContext, ScenarioExpectation
from pinnace.verification.chaos.scenarios.figures import (
    count_succeeded_calls,
    count_unrequested_stops,
    find_quorum_return,
    find_slowest_call,
    format_milliseconds,
    list_broken_watches,
    measure_longest_gap,
    measure_wait_for_bind,
    select_calls,
)
from pinnace.verification.chaos.stage import STORED, ChaosOptions
from pinnace.verification.check.index import History
from pinnace.verification.check.pods import LIVING

SPEC = ClusterSpec(nodes=40, etcd_members=3)
ELECTING = 5.0
"""The maximum time without a write in seconds after the kill of etcd's leader. Members wait 0.5 to 1 s before an election,
which may have to be repeated."""
BACK = 6.0
"""The maximum number of seconds from the start of the member that restores the majority to the leader's first bind. Most of it
is used by etcd, which loads its data (2 to 3 s on a slow machine) and elects a leader as above. Then a scheduler is elected and
binds in less than a second."""
UNDER_WAY = 0.5
"""Seconds after the loss of the majority in which pending responses may still arrive."""
ROOM_AGAIN = 10.0
"""The maximum number of seconds from the restoration of disk space to the leader's first bind. It includes restarts and an
election of etcd's members."""
HANG = 3.5
"""The maximum duration of a call in seconds while etcd is unavailable. The clients have a timeout of 3 s."""
LOST = 3.0
"""Seconds of load that the backup does not contain."""
AFTERWARDS = 4.0
"""Seconds of load after the restore."""
NOTICED = 15.0
"""The maximum number of seconds from the start of the restored etcd to the first bind of a leader elected afterwards."""
BEFORE = "etcd.before"
"""The file with the lost history, in the directory of the run. Its suffix is not `.jsonl`, because it is not checked as it
is."""


class EtcdLeader(Scenario):
    name = "etcd-leader"
    title = "etcd loses its leader"
    story = (
        "Three members store the state. The remaining two must detect the failure and elect a leader. Until then, no write\n"
        "succeeds, and no client receives a different result."
    )
    spec = SPEC
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "L1", "L2")

    def __init__(self) -> None:
        self._hit = self._over = 0.0

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            name = await context.under_test.resolve_target(ETCD_LEADER)
            context.watched += [(await context.wait_for_leader()).holder]
            what = f"kill -9 {context.cluster.pid(name)}: {name}, etcd's leader"
            async with context.inject_kind("kill-etcd-leader", name, what, f"{name} is restarted"):
                self._hit = context.zero
                after = await context.poll_until(lambda: context.find_other_etcd_leader(name), "a new leader of etcd")
                context.record_observation(f"{after} is etcd's leader")
                await context.wait_until_writable()
                context.record_observation("etcd accepts writes again")
            await context.wait_until_ready([name])
            self._over = context.record_observation(f"{name} has rejoined")
            await context.wait_for_binding_leader()

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        gap = measure_longest_gap((stored.at for stored in seen.stored), self._hit, self._over)
        return [ScenarioExpectation(gap <= ELECTING, "longest time without a write", format_milliseconds(gap))]


class EtcdQuorum(Scenario):
    name = "etcd-quorum"
    title = "etcd loses its majority"
    story = (
        "Two of three members are killed. The remaining one cannot write, and cannot serve linearizable reads. No call may\n"
        "succeed: calls fail, at the latest at their deadline. Running pods keep running."
    )
    spec = SPEC
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "I11", "L1")

    def __init__(self, seconds: float = 6.0) -> None:
        self._seconds = seconds
        self._lost = self._healed = self._over = 0.0
        self._leader = Election()

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            context.watched += [(await context.wait_for_leader()).holder]
            names = [record.name for record in context.cluster.state.processes_of(ETCD)][:2]
            async with AsyncExitStack() as dead:
                for name in names:
                    what = f"kill -9 {context.cluster.pid(name)}: {name}"
                    await dead.enter_async_context(context.inject_kind("kill-etcd-member", name, what, f"{name} is restarted"))
                self._lost = context.moments[-1].at
                await asyncio.sleep(self._seconds)
                self._healed = time.monotonic()
            await context.wait_until_writable()
            context.record_observation("etcd accepts writes again")
            await context.wait_until_ready(record.name for record in context.cluster.state.processes)
            self._over = context.record_observation("all processes are ready; only members of etcd were restarted")
            self._leader = await context.wait_for_binding_leader()

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        calls = select_calls(seen, self._lost + UNDER_WAY, self._healed)
        answered, stopped = count_succeeded_calls(calls), count_unrequested_stops(seen, self._lost, self._over)
        away = f"{len(calls)} calls in {self._healed - self._lost:.0f} s without a majority"
        bound = measure_wait_for_bind(seen, ELECTION, self._leader.token, find_quorum_return(seen))
        return [
            ScenarioExpectation(answered == 0 and bool(calls), f"{away}: calls that succeeded", str(answered)),
            ScenarioExpectation(
                find_slowest_call(calls) <= HANG,
                "duration of the slowest of them",
                format_milliseconds(find_slowest_call(calls)),
            ),
            ScenarioExpectation(stopped == 0, "pods that were stopped without having been deleted", str(stopped)),
            ScenarioExpectation(
                bound <= BACK, "from the start of a majority to the leader's first bind", format_milliseconds(bound)
            ),
        ]


class EtcdDiskFull(Scenario):
    name = "full-disk"
    title = "etcd's disks are full"
    story = (
        "Each of three members has a separate disk (a tmpfs, which requires root), and all disks are full. Members may exit.\n"
        "All acknowledged writes must exist when space is available again, and no other process is restarted."
    )
    spec = SPEC
    props = ChaosOptions(disks=3)
    invariants = ("I1", "I3", "I4", "I5", "I6", "I7", "I8", "L1")

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._full = self._emptied = 0.0
        self._ended: list[str] = []
        self._leader = Election()

    async def run_scenario(self, context: ScenarioContext) -> None:
        async with BurstWriter(context.load.create_client("crowd")):
            context.watched += [(await context.wait_for_leader()).holder]
            members = [record.name for record in context.cluster.state.processes_of(ETCD)]
            disks = storage.FullEtcdDisk(context.under_test, ETCD, context.random)
            async with context.inject_fault(
                "full-disk", ETCD, disks, "the disks of all members are full", "space is available again"
            ):
                self._full = context.zero
                await asyncio.sleep(self._seconds)
            self._emptied, self._ended = context.moments[-1].at, disks.ended
            if self._ended:
                context.record_observation(f"{', '.join(self._ended)} had exited and was restarted")
            await context.wait_until_ready(members)
            await context.wait_until_writable()
            context.record_observation("etcd accepts writes")
            await context.wait_until_ready(record.name for record in context.cluster.state.processes)
            context.record_observation("all processes are ready")
            self._leader = await context.wait_for_binding_leader()

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        writes = [call for call in select_calls(seen, self._full, self._emptied) if call.verb in ("create", "update", "delete")]
        bound = measure_wait_for_bind(seen, ELECTION, self._leader.token, self._emptied)
        done = f"{count_succeeded_calls(writes):,} of {len(writes):,}"
        return [
            ScenarioExpectation(True, "members that exited because of the full disk", str(len(self._ended))),
            ScenarioExpectation(True, "writes acknowledged during the fault (all are accounted for)", done),
            ScenarioExpectation(
                bound <= ROOM_AGAIN, "from available space to the leader's first bind", format_milliseconds(bound)
            ),
        ]


class CompactHistory(Scenario):
    name = "compact"
    title = "The history of a watch is compacted"
    story = (
        "An API server is partitioned from etcd; the other one continues. Then etcd's history is compacted, so that events\n"
        "that the first server missed are lost. Its watches must end and start over."
    )
    spec = ClusterSpec(nodes=40)
    invariants = ("I1", "I6", "I7", "I8", "I9", "I12", "L1", "L2")

    def __init__(self) -> None:
        self._hit = 0.0

    async def run_scenario(self, context: ScenarioContext) -> None:
        server, *_ = (record.name for record in context.cluster.state.processes_of(APISERVER))
        async with BurstWriter(context.load.create_client("crowd")):
            what = f"{server} is partitioned from etcd: connections reset, new ones refused"
            async with context.inject_kind("reset-apiserver", server, what, f"{server} can connect to etcd again"):
                self._hit = context.zero
                await asyncio.sleep(1.0)
                compact = KINDS["compact"].make(context.under_test, ETCD, context.random)
                async with context.inject_fault(
                    "compact", ETCD, compact, "etcd's history is compacted up to the current revision"
                ):
                    pass
                await asyncio.sleep(0.5)
            await context.wait_until_ready([server])
            context.record_observation(f"{server} has reloaded its state and serves")
            await asyncio.sleep(1.0)

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        expired = list_broken_watches(seen, self._hit, seen.phases["end"]).count("OUT_OF_RANGE")
        return [
            ScenarioExpectation(expired > 0, "watches that expired and started over", str(expired)),
        ]


@dataclass(frozen=True, slots=True)
class LostInterval:
    """The lost interval in monotonic seconds. `copied`: everything that ended before is in the backup. `killed`: the end of
    etcd. `back`: the start of the restored etcd. `well`: a leader elected afterwards has bound a pod."""

    copied: float
    killed: float
    back: float
    well: float


class Restore(Scenario):
    name = "restore"
    title = "etcd is restored from a backup under a running cluster"
    story = (
        "etcd's data is copied. After three seconds of load, etcd is killed and started with the copy. Acknowledged writes\n"
        "since then are lost, and their revisions are reused. API servers, schedulers and kubelets keep running. All of them\n"
        "must detect the restore and continue with the new history."
    )
    spec = ClusterSpec(nodes=40)
    invariants = ("H", "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "L1", "L2", "L3")

    def __init__(self) -> None:
        self._gone = LostInterval(0.0, 0.0, 0.0, 0.0)
        self._revision = 0
        self._lagging: list[str] = []
        self._strangers = 0

    async def run_scenario(self, context: ScenarioContext) -> None:
        (record,) = context.cluster.state.processes_of(ETCD)
        name, recorder = record.name, context.stage.recorder
        options = dict(item.removeprefix("--").split("=", 1) for item in record.plan.argv if "=" in item)
        data = Path(options["data-dir"])
        copy = data.with_name("copy")
        async with context.inject_fault(
            "copy", name, _StoppedEtcd(context.under_test, name), f"{name} ends, and its data is copied", f"{name} is started"
        ):
            await asyncio.to_thread(shutil.copytree, data, copy)
            self._revision, copied = recorder.revision, time.monotonic()
        await context.wait_until_ready(process.name for process in context.cluster.state.processes)
        await context.wait_for_binding_leader()
        before = {election.token for election in await context.client.elections.list()}
        await asyncio.sleep(LOST)
        servers = [process_record.name for process_record in context.cluster.state.processes_of(APISERVER)]
        for server in servers:
            context.under_test.allow_errors(server, may_end=False)  # API servers log a restore as an error
        what = f"kill -9 {context.cluster.pid(name)}: {name}; its data is replaced with the copy"
        async with context.inject_fault(
            "restore", name, _StoppedEtcd(context.under_test, name), what, f"{name} is started with the copy"
        ):
            killed = time.monotonic()
            await recorder.archive_output(recorder.output.with_name(BEFORE))
            await asyncio.to_thread(shutil.rmtree, data)
            await asyncio.to_thread(copy.rename, data)
            back = time.monotonic()
        await recorder.restart()
        leader = await context.poll_until(
            lambda: _wait_for_election(context, before), "a leader elected after the restore", NOTICED
        )
        await context.wait_for_binding_leader()
        well = context.record_observation(f"{leader.holder} leads with token {leader.token}, and binds pods")
        self._gone = LostInterval(copied, killed, back, well)
        await asyncio.sleep(AFTERWARDS)
        for server in servers:
            await context.under_test.end_excuse(server)

    def read_history(self, folder: Path) -> list[Record]:
        """Return the history without the lost interval."""
        said = [
            record for path in sorted(folder.glob("*.jsonl")) if path.name != STORED for record in records.read_history(path)
        ]
        past = [
            stored
            for stored in records.read_history(folder / BEFORE)
            if isinstance(stored, StoredChange) and stored.revision <= self._revision
        ]
        present = [
            stored
            for stored in records.read_history(folder / STORED)
            if not isinstance(stored, StoredChange) or stored.revision > self._revision
        ]
        told = [item for item in said if isinstance(item, WatchMessage)]
        self._lagging = find_streams_without_restart(told, self._gone)
        self._strangers = len(
            find_unknown_pods((ran for ran in said if isinstance(ran, ContainerRun)), History([*past, *present]))
        )
        return [*drop_lost_interval(said, self._gone), *past, *present]

    def judge_history(self, seen: History) -> list[ScenarioExpectation]:
        noticed = self._gone.well - self._gone.back
        return [
            ScenarioExpectation(
                noticed <= NOTICED, "from etcd's start to a bind of a leader elected since", format_milliseconds(noticed)
            ),
            ScenarioExpectation(not self._lagging, "watches that had not started over", ", ".join(self._lagging) or "0"),
            ScenarioExpectation(
                self._strangers == 0, "running pods that do not exist in the new history", str(self._strangers)
            ),
        ]


class _StoppedEtcd:
    """A process that is down while its data is modified."""

    def __init__(self, under_test: ClusterUnderTest, name: str) -> None:
        self._under_test = under_test
        self._name = name
        self.details = name

    async def inject(self) -> None:
        self._under_test.end_process(self._name, signal.SIGKILL)
        await self._under_test.wait_until_exited(self._name)

    async def undo(self) -> None:
        await self._under_test.restart_stopped_process(self._name)


async def _wait_for_election(context: ScenarioContext, before: set[int]) -> Election | None:
    with suppress(ApiError):
        election = await view.scheduler_leader(context.client)
        return election if election is not None and election.token not in before else None
    return None


def drop_lost_interval(records: Sequence[Record], gone: LostInterval) -> Iterator[Record]:
    """Return the records that apply to the remaining history. A pure function.

    A call that had ended before the backup, or that began after the recovery, is kept. A write that overlaps with the interval
    only partly may have been executed in the remaining history, so its outcome is unknown. A watch is kept up to the backup,
    and after it last started over. In between, a server that had not detected the restore may have sent lost events.
    """
    anew = find_restarted_streams((record for record in records if isinstance(record, WatchMessage)), gone)
    for record in records:
        match record:
            case CallRecord():
                if record.ended <= gone.copied or record.began >= gone.well:
                    yield record
                elif record.verb not in ("get", "list") and (record.began < gone.copied or record.ended > gone.killed):
                    yield replace(record, outcome="unknown", code="", items=tuple(map(_as_unknown, record.items)))
            case WatchMessage():
                if record.at <= gone.copied or record.at >= anew.get(record.stream, float("inf")):
                    yield record
            case ContainerRun():
                pass  # checked by `find_unknown_pods`
            case _:
                yield record


def find_restarted_streams(told: Iterable[WatchMessage], gone: LostInterval) -> dict[str, float]:
    """Return, by stream, its last restart between etcd's end and the first bind afterwards, or else its first later restart."""
    anew: dict[str, float] = {}
    for item in told:
        begins = item.kind == "began" and not item.revision and item.at > gone.killed
        if begins and (item.at <= gone.well or item.stream not in anew):
            anew[item.stream] = item.at
    return anew


def find_streams_without_restart(told: Sequence[WatchMessage], gone: LostInterval) -> list[str]:
    """Return the streams that continued after the restore without starting over. A pure function."""
    anew = find_restarted_streams(told, gone)
    return sorted({item.stream for item in told if item.at > gone.well and anew.get(item.stream, item.at) >= gone.well})


def find_unknown_pods(ran: Iterable[ContainerRun], seen: History) -> set[str]:
    """Return the uids of pods that are running at the end but do not exist in this history of etcd. A pure function."""
    running: dict[str, set[str]] = defaultdict(set)
    last: dict[str, float] = {}
    for item in ran:
        last[item.process] = max(item.at, last.get(item.process, 0.0))
        if item.what == "started":
            running[item.process].add(item.uid)
        elif item.what == "stopped":
            running[item.process].discard(item.uid)
    end = max(last.values(), default=0.0)
    alive = [uids for process, uids in running.items() if last[process] > end - LIVING]
    return {uid for uids in alive for uid in uids} - {change.now.uid for change in seen.pods if change.now is not None}


def _as_unknown(item: CallItem) -> CallItem:
    return replace(item, outcome="unknown", revision=0, digest="", code="")
