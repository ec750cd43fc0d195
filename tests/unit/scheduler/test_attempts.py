"""A pod whose attempt ended a leader's term is not the first that the next leader takes.

One pod that took longer than the lease ended 20 terms in 20 seconds: each leader took it first.
"""

import time

import pytest

from pinnace.api import conditions
from pinnace.api.elections_pb2 import Term
from pinnace.api.scalars import to_micro_time
from pinnace.apiserver.election import term_history as terms
from pinnace.scheduler import attempts
from pinnace.scheduler.attempts import (
    FIRST,
    MARK,
    MOST,
    AttemptMarks,
    has_attempt_mark,
    last_terms_were_short,
    record_attempt_end,
    remaining_delay,
    with_attempt_mark,
)
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import make_pod
from tests.clock import FakeClock
from tests.unit.scheduler.cluster import Cluster, small
from tests.unit.scheduler.pods import framework, info


def term(token: int, began: float, ended: float | None, reason: str = terms.NO_HEARTBEATS) -> Term:
    made = Term(election="scheduler", token=token, reason=reason)
    made.began.CopyFrom(to_micro_time(began))
    if ended is not None:
        made.ended.CopyFrom(to_micro_time(ended))
    return made


def test_two_short_terms_without_resignation_enable_marking() -> None:
    assert last_terms_were_short([term(1, 0, 50), term(2, 100, 102), term(3, 102, 104)], 104)
    assert last_terms_were_short([term(2, 100, 102), term(3, 102, None)], 104)


@pytest.mark.parametrize(
    "last",
    [
        [],
        [term(2, 100, 102)],
        [term(2, 50, 100), term(3, 100, 102)],
        [term(2, 100, 102), term(3, 102, 110)],
        [term(2, 100, 102), term(3, 102, None)],
        [term(2, 100, 102), term(3, 102, 103, terms.RESIGNED)],
    ],
)
def test_other_terms_are_none(last: list[Term]) -> None:
    assert not last_terms_were_short(last, 110)


def test_resignation_reason_equals_the_api_servers() -> None:
    assert attempts.RESIGNED == terms.RESIGNED


async def test_careful_leader_marks_for_some_time_and_marked_pods_always() -> None:
    clock = FakeClock()

    async def history() -> list[Term]:
        return [term(1, 0, 2), term(2, 2, 4)]

    careful = AttemptMarks(history, clock)
    pod, again = make_pod("a").build(), with_attempt_mark(make_pod("a").build(), 5.0)
    assert (
        not careful.begin_term(2)
        and not careful.must_mark(pod, clock.monotonic())
        and careful.must_mark(again, clock.monotonic())
    )
    await careful.refresh_terms()
    assert careful.begin_term(3)
    assert careful.must_mark(pod, clock.monotonic())
    assert not careful.must_mark(pod, clock.monotonic() + attempts.CAREFUL)


def test_marked_pod_is_held_back_for_longer_each_time() -> None:
    pod = with_attempt_mark(make_pod("a").build(), 1000.0)
    assert (
        remaining_delay(pod, 1000.0) == FIRST
        and remaining_delay(pod, 1004.0) == FIRST - 4
        and remaining_delay(pod, 1020.0) == 0
    )
    pod = with_attempt_mark(pod, 1012.0)
    assert remaining_delay(pod, 1012.0) == 24
    pod = with_attempt_mark(pod, 1040.0)
    assert remaining_delay(pod, 1040.0) == 80
    pod = with_attempt_mark(pod, 9000.0)
    assert remaining_delay(pod, 9000.0) == MOST
    assert remaining_delay(pod, 0.0) == MOST  # the clock of who wrote the mark is ahead


def test_attempt_that_has_ended_holds_nothing_back() -> None:
    pod = with_attempt_mark(make_pod("a").build(), 1000.0)
    record_attempt_end(pod, 1001.0)
    assert not has_attempt_mark(pod) and remaining_delay(pod, 1001.0) == 0
    assert remaining_delay(with_attempt_mark(pod, 2000.0), 2000.0) == FIRST


