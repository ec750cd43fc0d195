"""The run log: records of the starts and ends of pods and of their removal."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.history.records import ContainerRun
from pinnace.history.records import read_history as read_history
from pinnace.kubelet import run_log
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.run_log import LoggedRuntime, RunLog
from pinnace.kubelet.runtime.interface import Runtime, read_clocks
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from tests.builders import PodBuilder, make_pod
from tests.clock import FakeClock

ADDRESSES = PodAddresses("172.16.0.1", "10.0.0.2")
KEY = "/registry/pods/default/a"


def ran_of(path: Path) -> list[ContainerRun]:
    return [record for record in read_history(path) if isinstance(record, ContainerRun)]


class Recorded(list[ContainerRun]):
    @property
    def words(self) -> list[str]:
        return [ran.what for ran in self]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def records() -> Recorded:
    return Recorded()


@pytest.fixture
def runtime(clock: FakeClock, records: Recorded) -> Runtime:
    return LoggedRuntime(SimulatedRuntime(Behaviour()), records.append, clock)


def pod() -> PodBuilder:
    return make_pod("a").uid("u").node("n").container()


async def test_pod_is_recorded_from_its_first_start_to_its_removal(
    runtime: Runtime, clock: FakeClock, records: Recorded
) -> None:
    runtime.prepare_pod(pod().build(), ADDRESSES)
    runtime.observe_containers("u", read_clocks(clock))
    assert records == []
    runtime.start("u", "c", 0, read_clocks(clock))
    for _ in range(2):
        runtime.observe_containers("u", read_clocks(clock))
    assert records == [ContainerRun(100.0, "n", "u", KEY, "started")]
    await clock.advance(5.0)
    runtime.remove("u")
    assert records[1:] == [ContainerRun(105.0, "n", "u", KEY, "stopped")]


async def test_pod_is_running_while_one_of_its_containers_is(runtime: Runtime, clock: FakeClock, records: Recorded) -> None:
    runtime.prepare_pod(pod().annotation("pinnace.io/run-seconds", "3").build(), ADDRESSES)
    for name, delay in (("first", 2.0), ("second", 2.0)):
        runtime.start("u", name, 0, read_clocks(clock))
        await clock.advance(delay)
        runtime.observe_containers("u", read_clocks(clock))
    assert records.words == ["started"]
    await clock.advance(1.0)
    runtime.observe_containers("u", read_clocks(clock))
    assert records.words == ["started", "stopped"]
    runtime.start("u", "first", 1, read_clocks(clock))
    runtime.observe_containers("u", read_clocks(clock))
    assert records.words == ["started", "stopped", "started"]


async def test_adopted_running_pod_is_recorded_as_started(runtime: Runtime, clock: FakeClock, records: Recorded) -> None:
    adopted = pod().build()
    adopted.status.containerStatuses.add(name="c").state.running.startedAt.seconds = 50
    runtime.adopt_pod(adopted, read_clocks(clock))
    runtime.observe_containers("u", read_clocks(clock))
    assert records.words == ["started"]


async def test_lines_are_appended_once_per_loop_iteration(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    lines = [ContainerRun(float(number), "n", "u", KEY, "started") for number in range(4)]
    with RunLog(path) as log:
        log(lines[0])
        log(lines[1])
        assert path.read_bytes() == b""
        await asyncio.sleep(0)
        assert len(list(read_history(path))) == 2
        log(lines[2])
    with RunLog(path) as log:
        log(lines[3])
    assert [replace(ran, process="") for ran in ran_of(path)] == lines


async def test_each_writing_process_has_a_unique_name(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "kubelet-0.run.jsonl"
    for _ in range(2):
        with RunLog(path, clock) as log:
            log(ContainerRun(1.0, "n", "u", KEY, "started"))
            log(ContainerRun(2.0, "n", "u", KEY, "stopped"))
        await clock.advance(1.0)
    first, second = dict.fromkeys(ran.process for ran in ran_of(path))
    assert first.startswith("kubelet-0/") and second.startswith("kubelet-0/")


async def test_process_that_ran_a_pod_writes_heartbeats(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "BEAT", 0.0)
    path = tmp_path / "kubelet-0.run.jsonl"
    with RunLog(path, clock) as log:
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran_of(path) == [], "a process without pods writes no heartbeat"
        log(ContainerRun(100.0, "n", "u", KEY, "started"))
        async with asyncio.timeout(5):
            while len(ran_of(path)) < 3:  # noqa: ASYNC110 - each iteration of the loop writes a heartbeat
                await asyncio.sleep(0)
    started, *beats = ran_of(path)
    assert {(ran.what, ran.at, ran.process) for ran in beats} == {("alive", 100.0, started.process)}


async def test_each_life_of_a_fleet_has_a_unique_name(tmp_path: Path, clock: FakeClock) -> None:
    """The containers of the previous life ended with it, without a record."""
    path = tmp_path / "kubelet-0.run.jsonl"
    with RunLog(path, clock) as log:
        log(ContainerRun(1.0, "n", "a", KEY, "started"))
        await clock.advance(1.0)
        log.begin_process()
        log(ContainerRun(2.0, "n", "b", KEY, "started"))
    first, second = ran_of(path)
    assert first.process != second.process and first.process.split("@")[0] == second.process.split("@")[0]
