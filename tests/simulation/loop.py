"""A deterministic asyncio event loop: virtual time, no I/O, and one source of chance, the seed.

    timers --due--> ready (of a process, first in first out) --a turn of a process, chosen by the seed--> callback

The loop plays several processes. Each is an event loop of its own, as far as it can tell: its callbacks run in the order in
which asyncio promises to run them, and what others do happens between its turns. A turn is one iteration of a real loop: what
was ready when it began. Time stands still but for TICK a callback, and jumps to the next timer when nobody has anything to do.

Everything of asyncio that builds on call_soon, call_at and futures works unchanged: tasks, timeouts, queues, events. What needs
a file descriptor or a thread raises NotImplementedError.

Tasks hash by their number, not by their address, so that asyncio's own sets of tasks iterate alike in every run.
"""

import asyncio
import gc
import heapq
import logging
import random
import sys
import warnings
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import count
from socket import AF_INET
from typing import Any

from tests.simulation.process import PROCESS, Process

START = 100_000.0
"""Monotonic seconds at which a run begins; not 0, so that a forgotten time is seen."""
TICK = 2e-6
"""Seconds that a callback takes. Without it a loop that waits for the time to change would wait for ever."""


class Stuck(Exception):
    """The run does not end: it has used up its steps or its time, or nobody will ever do anything again."""


class Handle:
    """asyncio.Handle and asyncio.TimerHandle in one, without what is not needed here."""

    __slots__ = ("args", "callback", "context", "process", "when_")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context, process: Process, when: float) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.process = process
        self.when_ = when

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_


class SimTask(asyncio.Task[Any]):
    """A task that knows its process, and has a number to be hashed by."""

    _numbers = count()
    number: int
    process: Process

    def __new__(cls, *args: Any, **kwargs: Any) -> "SimTask":
        self = super().__new__(cls)
        self.number = next(SimTask._numbers)
        return self

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.AbstractEventLoop):
    """`run` drives it. `failures`: exceptions that nobody took, as asyncio's exception handler gets them."""

    def __init__(self, seed: int, *, max_steps: int = 3_000_000, max_time: float = 600.0) -> None:
        """`max_time`: virtual seconds that a run may take."""
        self.rng = random.Random(seed)
        self.world = Process("world", self)
        self.steps = 0
        self.failures: list[str] = []
        self._now = START
        self._max_steps = max_steps
        self._end = START + max_time
        self._timers: list[tuple[float, int, Handle]] = []
        self._order = count()
        self._runnable: list[Process] = []
        self._tasks: list[SimTask] = []
        self._over = False
        SimTask._numbers = count()

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.world
        handle = Handle(callback, args, context, process, 0.0)
        if process.alive and not self._over:
            process.ready.append(handle)
            if not process.queued and not process.paused:
                process.queued = True
                self._runnable.append(process)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.world
        handle = Handle(callback, args, context, process, when)
        if process.alive and not self._over:
            heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        task = SimTask(coro, loop=self, name=name, context=context)
        task.process = (context.get(PROCESS) if context is not None else PROCESS.get()) or self.world
        self._tasks.append(task)
        if len(self._tasks) > 1000:
            self._tasks = [item for item in self._tasks if not item.done()]
        return task

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        """Every name is its own address."""
        return [(AF_INET, 0, 0, "", (host, port))]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._over:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    default_exception_handler = call_exception_handler

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._over

    def is_closed(self) -> bool:
        return self._over

    # --- running

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Runs `main`, of no process, to its end; then ends whatever still runs, without effects. Raises Stuck.

        The garbage collector is off meanwhile: it would end forgotten async generators at moments that no seed decides. What
        reference counts free is freed at the same step in every run.
        """
        collecting = gc.isenabled()
        gc.disable()
        gc.freeze()  # so that the collection at the end looks at this run's objects only
        hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finalize)
        try:
            task = self.create_task(main, context=self.world.context)
            while not task.done():
                self._step()
            return task.result()
        finally:
            self._finish()
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)
            gc.unfreeze()
            if collecting:
                gc.enable()

    def crashed(self, process: Process) -> None:
        """Forgets what a process that is dead now would have done. Its tasks are kept until the end of the run: a coroutine
        that is thrown away runs its `finally` clauses, which a killed process does not."""
        process.ready.clear()

    def resumed(self, process: Process) -> None:
        if process.ready and not process.queued:
            process.queued = True
            self._runnable.append(process)

    def _step(self) -> None:
        """The turn of one process."""
        if not self._runnable:
            self._jump()
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            self._wake(heapq.heappop(timers)[2])
        process = self._choose()
        if process is None:
            return
        ready = process.ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            self.steps += 1
            self._now += TICK
            try:
                handle.context.run(callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"callback {callback!r}", "exception": error})
            if process.paused or not process.alive:
                return
        if ready and not process.queued:
            process.queued = True
            self._runnable.append(process)
        if self.steps > self._max_steps:
            raise Stuck(f"{self.steps} steps at {self._now - START:.3f} s, and no end")

    def _jump(self) -> None:
        """Moves time to the next timer of somebody who can be woken."""
        timers = self._timers
        while timers and not self._runnable:
            when, _, handle = heapq.heappop(timers)
            if handle.callback is not None and handle.process.alive:
                if when > self._end:
                    raise Stuck(f"{when - START:.1f} s, and no end")
                self._now = max(self._now, when)
                self._wake(handle)
        if not self._runnable:
            raise Stuck(f"nobody will ever do anything again, at {self._now - START:.3f} s")

    def _wake(self, handle: Handle) -> None:
        process = handle.process
        if handle.callback is not None and process.alive:
            process.ready.append(handle)
            if not process.queued and not process.paused:
                process.queued = True
                self._runnable.append(process)

    def _choose(self) -> Process | None:
        runnable = self._runnable
        last = len(runnable) - 1
        index = int(self.rng.random() * (last + 1)) if last else 0
        process = runnable[index]
        runnable[index] = runnable[last]
        runnable.pop()
        process.queued = False
        return process if process.alive and not process.paused else None

    def _finalize(self, generator: Any) -> None:
        """An async generator was forgotten before its end: asyncio ends it in a task."""
        if not self._over:
            self.create_task(generator.aclose())

    def _finish(self) -> None:
        """Closes what has not ended. Nothing that the `finally` clauses do then has an effect."""
        self._over = True
        self._timers.clear()
        self._runnable.clear()
        with _in_silence():
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False
                    _close(task.get_coro())
            self._tasks.clear()
            gc.collect()


@contextmanager
def _in_silence() -> Iterator[None]:
    """Nobody wants to know what goes wrong in coroutines that are thrown away."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    disabled = logging.root.manager.disable
    logging.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    sys.unraisablehook = hook
    logging.disable(disabled)


def _close(coroutine: Any) -> None:
    """Ends a coroutine, even one that waits in a `finally` clause."""
    for _ in range(20):
        try:
            coroutine.close()
        except RuntimeError:  # it waits for something while it is closed
            continue
        except BaseException:
            return
        return
