"""The report lists violations and skipped faults, and has the command that repeats the run."""

import json
from collections import Counter
from xml.etree import ElementTree

from pinnace.history.records import CallRecord, WatchMessage
from pinnace.history.verdict import CheckReport, Verdict, Violation
from pinnace.verification.chaos.engine import FaultOutcomes
from pinnace.verification.chaos.load import SettleResult
from pinnace.verification.chaos.run import ChaosReport, TrafficCounter

SKIPPED = {"clock-kubelet": "no libfaketime"}
HOLDS = Verdict("I1", "a pod is bound once", "holds", 100)
VIOLATED = Verdict("I2", "no node is over", "violated", 50, 7, [Violation(f"node n{i} is over") for i in range(7)])
VOID = Verdict("I12", "pages are one snapshot", "void")


def a_report(
    *verdicts: Verdict,
    void: tuple[str, ...] = (),
    fired: dict[str, int] | None = None,
    crashes: tuple[str, ...] = (),
    lacking: tuple[str, ...] = (),
    answered: int = 10_000,
    idle: tuple[str, ...] = (),
) -> ChaosReport:
    damage = FaultOutcomes({"kill-leader": 3} if fired is None else fired, [], list(crashes))
    traffic = TrafficCounter(Counter(get=answered), Counter(ok=answered, unknown=3), 500)
    return ChaosReport(
        "3 faults", "pinnace chaos run --seed 4", 4, "2026-01-31T12:00:00+00:00", 100.0, {"etcd": "3.5.9"}, damage,
        SKIPPED, idle, traffic, {"fenced": 5}, SettleResult(1.5, lacking, 900, 120), CheckReport(verdicts, void),
    )  # fmt: skip


def test_report_of_a_run_without_violations() -> None:
    report = a_report(HOLDS, VOID)
    assert report.status == "holds"
    text = report.to_text()
    assert "verdict: holds" in text
    assert "repeat: pinnace chaos run --seed 4" in text
    assert "skipped: clock-kubelet (no libfaketime)" in text


def test_report_lists_faults_without_a_turn() -> None:
    report = a_report(HOLDS, idle=("etcd-quorum", "storm"))
    assert report.status == "holds", "the faults were not requested by name"
    assert "not scheduled in so short a run (see --minutes): etcd-quorum, storm" in report.to_text()
    assert report.to_json()["faults"]["idle"] == ["etcd-quorum", "storm"]


def test_text_shows_some_violations_and_the_number_of_the_others() -> None:
    report = a_report(HOLDS, VIOLATED)
    assert report.status == "violated"
    assert "node n4 is over" in report.to_text()
    assert "node n5 is over" not in report.to_text()
    assert "... and 2 more" in report.to_text()


def test_crash_or_unsettled_cluster_is_a_violation() -> None:
    assert a_report(HOLDS, crashes=("kubelet-0 ended unexpectedly",)).status == "violated"
    assert a_report(HOLDS, lacking=("pod a is Pending",)).status == "violated"


def test_run_with_little_activity_is_void() -> None:
    assert a_report(HOLDS, fired={}).status == "void"
    assert a_report(HOLDS, answered=100).status == "void"
    assert a_report(HOLDS, void=("nothing was written",)).status == "void"
    assert a_report(VIOLATED, fired={}).status == "violated", "a violation counts despite little activity"


def test_json_contains_faults_calls_and_verdicts() -> None:
    result = json.loads(json.dumps(a_report(HOLDS, VIOLATED).to_json()))
    assert result["status"] == "violated"
    assert result["faults"] == {
        "fired": {"kill-leader": 3},
        "missed": [],
        "skipped": {"clock-kubelet": "no libfaketime"},
        "idle": [],
    }
    assert result["calls"]["by_verb_per_s"] == {"get": 100.0}
    assert [verdict["violations"] for verdict in result["verdicts"]] == [0, 7]


def test_junit_has_a_test_case_per_invariant() -> None:
    suite = ElementTree.fromstring(a_report(HOLDS, VIOLATED, VOID).to_junit())
    cases = {case.get("name", "").split()[0]: case for case in suite.findall("testcase")}
    assert cases["I1"].find("failure") is None
    failure = cases["I2"].find("failure")
    assert failure is not None
    assert failure.get("message") == "node n0 is over"
    assert cases["I12"].find("skipped") is not None
    assert suite.get("failures") == "1"


def test_traffic_counts_records_and_passes_them_on() -> None:
    traffic = TrafficCounter()
    records = [
        CallRecord("c", 1, "s", "get", "pods", 0.0, 1.0),
        CallRecord("c", 2, "s", "create", "pods", 0.0, 1.0, "unknown"),
        WatchMessage("w", "w", 1.0, "added", 3),
    ]
    assert list(traffic.count_records(records)) == records
    assert traffic.calls == Counter(get=1, create=1)
    assert traffic.outcomes == Counter(ok=1, unknown=1)
    assert traffic.words == 1
