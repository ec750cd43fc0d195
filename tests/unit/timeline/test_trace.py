"""The trace of a timeline, which must be valid in the Trace Event Format."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinnace.cli.main import run_command_line
from pinnace.history.records import (
    ElectionFacts,
    FaultRecord,
    FencedFacts,
    NodeFacts,
    PodFacts,
    ProcessState,
    RunInfo,
    StoredChange,
    TermFacts,
    encode_record,
)
from pinnace.timeline.items import ItemLog
from pinnace.timeline.recording import RecordedSource
from pinnace.timeline.site import export_trace
from pinnace.timeline.trace import build_trace

ELECTION, POD = "/registry/elections/scheduler", "/registry/pods/default/a"
RECORDS = [
    RunInfo(started=1000.0, what="a run", at=1.0),
    StoredChange(1.0, 1, "/registry/nodes/n-1", "", 1, 0, NodeFacts("n", (("cpu", 4000),))),
    StoredChange(1.0, 2, ELECTION, "", 2, 0, ElectionFacts("scheduler-0")),
    StoredChange(1.5, 3, POD, "", 3, 0, PodFacts("a")),
    StoredChange(1.6, 4, POD, "", 3, 0, PodFacts("a", node="n-1")),
    ProcessState(1.0, "scheduler-0", "up"),
    ProcessState(2.0, "scheduler-0", "frozen"),
    ProcessState(4.0, "scheduler-0", "up"),
    FaultRecord(1, "freeze-leader", "leader", 2.0, 4.0, details="scheduler-0"),
    FaultRecord(2, "compact", "etcd", 2.5, 3.5),
    StoredChange(3.0, 5, ELECTION),
    StoredChange(3.02, 6, ELECTION, "", 6, 0, ElectionFacts("scheduler-1")),
    StoredChange(
        3.2,
        7,
        "/registry/terms/scheduler/2",
        "",
        7,
        0,
        TermFacts("scheduler-0", 1000.0, 1002.0, "no heartbeats", False, 1001.0),
    ),
    StoredChange(4.1, 8, "/registry/events/kube-system/x", "", 8, 0, FencedFacts("scheduler-0", "refused", 2, 37)),
    StoredChange(5.0, 9, POD),
]
PHASES = {"X", "i", "b", "e", "C", "M"}
METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}


def validate(document: Mapping[str, Any]) -> None:
    """Check the JSON object format, the required fields of each phase, that async events are paired, and that complete events
    of a thread are nested."""
    assert document["displayTimeUnit"] in ("ms", "ns") and isinstance(document["traceEvents"], list)
    open_ = set[tuple[Any, ...]]()
    stacks = defaultdict[tuple[int, int], list[float]](list)
    named = {(event["pid"], event["tid"]) for event in document["traceEvents"] if event["name"] == "thread_name"}
    processes = {event["pid"] for event in document["traceEvents"] if event["name"] == "process_name"}
    for event in document["traceEvents"]:
        phase, ts = event["ph"], event["ts"]
        assert phase in PHASES and isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["pid"] in processes
        assert isinstance(ts, int | float) and ts >= 0 and isinstance(event.get("args", {}), dict)
        if phase in "Xibe":
            assert isinstance(event["cat"], str) and (event["pid"], event["tid"]) in named
        if phase == "M":
            assert METADATA[event["name"]] in event["args"]
        elif phase == "C":
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
        elif phase == "i":
            assert event["s"] in ("g", "p", "t")
        elif phase in "be":
            identity = event["pid"], event["cat"], event["id"], event["name"]
            assert isinstance(event["id"], str) and (identity in open_) == (phase == "e")
            open_ ^= {identity}
        elif phase == "X":
            stack = stacks[event["pid"], event["tid"]]
            while stack and stack[-1] <= ts:
                stack.pop()
            assert event["dur"] >= 0 and (not stack or ts + event["dur"] <= stack[-1]), "overlaps without being nested"
            stack.append(ts + event["dur"])
    assert not open_


def lanes(document: Mapping[str, Any]) -> Mapping[int, str]:
    return {event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}


def found(document: Mapping[str, Any], category: str) -> Sequence[tuple[Any, ...]]:
    """Lane, phase, name, start and duration in seconds."""
    names = lanes(document)
    return [
        (names[event["pid"]], event["ph"], event["name"], round(event["ts"] / 1e6, 3), round(event.get("dur", 0) / 1e6, 3))
        for event in document["traceEvents"]
        if event.get("cat") == category
    ]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(encode_record, RECORDS)))
    return path


def test_recording_is_exported_as_a_valid_trace(recording: Path) -> None:
    document = json.loads(export_trace(RecordedSource([recording])))
    validate(document)
    assert document["otherData"] == {"title": "a run", "started": 1000.0}
    assert found(document, "term") == [
        ("scheduler-0", "X", "scheduler · token 2", 0.0, 2.0),
        ("scheduler-1", "X", "scheduler · token 6", 2.02, 1.98),
    ]
    assert found(document, "gap") == [("elections", "X", "no working leader", 1.0, 1.02)]
    assert found(document, "state") == [("scheduler-0", "X", "frozen", 1.0, 2.0)]
    assert found(document, "fenced") == [("scheduler-0", "i", "fence refused 37", 3.1, 0)]
    assert found(document, "decision") == [("scheduler-0", "i", "default/a to n-1", 0.6, 0)]
    assert sorted(found(document, "fault")) == [
        ("etcd", "b", "compact", 1.5, 0),
        ("etcd", "e", "compact", 2.5, 0),
        ("scheduler-0", "b", "freeze-leader", 1.0, 0),
        ("scheduler-0", "e", "freeze-leader", 3.0, 0),
    ]
    pods = [event["args"] for event in document["traceEvents"] if event["ph"] == "C" and event["name"] == "pods"]
    assert (pods[0]["pending"], pods[0]["bound"], pods[-1]["bound"]) == (1, 0, 0)


def test_trace_starts_at_the_beginning_of_the_log() -> None:
    log = ItemLog(limit=2)
    log.extend(
        [["t", 1.0, 1, "scheduler", 1, "s-0", 2.0, "", None, None], ["t", 2.5, 2, "scheduler", 2, "s-1", None, "", None, None]]
    )
    log.extend([["m", 2.6, 0, 0, "s-1", "fault", "kill", 2.7, 1], ["s", 3.0, 0, "s-1", "down"], ["s", 4.0, 0, "s-1", "up"]])
    document = build_trace("", log.base(), log.all_items())
    validate(document)
    assert found(document, "term") == [("s-1", "X", "scheduler · token 2", 0.0, 1.0)] and not found(document, "fault")
    assert found(document, "state") == [("s-1", "X", "down", 0.0, 1.0)]


def test_empty_log_gives_an_empty_trace() -> None:
    document = build_trace("", [], [])
    validate(document)
    assert not found(document, "term")


@pytest.mark.parametrize("broken", [{"ph": "Z"}, {"ts": -1}, {"pid": 99}, {"tid": 99}, {"dur": -1}, {"dur": 9e6}, {"name": ""}])
def test_validation_rejects_broken_events(recording: Path, broken: Mapping[str, Any]) -> None:
    document = json.loads(export_trace(RecordedSource([recording])))
    state = next(event for event in document["traceEvents"] if event.get("cat") == "state")
    document["traceEvents"].append(state | {"ts": 2e6, "dur": 1e6})
    validate(document)
    document["traceEvents"][-1].update(broken)
    with pytest.raises(AssertionError):
        validate(document)


def test_command_line_writes_the_trace(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "trace.json"
    assert run_command_line(["timeline", "open", str(recording), "--perfetto", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    validate(json.loads(target.read_bytes()))
    assert run_command_line(["timeline", "open", str(recording), "--perfetto", str(tmp_path / "no" / "trace.json")]) != 0
    assert "cannot be written: No such file" in capsys.readouterr().err
