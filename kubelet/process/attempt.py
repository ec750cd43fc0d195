"""One run of a container: as its folder has it, and as its shim goes on writing there.

    begin --> created --the process runs--> running --it has ended--> exited
       '------- could not be started --------------------------------^
    find: whichever of these an earlier kubelet process has left

Every change by itself is told to `changed`, on the event loop. A shim that ends without having said how is gone with its
process: exit code 137, as of a container that nobody knows any more.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from kubelet.process import files, sessions, shims
from kubelet.process.files import Ended, Plan, Running
from kubelet.runtime import ContainerState, Exit, Instant, past, read
from pinnace.runtime.clock import Clock

LOST = 137
START_ERROR = 128
POLL = 0.05
"""Seconds between looks at a shim that an earlier kubelet process had just begun."""


class Attempt:
    """`begin` or `find` it. `stop_grace`: the grace with which it was last asked to stop."""

    def __init__(self, folder: Path, number: int, changed: Callable[[], None], clock: Clock) -> None:
        self.folder = folder
        self.number = number
        self.started: Instant | None = None
        self.exit: Exit | None = None
        self.stop_grace: float | None = None
        self._changed = changed
        self._clock = clock
        self._deadline: float | None = None
        self._pid = 0  # of a shim that is our own child
        self._pidfd: int | None = None
        self._ready: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> ContainerState:
        if self.exit is not None:
            return ContainerState.EXITED
        return ContainerState.RUNNING if self.started is not None else ContainerState.CREATED

    @property
    def log(self) -> Path:
        return self.folder / files.LOG

    def begin(self, plan: Plan, now: Instant) -> None:
        """Starts it, or has it exited with the reason why it cannot be."""
        try:
            self.folder.mkdir(parents=True)
            files.write(str(self.folder / files.PLAN), plan)
            self._pid, self._ready = shims.start(self.folder)
            self._pidfd = os.pidfd_open(self._pid)
        except OSError as error:
            self.fail(str(error), now)
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ready, self._runs)
        loop.add_reader(self._pidfd, self._ended)

    def fail(self, why: str, now: Instant) -> None:
        """It could not be started."""
        self.exit = Exit(START_ERROR, now, now, "StartError", why)

    def find(self, now: Instant) -> None:
        """Takes up what is in the folder."""
        if (stop := files.read(str(self.folder / files.STOP))) is not None:
            self.stop_grace, self._deadline = stop["grace"], stop["deadline"]
        self._look(now)

    def stop(self, grace: float, now: Instant) -> None:
        """See kubelet.runtime.Runtime.stop. Raises OSError: the disk had no room to ask it; ask again. Once its time is
        over it is killed, which needs none."""
        if self.exit is None:
            deadline = now.after(grace).monotonic
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
            try:
                shims.stop(self.folder, grace, self._deadline)
            except OSError:
                if now.monotonic < self._deadline:
                    raise
                shims.kill(self.folder)
            self.stop_grace = grace

    def forget(self) -> None:
        """Lets it run on, unobserved."""
        loop = asyncio.get_running_loop()
        for descriptor in (self._ready, self._pidfd):
            if descriptor is not None:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._ready = self._pidfd = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, now: Instant) -> None:
        """At one that we have not begun: it may be anywhere on its way."""
        self._timer = None
        alive = shims.lives(self.folder)
        if alive and self._pidfd is None and (descriptor := shims.handle(self.folder)) is not None:
            self._pidfd = descriptor
            self._pid = int((self.folder / files.LOCK).read_text())
            asyncio.get_running_loop().add_reader(descriptor, self._ended)
        self._read_running(now)
        if not alive:
            self._read_exit(now)
        elif self._pidfd is None or self.started is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._look_again)

    def _look_again(self) -> None:
        before = self.state
        self._look(read(self._clock))
        if self.state is not before:
            self._changed()

    def _runs(self) -> None:
        """The shim has closed the descriptor by which it says so; or has ended."""
        assert self._ready is not None
        asyncio.get_running_loop().remove_reader(self._ready)
        os.close(self._ready)
        self._ready = None
        if self.exit is None and self.started is None:
            self._read_running(read(self._clock))
            if self.started is not None:
                self._changed()

    def _ended(self) -> None:
        """The shim has."""
        now = read(self._clock)
        shims.reap(self._pid)
        self.forget()
        self._read_running(now)
        self._read_exit(now)
        self._changed()

    def _read_running(self, now: Instant) -> None:
        running: Running | None = files.read(str(self.folder / files.RUNNING))
        if running is not None and self.started is None:
            self.started = past(running["at"], now)

    def _read_exit(self, now: Instant) -> None:
        ended: Ended | None = files.read(str(self.folder / files.EXIT))
        if ended is not None:
            started = self.started or past(ended["started"], now)
            finished = max(started, past(ended["finished"], now))
            self.exit = Exit(ended["code"], started, finished, ended["reason"], ended["message"])
            return
        if (running := files.read(str(self.folder / files.RUNNING))) is not None:
            sessions.kill_rest(running)
        message = "its shim has ended without saying how the process did: it was killed, or the machine has booted again"
        self.exit = Exit(LOST, self.started or now, now, "ContainerStatusUnknown", message)
