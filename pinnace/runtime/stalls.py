"""A thread that notices that the event loop stands still, says where, and may interrupt what holds it.

    the loop answers --no answer for STALL seconds--> stalled: told, with the stack --answers--> told
                                                        |
                                                        +-- in code that may be interrupted: `Stalled` is raised there
                                                        '-- ... and that does not end it for LIMIT seconds: the process ends

Only time in which this thread was awake counts: a process that was stopped or starved of CPU has not stalled.

`blame` says who is at work in a stack, and whether it may be interrupted. Without it a stall is only told. The interruption is
a signal, SIGURG: it also ends a sleep and a system call. The handler looks at the stack again, on the main thread, so that
`Stalled` is only raised in code for which `blame` said so.

What it does not promise: to see anything while something holds the GIL.
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
"""Seconds without an answer after which the loop stands still. A leader is replaced sooner (ElectionsService: TIMING)."""
STEP = 0.25
"""Seconds between looks. A look that comes later than twice that counts for twice that."""
LIMIT = 60.0
"""Seconds for which code that may be interrupted may go on despite that. Then the process ends: it is of no use."""
STALLS = Counter("pinnace_event_loop_stalls", "Times that the event loop stood still for two seconds or more.")
SIGNAL = signal.SIGURG
"""Ignored unless somebody handles it; no library of ours uses it."""
_LINES = 12
"""Of the stack, in the log."""


class Stalled(BaseException):
    """Raised in code that holds the event loop. No Exception: `except Exception` must not swallow it."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who holds the event loop, such as 'plugin "X" in Filter'."""

    name: str
    may_be_interrupted: bool = False
    count: Callable[[], None] | None = None
    """Called once for each stall."""


Blame = Callable[[FrameType | None], Culprit | None]
"""Who is at work in a stack; None: somebody else. Called from another thread, and from a signal handler."""


def _nobody(frame: FrameType | None) -> Culprit | None:
    return None


class LoopWatch:
    """Of one loop, which runs on the main thread. `start` and `stop` are called there."""

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
        """For how long it may be silent until something is done about it."""
        self._interrupting = False
        self._told = ""
        self._before: object = None

    @property
    def stalled(self) -> str | None:
        """Where the loop stands still, in words; None: it does not. For any thread."""
        return f"it stands still for {self._silent:.1f} s{self._told}" if self._silent >= self._stall else None

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
                    log.warning("the event loop goes on, after %.1f s", self._silent, extra=resumed)
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
            log.error("the event loop stands still for %.1f s%s\n%s", self._silent, told, stack.rstrip(), extra=stalled)
        self._told = told
        if culprit is None or not culprit.may_be_interrupted:
            return
        if self._silent >= self._limit:
            log.critical("%s holds the event loop for %.0f s, despite interruptions; the process ends", told[2:], self._silent)
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
            self._patience = self._silent + self._stall / 2  # whatever comes next has some time of its own
            raise Stalled(f"it held the event loop for {self._silent:.1f} s")


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch]" = WeakKeyDictionary()


def stalled(loop: asyncio.AbstractEventLoop) -> str | None:
    """Where a loop stands still, in words. None: it does not, or is not watched."""
    watch = _watches.get(loop)
    return watch.stalled if watch is not None else None


def place_of(frame: FrameType | None) -> str:
    """Such as " (bad.py:12)"; empty: unknown."""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
