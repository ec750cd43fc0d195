"""The timeline and figures of a scenario, computed from a history."""

import pytest

from pinnace.history.records import (
    CallItem,
    CallRecord,
    ContainerRun,
    ElectionFacts,
    FaultRecord,
    PodFacts,
    Record,
    StoredChange,
    WatchMessage,
)
from pinnace.runtime.logs import LeadershipLost, LogLine, TokenFenced
from pinnace.verification.chaos.scenarios.figures import (
    ScenarioMoment,
    count_succeeded_calls,
    count_unrequested_stops,
    find_first_bind,
    find_quorum_return,
    list_broken_watches,
    list_compacted_watches,
    list_election_moments,
    list_log_moments,
    measure_longest_gap,
    measure_longest_overlap,
    measure_wait_for_bind,
)
from pinnace.verification.check.index import History

KEY = "/registry/elections/scheduler"


def led(at: float, revision: int, holder: str, create: int = 0) -> StoredChange:
    return StoredChange(at, revision, KEY, "d", create or revision, facts=ElectionFacts(holder))


def bound(at: float, revision: int, name: str, token: int) -> StoredChange:
    facts = PodFacts(f"uid-{name}", node="n", election="scheduler", token=token)
    return StoredChange(at, revision, f"/registry/pods/default/{name}", f"d{revision}", 1, facts=facts)


FAILOVER: list[Record] = [
    led(0.5, 5, "s0"),
    bound(0.6, 6, "a", 5),
    led(1.2, 7, "s0", create=5),
    StoredChange(2.0, 9, KEY),
    led(2.1, 10, "s1"),
    bound(2.2, 11, "b", 10),
    bound(2.3, 12, "c", 10),
]


def test_failover_has_a_moment_per_event() -> None:
    assert list(list_election_moments(FAILOVER, "scheduler", 1.0, {5: "no heartbeats"})) == [
        ScenarioMoment(1.2, "s0 resumes on another API server and keeps token 5"),
        ScenarioMoment(2.0, "the election's key with s0's token 5 is deleted: no heartbeats"),
        ScenarioMoment(2.1, "s1 is elected with fencing token 10"),
        ScenarioMoment(2.2, "s1 binds its first pod"),
    ]


def test_timeline_contains_relevant_log_events_after_the_fault() -> None:
    before, lost = LeadershipLost("scheduler", 5, "before"), LeadershipLost("scheduler", 10, "no heartbeat")
    lines = [
        LogLine(100.1, "WARNING", "s0", "pinnace.client.election", "token 5 is lost", before),
        LogLine(102.25, "WARNING", "s0", "pinnace.client.election", "in any words", lost),
        LogLine(103.0, "WARNING", "s0", "pinnace.client.election", "another event", TokenFenced(10)),
        LogLine(103.0, "INFO", "s0", "pinnace.scheduler.scheduler", "token 11 is lost"),
    ]
    assert list(list_log_moments(lines, "s0", 1.0, 100.0, (LeadershipLost,))) == [ScenarioMoment(2.25, "s0: in any words")]


def test_expired_watches_are_reported() -> None:
    words = [
        WatchMessage("w", "w", at, "ended", code=code)
        for at, code in ((0.5, "OUT_OF_RANGE"), (2.0, "OUT_OF_RANGE"), (3.0, "CANCELLED"))
    ]
    assert [moment.at for moment in list_compacted_watches(words, 1.0)] == [2.0]
    assert list_broken_watches(History(words), 0.0, 4.0) == ["OUT_OF_RANGE", "OUT_OF_RANGE"]


def test_bind_times_by_token() -> None:
    seen = History(FAILOVER)
    assert find_first_bind(seen, "scheduler", 10) == 2.2
    assert find_first_bind(seen, "scheduler", 11) is None
    assert round(measure_wait_for_bind(seen, "scheduler", 10, since=2.25), 3) == 0.05
    assert measure_wait_for_bind(seen, "scheduler", 10, since=3.0) == float("inf")


