"""A run: what is kept again, then so many shots of a seed, and in between a look at whether the server is still well."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from tests.fuzz import sound
from tests.fuzz.calls import Caller
from tests.fuzz.inputs import kept
from tests.fuzz.judge import judge
from tests.fuzz.live import Live, Usage
from tests.fuzz.probe import Keeper
from tests.fuzz.pulse import Pulse
from tests.fuzz.shots import Shot, Shots, Who

AT_ONCE = 8
"""Shots that are under way at the same time."""
ROUND = 250
"""Shots between two probes."""
STALL = 5.0
"""Seconds of CPU time for which what was sent may keep a small question waiting, on a slow machine."""
WAIT = 15.0
"""Seconds for which it may wait for whatever reason, other work on the machine included."""
GROWTH = 8.0
"""MB by which the server may grow after its first third, for each 10,000 shots. Its histories fill up all that time."""
WINDOW = 0.15
"""What part of a run memory is looked at together: a message of megabytes comes and goes, so that the least says what stays."""
ENOUGH = 15_000
"""Shots below which nothing is said about growth: caches are still filling."""
SETTLE = 20.0
"""Seconds after which what was abandoned must be gone: a fleet's session lasts three."""
MANY = 20
"""Problems after which a run ends."""


@dataclass
class Report:
    """What came of a run."""

    seconds: float = 0.0
    shots: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    """At the start, after each round, and when all is quiet again."""
    stall: float = 0.0
    """The longest that a call waited which needs nothing but the server's attention, in seconds of the server's CPU time."""
    wait: float = 0.0
    """The same by the clock."""
    slowest: tuple[float, str] = (0.0, "")

    def __str__(self) -> str:
        codes = ", ".join(f"{name} {count}" for name, count in self.codes.most_common())
        first, *_, last = self.usage
        start, third, end = self.memory()
        lines = [
            f"{self.shots} messages in {self.seconds:.1f} s; slowest answer {self.slowest[0]:.2f} s ({self.slowest[1]}), "
            f"longest stall {self.stall:.2f} s",
            f"by status code: {codes}",
            f"memory {start:.1f} MB at the start, {third:.1f} after a third, {end:.1f} at the end; "
            f"open files {first.files}, {max(usage.files for usage in self.usage)} at most, {last.files} at the end; "
            f"streams {first.streams}, {last.streams} at the end",
            *(f"PROBLEM {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)

    def memory(self) -> tuple[float, float, float]:
        """MB: at the start; and the least in a while after the first third, and before the end."""
        rss = [usage.rss for usage in self.usage]
        window = max(1, round(len(rss) * WINDOW))
        third = len(rss) // 3
        return rss[0], min(rss[third : third + window]), min(rss[-window:])


class Run:
    """`play` it once."""

    def __init__(self, server: Live, seed: int, say: Callable[[str], None]) -> None:
        self._server = server
        self._shots = Shots(seed, kept())
        self._say = say
        self._methods = dict(sound.methods())
        self.report = Report()

    async def play(self, messages: int) -> Report:
        """What is kept, and as many more shots as it takes to make so many."""
        replayed = self._shots.replayed
        return await self._play(chain(replayed, map(self._shots.shot, range(max(0, messages - len(replayed))))))

    async def play_one(self, number: int) -> Report:
        """One shot of the seed."""
        return await self._play(iter((self._shots.shot(number),)))

    async def _play(self, shots: Iterator[Shot]) -> Report:
        report, began = self.report, time.monotonic()
        keeper = Keeper(self._server)
        await keeper.look_around()
        report.problems += await keeper.probe()
        report.usage.append(self._server.usage())
        with Pulse(self._server.process.address, self._server.tls(Who.ADMIN), self._server.cpu) as pulse:
            caller = Caller(self._server, self._methods)
            while (batch := list(islice(shots, ROUND))) and len(report.problems) < MANY:
                await self._round(caller, batch)
                if not self._alive:
                    break
                report.problems += [
                    f"after {batch[-1].name}: {item}" for item in (*await keeper.probe(), *await keeper.sweep())
                ]
                report.usage.append(self._server.usage())
                if report.shots % (ROUND * 8) == 0:
                    self._say(f"{report.shots} messages, {report.usage[-1].rss:.1f} MB, {len(report.problems)} problems")
            await caller.close()
        report.stall, report.wait = pulse.longest, pulse.slowest
        report.problems += filter(None, (pulse.error,))
        if self._alive:
            await self._settle()
        await keeper.close()
        self._conclude()
        report.seconds = time.monotonic() - began
        return report

    @property
    def _alive(self) -> bool:
        return self._server.process.process.poll() is None

    async def _round(self, caller: Caller, shots: Sequence[Shot]) -> None:
        waiting = iter(shots)

        async def work() -> None:
            for shot in waiting:
                await self._fire(caller, shot)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def _fire(self, caller: Caller, shot: Shot) -> None:
        report, method = self.report, self._methods.get(shot.what.path)
        answer = await caller.send(shot)
        report.shots += 1
        report.codes[answer.code.name if answer.code is not None else "left open"] += 1
        if answer.seconds > report.slowest[0]:
            report.slowest = (answer.seconds, f"{shot.name} {shot.what.path}")
        report.problems += [
            f"{shot.name} {shot.what.path} as {shot.who.value} ({shot.how.name}, {shot.size} bytes): {problem}"
            for problem in judge(shot, answer, method)
        ]

    async def _settle(self) -> None:
        """Waits until what was abandoned is gone."""
        start, end = self.report.usage[0], time.monotonic() + SETTLE
        while (now := self._server.usage()) and (now.files > start.files or now.streams > start.streams):
            if time.monotonic() > end:
                more = f"{now.streams - start.streams} streams, {now.files - start.files} files ({self._server.files()})"
                self.report.problems.append(f"left behind: {more}")
                break
            await asyncio.sleep(0.1)
        self.report.usage.append(now)

    def _conclude(self) -> None:
        report = self.report
        if not self._alive:
            report.problems.append(f"the server has ended with {self._server.process.process.returncode}")
        report.problems += self._server.log_problems()
        if report.stall > STALL:
            report.problems.append(f"others waited while the server computed for {report.stall:.1f} s")
        if report.wait > WAIT:
            report.problems.append(f"a small question was answered after {report.wait:.1f} s")
        if report.shots >= ENOUGH:
            _, third, end = report.memory()
            growth = (end - third) / (report.shots * 2 / 3) * 10_000
            if growth > GROWTH:
                report.problems.append(f"the server grows by {growth:.1f} MB for each 10,000 messages")
