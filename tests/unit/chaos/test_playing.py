"""How a scenario waits for the cluster, and the report of a failed wait."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.api.status import Code, Refusal
from pinnace.chaos.perform import _play
from pinnace.chaos.scenarios.base import Act, PlayError
from pinnace.chaos.scenarios.figures import Moment
from pinnace.client.errors import Unavailable

OLD, NEW = Election(holder="s0", token=5), Election(holder="s1", token=9)


class FakeAct(Act):
    """`leaders`: the leader for each query; the last one repeats. Only s1 binds."""

    def __init__(self, *leaders: Election) -> None:
        stage: Any = SimpleNamespace(world=None, cluster=None)
        unused: Any = None
        super().__init__(stage, unused, unused, self, random.Random(0))  # type: ignore[arg-type]
        self.elections = self
        self._leaders = list(leaders)
        self._bound: Iterator[int] = iter(range(100))

    async def get(self, name: str) -> Election:
        return self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]

    async def binds(self, name: str, result: str) -> int:
        return next(self._bound) if name == NEW.holder else 70


async def test_binding_returns_the_current_leader() -> None:
    assert await FakeAct(OLD, OLD, NEW).binding() == NEW


async def test_binding_ignores_terms_up_to_the_given_token() -> None:
    assert (
        await FakeAct(Election(holder=NEW.holder, token=5), Election(holder=NEW.holder, token=5), NEW).binding(after=5) == NEW
    )


class FailingScenario:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def play(self, act: Act) -> None:
        act.saw("it is seen")
        act.did("kill -9", 100.0)
        act.moments[0] = Moment(101.5, "it is seen")
        raise self._error


@pytest.mark.parametrize("error", [PlayError("waited in vain"), Unavailable(Refusal(Code.UNAVAILABLE, "", "no answer"))])
async def test_events_before_the_failure_are_reported(error: Exception) -> None:
    failing: Any = FailingScenario(error)
    with pytest.raises(PlayError) as raised:
        await _play(failing, FakeAct(OLD))
    assert raised.value.moments == [Moment(0.0, "kill -9", hit=True), Moment(1.5, "it is seen")]