def test_majority_is_restored_by_the_first_restarted_member() -> None:
    killed = [FaultRecord(n, "kill-etcd-member", f"etcd-{n}", 1.0) for n in (1, 2)]
    ended = [FaultRecord(2, "kill-etcd-member", "etcd-2", 1.0, 7.0), FaultRecord(1, "kill-etcd-member", "etcd-1", 1.0, 7.5)]
    other = FaultRecord(3, "kill-leader", "s0", 0.0, 0.5)
    assert find_quorum_return(History([*killed, other])) == float("inf")
    assert find_quorum_return(History([*killed, other, *ended])) == 7.0


def test_longest_gap_includes_both_ends() -> None:
    assert measure_longest_gap([1.0, 2.0, 2.5], since=0.0, until=3.0) == 1.0
    assert measure_longest_gap([1.0, 2.0], since=0.0, until=5.0) == 3.0
    assert measure_longest_gap([], since=1.0, until=3.0) == 2.0


def test_batch_with_only_refused_items_has_not_succeeded() -> None:
    refused, done = CallItem("/registry/pods/default/a", outcome="refused"), CallItem("/registry/pods/default/b", 7)
    calls = [
        CallRecord("c", i, "s", "bind", "pods", 0.0, 1.0, items=items)
        for i, items in enumerate([(refused,), (refused, done), ()])
    ]
    assert count_succeeded_calls(calls) == 2
    assert count_succeeded_calls([CallRecord("c", 1, "s", "get", "pods", 0.0, 1.0, "unknown")]) == 0


def ran(at: float, what: str, uid: str = "uid-a") -> ContainerRun:
    return ContainerRun(at, "n", uid, "/registry/pods/default/a", what)


def test_stopped_pods_without_a_delete_are_reported() -> None:
    terminating = StoredChange(3.0, 8, "/registry/pods/default/a", "e", 1, facts=PodFacts("uid-a", "n", terminating=True))
    seen = History([bound(1.0, 6, "a", 5), terminating, ran(2.0, "stopped"), ran(4.0, "stopped"), ran(2.0, "stopped", "uid-z")])
    assert count_unrequested_stops(seen, 0.0, 5.0) == 1
    assert count_unrequested_stops(seen, 2.5, 5.0) == 0


def deleted(began: float, outcome: str, revision: int = 0) -> CallRecord:
    item = CallItem("/registry/pods/default/a", revision, "uid-a", outcome=outcome)
    return CallRecord("c", 1, "s", "delete", "pods", began, 9.0, outcome, items=(item,))


@pytest.mark.parametrize(
    ("call", "unasked"),
    [
        (deleted(1.9, "ok", 8), 0),  # the kubelet saw the deletion before the recorder
        (deleted(2.1, "ok", 8), 1),
        (deleted(1.9, "ok", 9), 1),  # another call deleted the pod before this one
        (deleted(1.9, "unknown"), 0),
        (deleted(2.1, "unknown"), 1),
        (deleted(1.9, "refused"), 1),
    ],
)
def test_stop_is_requested_from_the_start_of_the_delete_call(call: CallRecord, unasked: int) -> None:
    running, gone = bound(1.0, 6, "a", 5), StoredChange(3.0, 8, "/registry/pods/default/a")
    assert count_unrequested_stops(History([running, gone, ran(2.0, "stopped"), call]), 0.0, 5.0) == unasked
    assert count_unrequested_stops(History([running, ran(2.0, "stopped"), call]), 0.0, 5.0) == 1, "the pod was never deleted"


def test_lost_delete_excuses_no_stop_before_a_later_delete() -> None:
    running, gone = bound(1.0, 6, "a", 5), StoredChange(8.0, 8, "/registry/pods/default/a")
    calls = [deleted(1.5, "unknown"), deleted(7.0, "ok", 8)]
    assert count_unrequested_stops(History([running, gone, ran(2.0, "stopped"), *calls]), 0.0, 9.0) == 1


def test_longest_overlap_of_two_runs_of_a_pod() -> None:
    handed_over = [ran(1.0, "started"), ran(2.0, "started"), ran(2.25, "stopped"), ran(9.0, "stopped")]
    assert measure_longest_overlap(History(handed_over), 0.0, 5.0) == 0.25
    assert measure_longest_overlap(History(handed_over[:2]), 0.0, 5.0) == 3.0
    assert measure_longest_overlap(History([handed_over[0], handed_over[2]]), 0.0, 5.0) == 0.0
