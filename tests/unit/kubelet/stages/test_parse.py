"""Parsing of stage files: errors name the line and the field."""

from pathlib import Path

import pytest

from pinnace.kubelet.runtime.simulated_log import SimulatedLogLine
from pinnace.kubelet.runtime.stages import StagesError, load_stages, parse_stages

GOOD = """apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: a
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  delay:
    durationMilliseconds: 1000
  next:
    exit:
      code: 1
"""


def test_stages_of_kwok_are_accepted() -> None:
    (stage,) = parse_stages(GOOD, "good.yaml").stages
    assert (stage.name, stage.delay, stage.code) == ("a", (1.0, 1.0), 1)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kwok.x-k8s.io/v1alpha1", "v1", 'x.yaml:1: apiVersion: "v1" is not supported'),
        ("kind: Stage", "kind: Steak", 'x.yaml:2: kind: "Steak" is not supported; expected Stage'),
        ("kind: Pod", "kind: Node", 'x.yaml:8: spec.resourceRef.kind: "Node" is not supported; expected Pod'),
        ("code: 1", "code: 256", "x.yaml:13: spec.next.exit.code: expected a whole number from 0 to 255"),
        ("exit:", "explode:", "x.yaml:12: spec.next.explode: not supported"),
        ("durationMilliseconds: 1000", "durationMilliseconds: soon", "x.yaml:10: spec.delay.durationMilliseconds: expected"),
        ("durationMilliseconds: 1000", "durationFrom: {}", "x.yaml:10: spec.delay.durationFrom: not supported"),
        (
            "durationMilliseconds: 1000",
            "jitterDurationMilliseconds: -1",
            "x.yaml:10: spec.delay.jitterDurationMilliseconds: e",
        ),
        (
            "durationMilliseconds: 1000",
            "durationMilliseconds: 1000\n    jitterDurationMilliseconds: 5",
            "x.yaml:11: spec.delay.jitterDurationMilliseconds: 5 is less than durationMilliseconds, 1000",
        ),
        ("  delay:", "  weight: true\n  delay:", "x.yaml:9: spec.weight: expected a whole number"),
        (
            "    exit:\n      code: 1",
            "    exit: {}\n    start: {}",
            "x.yaml:11: spec.next: expected exactly one of",
        ),
        ("    exit:\n      code: 1", "    ready: {code: 1}", "x.yaml:12: spec.next.ready.code: not supported"),
        ("    exit:\n      code: 1", "    exit: sometimes", "x.yaml:12: spec.next.exit: expected fields (code)"),
        ("  next:\n    exit:\n      code: 1\n", "", "x.yaml:5: spec.next: is missing"),
        (
            "  delay:",
            "  selector: {matchExpressions: [{key: .status.phase, operator: Exists}]}\n  delay:",
            "x.yaml:9: spec.selector.matchExpressions[0].key: not supported",
        ),
        (
            "  delay:",
            "  selector: {matchExpressions: [{key: .metadata.name, operator: In}]}\n  delay:",
            "x.yaml:9: spec.selector.matchExpressions[0].values: required for In and NotIn",
        ),
        (
            "  delay:",
            "  selector: {matchLabels: {a: 1}}\n  delay:",
            "x.yaml:9: spec.selector.matchLabels: expected a map of strings",
        ),
        (GOOD, "", "x.yaml:1: no stages"),
        (GOOD, "[]", "x.yaml:1: expected fields"),
        (GOOD, "a: [", "x.yaml:"),
    ],
)
def test_violations_are_reported(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    with pytest.raises(StagesError) as raised:
        parse_stages(GOOD.replace(old, new), "x.yaml")
    assert any(line.startswith(problem) for line in str(raised.value).splitlines()), raised.value


def test_all_errors_are_reported_at_once() -> None:
    text = GOOD.replace("kind: Stage", "kind: Steak") + "---\n" + GOOD.replace("code: 1", "code: -1")
    with pytest.raises(StagesError) as raised:
        parse_stages(text, "x.yaml")
    assert [line.split(" ")[0] for line in str(raised.value).splitlines()] == ["x.yaml:2:", "x.yaml:27:"]


def test_missing_field_is_reported_once() -> None:
    with pytest.raises(StagesError) as raised:
        parse_stages("kind: Stage\n", "x.yaml")
    assert str(raised.value).splitlines() == ["x.yaml:1: apiVersion: is missing", "x.yaml:1: spec: is missing"]


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StagesError, match=r"No such file or directory; the sets are fast, realistic, chaos"):
        load_stages(str(tmp_path / "none.yaml"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(StagesError, match="not UTF-8"):
        load_stages(str(tmp_path / "binary"))


LOGS = """apiVersion: pinnace.io/v1alpha1
kind: Stage
spec:
  resourceRef: {kind: Pod}
  logs:
    - text: "{pod} started"
    - text: '{"order": {number}}'
      intervalMilliseconds: 2000
      jitterMilliseconds: 500
      container: app
"""


def test_logs_are_lines_with_intervals() -> None:
    (stage,) = parse_stages(LOGS, "logs.yaml").stages
    assert [*stage.logs] == [SimulatedLogLine("{pod} started"), SimulatedLogLine('{"order": {number}}', 2.0, 0.5, "app")]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "{pod} started",
            "{pood} started",
            "x.yaml:6: spec.logs[0].text: {pood} is not a placeholder; there are container, pod",
        ),
        (
            "intervalMilliseconds: 2000",
            "intervalMilliseconds: 5",
            "x.yaml:8: spec.logs[1].intervalMilliseconds: expected at le",
        ),
        (
            "jitterMilliseconds: 500",
            "jitterMilliseconds: 2001",
            "x.yaml:9: spec.logs[1].jitterMilliseconds: expected a whole nu",
        ),
        ("  logs:", "  next: {exit: {}}\n  logs:", "x.yaml:5: spec.next: cannot be combined with logs"),
        ("  logs:", "  delay: {}\n  logs:", "x.yaml:5: spec.delay: cannot be combined with logs"),
        (
            'text: "{pod} started"',
            "line: a",
            "x.yaml:6: spec.logs[0].line: not supported; there are text, intervalMilliseconds",
        ),
    ],
)
def test_mistakes_in_logs_name_their_line(old: str, new: str, problem: str) -> None:
    with pytest.raises(StagesError) as caught:
        parse_stages(LOGS.replace(old, new, 1), "x.yaml")
    assert any(line.startswith(problem) for line in str(caught.value).splitlines()), str(caught.value)
