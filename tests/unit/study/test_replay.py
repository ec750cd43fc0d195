"""The replay of a scheduler's recording: equal decisions, differences, and files that cannot be read."""

import json
from pathlib import Path

import pytest

from pinnace.api.resources import NODES, PODS
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.recording import InputRecording
from pinnace.study.live import sample
from pinnace.study.replay import RecordingError, replay_recording
from pinnace.study.trace import Machine, Shape, Task, Trace

SMALL, LARGE = Machine("small", 1000, 1024), Machine("large", 4000, 4096)
PROFILE = "default-scheduler"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler-0.jsonl"


@pytest.fixture
def recording(file: Path) -> InputRecording:
    """Two nodes, and the pod `a` that fits on the large one only."""
    recording = InputRecording(file)
    recording.record_start("scheduler-0", 7)
    recording.record_objects(NODES.plural, [Delta(ADDED, machine.node(), None) for machine in (SMALL, LARGE)])
    recording.record_objects(PODS.plural, [Delta(ADDED, Task("a", Shape(3000)).pod(PROFILE), None)])
    return recording


def replay(file: Path) -> list[tuple[str, str, str]]:
    return [(item.pod, item.recorded, item.replayed) for item in replay_recording(file, Configuration())]


def test_replay_repeats_decisions_and_assumes_their_pods(file: Path, recording: InputRecording) -> None:
    recording.record_attempt("a", "large", 1.0)
    recording.record_objects(PODS.plural, [Delta(ADDED, Task("b", Shape(3000)).pod(PROFILE), None)])
    recording.record_attempt("b", "", 2.0)
    assert replay(file) == [("a", "large", "large"), ("b", "", "")]


def test_replay_shows_another_node(file: Path, recording: InputRecording) -> None:
    recording.record_attempt("a", "small", 1.0)
    assert replay(file) == [("a", "small", "large")]


def test_replay_frees_node_of_pod_that_ends(file: Path, recording: InputRecording) -> None:
    recording.record_attempt("a", "large", 1.0)
    bound = Task("a", Shape(3000)).pod(PROFILE)
    bound.spec.nodeName = "large"
    recording.record_objects(PODS.plural, [Delta(MODIFIED, bound, None)])
    recording.record_objects(PODS.plural, [Delta(DELETED, bound, None)])
    recording.record_objects(PODS.plural, [Delta(ADDED, Task("b", Shape(3000)).pod(PROFILE), None)])
    recording.record_attempt("b", "large", 2.0)
    assert replay(file)[-1] == ("b", "large", "large")


def test_replay_repeats_attempt_after_bind_that_failed(file: Path, recording: InputRecording) -> None:
    recording.record_attempt("a", "large", 1.0)
    recording.record_forgotten("a")
    recording.record_attempt("a", "large", 2.0)
    assert replay(file) == [("a", "large", "large")] * 2


def test_replay_starts_with_empty_cache_after_restart(file: Path, recording: InputRecording) -> None:
    recording.record_attempt("a", "large", 1.0)
    recording.record_start("scheduler-0", 7)
    recording.record_objects(NODES.plural, [Delta(ADDED, LARGE.node(), None)])
    recording.record_objects(PODS.plural, [Delta(ADDED, Task("b", Shape(3000)).pod(PROFILE), None)])
    recording.record_attempt("b", "large", 2.0)
    assert replay(file)[-1] == ("b", "large", "large")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "JSONDecodeError"),
        (json.dumps({"attempt": "nobody", "node": "", "time": 0}), "pod nobody is not pending"),
        (json.dumps({"objects": "pods", "deltas": [[1, "!"]]}), "Error"),
        (json.dumps({"objects": "unknown", "deltas": []}), "unknown"),
    ],
    ids=["json", "pod", "base64", "resource"],
)
def test_replay_names_line_that_it_cannot_read(file: Path, recording: InputRecording, line: str, message: str) -> None:
    with file.open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(RecordingError, match=rf"scheduler-0\.jsonl:4: .*{message}"):
        replay(file)


def test_replay_needs_start(file: Path) -> None:
    file.write_text('{"forget":"a"}\n')
    with pytest.raises(RecordingError, match="the first line must be a start"):
        replay(file)


def test_sample_has_same_fraction_of_nodes_and_tasks() -> None:
    machines = [Machine(f"n{number}", 1000, 1024) for number in range(10)]
    trace = Trace("t", machines, [Task(f"t{number}", Shape(100)) for number in range(100)])
    part = sample(trace, 4)
    assert len(part.machines) == 4 and len(part.tasks) == 40
    assert sample(trace, 10) is trace
