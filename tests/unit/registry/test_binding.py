import pytest

from pinnace.api.core_v1_pb2 import Binding, ObjectReference, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.status import Code, Refusal
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.binding import build_bind_mutations
from pinnace.apiserver.registry.fencing import FencedTerm
from pinnace.apiserver.registry.mutation import Mutation, ObjectVersion, PutObject
from pinnace.apiserver.storage.interface import Guard
from tests.builders import make_pod

NOW = 1_700_000_000.0
TERM = FencedTerm("scheduler/42", Guard("/registry/elections/scheduler", 42), ("default-scheduler",))


def binding(name: str = "a", node: str = "n1", uid: str = "", version: str = "", kind: str = "Node") -> Binding:
    metadata = ObjectMeta(namespace="default", name=name, uid=uid, resourceVersion=version)
    return Binding(metadata=metadata, target=ObjectReference(kind=kind, name=node))


def mutation(item: Binding, term: FencedTerm | None = TERM) -> Mutation[Pod]:
    (made,) = build_bind_mutations([item], term, NOW)
    assert isinstance(made, Mutation)
    return made


def bound(pod: Pod, item: Binding, term: FencedTerm | None = TERM) -> Pod:
    result = mutation(item, term).step(ObjectVersion(pod, 5, b""))
    assert isinstance(result, PutObject)
    return result.obj


def test_sets_the_node_and_the_condition_once() -> None:
    pod = make_pod("a").build()
    pod.status.conditions.add(type="PodScheduled", status="False", reason="Unschedulable", message="0/1 nodes")
    result = bound(pod, binding())
    assert result.spec.nodeName == "n1"
    (condition,) = result.status.conditions
    assert (condition.status, condition.reason, condition.message) == ("True", "", "")
    assert not pod.spec.nodeName, "the cached object is not touched"


def test_fence_is_compared_and_left_on_the_pod() -> None:
    assert mutation(binding()).guards == (Guard("/registry/elections/scheduler", 42),)
    assert bound(make_pod("a").build(), binding()).metadata.annotations[FENCE_ANNOTATION] == "scheduler/42"


def test_very_version_that_is_named_is_bound() -> None:
    result = bound(make_pod("a").uid("u").build(), binding(uid="u", version="5"))
    assert result.spec.nodeName == "n1" and not result.metadata.resourceVersion


def test_room_is_made_for_it_nowhere_any_more() -> None:
    pod = make_pod("a").build()
    pod.status.nominatedNodeName = "n2"
    assert not bound(pod, binding()).status.nominatedNodeName


def test_its_labels_and_annotations_become_the_pods() -> None:
    pod = make_pod("a").label("zone", "old").label("app", "web").build()
    item = binding()
    item.metadata.labels["zone"] = "z1"
    item.metadata.annotations.update({"example.com/device": "gpu-3", FENCE_ANNOTATION: "scheduler/99"})
    result = bound(pod, item, None)
    assert result.metadata.labels == {"app": "web", "zone": "z1"}
    assert result.metadata.annotations == {"example.com/device": "gpu-3"}, "no word of another fence"
    assert bound(pod, item).metadata.annotations[FENCE_ANNOTATION] == "scheduler/42"
    assert pod.metadata.labels["zone"] == "old"


@pytest.mark.parametrize(("field", "value"), [("labels", "no label"), ("annotations", "x" * (256 << 10))])
def test_labels_and_annotations_that_a_pod_cannot_have(field: str, value: str) -> None:
    item = binding()
    getattr(item.metadata, field)["a"] = value
    with pytest.raises(Rejected) as caught:
        bound(make_pod("a").build(), item)
    assert (caught.value.refusal.reason, caught.value.refusal.violations[0].field) == ("Invalid", f"metadata.{field}")


def test_by_hand_there_is_no_fence() -> None:
    assert mutation(binding(), None).guards == ()
    assert FENCE_ANNOTATION not in bound(make_pod("a").build(), binding(), None).metadata.annotations


@pytest.mark.parametrize(
    ("pod", "item", "reason"),
    [
        (make_pod("a").node("n1").build(), binding(), "AlreadyBound"),
        (make_pod("a").node("n2").build(), binding(), "AlreadyBound"),
        (make_pod("a").uid("new").build(), binding(uid="old"), "UIDMismatch"),
        (make_pod("a").build(), binding(version="4"), "Conflict"),
        (make_pod("a").terminating().build(), binding(), "Deleting"),
        (make_pod("a").gate("example.com/hold").build(), binding(), "Gated"),
    ],
)
def test_refused(pod: Pod, item: Binding, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        bound(pod, item)
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.ABORTED, reason)


@pytest.mark.parametrize("item", [binding(name=""), binding(node=""), binding(node="no/such\nnode"), binding(kind="Pod")])
def test_binding_that_makes_no_sense_fails_alone(item: Binding) -> None:
    refused, made = build_bind_mutations([item, binding()], TERM, NOW)
    assert isinstance(refused, Refusal) and refused.code == Code.INVALID_ARGUMENT
    assert isinstance(made, Mutation)


def test_pod_of_a_scheduler_that_the_leader_did_not_campaign_for() -> None:
    """Also when it is bound already: whose pod it is comes first."""
    for pod in (make_pod("a").scheduler("cheap"), make_pod("a").scheduler("cheap").node("n1")):
        with pytest.raises(Rejected) as caught:
            bound(pod.build(), binding())
        refusal = caught.value.refusal
        assert (refusal.code, refusal.reason) == (Code.PERMISSION_DENIED, "Forbidden")
        assert 'its scheduler is "cheap", and the leader of election "scheduler" did not campaign for it' in refusal.message
    assert bound(make_pod("a").scheduler("cheap").build(), binding(), None).spec.nodeName == "n1", (
        "by hand there is no election"
    )
    cheap = TERM._replace(scheduler_names=("dear", "cheap"))
    assert bound(make_pod("a").scheduler("cheap").build(), binding(), cheap).spec.nodeName == "n1"
