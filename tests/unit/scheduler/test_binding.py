"""Binding: what is sent, and what is made of each answer. The API server is a fake, the time is ours."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.api.pods_pb2 import Fence
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import (
    ApiError,
    Conflict,
    Exhausted,
    Fenced,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Timeout,
    Unavailable,
)
from pinnace.scheduler.binding_cycle import BATCH, IN_FLIGHT, MAX_PENDING, RESOLVING, BindResult, bind_result
from tests.builders import make_pod
from tests.unit.scheduler.binder_world import CONFLICT, FENCED, NOT_FOUND, TOKEN, UNKNOWN, World, refusal
from tests.unit.scheduler.pods import info
from tests.unit.scheduler.running import running


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with running(world.binder):
        yield world


async def test_decisions_are_sent_as_one_batch_with_a_fence(world: World) -> None:
    world.submit("a", "b")
    await world.settle()
    assert world.api.batches == [(["a>n", "b>n"], Fence(election="scheduler", token=TOKEN))]
    assert world.told == ["bound a", "bound b"]
    assert world.assumed() == ["a", "b"], "the informer confirms, not the answer"


async def test_few_batches_are_on_their_way_and_the_next_ones_are_larger(world: World) -> None:
    world.api.gate.clear()
    for number in range(IN_FLIGHT + 5):
        world.submit(f"p{number}")
        await world.settle()
    assert [len(batch) for batch, _ in world.api.batches] == [1] * IN_FLIGHT
    world.api.gate.set()
    await world.settle()
    assert [len(batch) for batch, _ in world.api.batches] == [1] * IN_FLIGHT + [5]


async def test_full_binder_has_no_room_until_a_batch_leaves(world: World) -> None:
    world.api.gate.clear()
    world.submit(*(f"p{number}" for number in range(MAX_PENDING)))
    assert not world.binder.has_room
    await world.settle()
    assert world.binder.has_room and [len(batch) for batch, _ in world.api.batches] == [BATCH] * IN_FLIGHT
    await asyncio.wait_for(world.binder.wait_for_room(), 1.0)


async def test_pod_that_is_gone_is_forgotten(world: World) -> None:
    world.api.answer = lambda binding: NOT_FOUND
    world.submit("a")
    await world.settle()
    assert world.told == ["failed a: no"] and world.assumed() == []


async def test_refused_bind_does_not_affect_the_others(world: World) -> None:
    world.api.answer = lambda binding: CONFLICT if binding.metadata.name == "a" else None
    world.api.pods["a"] = make_pod("a")
    world.submit("a", "b")
    await world.settle()
    assert world.told == ["bound b"]
    await world.resolve()
    assert world.told == ["bound b", 'failed a: pod "a" is already assigned, retry']


async def test_refused_pod_that_is_being_deleted_is_not_tried_again(world: World) -> None:
    world.api.answer = lambda binding: refusal(Code.ABORTED, "Deleting", "deleting")
    world.api.pods["a"] = make_pod("a").terminating()
    world.submit("a")
    await world.settle()
    await world.resolve()
    assert world.told == ["failed a: deleting"]


async def test_refused_pod_with_another_uid_is_forgotten(world: World) -> None:
    world.api.answer = lambda binding: refusal(Code.ABORTED, "UIDMismatch", "other")
    world.api.pods["a"] = make_pod("a").uid("another")
    world.submit("a")
    await world.settle()
    await world.resolve()
    assert world.told == ["failed a: other"]


async def test_pod_that_was_bound_already_stays_assumed_until_the_informer_tells(world: World) -> None:
    world.api.answer = lambda binding: CONFLICT
    world.api.pods["a"] = make_pod("a").node("n")
    world.submit("a")
    await world.settle()
    await world.resolve()
    assert world.told == [] and world.assumed() == ["a"]
    world.cache.confirm_assumption(info(make_pod("a")).uid, "n")
    await world.resolve()
    assert world.told == ["bound a"] and len(world.api.batches) == 1


async def test_pod_bound_by_another_scheduler_is_forgotten(world: World) -> None:
    world.api.answer = lambda binding: CONFLICT
    world.submit("a")
    await world.settle()
    world.cache.add_pod(info(make_pod("a")), "m")
    await world.resolve()
    assert world.told == ["superseded a"] and world.api.reads == []
    assert world.cache.node_of(info(make_pod("a")).uid) == "m"


@pytest.mark.parametrize("error", [UNKNOWN, refusal(Code.DEADLINE_EXCEEDED), refusal(Code.UNAVAILABLE)])
async def test_unknown_outcome_that_happened(world: World, error: Refusal) -> None:
    world.api.whole = error
    world.submit("a")
    await world.settle()
    assert world.told == [] and world.assumed() == ["a"]
    world.cache.confirm_assumption(info(make_pod("a")).uid, "n")
    await world.resolve()
    assert world.told == ["bound a"] and world.api.reads == []


async def test_unknown_outcome_that_did_not_happen_is_asked_for_again_on_the_same_node(world: World) -> None:
    world.api.whole = UNKNOWN
    world.api.pods["a"] = make_pod("a")
    world.submit("a")
    await world.settle()
    world.api.whole = None
    await world.resolve()
    assert [batch for batch, _ in world.api.batches] == [["a>n"], ["a>n"]]
    assert world.told == ["bound a"] and world.assumed() == ["a"]


async def test_unknown_bind_is_kept_by_timers(world: World) -> None:
    world.api.whole = world.api.read_error = UNKNOWN
    world.submit("a")
    await world.settle()
    for _ in range(100):
        await world.resolve()
    assert world.told == [] and world.assumed() == ["a"] and len(world.api.reads) == 100


async def test_unknown_binds_are_resolved_in_portions_while_unavailable(world: World) -> None:
    """Each takes its ten seconds, and all that are in doubt keep their room until they have been asked about."""
    names = [f"p{number:02}" for number in range(3 * RESOLVING)]
    world.api.whole = world.api.read_error = UNKNOWN
    world.submit(*names)
    await world.settle()
    await world.resolve()
    assert len(world.api.reads) == RESOLVING
    await world.resolve()
    assert len(set(world.api.reads)) == 2 * RESOLVING, "the next ones have their turn"
    world.api.whole = world.api.read_error = None
    for _ in range(3):
        await world.resolve()
    assert sorted(world.told) == [f"failed {name}: no" for name in names], "they are gone"


async def test_unknown_bind_of_a_pod_that_is_gone_is_forgotten(world: World) -> None:
    world.api.whole = UNKNOWN
    world.submit("a")
    await world.settle()
    await world.resolve()
    assert world.told == ["failed a: no"]


async def test_fenced_bind_steps_down_without_an_event(world: World) -> None:
    world.api.answer = lambda binding: FENCED
    world.submit("a", "b")
    await world.settle()
    assert world.told == [f"fenced {TOKEN}"] and world.refused_binds == 2
    await world.resolve()
    assert world.told == [f"fenced {TOKEN}"] and world.api.reads == []


async def test_standing_down_gives_back_what_was_not_sent_and_keeps_what_was(world: World) -> None:
    world.api.gate.clear()
    world.submit(*(f"p{number}" for number in range(BATCH * IN_FLIGHT)))
    await world.settle()
    world.submit("late")
    unsent = world.binder.end_term()
    assert [decision.queued.info.name for decision in unsent] == ["late"]
    world.api.whole = UNKNOWN
    world.api.gate.set()
    await world.settle()
    await world.resolve()
    assert world.told == [] and world.api.reads == [] and len(world.assumed()) == BATCH * IN_FLIGHT + 1


async def test_good_news_counts_even_after_the_term(world: World) -> None:
    world.api.gate.clear()
    world.submit("a")
    await world.settle()
    world.binder.end_term()
    world.api.gate.set()
    await world.settle()
    assert world.told == ["bound a"]


async def test_answers_of_an_earlier_term_do_not_end_the_next(world: World) -> None:
    world.api.gate.clear()
    world.api.answer = lambda binding: FENCED
    world.submit("a")
    await world.settle()
    world.binder.end_term()
    world.binder.begin_term(TOKEN + 1)
    world.api.gate.set()
    await world.settle()
    assert world.told == []


async def test_decisions_of_another_term_are_a_bug(world: World) -> None:
    world.binder.end_term()
    with pytest.raises(ValueError, match="under token 7"):
        world.submit("a")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, BindResult.BOUND),
        (Fenced, BindResult.FENCED),
        (NotFound, BindResult.GONE),
        (Conflict, BindResult.REFUSED),
        (Invalid, BindResult.REFUSED),
        (Forbidden, BindResult.REFUSED),
        (Exhausted, BindResult.REFUSED),
        (Unavailable, BindResult.UNKNOWN),
        (Timeout, BindResult.UNKNOWN),
        (OutcomeUnknown, BindResult.UNKNOWN),
        (Internal, BindResult.UNKNOWN),
    ],
)
def test_verdicts(answer: type[ApiError] | None, expected: BindResult) -> None:
    assert bind_result(answer(NOT_FOUND) if answer else None) is expected
