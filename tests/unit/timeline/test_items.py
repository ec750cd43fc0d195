"""The translation of records into timeline items, and the item log."""

from dataclasses import replace
from typing import Any

from pinnace.api.core_v1_pb2 import Event
from pinnace.api.fences import refused_message
from pinnace.api.terms import TermEnd
from pinnace.history.records import (
    CandidateFacts,
    ElectionFacts,
    FaultRecord,
    FencedFacts,
    NodeFacts,
    PodFacts,
    ProcessState,
    RunPhase,
    StoredChange,
    TermFacts,
    decode_facts,
)
from pinnace.timeline.items import ItemLog, RecordTranslator, TimelineItem

POD, NODE = "/registry/pods/default/a", "/registry/nodes/n-1"
ELECTION, TERM = "/registry/elections/scheduler", "/registry/terms/scheduler/7"


def put(revision: int, key: str, facts: Any, *, created: int = 0) -> StoredChange:
    return StoredChange(float(revision), revision, key, "", created or revision, 0, facts)


def gone(revision: int, key: str) -> StoredChange:
    return StoredChange(float(revision), revision, key)


def items(*records: Any, offset: float = 0.0) -> list[TimelineItem]:
    translator = RecordTranslator(offset)
    return [item for record in records for item in translator.translate_record(record)]


def pod(node: str = "", phase: str = "Pending") -> PodFacts:
    return PodFacts("u", node=node, phase=phase, requests=(("cpu", 500), ("memory", 1 << 20)))


def test_pod_lifecycle_items() -> None:
    node = NodeFacts("u", (("cpu", 4000), ("memory", 1 << 30)), zone="a")
    result = items(
        put(1, NODE, node),
        put(2, POD, pod()),
        put(3, POD, pod("n-1"), created=2),
        put(4, POD, pod("n-1", "Running"), created=2),
        gone(5, POD),
        offset=100.0,
    )
    assert result[0] == ["n", 101.0, 1, 0, "n-1", "ready", 4000, 1 << 30, "a", []]
    assert [item[5] for item in result[1:]] == ["pending", "bound", "running", "deleted"]
    assert [item[6] for item in result[1:]] == [-1, 0, 0, 0], "the node's id"
    assert result[-1][:5] == ["p", 105.0, 5, 0, "default/a"] and list(result[-1][7:]) == [500, 1 << 20, 105.0]


def test_recreated_pod_is_another_subject() -> None:
    result = items(put(1, POD, pod()), gone(2, POD), put(3, POD, pod()))
    assert [item[3] for item in result] == [0, 0, 1]


def test_node_states() -> None:
    result = items(
        put(1, NODE, NodeFacts("u", open=False)), put(2, NODE, NodeFacts("u", ready=False, open=False)), gone(3, NODE)
    )
    assert [item[5] for item in result] == ["cordoned", "not-ready", "gone"]


def test_failover_ends_one_term_and_starts_another() -> None:
    result = items(put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), put(10, ELECTION, ElectionFacts("s-1")))
    terms = [item for item in result if item[0] == "t"]
    assert terms == [
        ["t", 7.0, 7, "scheduler", 7, "s-0", None, "", None, None],
        ["t", 7.0, 9, "scheduler", 7, "s-0", 9.0, "", None, None],
        ["t", 10.0, 10, "scheduler", 10, "s-1", None, "", None, None],
    ]
    assert [item[3:5] for item in result if item[0] == "k"] == [[ELECTION, "put"], [ELECTION, "delete"], [ELECTION, "put"]]


def test_term_record_adds_the_reason_and_the_recorded_end() -> None:
    record = put(11, TERM, TermFacts("s-0", 6.5, 9.5, "resigned"))
    result = items(put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), record)
    assert result[-1] == ["t", 7.0, 11, "scheduler", 7, "s-0", 9.5, "resigned", None, None]
    assert items(record) == [["t", 6.5, 11, "scheduler", 7, "s-0", 9.5, "resigned", None, None]], (
        "a term that ended before the timeline began"
    )


def failover(*, began: float, record: TermFacts) -> list[TimelineItem]:
    """The last versions of two terms. Their changes arrive at 7, 9 and 10; the record of the first one at 11."""
    result = items(
        put(7, ELECTION, ElectionFacts("s-0", began=7.0)),
        gone(9, ELECTION),
        put(10, ELECTION, ElectionFacts("s-1", began=began)),
        put(11, TERM, record),
    )
    return [item for item in result if item[0] == "t"][-2:]


