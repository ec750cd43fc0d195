import asyncio
from collections.abc import Mapping

import pytest

from pinnace.client.informer import OtherHistory, RestartSupervisor
from pinnace.client.standby import TermFailed
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from tests.clock import FakeClock


class Bug(Exception):
    pass


class Life:
    """Ends with the next error. Without further errors it runs forever."""

    def __init__(self, number: int, errors: list[Exception]) -> None:
        self.number = number
        self._errors = errors
        self.ended = False

    @property
    def checks(self) -> Mapping[str, Check]:
        return {"number": lambda: str(self.number)}

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.Event().wait())
                group.create_task(self._end())
        finally:
            self.ended = True

    async def _end(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


def lives_of(*errors: Exception, clock: Clock = SYSTEM_CLOCK) -> tuple[RestartSupervisor[Life], list[Life]]:
    made: list[Life] = []
    left = list(errors)

    def make() -> Life:
        assert all(life.ended for life in made), "two instances run at once"
        made.append(Life(len(made), left))
        return made[-1]

    return RestartSupervisor(make, clock), made


async def test_changed_history_starts_a_new_instance() -> None:
    lives, made = lives_of(OtherHistory("gone"), OtherHistory("gone again"))
    shown = lives.checks["number"]
    assert shown() == "0"
    running = asyncio.ensure_future(lives.run())
    async with asyncio.timeout(5):
        while len(made) < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
    assert shown() == "2" and lives.now is made[2] and not made[2].ended
    running.cancel()
    await asyncio.wait((running,))
    assert made[2].ended


async def test_short_lived_instances_are_restarted_with_backoff() -> None:
    """With two API servers of different histories, a component could switch between them without a pause."""
    clock = FakeClock()
    lives, made = lives_of(*[OtherHistory("gone")] * 100, clock=clock)
    running = asyncio.ensure_future(lives.run())
    await clock.advance(20)
    assert 5 < len(made) < 20
    running.cancel()
    await asyncio.wait((running,))


async def test_failed_term_is_reported_by_readyz_until_the_restart() -> None:
    clock = FakeClock()
    lives, made = lives_of(TermFailed("no pod has been tried"), clock=clock)
    running = asyncio.ensure_future(lives.run())
    await asyncio.sleep(0.01)
    assert lives.checks["number"]() == "restarting: no pod has been tried"
    await clock.advance(5.0)
    assert len(made) == 2 and lives.checks["number"]() == "1"
    running.cancel()
    await asyncio.wait((running,))


async def test_error_outside_the_causes_is_raised() -> None:
    failing, _ = lives_of(TermFailed("no"))
    lives = RestartSupervisor(lambda: failing.now, causes=(OtherHistory,))
    with pytest.raises(ExceptionGroup) as raised:
        await lives.run()
    assert raised.group_contains(TermFailed)


async def test_unknown_error_is_raised() -> None:
    lives, made = lives_of(OtherHistory("gone"), Bug())
    with pytest.raises(ExceptionGroup) as raised:
        await lives.run()
    assert len(made) == 2 and raised.group_contains(Bug)
