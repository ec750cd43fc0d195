"""What an update may change in a pod that exists."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.wellknown import FENCE_ANNOTATION
from tests.unit.registry.objects import Data, copy, pod, ready, updated

FIXED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative); changed: "
)
TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoExecute"}


def before() -> Pod:
    obj = pod(
        initContainers=[{"name": "i", "image": "i:1"}],
        activeDeadlineSeconds=100,
        nodeSelector={"disk": "ssd"},
        tolerations=[TOLERATION],
        nodeName="n1",
        priority=5,
        priorityClassName="high",
        preemptionPolicy="Never",
    )
    return ready(obj)


Change = Callable[[Any], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: None,
        lambda spec: setattr(spec.containers[0], "image", "app:2"),
        lambda spec: setattr(spec.initContainers[0], "image", "i:2"),
        lambda spec: setattr(spec, "activeDeadlineSeconds", 99),
        lambda spec: spec.tolerations.add(key="b", operator="Exists"),
        lambda spec: setattr(spec.tolerations[0], "tolerationSeconds", 7),
    ],
)
def test_mutable_fields(change: Change) -> None:
    old = before()
    new = copy(old)
    change(new.spec)
    assert updated(new, old) == []


@pytest.mark.parametrize(("grace", "allowed"), [(1, True), (2, False)])
def test_negative_grace_period_may_become_a_second(grace: int, allowed: bool) -> None:
    old = before()
    old.spec.terminationGracePeriodSeconds = -5
    new = copy(old)
    new.spec.terminationGracePeriodSeconds = grace
    assert (updated(new, old) == []) is allowed


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda spec: setattr(spec, "nodeName", "n2"), "spec.nodeName"),
        (lambda spec: spec.ClearField("nodeName"), "spec.nodeName"),
        (lambda spec: setattr(spec, "restartPolicy", "Never"), "spec.restartPolicy"),
        (lambda spec: setattr(spec, "priority", 6), "spec.priority"),
        (lambda spec: setattr(spec, "schedulerName", "other"), "spec.schedulerName"),
        (lambda spec: setattr(spec, "terminationGracePeriodSeconds", 1), "spec.terminationGracePeriodSeconds"),
        (lambda spec: spec.nodeSelector.update({"new": "label"}), "spec.nodeSelector"),
        (lambda spec: spec.containers[0].args.append("-v"), "spec.containers[0].args"),
        (lambda spec: setattr(spec.containers[0], "name", "d"), "spec.containers[0].name"),
        (lambda spec: setattr(spec.initContainers[0], "tty", True), "spec.initContainers[0].tty"),
        (lambda spec: spec.affinity.SetInParent(), "spec.affinity"),
        (lambda spec: setattr(spec, "hostUsers", True), "spec.hostUsers"),
    ],
)
def test_immutable_fields(change: Change, field: str) -> None:
    old = before()
    new = copy(old)
    change(new.spec)
    assert updated(new, old) == [FIXED + field]


def test_resources_are_fixed_too() -> None:
    old = ready(pod({"resources": {"requests": {"cpu": "1"}}}))
    new = copy(old)
    new.spec.containers[0].resources.requests["cpu"].string = "2"
    assert updated(new, old) == [
        FIXED + "spec.containers[0].resources; cpu and memory of containers change through the subresource resize"
    ]


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (
            lambda spec: setattr(spec, "activeDeadlineSeconds", 101),
            "spec.activeDeadlineSeconds: Invalid value: 101: must be less than or equal to previous value",
        ),
        (
            lambda spec: spec.ClearField("activeDeadlineSeconds"),
            "spec.activeDeadlineSeconds: Forbidden: must not update from a positive integer to nil value",
        ),
        (
            lambda spec: spec.tolerations.pop(0),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            lambda spec: setattr(spec.tolerations[0], "key", "b"),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (lambda spec: setattr(spec.containers[0], "image", ""), "spec.containers[0].image: Required value"),
        (
            lambda spec: spec.containers.add(name="d", image="d:1"),
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            lambda spec: spec.initContainers.pop(),
            "spec.initContainers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            lambda spec: spec.schedulingGates.add(name="g"),
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
        ),
    ],
)
def test_changes_that_go_too_far(change: Change, violation: str) -> None:
    old = before()
    new = copy(old)
    change(new.spec)
    assert updated(new, old) == [violation]


def test_change_that_cannot_be_named_is_refused_all_the_same() -> None:
    old = before()
    new = copy(old)
    new.spec.MergeFromString(wire.field(9001, b"of the future"))
    assert updated(new, old) == [FIXED + "fields that this version does not model"]


def test_all_violations_are_reported_at_once() -> None:
    old = before()
    new = copy(old)
    new.metadata.labels["a"] = "b c"
    new.spec.nodeName, new.spec.restartPolicy, new.spec.activeDeadlineSeconds = "n2", "x", 101
    result = updated(new, old)
    assert [violation.partition(":")[0] for violation in result] == [
        "metadata.labels",
        "spec.restartPolicy",
        "spec.activeDeadlineSeconds",
        "spec",
    ]
    assert result[-1] == FIXED + "spec.restartPolicy, spec.nodeName"


def test_gates_go_one_by_one() -> None:
    old = ready(pod(schedulingGates=[{"name": "a"}, {"name": "b"}]))
    new = copy(old)
    del new.spec.schedulingGates[0]
    assert updated(new, old) == []
    new.spec.schedulingGates.add(name="c")
    assert updated(new, old) == [
        "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"
    ]


def test_gated_pod_may_become_choosier() -> None:
    old = ready(pod(schedulingGates=[{"name": "a"}], nodeSelector={"disk": "ssd"}))
    new = copy(old)
    new.spec.nodeSelector["zone"] = "a"
    assert updated(new, old) == []
    new.spec.nodeSelector["disk"] = "hdd"
    (violation,) = updated(new, old)
    assert violation.startswith('spec.nodeSelector: Invalid value: "disk,zone": only additions to spec.nodeSelector are')


def gated(node_affinity: Data | None) -> Pod:
    affinity = {} if node_affinity is None else {"affinity": {"nodeAffinity": node_affinity}}
    return ready(pod(schedulingGates=[{"name": "a"}], **affinity))


def terms(*keys: str, field: str = "matchExpressions") -> Data:
    """One term for each word; each of its letters is a label that a node must have."""
    return {_REQUIRED: {"nodeSelectorTerms": [{field: [{"key": key, "operator": "Exists"} for key in word]} for word in keys]}}


def preferring(*keys: str) -> Data:
    preferences = [{"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}} for key in keys]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferences}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMED: Data = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, terms("a", "b")),
        (None, preferring("p")),
        (None, {}),
        ({}, None),
        ({}, terms("a", "b")),
        (preferring("p"), terms("a", "b")),
        (preferring("p"), preferring("q", "r")),
        (preferring("p"), None),
        (terms("a", "b"), terms("ac", "bd") | preferring("p")),
        (terms("a"), {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]} | NAMED]}}),
        (terms("a"), terms("a")),
    ],
)
def test_gated_pod_may_become_choosier_by_its_affinity(before: Data | None, after: Data | None) -> None:
    assert updated(gated(after), gated(before)) == []


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        (terms("a"), terms("a", "b"), ""),
        (terms("a", "b"), terms("a"), ""),
        (terms("a"), preferring("p"), ""),
        (terms("a"), None, ""),
        (terms("ab"), terms("a"), "[0]"),
        (terms("ab"), terms("ba"), "[0]"),
        (terms("a", "b"), terms("a", "c"), "[1]"),
        (terms(""), terms("a"), "[0]"),
        ({_REQUIRED: {"nodeSelectorTerms": [NAMED]}}, terms("a"), "[0]"),
    ],
)
def test_gated_pod_does_not_become_less_choosy(before: Data, after: Data | None, where: str) -> None:
    (violation,) = updated(gated(after), gated(before))
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms{where}: Invalid value: "
    assert violation.startswith(path)
    assert "additions" in violation


def test_gated_pod_may_not_change_other_parts_of_the_affinity() -> None:
    old = gated(None)
    new = gated(terms("a"))
    new.spec.affinity.podAffinity.SetInParent()
    assert updated(new, old) == [FIXED + "spec.affinity"]


def test_without_gates_the_affinity_is_fixed() -> None:
    old, new = gated(None), gated(terms("a"))
    for item in (old, new):
        del item.spec.schedulingGates[:]
    assert updated(new, old) == [FIXED + "spec.affinity"]


def test_fields_set_by_admission_may_be_omitted() -> None:
    old = before()
    new = copy(old)
    for field in ("priority", "priorityClassName", "preemptionPolicy"):
        new.spec.ClearField(field)
    del new.spec.tolerations[1:]  # the two that admission added
    new.spec.ClearField("dnsPolicy")
    assert updated(new, old) == []
    assert new.spec == old.spec


def test_update_leaves_the_status_alone() -> None:
    old = before()
    old.status.phase = "Running"
    new = copy(old)
    new.status.phase = "Failed"
    assert updated(new, old) == []
    assert new.status == old.status


@pytest.mark.parametrize("said", ["scheduler/42", None])
@pytest.mark.parametrize("wanted", ["scheduler/999999", "hello", None])
def test_update_cannot_change_the_fence_annotation(said: str | None, wanted: str | None) -> None:
    """Else whoever may annotate a pod could make the checkers report a second bind, or one by a deposed leader."""
    old = before()
    if said is not None:
        old.metadata.annotations[FENCE_ANNOTATION] = said
    new = copy(old)
    new.metadata.annotations.clear()
    new.metadata.annotations["mine"] = "stays"
    if wanted is not None:
        new.metadata.annotations[FENCE_ANNOTATION] = wanted
    assert updated(new, old) == []
    assert dict(new.metadata.annotations) == ({"mine": "stays"} | ({} if said is None else {FENCE_ANNOTATION: said}))
