"""Calls with the fence of a leader."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.client import errors
from pinnace.client.channel import FencedCaller
from tests.unit.client.conftest import Connect, Serve
from tests.unit.client.fakeserver import FakeServer, refuse

METHOD = "/pinnace.v1.Pods/Create"
NOT_NOW = Refusal(Code.UNAVAILABLE, "", "not now", retry_after=0.0)


class Answers:
    """Refuses the first `refusals` calls. `fences` has the fence of each call."""

    def __init__(self, server: FakeServer, refusals: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.fences: list[str | None] = []
        self._refusals = refusals
        self._meanwhile = meanwhile
        server.on(METHOD, GetRequest, self._answer)

    async def _answer(self, request: GetRequest, context: Any) -> Pod:
        self.fences.append(dict(context.invocation_metadata()).get(fences.KEY))
        if len(self.fences) <= self._refusals:
            self._meanwhile()
            await refuse(context, NOT_NOW)
        return Pod()


async def write(guarded: FencedCaller) -> None:
    await guarded.call(METHOD, GetRequest(name="a"), Pod, timeout=5.0)


async def test_fence_is_sent_with_each_attempt(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answers = Answers(server, refusals=1)
    await write(FencedCaller(connect(server), lambda: Fence(election="controllers", token=7)))
    assert answers.fences == ["controllers/7/", "controllers/7/"]


async def test_guarded_call_of_a_non_leader_is_not_sent(serve: Serve, connect: Connect) -> None:
    server = await serve()
    answers = Answers(server)
    with pytest.raises(errors.Fenced):
        await write(FencedCaller(connect(server), lambda: None))
    assert answers.fences == []


async def test_call_of_one_term_is_not_retried_in_the_next(serve: Serve, connect: Connect) -> None:
    """The call may rest on outdated state, and the new term starts with a fresh view."""
    server, tokens = await serve(), [7]
    answers = Answers(server, refusals=1, meanwhile=lambda: tokens.append(9))
    with pytest.raises(errors.Fenced):
        await write(FencedCaller(connect(server), lambda: Fence(election="controllers", token=tokens[-1])))
    assert answers.fences == ["controllers/7/"]