def queue_of(*names: str) -> SchedulingQueue:
    queue = SchedulingQueue(framework())
    for name in names:
        queue.add_pod(info(make_pod(name)), 0.0)
    return queue


def test_new_pod_that_is_held_back_is_not_popped_before_its_time() -> None:
    queue = queue_of()
    queue.add_pod(info(make_pod("a")), 0.0, wait=10.0)
    assert queue.pop_pod(9.0) is None and queue.next_due() == 10.0
    queued = queue.pop_pod(10.0)
    assert queued is not None and queued.info.name == "a" and queue.pop_pod(10.0) is None


def test_active_pod_is_put_off() -> None:
    """On a standby, which hears of the mark while the pod waits."""
    queue = queue_of("a", "b")
    queue.add_pod(info(make_pod("a")), 1.0, wait=10.0)
    assert queue.count_by_place() == {"active": 1, "backoff": 1}
    popped = [queued.info.name for queued in iter(lambda: queue.pop_pod(2.0), None)]
    assert popped == ["b"]
    queued = queue.pop_pod(11.0)
    assert queued is not None and queued.info.name == "a" and len(queue) == 0


def test_pod_in_its_backoff_is_put_off() -> None:
    """On the leader that made the attempt, once it goes on."""
    queue = queue_of("a")
    queued = queue.pop_pod(0.0)
    assert queued is not None
    queue.add_failed(queued, 0.0)
    queue.add_pod(info(make_pod("a")), 0.5, wait=10.0)
    assert queue.pop_pod(9.0) is None
    assert queue.pop_pod(10.5) is queued


async def test_others_are_bound_while_a_marked_pod_is_held_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST", 3.0)
    await cluster.create(small("n"), make_pod("suspect").req(cpu="1m"))
    suspect = await cluster.pod("suspect")
    began = time.time()
    await cluster.client.pods.update_status(with_attempt_mark(suspect, began))
    await cluster.create(make_pod("other").req(cpu="1m"))
    cluster.schedule("s0")
    assert await cluster.bound("other") == "n"
    assert not (await cluster.pod("suspect")).spec.nodeName
    assert await cluster.bound("suspect") == "n"
    mark = conditions.find_condition((await cluster.pod("suspect")).status.conditions, MARK)
    assert mark is not None and mark.lastProbeTime.seconds > int(began)


async def test_after_short_terms_a_leader_marks_before_it_decides(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "INTERVAL", 0.05)
    await cluster.create(small("n"))
    scheduler = cluster.schedule("s0")
    marks = [await mark_of_next_pod(cluster, 0)]
    while marks[-1] is None and len(marks) < 10:
        await cluster.until(lambda: knows_terms(scheduler, cluster, len(marks)))
        await cluster.depose()
        marks.append(await mark_of_next_pod(cluster, len(marks)))
    assert marks[0] is None and marks[-1] == "Unknown"


async def mark_of_next_pod(cluster: Cluster, number: int) -> str | None:
    """The status of the mark of a pod that is created, and bound."""
    await cluster.create(make_pod(f"p{number}").req(cpu="1m"))
    await cluster.bound(f"p{number}")
    mark = conditions.find_condition((await cluster.pod(f"p{number}")).status.conditions, MARK)
    return mark.status if mark is not None else None


async def knows_terms(scheduler: Scheduler, cluster: Cluster, number: int) -> bool:
    """The servers write terms down a little later than they begin, and schedulers read them later still."""
    written = await cluster.client.elections.list_terms("scheduler")
    return len(written) >= number and len(scheduler.attempts.terms) >= number


async def test_mark_is_taken_back_when_the_attempt_ends(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "FIRST", 0.5)
    await cluster.create(small("n"), make_pod("large").req(cpu=2))
    await cluster.client.pods.update_status(with_attempt_mark(await cluster.pod("large"), time.time()))
    cluster.schedule("s0")

    async def taken_back() -> bool:
        result = (await cluster.pod("large")).status.conditions
        return conditions.find_condition(result, "PodScheduled") is not None and not has_attempt_mark(
            await cluster.pod("large")
        )

    await cluster.until(taken_back)
