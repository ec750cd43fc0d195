"""The engine ends and records each fault, even after an error."""

import asyncio
import random
from pathlib import Path

import pytest

from pinnace.history import records
from pinnace.history.records import FaultRecord, Observation
from pinnace.verification.chaos import ChaosError, clients, engine
from pinnace.verification.chaos.clients import HistoryJournal
from pinnace.verification.chaos.cluster_under_test import NotPossible
from pinnace.verification.chaos.engine import FaultInjector, ScheduledFault
from pinnace.verification.chaos.faults.base import FaultArea, FaultKind, MeasuringFault, role_targets


class FakeWorld:
    """The part of a ClusterUnderTest that the engine uses."""

    def __init__(self) -> None:
        self.healed = 0
        self.unstoppable_processes: list[str] = []
        self.not_ready: list[str] = []
        self.ended: list[tuple[str, int]] = []
        self.excused: list[str] = []
        self.revived: list[str] = []
        self.unrecorded: ChaosError | None = None

    async def undo_all_faults(self) -> None:
        self.healed += 1

    def find_crashed_processes(self) -> list[tuple[str, int]]:
        ended, self.ended = self.ended, []
        return ended

    def find_excused_exits_to_restart(self) -> list[str]:
        excused, self.excused = self.excused, []
        return excused

    async def wait_for_all_ready(self) -> list[str]:
        return self.not_ready

    async def start_process(self, name: str) -> None:
        self.revived.append(name)

    def recorded(self) -> int:
        if self.unrecorded:
            raise self.unrecorded
        return 1


class Scene:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = FakeWorld()
        self.said: list[str] = []
        self.done: list[str] = []
        self.begun = asyncio.Event()
        self.error: Exception | None = None

    async def run(self, *scheduled_faults: ScheduledFault) -> FaultInjector:
        with HistoryJournal(self.path) as clients:
            made = FaultInjector(self.world, clients, self.said.append)
            await made.inject_all(scheduled_faults)
        return made

    def faults(self) -> list[FaultRecord]:
        return [record for record in records.read_history(self.path) if isinstance(record, FaultRecord)]

    def strike(self, at: float, seconds: float, draw: int = 1, area: FaultArea = FaultArea.NONE) -> ScheduledFault:
        def make(world: object, target: str, rng: random.Random) -> "Shake":
            return Shake(self, rng)

        return ScheduledFault(at, FaultKind("shake", "", area, role_targets("it"), make, (0, 0)), "it", seconds, draw)


class Shake(MeasuringFault):
    def __init__(self, scene: Scene, rng: random.Random) -> None:
        super().__init__()
        self._scene = scene
        self.details = f"{rng.random():.3f}"

    async def inject(self) -> None:
        self._scene.done.append("begin")
        self._scene.begun.set()
        if self._scene.error:
            raise self._scene.error

    async def undo(self) -> None:
        self._scene.done.append("end")
        self.read("it", "calls", 3, least=1, most=5)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "history.jsonl")


async def test_begin_and_end_of_a_fault_are_recorded(scene: Scene) -> None:
    ran = await scene.run(scene.strike(0.0, 0.05))
    assert scene.done == ["begin", "end"]
    begun, ended = scene.faults()
    assert (begun.id, begun.name, begun.target, begun.ended) == (1, "shake", "it", None)
    assert (ended.id, ended.began, ended.fired, ended.details) == (1, begun.began, True, begun.details)
    assert ended.ended is not None
    assert ended.ended - ended.began >= 0.05
    assert ran.damage.fired == {"shake": 1}
    assert scene.world.healed == 1
    assert "shake" in scene.said[0]


async def test_values_read_by_a_fault_are_recorded_with_bounds(scene: Scene) -> None:
    await scene.run(scene.strike(0.0, 0.0))
    (read,) = (record for record in records.read_history(scene.path) if isinstance(record, Observation))
    assert (read.fault, read.target, read.what, read.value, read.least, read.most) == (1, "it", "calls", 3, 1, 5)


async def test_process_that_stays_unready_is_reported(scene: Scene) -> None:
    scene.world.not_ready = ["scheduler-1"]
    ran = await scene.run(scene.strike(0.0, 0.0))
    assert ran.damage.failures == ["scheduler-1 was not ready after the last fault"]


