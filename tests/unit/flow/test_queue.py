"""Whose turn it is, and what a flow may hold."""

from collections import Counter
from dataclasses import dataclass

from pinnace.apiserver.flow.levels import MAX_IDLE_FLOWS, PriorityLevel, UserFlow
from pinnace.apiserver.flow.send_budget import SendPool

SEATS = 100


@dataclass(eq=False)
class Call:
    cost: int = 1
    size: int = 0


def level() -> PriorityLevel[Call]:
    return PriorityLevel("workload", SEATS, SendPool())


def free(of: PriorityLevel[Call]) -> int:
    return of.seats - of.seats_in_use


def fill(flow: UserFlow[Call], cost: int = 1) -> int:
    """Begins calls of the flow for as long as they fit; how many."""
    begun = 0
    while flow.can_dispatch(cost, free(flow.level)):
        flow.start_call(cost)
        begun += 1
    return begun


def serve(of: PriorityLevel[Call], calls: int) -> list[str]:
    """So many of the calls that wait, each over before the next begins: whose they are."""
    order = []
    for _ in range(calls):
        flow = of.next_flow(free(of))
        assert flow is not None
        call = flow.first_call()
        flow.remove_call(call)
        flow.start_call(call.cost)
        flow.finish_call(call.cost)
        order.append(flow.user)
    return order


def wait(flow: UserFlow[Call], calls: int, cost: int = 1) -> None:
    for _ in range(calls):
        flow.enqueue_call(Call(cost))


def test_flow_that_is_alone_has_four_fifths_of_the_seats() -> None:
    assert fill(level().flow("eve")) == 80


def test_later_flows_get_seats() -> None:
    of = level()
    held = [fill(of.flow(user)) for user in ("eve", "bob", "ann")]
    assert held == [80, 16, 3]


def test_two_saturating_flows_get_equal_shares() -> None:
    """What the first had before goes to the second, as its calls end."""
    of = level()
    eve, bob = of.flow("eve"), of.flow("bob")
    fill(eve)
    for _ in range(500):
        eve.finish_call(1)
        for flow in sorted((eve, bob), key=lambda flow: flow.clock):
            if flow.can_dispatch(1, free(of)):
                flow.start_call(1)
    assert sorted((eve.seats_in_use, bob.seats_in_use)) == [44, 45]


def test_turns_alternate_however_long_one_queue_is() -> None:
    of = level()
    wait(of.flow("eve"), 500)
    wait(of.flow("bob"), 10)
    order = serve(of, 20)
    assert (order.count("eve"), order.count("bob")) == (10, 10)


def test_idle_flow_accumulates_no_credit() -> None:
    of = level()
    of.flow("bob")
    wait(of.flow("eve"), 200)
    serve(of, 100)
    wait(of.flow("bob"), 100)
    assert serve(of, 20).count("bob") in (10, 11)


def test_turns_are_shared_by_width() -> None:
    of = level()
    wait(of.flow("wide"), 100, cost=10)
    wait(of.flow("slim"), 100)
    order = serve(of, 66)
    assert (order.count("wide"), order.count("slim")) == (6, 60)


def test_equal_flows_get_equal_shares() -> None:
    """All calls end at once, again and again; the wide ones may begin where the others must wait for more to be free."""
    of: PriorityLevel[Call] = PriorityLevel("workload", 12, SendPool())
    wait(of.flow("wide"), 1000, cost=7)
    for number in range(4):
        wait(of.flow(f"user-{number}"), 1000, cost=2)
    begun = Counter[str]()
    for _ in range(100):
        running = list[tuple[UserFlow[Call], Call]]()
        while (flow := of.next_flow(free(of))) is not None:
            call = flow.first_call()
            flow.remove_call(call)
            flow.start_call(call.cost)
            running.append((flow, call))
        for flow, call in running:
            flow.finish_call(call.cost)
        begun.update(flow.user for flow, _ in running)
    shares = [begun[f"user-{number}"] for number in range(4)]
    assert max(shares) - min(shares) <= 2, begun


def test_wide_call_does_not_starve_where_one_seat_at_a_time_is_free() -> None:
    of = level()
    for number in range(SEATS - 1):
        of.flow(f"user-{number}").start_call(1)
    wait(of.flow("wide"), 1, cost=51)
    assert of.next_flow(free(of)) is of.flow("wide")


def test_new_flow_does_not_start_in_debt() -> None:
    of = level()
    of.flow("wide").start_call(SEATS + 50)
    wait(of.flow("slim"), 1)
    assert of.next_flow(free(of)) is None


def test_idle_flows_are_forgotten_when_they_are_many() -> None:
    of = level()
    busy, crowded = of.flow("busy"), of.flow("crowded")
    busy.start_call(1)
    wait(crowded, 1)
    idle = of.flow("idle")
    for number in range(MAX_IDLE_FLOWS):
        of.flow(f"user-{number}")
    assert of.flow("busy") is busy
    assert of.flow("crowded") is crowded
    assert of.flow("idle") is not idle
