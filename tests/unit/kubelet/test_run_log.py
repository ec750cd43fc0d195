"""The run log: what is written when pods start, end and are taken away."""

import asyncio
from pathlib import Path

import pytest

from kubelet.addresses import Addresses
from kubelet.behaviour import Behaviour
from kubelet.fake import FakeRuntime
from kubelet.run_log import RunLog, Witnessed
from kubelet.runtime import Runtime, read
from pinnace.check.files import read as read_history
from pinnace.check.history import Ran
from tests.builders import PodBuilder, make_pod
from tests.clock import FakeClock

ADDRESSES = Addresses("172.16.0.1", "10.0.0.2")
KEY = "/registry/pods/default/a"


class Recorded(list[Ran]):
    @property
    def words(self) -> list[str]:
        return [ran.what for ran in self]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def told() -> Recorded:
    return Recorded()


@pytest.fixture
def runtime(clock: FakeClock, told: Recorded) -> Runtime:
    return Witnessed(FakeRuntime(Behaviour()), told.append, clock)


def pod() -> PodBuilder:
    return make_pod("a").uid("u").node("n").container()


async def test_from_the_first_start_to_the_removal(runtime: Runtime, clock: FakeClock, told: Recorded) -> None:
    runtime.prepare(pod().build(), ADDRESSES)
    runtime.observe("u", read(clock))
    assert told == []
    runtime.start("u", "c", 0, read(clock))
    for _ in range(2):
        runtime.observe("u", read(clock))
    assert told == [Ran(100.0, "n", "u", KEY, "started")]
    await clock.advance(5.0)
    runtime.remove("u")
    assert told[1:] == [Ran(105.0, "n", "u", KEY, "stopped")]


async def test_a_pod_runs_while_one_of_its_containers_does(runtime: Runtime, clock: FakeClock, told: Recorded) -> None:
    runtime.prepare(pod().annotation("pinnace.io/run-seconds", "3").build(), ADDRESSES)
    for name, delay in (("first", 2.0), ("second", 2.0)):
        runtime.start("u", name, 0, read(clock))
        await clock.advance(delay)
        runtime.observe("u", read(clock))
    assert told.words == ["started"]
    await clock.advance(1.0)
    runtime.observe("u", read(clock))
    assert told.words == ["started", "stopped"]
    runtime.start("u", "first", 1, read(clock))
    runtime.observe("u", read(clock))
    assert told.words == ["started", "stopped", "started"]


async def test_a_process_that_takes_a_pod_up_says_that_it_runs(runtime: Runtime, clock: FakeClock, told: Recorded) -> None:
    adopted = pod().build()
    adopted.status.containerStatuses.add(name="c").state.running.startedAt.seconds = 50
    runtime.adopt(adopted, read(clock))
    runtime.observe("u", read(clock))
    assert told.words == ["started"]


async def test_lines_are_appended_once_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    lines = [Ran(float(number), "n", "u", KEY, "started") for number in range(4)]
    with RunLog(path) as log:
        log(lines[0])
        log(lines[1])
        assert path.read_bytes() == b""
        await asyncio.sleep(0)
        assert list(read_history(path)) == lines[:2]
        log(lines[2])
    with RunLog(path) as log:
        log(lines[3])
    assert list(read_history(path)) == lines