def test_gap_and_outage_are_those_of_the_records() -> None:
    """The page showed a gap of its arrival times, and for a frozen leader only the milliseconds after its term had ended."""
    record = TermFacts("s-0", 7.0, 9.968, "no heartbeats", heartbeat=8.9)
    first, second = failover(began=10.0, record=record)
    assert first[6:] == [9.968, "no heartbeats", None, None]
    assert second[4:8] == [10, "s-1", None, ""] and [round(item, 3) for item in second[8:]] == [0.032, 1.1]
    end = TermEnd(9.968, last_heartbeat=8.9)
    assert second[8:] == [end.gap(10.0), end.outage(10.0)], "as in `pinnace leader history`"


def test_outage_of_a_leader_that_resigned_is_the_gap() -> None:
    _, second = failover(began=10.25, record=TermFacts("s-0", 7.0, 10.0, "resigned"))
    assert second[8:] == [0.25, 0.25]


def test_presumed_end_leaves_gap_and_outage_unknown() -> None:
    _, second = failover(began=10.0, record=TermFacts("s-0", 7.0, 10.0, "lease expired", presumed=True))
    assert second[8:] == [None, None]


def test_terms_of_servers_with_other_clocks_are_drawn_where_they_were_recorded() -> None:
    first, second = failover(began=5000.0, record=TermFacts("s-0", 4007.0, 4999.0, "resigned"))
    assert (first[1], first[6], second[1]) == (7.0, 9.0, 10.0) and second[8:] == [1.0, 1.0]


def test_first_term_starts_before_the_timeline() -> None:
    result = items(
        put(7, ELECTION, ElectionFacts("s-0", began=3.0)), gone(9, ELECTION), put(10, ELECTION, ElectionFacts("s-1", began=9.5))
    )
    terms = [item for item in result if item[0] == "t"]
    assert [(item[1], item[6]) for item in terms] == [(3.0, None), (3.0, 9.0), (9.5, None)], "by the time in the key"


def test_candidates_join_and_leave() -> None:
    key = "/registry/candidates/scheduler/4f"
    result = [item for item in items(put(1, key, CandidateFacts("s-1")), gone(2, key)) if item[0] == "c"]
    assert [item[3:] for item in result] == [["scheduler", "4f", "s-1"], ["scheduler", "4f", ""]]


def test_refused_writes_are_counted_in_one_mark_with_both_tokens() -> None:
    key = "/registry/events/kube-system/x"
    message = refused_message("s-0", 19)
    result = items(
        put(149, ELECTION, ElectionFacts("s-1")),
        put(150, key, FencedFacts("s-0", message, 19, 12)),
        put(151, key, FencedFacts("s-0", message, 19, 37), created=150),
    )
    first, second = [item for item in result if item[0] == "m"]
    text = "37 writes with the old token 19 were refused by the fence; the current token is 149"
    assert second == ["m", 150.0, 151, first[3], "s-0", "fenced", text, None, 37]


def test_event_of_the_fence_has_its_token_and_count() -> None:
    event = Event(reason="Fenced", message=refused_message("s-0", 19), count=37, reportingInstance="s-0")
    facts = decode_facts("/registry/events/kube-system/x", event.SerializeToString())
    assert facts == FencedFacts("s-0", event.message, 19, 37)


def test_evicted_pods_are_one_mark_until_they_are_replaced() -> None:
    """Neither the eviction by a NoExecute taint nor the replacements appeared."""
    old, new = "/registry/pods/default/web-1", "/registry/pods/default/web-9"
    running = replace(pod("n-1", "Running"), owner="ReplicaSet/web")
    evicted = replace(running, terminating=True, disruption="DeletionByTaintManager")
    result = items(
        put(2, old, running),
        put(3, old, evicted, created=2),
        put(4, new, replace(pod(), owner="ReplicaSet/web")),
        gone(5, old),
    )
    assert [item[5] for item in result if item[0] == "p" and item[3] == 0] == ["running", "terminating", "deleted"]
    marks = [item for item in result if item[0] == "m"]
    assert {(item[1], item[3], item[4], item[5]) for item in marks} == {(3.0, 0, "nodes", "evicted")}
    assert [item[6] for item in marks] == [
        "n-1 (NoExecute taint): 1 pod is terminating: default/web-1",
        "n-1 (NoExecute taint): 1 pod is terminating: default/web-1; replaced by default/web-9",
        "n-1 (NoExecute taint): 1 of 1 terminated: default/web-1; replaced by default/web-9",
    ]


