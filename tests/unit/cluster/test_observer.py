"""Observation of the ends, starts and signals of processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinnace.cluster.observer import ProcessObserver, ProcessRecorder
from pinnace.cluster.spec import ProcessPlan, ProcessRecord
from pinnace.history.records import ProcessState, read_history
from pinnace.runtime import procfs

pytestmark = pytest.mark.processes

NAME = "scheduler-0"
TIMEOUT = 30.0


class Component:
    """A process that can be started again."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        argv = (sys.executable, "-c", "import signal; signal.pause()")
        self.child = subprocess.Popen(argv)
        self.records = [ProcessRecord(ProcessPlan("scheduler", NAME, "", "", argv), procfs.identify_process(self.child.pid))]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.child.pid, number)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()


@pytest.fixture
def component() -> Iterator[Component]:
    made = Component()
    yield made
    made.kill()


async def until(observer: ProcessObserver, state: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while (NAME, state) not in observer.poll_changes():
        assert time.monotonic() < deadline
        await observer.wait(0.01)


async def test_suspended_process_is_reported_as_frozen(component: Component) -> None:
    observer = ProcessObserver(lambda: component.records)
    assert observer.poll_changes() == [(NAME, "up")] and observer.poll_changes() == []
    component.send(signal.SIGSTOP)
    await until(observer, "frozen")
    component.send(signal.SIGCONT)
    await until(observer, "up")
    observer.close()


async def test_end_of_a_process_is_observed_before_the_next_poll(component: Component) -> None:
    observer = ProcessObserver(lambda: component.records)
    observer.poll_changes()
    waiting = asyncio.ensure_future(observer.wait(TIMEOUT))
    await asyncio.sleep(0)
    component.kill()
    began = time.monotonic()
    await waiting
    assert time.monotonic() - began < TIMEOUT / 2 and observer.poll_changes() == [(NAME, "down")]
    observer.close()


async def test_replaced_process_is_reported_as_down_and_up(component: Component) -> None:
    observer = ProcessObserver(lambda: component.records)
    observer.poll_changes()
    component.kill()
    component.start()
    assert observer.poll_changes() == [(NAME, "down"), (NAME, "up")]
    observer.close()


async def test_recorder_writes_changes_into_a_history(component: Component, tmp_path: Path) -> None:
    file = tmp_path / "processes.jsonl"

    async def written(count: int) -> list[ProcessState]:
        deadline = time.monotonic() + TIMEOUT
        while not file.exists() or len(records := list(read_history(file))) < count:
            assert time.monotonic() < deadline
            await asyncio.to_thread(time.sleep, 0.01)
        return [record for record in records if isinstance(record, ProcessState)]

    async with ProcessRecorder(lambda: component.records, file):
        await written(1)
        component.kill()
        result = await written(2)
    assert [(item.name, item.state) for item in result] == [(NAME, "up"), (NAME, "down")] and result[0].at < result[1].at


async def test_full_disk_does_not_end_a_recorded_run(component: Component) -> None:
    async with ProcessRecorder(lambda: component.records, Path("/dev/full")):
        await asyncio.sleep(0.1)
