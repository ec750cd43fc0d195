"""A watchdog thread for the event loop: it logs when and where the loop is blocked, and may interrupt the code that blocks it.

    the loop answers --no answer for STALL seconds--> stalled: logged, with the stack --answers--> logged
                                                        |
                                                        +-- in code that may be interrupted: `Stalled` is raised there
                                                        '-- ... and that does not end it for LIMIT seconds: the process ends

Only time in which this thread runs counts: a process that is stopped or starved of CPU does not count as stalled.

`blame` names the code that is executing in a stack, and decides whether it may be interrupted. Without it a stall is only
logged. The interruption is a signal, SIGURG, which also ends a sleep or a system call. Its handler calls `blame` again, on the
main thread, so that `Stalled` is raised only in code that may be interrupted.

A stall that holds the GIL is not noticed.
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
"""Seconds without an answer after which the loop counts as stalled. A leader is replaced sooner (ElectionsService: TIMING)."""
STEP = 0.25
"""Seconds between checks. A later check counts for at most twice this time."""
LIMIT = 60.0
"""Seconds for which code may block the loop in spite of interruptions. After that the process ends."""
STALLS = Counter("pinnace_event_loop_stalls", "Times that the event loop stood still for two seconds or more.")
SIGNAL = signal.SIGURG
"""Ignored by default, and used by none of our libraries."""
_LINES = 12
"""Lines of the stack in the log."""


class Stalled(BaseException):
    """Raised in code that blocks the event loop. A BaseException, so that `except Exception` does not swallow it."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """The code that blocks the event loop, such as 'plugin "X" in Filter'."""

    name: str
    may_be_interrupted: bool = False
    count: Callable[[], None] | None = None
    """Called once for each stall."""


Blame = Callable[[FrameType | None], Culprit | None]
"""Returns the code to blame for a stack; None: other code. Called from another thread, and from a signal handler."""


def _nobody(frame: FrameType | None) -> Culprit | None:
    return None


class LoopWatch:
    """Watches one loop, which runs on the main thread. Call `start` and `stop` there."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, blame: Blame = _nobody, *, stall: float = STALL, limit: float = LIMIT
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
        """Seconds of silence after which `_act` is called next."""
        self._interrupting = False
        self._told = ""
        self._before: object = None

    @property
    def stalled(self) -> str | None:
        """Where the loop is stalled, in words; None if it is not. For any thread."""
        return f"stalled for {self._silent:.1f} s{self._told}" if self._silent >= self._stall else None

    def start(self) -> None:
        self._before = signal.signal(SIGNAL, self._interrupted)
        _watches[self._loop] = self
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(2 * self._step)
        signal.signal(SIGNAL, self._before if self._before is not None else signal.SIG_DFL)  # type: ignore[arg-type]
        _watches.pop(self._loop, None)

    def _run(self) -> None:
        looked = monotonic()
        while not self._stopped.wait(self._step):
            now = monotonic()
            elapsed, looked = min(now - looked, 2 * self._step), now
            if self._answered == self._asked:
                if self._silent >= self._stall:
                    resumed = EventLoopResumed(self._silent).extra
                    log.warning("the event loop runs again, after a stall of %.1f s", self._silent, extra=resumed)
                self._silent, self._patience, self._told, self._interrupting = 0.0, self._stall, "", False
                self._asked += 1
                try:
                    self._loop.call_soon_threadsafe(self._answer, self._asked)
                except RuntimeError:  # it is closed
                    return
                continue
            self._silent += elapsed
            if self._silent >= self._patience:
                self._act()

    def _answer(self, number: int) -> None:
        self._answered = number

    def _act(self) -> None:
        frame = sys._current_frames().get(self._main or 0)
        culprit = self._blame(frame)
        told = f": {culprit.name if culprit is not None else 'no plugin'}{place_of(frame)}"
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
            log.critical("%s blocks the event loop for %.0f s in spite of interruptions; exiting", told[2:], self._silent)
            logging.shutdown()
            os._exit(1)
        self._interrupting = True
        signal.pthread_kill(self._main or 0, SIGNAL)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        """The signal's handler, on the main thread."""
        if not self._interrupting:
            return
        culprit = self._blame(frame)
        if culprit is not None and culprit.may_be_interrupted:
            self._interrupting = False
            self._patience = self._silent + self._stall / 2  # the code that runs next gets time of its own
            raise Stalled(f"it blocked the event loop for {self._silent:.1f} s")


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]" = WeakKeyDictionary()


def stalled(loop: asyncio.AbstractEventLoop) -> str | None:
    """Where a loop is stalled, in words; None if it is not stalled, or not watched."""
    watch = _watches.get(loop)
    return watch.stalled if watch is not None else None


def place_of(frame: FrameType | None) -> str:
    """The place of a frame, such as " (bad.py:12)"; "" if it is not known."""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
