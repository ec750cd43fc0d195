"""The translation of records into timeline items, and the item log."""

from typing import Any

from pinnace.check.history import (
    CandidateFacts,
    ElectionFacts,
    Fault,
    FencedFacts,
    NodeFacts,
    Phase,
    PodFacts,
    ProcessState,
    Stored,
    TermFacts,
)
from pinnace.timeline.items import Item, ItemLog, Translator

POD, NODE = "/registry/pods/default/a", "/registry/nodes/n-1"
ELECTION, TERM = "/registry/elections/scheduler", "/registry/terms/scheduler/7"


def put(revision: int, key: str, facts: Any, *, created: int = 0) -> Stored:
    return Stored(float(revision), revision, key, "", created or revision, 0, facts)


def gone(revision: int, key: str) -> Stored:
    return Stored(float(revision), revision, key)


def items(*records: Any, offset: float = 0.0) -> list[Item]:
    translator = Translator(offset)
    return [item for record in records for item in translator.of(record)]


def pod(node: str = "", phase: str = "Pending") -> PodFacts:
    return PodFacts("u", node=node, phase=phase, requests=(("cpu", 500), ("memory", 1 << 20)))


def test_pod_lifecycle_items() -> None:
    node = NodeFacts("u", (("cpu", 4000), ("memory", 1 << 30)), zone="a")
    found = items(
        put(1, NODE, node),
        put(2, POD, pod()),
        put(3, POD, pod("n-1"), created=2),
        put(4, POD, pod("n-1", "Running"), created=2),
        gone(5, POD),
        offset=100.0,
    )
    assert found[0] == ["n", 101.0, 1, 0, "n-1", "ready", 4000, 1 << 30, "a"]
    assert [item[5] for item in found[1:]] == ["pending", "bound", "running", "deleted"]
    assert [item[6] for item in found[1:]] == [-1, 0, 0, 0], "the node's id"
    assert found[-1][:5] == ["p", 105.0, 5, 0, "default/a"] and list(found[-1][7:]) == [500, 1 << 20]


def test_recreated_pod_is_another_subject() -> None:
    found = items(put(1, POD, pod()), gone(2, POD), put(3, POD, pod()))
    assert [item[3] for item in found] == [0, 0, 1]


def test_node_states() -> None:
    found = items(
        put(1, NODE, NodeFacts("u", open=False)), put(2, NODE, NodeFacts("u", ready=False, open=False)), gone(3, NODE)
    )
    assert [item[5] for item in found] == ["cordoned", "not-ready", "gone"]


def test_failover_ends_one_term_and_starts_another() -> None:
    found = items(put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), put(10, ELECTION, ElectionFacts("s-1")))
    terms = [item for item in found if item[0] == "t"]
    assert terms == [
        ["t", 7.0, 7, "scheduler", 7, "s-0", None, ""],
        ["t", 7.0, 9, "scheduler", 7, "s-0", 9.0, ""],
        ["t", 10.0, 10, "scheduler", 10, "s-1", None, ""],
    ]
    assert [item[3:5] for item in found if item[0] == "k"] == [[ELECTION, "put"], [ELECTION, "delete"], [ELECTION, "put"]]


def test_term_record_adds_the_reason_and_keeps_observed_times() -> None:
    found = items(
        put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), put(11, TERM, TermFacts("s-0", 6.5, 9.5, "resigned"))
    )
    assert found[-1] == ["t", 7.0, 11, "scheduler", 7, "s-0", 9.0, "resigned"]
    assert items(put(11, TERM, TermFacts("s-0", 6.5, 9.5, "resigned"))) == [
        ["t", 6.5, 11, "scheduler", 7, "s-0", 9.5, "resigned"]
    ], "a term that ended before the timeline began"


def test_updated_term_record_keeps_observed_times() -> None:
    record = put(11, TERM, TermFacts("s-0", 106.5, 109.5, "resigned"))
    found = items(put(7, ELECTION, ElectionFacts("s-0")), gone(9, ELECTION), record, record)
    assert found[-1] == ["t", 7.0, 11, "scheduler", 7, "s-0", 9.0, "resigned"]


def test_first_term_starts_before_the_timeline() -> None:
    found = items(
        put(7, ELECTION, ElectionFacts("s-0", began=3.0)), gone(9, ELECTION), put(10, ELECTION, ElectionFacts("s-1", began=9.5))
    )
    terms = [item for item in found if item[0] == "t"]
    assert [(item[1], item[6]) for item in terms] == [(3.0, None), (3.0, 9.0), (10.0, None)], (
        "later terms begin when they are observed"
    )


def test_candidates_join_and_leave() -> None:
    key = "/registry/candidates/scheduler/4f"
    found = [item for item in items(put(1, key, CandidateFacts("s-1")), gone(2, key)) if item[0] == "c"]
    assert [item[3:] for item in found] == [["scheduler", "4f", "s-1"], ["scheduler", "4f", ""]]


def test_refused_binds_are_marks_of_the_deposed_leader() -> None:
    found = items(put(5, "/registry/events/kube-system/x", FencedFacts("s-0", "2 binds were refused")))
    assert found[0] == ["m", 5.0, 5, 0, "s-0", "fenced", "2 binds were refused", None]


def test_fault_is_one_mark_with_an_end() -> None:
    begun = Fault(3, "freeze-leader", "leader", 1.0, details="scheduler-2, 4 s")
    ended = Fault(3, "freeze-leader", "leader", 1.0, 5.0, details="scheduler-2, 4 s")
    first, second = items(begun, ended)
    assert first[3] == second[3] and first[4] == "scheduler-2" and (first[7], second[7]) == (None, 5.0)
    assert not items(Fault(4, "kill", "etcd-0", 1.0, fired=False)), "the fault did not fire"
    assert items(Phase(2.0, "quiet"))[0][4:7] == ["run", "phase", "quiet"]


def test_process_state_item() -> None:
    assert items(ProcessState(2.0, "scheduler-0", "frozen"), offset=100.0) == [["s", 102.0, 0, "scheduler-0", "frozen"]]


def test_log_resumes_after_a_sequence_number() -> None:
    log = ItemLog()
    log.extend(["p", 0.0, number, 0, "a", "pending", -1, 0, 0] for number in range(1, 4))
    assert log.last == 3 and [item[2] for item in log.after(1) or ()] == [2, 3] and log.after(3) == []
    assert log.after(4) is None, "the sequence number is of another log"


def test_old_items_are_compacted_to_the_last_per_subject() -> None:
    log = ItemLog(limit=2)
    states = ["pending", "bound", "running"]
    log.extend(["p", 0.0, number, 0, "a", state, -1, 0, 0] for number, state in enumerate(states))
    log.extend([["p", 0.0, 4, 1, "b", "pending", -1, 0, 0], ["p", 0.0, 5, 0, "a", "deleted", -1, 0, 0]])
    assert [item[5] for item in log.base()] == ["running"] and log.after(2) is None
    log.extend([["p", 0.0, 6, 2, "c", "pending", -1, 0, 0]] * 2)
    assert [item[4] for item in log.base()] == ["b"], "a deleted pod leaves the base"
