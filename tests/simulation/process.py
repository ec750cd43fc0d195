"""Simulated processes: what a callback belongs to, whether it runs, and which clocks it sees."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.loop import Handle, SimLoop

PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
"""Who runs; tasks and callbacks inherit it from those who made them."""
EPOCH = 1_700_000_000.0
"""Unix time at monotonic 0."""


class SimClock:
    """A `pinnace.runtime.clock.Clock`: monotonic time is the loop's, and the same for all; the wall clock can be set."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self.offset = 0.0
        """Seconds by which the wall clock is wrong."""

    def monotonic(self) -> float:
        return self._loop.time()

    def time(self) -> float:
        return EPOCH + self._loop.time() + self.offset

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Process:
    """One life of a process: a restarted one is a new Process with the old one's name and clock.

    running --pause--> paused --resume--> running         paused: what becomes ready waits, as after SIGSTOP
       '-------crash-----'----> dead                      dead: nothing runs any more, as after SIGKILL
    """

    def __init__(self, name: str, loop: "SimLoop", clock: SimClock | None = None) -> None:
        self.name = name
        self.clock = clock or SimClock(loop)
        self.alive = True
        self.paused = False
        self.ready: deque[Handle] = deque()
        self.queued = False
        """Is it among those that the loop may choose from?"""
        self.on_crash: list[Callable[[], None]] = []
        """What the kernel does when the process dies: closing its connections."""
        self.on_exit: Callable[[BaseException | None], None] | None = None
        self._loop = loop
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Runs a main function. One that ends with an exception is a failure of the run."""
        task: asyncio.Task[None] = self.context.run(lambda: self._loop.create_task(self._main(main), context=self.context))
        return task

    async def _main(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await main()
        except Exception as error:
            self._loop.call_exception_handler({"message": f"{self.name} died", "exception": error})

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self.alive:
            self._loop.resumed(self)

    def crash(self) -> None:
        self.alive = False
        self._loop.crashed(self)
        for closed in self.on_crash:
            closed()
