"""A blocked event loop: the watch logs where it is blocked, and interrupts code that may be interrupted."""

import asyncio
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from urllib.error import HTTPError

import pytest

from pinnace.runtime import http, stalls
from pinnace.runtime.http import StatusServer
from pinnace.runtime.logs import EventLoopResumed, EventLoopStalled
from pinnace.runtime.stalls import Culprit, LoopWatchdog, Stalled
from tests.logged import logged

pytestmark = pytest.mark.processes

STALL = 0.2


def blame(frame: FrameType | None) -> Culprit | None:
    """Blames the innermost function whose name begins with `plugin_`."""
    while frame is not None:
        if frame.f_code.co_name.startswith("plugin_"):
            return Culprit(frame.f_code.co_name, frame.f_code.co_name != "plugin_of_ours")
        frame = frame.f_back
    return None


@contextmanager
def watched(blame: stalls.Blame = blame) -> Iterator[LoopWatchdog]:
    watch = LoopWatchdog(asyncio.get_running_loop(), blame, stall=STALL)
    watch.start()
    yield watch
    watch.stop()


def busy(seconds: float) -> None:
    time.sleep(seconds)


def plugin_sleeps() -> None:
    time.sleep(30.0)


def plugin_spins() -> None:
    while True:
        pass


def plugin_of_ours() -> None:
    time.sleep(4 * STALL)


@pytest.mark.parametrize("plugin", [plugin_sleeps, plugin_spins])
async def test_blocking_plugin_is_interrupted_and_logged(plugin: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    with watched(), pytest.raises(Stalled, match=r"the code blocked the event loop for 0\.\d s"):
        plugin()
    assert [item.culprit for item in logged(caplog, EventLoopStalled)] == [plugin.__name__]
    assert f"in {plugin.__name__}" in caplog.text, "the log contains the stack"


async def test_blocking_code_that_must_not_be_interrupted_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    with watched():
        plugin_of_ours()
        async with asyncio.timeout(5.0):
            while not logged(caplog, EventLoopResumed):  # noqa: ASYNC110 - the log has no event to await
                await asyncio.sleep(0.01)
    assert len(logged(caplog, EventLoopStalled)) == 1, "once for each stall"


async def test_responsive_loop_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with watched() as watch:
        for _ in range(10):
            busy(STALL / 4)
            await asyncio.sleep(0)
            assert watch.stall_description is None
    assert caplog.messages == []


async def test_suspended_process_is_not_reported_as_stalled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An hour passes between two checks, and counts as one or two steps."""
    looks = iter(range(10**6))
    monkeypatch.setattr(stalls, "monotonic", lambda: 3600.0 * next(looks))
    with watched():
        for _ in range(5):
            busy(0.35 * STALL)  # longer than a step: a check finds no answer
            await asyncio.sleep(0.01)
    assert caplog.messages == []


async def test_livez_reports_where_the_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LOOP_DEADLINE", 2 * STALL)
    server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop())
    server.start()
    said: list[str] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(f"http://{server.address}/livez", timeout=10.0)
        except HTTPError as error:
            said.append(error.read().decode())

    asking = threading.Thread(target=ask)
    with watched():
        asking.start()
        plugin_of_ours()
        await asyncio.to_thread(asking.join)
    server.stop()
    assert said and "event loop: no answer; stalled for" in said[0] and "plugin_of_ours (test_stalls.py:" in said[0]


def test_code_that_ignores_interruptions_ends_the_process() -> None:
    program = """
import asyncio, time
from pinnace.runtime.stalls import Culprit, LoopWatchdog

async def main():
    watch = LoopWatchdog(asyncio.get_running_loop(), lambda frame: Culprit("the plugin", True), stall=0.1, limit=0.5)
    watch.start()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1 and "the plugin" in ended.stderr and "despite interruptions; exiting" in ended.stderr