def test_pod_that_is_older_than_the_timeline_changed_before() -> None:
    """The column Changed had the time at which the viewer connected."""
    translator, old = RecordTranslator(1000.0), replace(pod("n-1", "Running"), changed=600)
    assert next(iter(translator.translate_record(put(2, POD, old))))[9] == 600.0
    assert next(iter(translator.translate_record(put(3, POD, old, created=2))))[9] == 1003.0


def test_taints_are_not_cordons_and_leave_marks() -> None:
    taint, cordon = "dedicated=x:NoExecute", "node.kubernetes.io/unschedulable:NoSchedule"
    result = items(
        put(1, NODE, NodeFacts("u")),
        put(2, NODE, NodeFacts("u", open=False, taints=(taint,))),
        put(3, NODE, NodeFacts("u", open=False, taints=(taint, cordon))),
        put(4, NODE, NodeFacts("u")),
    )
    assert [(item[5], item[9]) for item in result if item[0] == "n"] == [
        ("ready", []),
        ("tainted", [taint]),
        ("cordoned", [taint, cordon]),
        ("ready", []),
    ]
    assert [item[6] for item in result if item[0] == "m"] == [
        f"n-1 tainted {taint}",
        "n-1 cordoned",
        f"n-1 untainted {taint}",
        "n-1 uncordoned",
    ]


def test_fault_of_a_role_is_on_the_lane_of_its_process() -> None:
    """The lanes had one named "leader"."""
    translator = RecordTranslator()
    for record in (put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), put(10, ELECTION, ElectionFacts("s-1"))):
        list(translator.translate_record(record))
    lanes = [
        next(iter(translator.translate_record(FaultRecord(number, "x", target, at, details=details))))[4]
        for number, (target, at, details) in enumerate(
            [("leader", 8.0, ""), ("leader", 11.0, "2 s"), ("leader", 11.0, "from s-1 to s-0"), ("etcd-leader", 11.0, "")]
        )
    ]
    assert lanes == ["s-0", "s-1", "s-1", "faults"]


def test_fault_is_one_mark_with_an_end() -> None:
    begun = FaultRecord(3, "freeze-leader", "leader", 1.0, details="scheduler-2, 4 s")
    ended = FaultRecord(3, "freeze-leader", "leader", 1.0, 5.0, details="scheduler-2, 4 s")
    first, second = items(begun, ended)
    assert first[3] == second[3] and first[4] == "scheduler-2" and (first[7], second[7]) == (None, 5.0)
    assert not items(FaultRecord(4, "kill", "etcd-0", 1.0, fired=False)), "the fault did not fire"
    assert items(RunPhase(2.0, "quiet"))[0][4:7] == ["run", "phase", "quiet"]


def test_process_state_item() -> None:
    assert items(ProcessState(2.0, "scheduler-0", "frozen"), offset=100.0) == [["s", 102.0, 0, "scheduler-0", "frozen"]]


def test_log_resumes_after_a_sequence_number() -> None:
    log = ItemLog()
    log.extend(["p", 0.0, number, 0, "a", "pending", -1, 0, 0] for number in range(1, 4))
    assert log.last == 3 and [item[2] for item in log.items_after(1) or ()] == [2, 3] and log.items_after(3) == []
    assert log.items_after(4) is None, "the sequence number is of another log"


def test_old_items_are_compacted_to_the_last_per_subject() -> None:
    log = ItemLog(limit=2)
    states = ["pending", "bound", "running"]
    log.extend(["p", 0.0, number, 0, "a", state, -1, 0, 0] for number, state in enumerate(states))
    log.extend([["p", 0.0, 4, 1, "b", "pending", -1, 0, 0], ["p", 0.0, 5, 0, "a", "deleted", -1, 0, 0]])
    assert [item[5] for item in log.base()] == ["running"] and log.items_after(2) is None
    log.extend([["p", 0.0, 6, 2, "c", "pending", -1, 0, 0]] * 2)
    assert [item[4] for item in log.base()] == ["b"], "a deleted pod leaves the base"
