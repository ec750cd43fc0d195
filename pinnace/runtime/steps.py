"""Measures the steps of the event loop, and records the code that takes long. A step is what the loop executes between two
opportunities to run another callback.

A timer of the loop is due every PERIOD, or every IDLE_PERIOD if the loop is hardly used. Its delay is the duration of the step
that precedes it. While the timer is late, a thread samples the stack of the loop:

    timer is due --LEAST passes--> the thread samples the stack every LEAST --the timer runs--> the step is counted, and logged
                                                                                                if it is longer than LIMIT

- A step counts with its CPU time, so a process that is frozen or starved of CPU has no long steps. Neither has a loop that
  waits for a disk: `stalls.py` detects this after two seconds.
- If the samples show several callbacks, the time is divided, and the longest callback counts.
- A step that begins before the timer is due counts from the time at which it is due. So durations can be too short by a period,
  and a step below a period is measured by chance. The longest of many equal steps is measured correctly.
- Code that holds the GIL delays the samples but not the timer. The sample shows the line that has released the GIL.

With a profile, the thread also samples the loop every PERIOD, and writes the most frequent stacks of each busy second:

    {"at": 5012, "busy": 0.9, "stacks": {"apiserver.watch.serve;apiserver.wire.encode": 22, ...}}

`at` is in seconds of the monotonic clock. A stack lists its functions from the callback to the innermost one.
"""

import asyncio
import asyncio.base_events
import asyncio.events
import asyncio.runners
import gc
import json
import logging
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from types import FrameType
from typing import NamedTuple

from prometheus_client import Gauge, Histogram

from pinnace.runtime.logs import EventLoopStepLong

log = logging.getLogger(__name__)

PERIOD, IDLE_PERIOD = 0.02, 0.05
"""Seconds between two measurements. A wakeup of an idle process costs 0.1 ms of CPU time on a virtual machine."""
IDLE = 0.2
"""The share of CPU time below which a loop counts as hardly used."""
LEAST = 0.01
"""CPU seconds of the shortest counted step."""
LIMIT = 0.05
"""CPU seconds of the shortest logged step."""
LOG_INTERVAL = 10.0
"""The minimum number of seconds between two log lines. The longest step of the interval is logged."""
WINDOW = 60.0
"""The metric shows the longest step of the current and the previous window of this many seconds."""
PROFILE = "PINNACE_LOOP_PROFILE"
"""The environment variable that names the file of the profile."""
BUSY = 0.2
"""The share of a second in which the loop must be busy for the second to be in the profile."""
STACKS = 10
"""The number of stacks of a second in the profile."""
DEPTH = 24
"""The number of innermost functions of a stack."""
_LOOP_FILES = frozenset(str(module.__file__) for module in (asyncio.base_events, asyncio.events, asyncio.runners))

LONGEST = Gauge(
    "pinnace_event_loop_longest_step_seconds", "CPU time of the longest step of the event loop in the last one to two minutes."
)
LONG_STEPS = Histogram(
    "pinnace_event_loop_long_step_seconds",
    "CPU time of the steps of the event loop that took more than 10 ms.",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0),
)


class CallbackStack(NamedTuple):
    """The functions that the loop executes. `callback` identifies the callback or coroutine. `line`: the line of the innermost
    function."""

    callback: int
    functions: str
    line: int


def callback_stack_of(frame: FrameType | None) -> CallbackStack | None:
    """Return the stack of the loop's current callback, or None if the loop waits."""
    frames: list[FrameType] = []
    while frame is not None and frame.f_code.co_filename not in _LOOP_FILES:
        frames.append(frame)
        frame = frame.f_back
    if not frames or frames[-1].f_code.co_filename == selectors.__file__:
        return None
    names = [
        f"{frame_type.f_globals.get('__name__', '?')}.{frame_type.f_code.co_qualname}"
        for frame_type in reversed(frames[:DEPTH])
    ]
    return CallbackStack(id(frames[-1]), ";".join(names), frames[0].f_lineno)


class LoopStep(NamedTuple):
    """A step: its wall time, its CPU time, the part of garbage collections, and its most frequent stack with the line of the
    innermost function, or ""."""

    seconds: float
    cpu_seconds: float
    gc_seconds: float
    stack: str


def longest_step(seconds: float, cpu_seconds: float, gc_seconds: float, samples: Sequence[CallbackStack]) -> LoopStep:
    """Return the longest step of a delay, in which the stacks were sampled at equal intervals."""
    runs = [list(run) for _, run in groupby(samples, lambda stack: stack.callback)]
    if not runs:
        return LoopStep(seconds, cpu_seconds, gc_seconds, "")
    longest = max(runs, key=len)
    part = len(longest) / len(samples)
    ((text, _),) = Counter(f"{stack.functions}:{stack.line}" for stack in longest).most_common(1)
    return LoopStep(seconds * part, max(cpu_seconds * part, min(gc_seconds, cpu_seconds)), gc_seconds, text)


