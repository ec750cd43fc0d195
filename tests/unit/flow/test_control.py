"""Who begins, who waits, and who is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from pinnace.api.status import Code
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow import control
from pinnace.apiserver.flow.levels import (
    LEADER_ELECTION,
    MAX_IDLE_FLOWS,
    NODE_HIGH,
    SECONDS_PER_BYTE,
    SYSTEM,
    WORKLOAD,
    LazyRequest,
)
from tests.unit.flow.world import Request, World


@pytest.fixture
async def paced() -> AsyncIterator[World]:
    world = World(service=10.0)
    yield world
    await world.close()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Who waits begins as soon as there is room."""
    monkeypatch.setattr(control, "SEAT_PAUSE", 0.0)
    monkeypatch.setattr(control, "SEAT_PAUSE_UNCROWDED", 0.0)
    world = World()
    yield world
    await world.close()


async def test_without_contention_a_call_begins_without_waiting(world: World) -> None:
    with world.enter("eve") as seat:
        assert not seat.waits
        assert world.held() == 1
    assert world.held() == 0


@pytest.mark.parametrize("cost", [0, -(2**60)])
async def test_calls_take_at_least_one_seat(world: World, cost: int) -> None:
    """Or there would be room for any number of others beside it."""
    with world.enter("eve", cost):
        assert world.held() == 1
        world.send("others", 500)
        await world.settle()
        assert world.held() <= 80
    assert world.control.levels[WORKLOAD].waiting


async def test_single_level_borrows_from_all_levels(world: World) -> None:
    world.send("eve", 500)
    await world.settle()
    assert world.held() == 80, "the level itself has 50"


async def test_level_has_its_own_seats_at_once_however_many_it_has_lent(world: World) -> None:
    for user in range(50):
        world.send(f"user-{user}", 100)
    await world.settle()
    assert world.held() > 90
    for level, seats in ((LEADER_ELECTION, 5), (NODE_HIGH, 20), (SYSTEM, 25)):
        taken = [world.enter(f"{level}-{number}", level=level) for number in range(seats)]
        assert not any(seat.waits for seat in taken), level


async def test_borrowed_seats_are_returned(world: World) -> None:
    world.send("eve", 900)
    await world.settle()
    lent = [world.enter(f"fleet-{number}", level=NODE_HIGH) for number in range(20)]
    await world.clock.advance(0.02)
    await world.settle()
    assert world.held() == 64, "of the 80 that the others leave, four fifths"
    for seat in lent:
        seat.release()
    await world.settle()
    assert world.held() == 80


async def test_excess_calls_of_a_flow_are_served_in_rounds(paced: World) -> None:
    paced.send("eve", 60)
    await paced.settle()
    assert paced.held() == control.EAGER + control.ROUND
    with paced.enter("bob") as seat:
        assert not seat.waits
    await paced.clock.advance(0.9 * control.ROUND * control.SEAT_PAUSE)
    assert paced.held() == control.EAGER + control.ROUND
    await paced.clock.advance(0.2 * control.ROUND * control.SEAT_PAUSE)
    assert paced.held() == control.EAGER + 2 * control.ROUND
    await paced.clock.advance(control.ROUND * control.SEAT_PAUSE)
    assert paced.held() == 60


async def test_after_few_calls_the_pause_is_short(paced: World) -> None:
    paced.send("eve", control.EAGER + 1)
    await paced.settle()
    paced.send("eve", 1)
    await paced.clock.advance(1.1 * control.SEAT_PAUSE)
    assert paced.held() == control.EAGER + 2


async def test_rounds_that_are_missed_are_not_made_up_for(paced: World) -> None:
    """The server was busy: others have waited as well, and have their turns now."""
    paced.send("eve", 70)
    await paced.settle()
    paced.clock.stall(10 * control.ROUND * control.SEAT_PAUSE)
    await paced.clock.advance(0.0)
    assert paced.held() == control.EAGER + 2 * control.ROUND


