"""The little languages of `label` and `taint`."""

import pytest

from pinnace.api.core_v1_pb2 import Node, Taint
from pinnace.cli.changes import ANNOTATIONS, LABELS, PairEdits, TaintEdits
from pinnace.cli.outcomes import ExitCode, Failure
from tests.builders import make_node


def test_labels_are_set_and_removed() -> None:
    labels = {"a": "1", "b": "2"}
    assert PairEdits.parse(["c=3", "a-"], LABELS).apply(labels, overwrite=False) == "labeled"
    assert labels == {"b": "2", "c": "3"}
    assert PairEdits.parse(["c-"], LABELS).apply(labels, overwrite=False) == "unlabeled"
    assert PairEdits.parse(["b=2", "x-"], LABELS).apply(labels, overwrite=False) == "not labeled (nothing to change)"
    assert PairEdits.parse(["b="], LABELS).apply(labels, overwrite=True) == "labeled"
    assert labels == {"b": ""}


def test_a_label_that_has_another_value_is_left_alone() -> None:
    labels = {"a": "1"}
    with pytest.raises(Failure, match='label "a" already has a value \\(1\\)') as caught:
        PairEdits.parse(["b=1", "a=2"], LABELS).apply(labels, overwrite=False)
    assert caught.value.report.code is ExitCode.CONFLICT and labels == {"a": "1"}


def test_annotations_take_any_value() -> None:
    annotations = {"a": "1"}
    edits = PairEdits.parse(["Example.com/why=it = what, it is\n" + "x" * 99, "a-"], ANNOTATIONS)
    assert edits.apply(annotations, overwrite=False) == "annotated"
    assert annotations == {"Example.com/why": "it = what, it is\n" + "x" * 99}
    assert PairEdits.parse(["Example.com/why-"], ANNOTATIONS).apply(annotations, overwrite=False) == "annotated"
    assert not annotations
    with pytest.raises(Failure, match='annotation key "no key"'):
        PairEdits.parse(["no key=x"], ANNOTATIONS)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["a"], ExitCode.USAGE),
        (["a=1", "a=2"], ExitCode.USAGE),
        (["a=1", "a-"], ExitCode.USAGE),
        (["-a=1"], ExitCode.INVALID),
        (["a=b c"], ExitCode.INVALID),
        (["a=" + "x" * 64], ExitCode.INVALID),
    ],
)
def test_wrong_labels(words: list[str], code: ExitCode) -> None:
    with pytest.raises(Failure) as caught:
        PairEdits.parse(words, LABELS)
    assert caught.value.report.code is code


def tainted(*taints: tuple[str, str, str]) -> Node:
    node = make_node("n").build()
    for key, value, effect in taints:
        node.spec.taints.append(Taint(key=key, value=value, effect=effect))
    return node


def shown(node: Node) -> list[tuple[str, str, str]]:
    return [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]


@pytest.mark.parametrize(
    ("before", "words", "said", "after"),
    [
        ([], ["gpu=a:NoSchedule"], "tainted", [("gpu", "a", "NoSchedule")]),
        ([], ["gpu:NoExecute"], "tainted", [("gpu", "", "NoExecute")]),
        ([("gpu", "a", "NoSchedule")], ["gpu=a:NoExecute"], "tainted", [("gpu", "a", "NoSchedule"), ("gpu", "a", "NoExecute")]),
        ([("gpu", "a", "NoSchedule"), ("x", "", "NoExecute")], ["gpu:NoSchedule-"], "untainted", [("x", "", "NoExecute")]),
        ([("gpu", "a", "NoSchedule"), ("gpu", "", "NoExecute")], ["gpu-"], "untainted", []),
        ([("gpu", "a", "NoSchedule")], ["gpu-", "x:NoExecute"], "modified", [("x", "", "NoExecute")]),
        ([("gpu", "a", "NoSchedule")], ["gpu=a:NoSchedule-"], "untainted", []),
    ],
)
def test_taints(before: list[tuple[str, str, str]], words: list[str], said: str, after: list[tuple[str, str, str]]) -> None:
    node = tainted(*before)
    assert TaintEdits.parse(words).apply(node, overwrite=False) == said
    assert shown(node) == after


@pytest.mark.parametrize(("value", "said"), [("a", "not changed"), ("b", "tainted")])
def test_a_taint_that_is_there_is_left_alone_unless_overwritten(value: str, said: str) -> None:
    node = tainted(("gpu", "a", "NoSchedule"))
    edits = TaintEdits.parse([f"gpu={value}:NoSchedule"])
    with pytest.raises(Failure) as caught:
        edits.apply(node, overwrite=False)
    assert caught.value.report.code is ExitCode.CONFLICT and shown(node) == [("gpu", "a", "NoSchedule")]
    assert edits.apply(node, overwrite=True) == said and shown(node) == [("gpu", value, "NoSchedule")]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["gpu=a"], ExitCode.USAGE),
        (["gpu:NoSchedule", "gpu=x:NoSchedule"], ExitCode.USAGE),
        (["gpu:NoSchedule", "gpu:NoSchedule-"], ExitCode.USAGE),
        (["gpu=x:NoSchedule", "gpu-"], ExitCode.USAGE),
        (["gpu:Never"], ExitCode.INVALID),
        (["gpu:"], ExitCode.INVALID),
        (["-:NoSchedule"], ExitCode.INVALID),
        (["gpu=a b:NoSchedule"], ExitCode.INVALID),
    ],
)
def test_wrong_taints(words: list[str], code: ExitCode) -> None:
    with pytest.raises(Failure) as caught:
        TaintEdits.parse(words)
    assert caught.value.report.code is code


def test_a_taint_to_remove_must_be_there() -> None:
    with pytest.raises(Failure, match='taint "gpu:NoExecute" not found') as caught:
        TaintEdits.parse(["gpu:NoExecute-"]).apply(tainted(("gpu", "", "NoSchedule")), overwrite=False)
    assert caught.value.report.code is ExitCode.NOT_FOUND
