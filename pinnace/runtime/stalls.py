"""A watchdog thread for the event loop. It logs where the loop is blocked, and can interrupt the code that blocks it.

    the loop responds --no response for STALL seconds--> stalled: logged with the stack --responds--> logged
                                                          |
                                                          +-- in interruptible code: `Stalled` is raised there
                                                          '-- still blocked after LIMIT seconds: the process exits

Only time in which this thread runs counts. A process that is stopped or starved of CPU is not considered stalled.

`blame` identifies the code at the top of a stack, and decides whether it can be interrupted. Without `blame`, stalls are only
logged. An interruption is a SIGURG, which also ends sleeps and system calls. The signal handler calls `blame` again on the main
thread, so `Stalled` is raised only in interruptible code.

Stalls that hold the GIL are not detected.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType
from weakref import WeakKeyDictionary

from prometheus_client import Counter

from pinnace.runtime.logs import EventLoopResumed, EventLoopStalled

log = logging.getLogger(__name__)

STALL = 2.0
"""Seconds without a response after which the loop counts as stalled. A leader is replaced earlier (TIMING in
ElectionsService)."""
STEP = 0.25
"""Seconds between two checks. A late check counts for at most twice this time."""
LIMIT = 60.0
"""Seconds for which code may block the loop despite interruptions before the process exits."""
STALLS = Counter("pinnace_event_loop_stalls", "Times that the event loop was blocked for two seconds or more.")
SIGNAL = signal.SIGURG
"""Ignored by default, and not used by any of the libraries."""
_LINES = 12
"""The number of stack lines in the log."""
_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatchdog]" = WeakKeyDictionary()


class Stalled(BaseException):
    """Raised in code that blocks the event loop. It is a BaseException, so that `except Exception` does not catch it."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The code that blocks the event loop. `name`: for example, 'plugin "X" in Filter'."""

    name: str
    may_be_interrupted: bool = False
    count: Callable[[], None] | None = None
    """Called once for each stall."""


Blame = Callable[[FrameType | None], Culprit | None]
"""Returns the culprit for a stack, or None if it is unknown. Called from another thread and from a signal handler."""


def _unknown_culprit(frame: FrameType | None) -> Culprit | None:
    return None


class LoopWatchdog:
    """Watches an event loop on the main thread. Call `start` and `stop` on the main thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, blame: Blame = _unknown_culprit, *, stall: float = STALL, limit: float = LIMIT
    ) -> None:
        self._loop = loop
        self._blame = blame
        self._stall = stall
        self._step = min(STEP, stall / 4)
        self._limit = limit
        self._main = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)
        self._stopped = threading.Event()
        self._asked = self._answered = 0
        self._silent = 0.0
        self._patience = stall
        """Seconds of silence after which `_handle_stall` is called."""
        self._interrupting = False
        self._told = ""
        self._before: object = None

    @property
    def stall_description(self) -> str | None:
        """A description of the current stall, or None. Can be read from any thread."""
        return f"stalled for {self._silent:.1f} s{self._told}" if self._silent >= self._stall else None

    def start(self) -> None:
        self._before = signal.signal(SIGNAL, self._handle_signal)
        _watches[self._loop] = self
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(2 * self._step)
        signal.signal(SIGNAL, self._before if self._before is not None else signal.SIG_DFL)  # type: ignore[arg-type]  # a handler that `signal` has returned
        _watches.pop(self._loop, None)

    def _run(self) -> None:
        looked = monotonic()
        while not self._stopped.wait(self._step):
            now = monotonic()
            elapsed, looked = min(now - looked, 2 * self._step), now
            if self._answered == self._asked:
                if self._silent >= self._stall:
                    resumed = EventLoopResumed(self._silent).extra
                    log.warning("the event loop resumed after a stall of %.1f s", self._silent, extra=resumed)
                self._silent, self._patience, self._told, self._interrupting = 0.0, self._stall, "", False
                self._asked += 1
                try:
                    self._loop.call_soon_threadsafe(self._record_answer, self._asked)
                except RuntimeError:  # the loop is closed
                    return
                continue
            self._silent += elapsed
            if self._silent >= self._patience:
                self._handle_stall()

    def _record_answer(self, number: int) -> None:
        self._answered = number

    def _handle_stall(self) -> None:
        frame = sys._current_frames().get(self._main or 0)
        culprit = self._blame(frame)
        told = f": {culprit.name if culprit is not None else 'no plugin'}{format_location(frame)}"
        if not self._told:
            STALLS.inc()
            if culprit is not None and culprit.count is not None:
                culprit.count()
            stack = "".join(traceback.format_stack(frame)[-_LINES:]) if frame is not None else ""
            stalled = EventLoopStalled(culprit.name if culprit is not None else "", self._silent).extra
            log.error("the event loop is stalled for %.1f s%s\n%s", self._silent, told, stack.rstrip(), extra=stalled)
        self._told = told
        if culprit is None or not culprit.may_be_interrupted:
            return
        if self._silent >= self._limit:
            log.critical("%s blocked the event loop for %.0f s despite interruptions; exiting", told[2:], self._silent)
            logging.shutdown()
            os._exit(1)
        self._interrupting = True
        signal.pthread_kill(self._main or 0, SIGNAL)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGNAL, on the main thread."""
        if not self._interrupting:
            return
        culprit = self._blame(frame)
        if culprit is not None and culprit.may_be_interrupted:
            self._interrupting = False
            self._patience = self._silent + self._stall / 2  # restart the timer for the code that runs next
            raise Stalled(f"the code blocked the event loop for {self._silent:.1f} s")


def describe_stall(loop: asyncio.AbstractEventLoop) -> str | None:
    """Return a description of the loop's current stall, or None if it is not stalled or not watched."""
    watch = _watches.get(loop)
    return watch.stall_description if watch is not None else None


def format_location(frame: FrameType | None) -> str:
    """Format the location of a frame, for example " (bad.py:12)", or "" if the frame is unknown."""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
