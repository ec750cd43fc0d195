"""Long steps of an event loop are measured by their CPU time, counted, and logged with their stack."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from pinnace.runtime import steps
from pinnace.runtime.logs import EventLoopStepLong
from pinnace.runtime.steps import LIMIT, PERIOD, CallbackStack, LoopStep, StepMonitor, longest_step
from tests.logged import logged

LONG = LIMIT + 4 * PERIOD


@contextmanager
def watched(profile: Path | None = None) -> Iterator[StepMonitor]:
    watch = StepMonitor(asyncio.get_running_loop(), profile)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def busy(seconds: float = LONG) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def measured() -> None:
    """Return when the watch has measured the steps before."""
    await asyncio.sleep(2 * steps.IDLE_PERIOD)


def longest() -> float:
    return REGISTRY.get_sample_value("pinnace_event_loop_longest_step_seconds") or 0.0


def counted() -> float:
    return REGISTRY.get_sample_value("pinnace_event_loop_long_step_seconds_count") or 0.0


async def test_long_step_is_logged_with_its_stack_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    before = counted()
    with watched():
        await measured()
        busy()
        await measured()
        assert LIMIT < longest() < 2 * LONG
    assert counted() > before
    (event,) = logged(caplog, EventLoopStepLong)
    assert event.cpu_seconds > LIMIT and event.seconds > LIMIT and event.count == 1
    assert f"{__name__}.test_long_step_is_logged_with_its_stack_and_counted;{__name__}.busy:" in event.stack


async def test_blocked_loop_without_cpu_time_has_no_long_step(caplog: pytest.LogCaptureFixture) -> None:
    """A process that waits for a CPU looks the same."""
    caplog.set_level("INFO")
    with watched():
        await measured()
        assert not threading.Event().wait(LONG)
        await measured()
        assert longest() < LIMIT
    assert not logged(caplog, EventLoopStepLong)


async def test_log_has_the_longest_step_of_an_interval(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    with watched() as watch:
        watch._quiet_until = float("inf")
        for seconds in (LONG, 2 * LONG, LONG):
            await measured()
            busy(seconds)
        await measured()
        assert not logged(caplog, EventLoopStepLong)
    (event,) = logged(caplog, EventLoopStepLong)
    assert event.count == 3 and event.cpu_seconds > LONG


def test_many_callbacks_are_not_one_long_step() -> None:
    a, b, c = CallbackStack(1, "a", 1), CallbackStack(2, "b", 1), CallbackStack(3, "c", 1)
    assert longest_step(0.1, 0.08, 0.0, [a, b, b, c]) == LoopStep(0.05, 0.04, 0.0, "b:1")
    assert longest_step(0.1, 0.08, 0.0, [b, b]) == LoopStep(0.1, 0.08, 0.0, "b:1")
    assert longest_step(0.1, 0.08, 0.06, [a, b, c, a]).cpu_seconds == 0.06, "a garbage collection cannot be divided"
    assert longest_step(0.1, 0.08, 0.0, []) == LoopStep(0.1, 0.08, 0.0, ""), "the GIL was held"


async def test_profile_has_the_stacks_of_busy_seconds(tmp_path: Path) -> None:
    file = tmp_path / "profile.jsonl"
    with watched(file):
        busy(0.4)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines and abs(lines[-1]["at"] - time.monotonic()) < 5 and 0 < lines[-1]["busy"] <= 1
    stacks = {stack for line in lines for stack in line["stacks"]}
    assert any(f"{__name__}.busy" in stack for stack in stacks)