async def test_choice_of_a_fault_depends_on_the_schedule_only(scene: Scene) -> None:
    await scene.run(scene.strike(0.0, 0.0, draw=3), scene.strike(0.0, 0.0, draw=3), scene.strike(0.0, 0.0, draw=4))
    first, second, third = (fault.details for fault in scene.faults() if fault.ended)
    assert first == second != third


async def test_impossible_fault_is_undone_and_did_not_fire(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RETRY_TIMEOUT", 0.1)
    scene.error = NotPossible("nobody leads")
    ran = await scene.run(scene.strike(0.0, 10.0))
    assert scene.done.count("begin") > 1, "the fault was not retried"
    assert scene.done[-1] == "end"
    assert not scene.faults()[-1].fired
    assert not ran.damage.fired
    assert ran.damage.missed == ["shake it: nobody leads"]


async def test_fault_that_becomes_possible_fires(scene: Scene) -> None:
    scene.error = NotPossible("nobody leads")
    running = asyncio.create_task(scene.run(scene.strike(0.0, 0.0)))
    async with asyncio.timeout(5):
        await scene.begun.wait()
    scene.error = None
    assert (await running).damage.fired == {"shake": 1}
    assert [fault.fired for fault in scene.faults()] == [True, True]


async def test_fault_waits_for_the_previous_fault_in_its_area(scene: Scene) -> None:
    await scene.run(scene.strike(0.0, 0.1, area=FaultArea.ETCD), scene.strike(0.01, 0.0, area=FaultArea.ETCD))
    assert scene.done == ["begin", "end", "begin", "end"]


async def test_faults_of_different_areas_overlap(scene: Scene) -> None:
    await scene.run(scene.strike(0.0, 0.1, area=FaultArea.ETCD), scene.strike(0.01, 0.2, area=FaultArea.KUBELETS))
    assert scene.done == ["begin", "begin", "end", "end"]


async def test_active_fault_is_undone_when_the_run_is_cancelled(scene: Scene) -> None:
    running = asyncio.create_task(scene.run(scene.strike(0.0, 60.0)))
    async with asyncio.timeout(5):
        await scene.begun.wait()
    running.cancel()
    await asyncio.wait((running,))
    assert scene.done == ["begin", "end"]


async def test_unexpected_error_in_a_fault_ends_the_run(scene: Scene) -> None:
    scene.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        await scene.run(scene.strike(0.0, 0.0), scene.strike(60.0, 0.0))


async def test_unexpected_exit_is_restarted_and_reported(scene: Scene) -> None:
    scene.world.ended = [("kubelet-0", 1)]
    ran = await scene.run(scene.strike(0.0, 0.0))
    assert scene.world.revived == ["kubelet-0"]
    (crash,) = ran.damage.failures
    assert crash.startswith("kubelet-0 ended unexpectedly")
    assert crash.endswith("exit code 1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the disk that is always full is Linux'")
async def test_run_ends_at_once_when_the_journal_cannot_be_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last fault may be an hour away. The active fault is undone."""
    monkeypatch.setattr(engine, "CRASH_POLL", 0.01)
    monkeypatch.setattr(clients, "FLUSH", 0.01)
    scene.path = Path("/dev/full")
    async with asyncio.timeout(10):
        with pytest.raises(ChaosError, match="unable to write the history to /dev/full: No space left on device"):
            await scene.run(scene.strike(0.0, 3600.0))
    assert scene.done == ["begin", "end"]


async def test_run_ends_at_once_when_the_recorder_has_ended(scene: Scene) -> None:
    scene.world.unrecorded = ChaosError("etcd's recorder has ended")
    async with asyncio.timeout(10):
        with pytest.raises(ChaosError, match="recorder"):
            await scene.run(scene.strike(3600.0, 0.0))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the disk that is always full is Linux'")
def test_journal_reports_lost_records_and_accepts_no_more() -> None:
    lossy = HistoryJournal(Path("/dev/full"))
    with pytest.raises(ChaosError, match="No space left on device"), lossy:
        lossy.write(FaultRecord(1, "shake", "it", 0.0))
    lossy.write(FaultRecord(2, "shake", "it", 0.0))
    assert lossy._records.empty()