async def test_single_flow_uses_the_whole_queue(paced: World) -> None:
    paced.send("eve", 1)
    await paced.clock.advance(control.UNCROWDED_AFTER)
    paced.send("eve", 60)
    await paced.clock.advance(1.1 * control.ROUND * control.SEAT_PAUSE_UNCROWDED)
    assert paced.held() == control.EAGER + 2 * control.ROUND


async def test_round_is_of_so_many_seats(paced: World) -> None:
    paced.send("eve", control.EAGER)
    paced.send("eve", 4, cost=control.ROUND // 2)
    await paced.settle()
    assert paced.held() == control.EAGER + control.ROUND
    await paced.clock.advance(1.1 * control.ROUND * control.SEAT_PAUSE)
    assert paced.held() == control.EAGER + 2 * control.ROUND


async def test_pending_request_is_read_alone(paced: World) -> None:
    large = LazyRequest(b"x" * (1 << 20))
    seats = [paced.control.request_seat(WORKLOAD, "eve", 1, Request()) for _ in range(control.EAGER)]
    seats += [paced.control.request_seat(WORKLOAD, "eve", 1, large) for _ in range(2)]
    await paced.settle()
    assert paced.held() == control.EAGER + 1
    await paced.clock.advance(len(large.data) * SECONDS_PER_BYTE)
    assert paced.held() == control.EAGER + 1, "it has been read just now"
    await paced.clock.advance(1.1 * control.SEAT_PAUSE)
    assert paced.held() == control.EAGER + 2
    for seat in seats:
        seat.release()


async def test_cancelled_call_leaves_the_queue(world: World) -> None:
    world.send("eve", 80)
    await world.settle()
    waiting = world.send("eve", 100)
    await world.settle()
    for task in waiting[:99]:
        task.cancel()
    await world.settle()
    assert world.control.levels[WORKLOAD].waiting == 1
    assert world.tally.refused == {"cancelled": 99}
    await world.clock.advance(0.1)
    assert waiting[99].done()
    assert (world.held(), len(world.callers["eve"].waits)) == (0, 81)


async def test_call_cancelled_at_dispatch_passes_the_seat_on(world: World) -> None:
    taken = [world.enter(f"user-{number}") for number in range(100)]
    (eve,) = world.send("eve")
    await world.settle()
    world.send("bob")
    await asyncio.sleep(0)
    taken[0].release()
    eve.cancel()
    await world.settle()
    assert world.held() == 100
    assert (len(world.callers["eve"].waits), len(world.callers["bob"].waits)) == (0, 1)


async def test_call_whose_deadline_has_passed_is_not_begun(world: World) -> None:
    with pytest.raises(Rejected) as caught:
        world.enter("eve", remaining=0.0)
    assert caught.value.refusal.code is Code.DEADLINE_EXCEEDED
    taken = [world.enter(f"user-{number}") for number in range(100)]
    seat = world.enter("eve", remaining=0.5)
    world.clock.stall(0.6)
    taken[0].release()
    with pytest.raises(Rejected, match="deadline"):
        await seat.acquire()
    assert world.held() == 99


async def test_queue_wait_is_limited(world: World) -> None:
    taken = [world.enter(f"user-{number}") for number in range(100)]
    (waiting,) = world.send("eve")
    await world.clock.advance(control.WAIT_TIMEOUT - control.TICK)
    assert not waiting.done()
    await world.clock.advance(3 * control.TICK)
    (rejected,) = world.callers["eve"].refusals
    assert rejected.refusal.reason == "TooManyRequests"
    assert world.tally.refused == {"time-out": 1}
    taken[0].release()
    assert world.held() == 99


async def test_queue_is_bounded_and_what_does_not_fit_is_refused_at_once(world: World) -> None:
    world.send("eve", 80)
    await world.settle()
    world.send("eve", control.MAX_WAITING + 3)
    await world.settle()
    refusals = [rejected.refusal for rejected in world.callers["eve"].refusals]
    assert [(refusal.code, refusal.reason) for refusal in refusals] == [(Code.UNAVAILABLE, "TooManyRequests")] * 3
    assert '"eve"' in refusals[0].message
    assert world.tally.refused == {"queue-full": 3}


async def test_queue_is_bounded_in_bytes_but_one_call_may_always_wait(world: World) -> None:
    taken = [world.enter(f"user-{number}") for number in range(100)]
    world.send("eve", 3, size=control.MAX_WAITING_BYTES + 1)
    await world.settle()
    assert len(world.callers["eve"].refusals) == 2
    taken[0].release()
    await world.settle()
    assert len(world.callers["eve"].waits) == 1
    world.send("eve", 1)
    await world.settle()
    assert len(world.callers["eve"].refusals) == 2, "what has begun is not in the queue any more"


async def test_refused_callers_get_staggered_retry_delays(world: World) -> None:
    world.send("eve", 80)
    await world.settle()
    world.send("eve", control.MAX_WAITING + 2000)
    await world.settle()
    delays = [rejected.refusal.retry_after or 0.0 for rejected in world.callers["eve"].refusals]
    assert delays[0] == control.RETRY_AFTER
    in_a_second = [delay for delay in delays if 2.0 < delay <= 3.0]
    assert len(in_a_second) == pytest.approx(control.RETRIES_PER_SECOND, abs=1)
    assert max(delays) == control.MAX_RETRY_AFTER


async def test_exempt_are_never_refused(world: World) -> None:
    for number in range(100):
        world.enter(f"user-{number}")
    with world.control.request_seat(None, "kubernetes-admin") as seat:
        assert not seat.waits
    assert world.held() == 100


class TestAnswers:
    """They may wait for their callers for much longer than the calls took, and cost memory."""

    MIB = 1 << 20

    async def test_slow_reader_uses_only_free_room(self, world: World) -> None:
        assert self.unread(world, "eve") == 64
        assert self.unread(world, "mallory") == 32
        self.read(world, "alice", self.MIB)

    async def test_refusal_has_a_reason_and_retry_delay(self, world: World) -> None:
        self.unread(world, "eve")
        with pytest.raises(Rejected, match=r"64\.0 MiB of responses .* read them") as rejected:
            self.read(world, "eve", self.MIB)
        refusal = rejected.value.refusal
        assert refusal.code is Code.UNAVAILABLE and refusal.reason == "TooManyRequests" and refusal.retry_after
        assert world.tally.refused["untaken"]

    async def test_taken_events_free_room(self, world: World) -> None:
        taken = self.read(world, "eve", 100 * self.MIB)
        with pytest.raises(Rejected):
            self.read(world, "eve", self.MIB)
        taken()
        assert self.unread(world, "eve") == 64

    async def test_many_that_are_at_work_together_have_the_same_bound(self, world: World) -> None:
        seats = [world.enter("eve") for _ in range(10)]
        seats[0].charge_response(100 * self.MIB, refusable=True)
        for seat in seats[1:]:
            with pytest.raises(Rejected):
                seat.charge_response(100 * self.MIB, refusable=True)

    async def test_released_seat_keeps_the_concurrency_limit(self, world: World) -> None:
        """It waits for somebody outside the server: for kubelets' figures, of thousands of pods."""
        with world.enter("eve") as seat:
            seat.release()
            seat.charge_response(100 * self.MIB, refusable=True)
        with pytest.raises(Rejected):
            self.read(world, "eve", self.MIB)

    async def test_single_response_may_wait_at_any_size(self, world: World) -> None:
        for user in range(3):
            self.read(world, f"user-{user}", 1000 * self.MIB)

    async def test_new_requests_are_refused_at_twice_the_memory_limit(self, world: World) -> None:
        self.unread(world, "eve")
        for _ in range(64):
            self.write(world, "eve")
        with pytest.raises(Rejected):
            self.write(world, "eve")

    async def test_watch_of_the_present_state_is_refused_as_a_list_is(self, world: World) -> None:
        self.unread(world, "eve")
        seat = world.enter("eve")
        with pytest.raises(Rejected, match="read them"):
            seat.open_watch_budget(PLAIN, bounded=False, initial=True)
        seat.open_watch_budget(PLAIN, bounded=True, initial=False)

    async def test_seats_stay_with_their_flow(self, world: World) -> None:
        """A level remembers so many flows only; to be forgotten would be to begin anew."""
        self.unread(world, "eve")
        for user in range(2 * MAX_IDLE_FLOWS):
            world.enter(f"user-{user}").release()
        with pytest.raises(Rejected):
            self.read(world, "eve", self.MIB)

    def read(self, world: World, user: str, size: int) -> Callable[[], None]:
        with world.enter(user) as seat:
            return seat.charge_response(size, refusable=True)

    def write(self, world: World, user: str) -> None:
        with world.control.request_seat(WORKLOAD, user, writes=True) as seat:
            seat.charge_response(self.MIB, refusable=False)

    def unread(self, world: World, user: str) -> int:
        """How many answers of a MiB somebody has who reads none."""
        for count in range(1000):
            try:
                self.read(world, user, self.MIB)
            except Rejected:
                return count
        raise AssertionError("there is no bound")


class TestWatches:
    async def test_flow_has_so_many_open(self, world: World) -> None:
        budget = world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False)
        assert world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=True) is budget
        watches = [Open() for _ in range(control.MAX_WATCHES)]
        for watch in watches:
            budget.add_watch(watch)
        with pytest.raises(Rejected, match="1,000 watches are open: close some") as rejected:
            world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False)
        refusal = rejected.value.refusal
        assert refusal.code is Code.UNAVAILABLE and refusal.reason == "TooManyRequests" and refusal.retry_after
        assert world.tally.refused == {"watches": 1}
        world.enter("eve").open_watch_budget(PLAIN, bounded=False, initial=False)
        world.enter("bob").open_watch_budget(PLAIN, bounded=True, initial=False)
        budget.remove_watch(watches[0])
        world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False)

    async def test_each_event_is_asked_so_much_for_a_flow(self, world: World) -> None:
        """Once for all watches that select the same."""
        wide = [Selected(f"wide-{number}", 100) for number in range(10)]
        budget = world.enter("eve").open_watch_budget(wide[0], bounded=True, initial=False)
        watches = [Open(selection) for selection in wide for _ in range(3)]
        for watch in watches:
            budget.add_watch(watch)
        assert budget.requirement_count == control.MAX_SELECTOR_REQUIREMENTS
        world.enter("eve").open_watch_budget(wide[5], bounded=True, initial=False)
        with pytest.raises(Rejected, match="30 open watches have 1,000 selector requirements, this one has 1: close some"):
            world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False)
        assert world.tally.refused == {"watches": 1}
        world.enter("eve").open_watch_budget(PLAIN, bounded=False, initial=False)
        world.enter("bob").open_watch_budget(PLAIN, bounded=True, initial=False)
        for watch in (*watches[:2], watches[0]):
            budget.remove_watch(watch)
        assert budget.requirement_count == control.MAX_SELECTOR_REQUIREMENTS
        budget.remove_watch(watches[2])
        assert budget.requirement_count == control.MAX_SELECTOR_REQUIREMENTS - 100
        world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False)

    async def test_seats_stay_with_their_flow(self, world: World) -> None:
        with world.enter("eve") as seat:
            budget = seat.open_watch_budget(PLAIN, bounded=True, initial=False)
        budget.add_watch(Open())
        for user in range(2 * MAX_IDLE_FLOWS):
            world.enter(f"user-{user}").release()
        assert world.enter("eve").open_watch_budget(PLAIN, bounded=True, initial=False) is budget


@dataclass(frozen=True)
class Selected:
    name: str
    requirement_count: int


PLAIN = Selected("everything", 1)


class Open:
    """A watch for which nothing waits."""

    buffered_bytes = 0

    def __init__(self, selection: Selected = PLAIN) -> None:
        self.selection = selection

    def end_overflowed(self) -> None:
        raise AssertionError