class StepMonitor:
    """Measures the steps of an event loop. Call `start` and `stop` on the loop's thread. `profile`: the file of the profile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, profile: Path | None = None) -> None:
        self._loop = loop
        self._profile = _StepProfile(profile) if profile is not None else None
        self._ident = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="step-watch", daemon=True)
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._due = self._cpu = 0.0
        self._samples: list[CallbackStack] = []
        self._collecting = self._collected = 0.0
        self._window, self._current, self._previous = 0, 0.0, 0.0
        self._unlogged: LoopStep | None = None
        self._long = 0
        self._quiet_until = 0.0

    def start(self) -> None:
        LONGEST.set_function(lambda: max(self._current, self._previous))
        gc.callbacks.append(self._observe_collection)
        self._wait(monotonic(), thread_time(), PERIOD)
        self._thread.start()

    def stop(self) -> None:
        gc.callbacks.remove(self._observe_collection)
        if self._timer is not None:
            self._timer.cancel()
        self._stopped.set()
        self._thread.join(1.0)

    def _wait(self, now: float, cpu: float, period: float) -> None:
        self._samples, self._collected = [], 0.0
        self._began, self._cpu, self._due = now, cpu, now + period
        self._timer = self._loop.call_later(period, self._measure)

    def _measure(self) -> None:
        now, cpu = monotonic(), thread_time()
        late, self._due = now - self._due, inf  # the thread takes no samples of this method
        used = min(late, cpu - self._cpu)
        step = longest_step(late, used, self._collected, self._samples) if used > LEAST else LoopStep(late, used, 0.0, "")
        if (window := int(now / WINDOW)) != self._window:
            self._previous = self._current if window == self._window + 1 else 0.0
            self._window, self._current = window, 0.0
        self._current = max(self._current, step.cpu_seconds)
        if step.cpu_seconds > LEAST:
            LONG_STEPS.observe(step.cpu_seconds)
        if step.cpu_seconds > LIMIT:
            self._long += 1
            if self._unlogged is None or step.cpu_seconds > self._unlogged.cpu_seconds:
                self._unlogged = step
        idle = cpu - self._cpu < IDLE * (now - self._began)
        self._wait(now, cpu, IDLE_PERIOD if idle else PERIOD)

    def _observe_collection(self, phase: str, info: Mapping[str, int]) -> None:
        """Called by the garbage collector, in any thread."""
        if info["generation"] and threading.get_ident() == self._ident:
            if phase == "start":
                self._collecting = thread_time()
            else:
                self._collected += thread_time() - self._collecting

    def _run(self) -> None:
        late = False
        pause = IDLE_PERIOD if self._profile is None else PERIOD
        while not self._stopped.wait(LEAST if late else pause):
            now = monotonic()
            late = now > self._due + LEAST
            if late or self._profile is not None:
                samples = self._samples
                stack = callback_stack_of(sys._current_frames().get(self._ident))
                if late and stack is not None:
                    samples.append(stack)
                if self._profile is not None:
                    self._profile.add(now, stack)
            if self._unlogged is not None and now >= self._quiet_until:
                self._quiet_until = now + LOG_INTERVAL
                self._log()
        self._log()
        if self._profile is not None:
            self._profile.close()

    def _log(self) -> None:
        step, self._unlogged = self._unlogged, None
        count, self._long = self._long, 0
        if step is not None:
            cpu, wall, collections = round(step.cpu_seconds, 3), round(step.seconds, 3), round(step.gc_seconds, 3)
            text = "a step of the event loop took %.0f ms of CPU time: %s"
            event = EventLoopStepLong(wall, cpu, collections, count, step.stack).extra
            log.info(text, cpu * 1000, step.stack.rpartition(";")[2] or "unknown", extra=event)


class _StepProfile:
    """The file of a profile. A full disk loses seconds of the profile, and does not end the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._second = 0
        self._samples = 0
        self._stacks: Counter[str] = Counter()

    def add(self, now: float, stack: CallbackStack | None) -> None:
        if int(now) != self._second:
            self.write()
            self._second, self._samples = int(now), 0
            self._stacks.clear()
        self._samples += 1
        if stack is not None:
            self._stacks[stack.functions] += 1

    def write(self) -> None:
        """Write the second if the loop was busy."""
        busy = self._stacks.total() / self._samples if self._samples else 0.0
        if busy < BUSY:
            return
        line = {"at": self._second, "busy": round(busy, 2), "stacks": dict(self._stacks.most_common(STACKS))}
        with suppress(OSError):
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self.write()
        with suppress(OSError):
            self._file.close()
