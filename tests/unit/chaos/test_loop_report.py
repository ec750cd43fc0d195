"""A chaos report shows the long steps of event loops, and their stacks during violations."""

import json
from pathlib import Path

from pinnace.history.records import FaultRecord
from pinnace.history.verdict import CheckReport, Verdict, Violation
from pinnace.verification.chaos.loop_report import HotStack, LongStep, find_hot_stacks, find_long_steps


def step_line(cpu: float, stack: str) -> str:
    fields = {"seconds": 2 * cpu, "cpu_seconds": cpu, "gc_seconds": 0.0, "count": 1, "stack": stack}
    common = {"ts": 1.5, "severity": "INFO", "component": "c", "logger": "l", "msg": "m"}
    return json.dumps(common | {"event": "event_loop.step_long", "fields": fields}) + "\n"


def test_long_steps_are_listed_by_process_and_stack(tmp_path: Path) -> None:
    (tmp_path / "scheduler-0.log").write_text(step_line(0.06, "a;b:1") + step_line(0.1, "a;b:1") + "no JSON\n")
    (tmp_path / "kubelet-0.log").write_text(step_line(0.2, "a;b;c;d;e:9"))
    (tmp_path / "etcd-0.log").write_text(step_line(9.0, "a:1"))
    long_steps = find_long_steps(tmp_path)
    assert long_steps == [
        LongStep("kubelet-0", 1, 0.2, 0.4, 0.0, "a;b;c;d;e:9"),
        LongStep("scheduler-0", 2, 0.1, 0.2, 0.0, "a;b:1"),
    ]
    assert str(long_steps[0]) == "kubelet-0: 200 ms of CPU in 400 ms, 1 in the log: e:9 < d < c < b"


def violated(name: str, at: float) -> CheckReport:
    return CheckReport([Verdict(name, "a statement", "violated", 9, 1, [Violation("too slow", at=at)])])


def profiles(folder: Path) -> Path:
    def line(at: int, **stacks: int) -> str:
        return json.dumps({"at": at, "busy": 0.5, "stacks": stacks}) + "\n"

    (folder / "apiserver-0.jsonl").write_text(
        line(99, **{"x;a": 50}) + line(101, b=9, c=3) + line(102, c=20) + line(120, d=50) + '{"at"'
    )
    (folder / "apiserver-1.jsonl").write_text("")
    return folder


def test_stacks_during_the_fault_of_a_slow_user_are_shown(tmp_path: Path) -> None:
    faults = [FaultRecord(1, "flood", "apiserver-0", 100.5, None), FaultRecord(1, "flood", "apiserver-0", 100.5, 104.5)]
    hot_stacks = find_hot_stacks(profiles(tmp_path), violated("L4", 100.5), iter(faults))
    assert hot_stacks == [HotStack("L4", 100.5, 104.5, "apiserver-0", 0.25, {"c": 23, "b": 9})]


def test_stacks_before_a_leader_is_lost_are_shown(tmp_path: Path) -> None:
    (result,) = find_hot_stacks(profiles(tmp_path), violated("L2", 104.0), iter(()))
    assert result.stacks == {"a < x": 50, "c": 23, "b": 9}


def test_other_violations_have_no_stacks(tmp_path: Path) -> None:
    assert find_hot_stacks(profiles(tmp_path), violated("I1", 104.0), iter(())) == []
