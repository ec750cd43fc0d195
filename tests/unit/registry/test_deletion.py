from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Namespace, NamespaceSpec, Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions, ObjectMeta, Preconditions
from pinnace.api.resources import ALL, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import Disruption
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.deletion import delete_step
from pinnace.apiserver.registry.mutation import Final, MutationEffect, ObjectVersion, PutObject, RemoveObject
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategies.pods import MAX_GRACE
from pinnace.controllers.garbagecollector import WATCHED
from tests.builders import PodBuilder, make_pod

NOW = 1_700_000_000.0
POD_STRATEGY, NAMESPACE_STRATEGY = STRATEGIES["pods"], STRATEGIES["namespaces"]


def step(builder: PodBuilder, options: DeleteOptions | None = None) -> Final[Pod]:
    pod = builder.version(7).build()
    pod.metadata.generation = 1
    return delete_step(POD_STRATEGY, pod.metadata.name, options or DeleteOptions(), ObjectVersion(pod, 7, b""), NOW)


@pytest.mark.parametrize(
    ("pod", "options"),
    [
        (make_pod("unbound"), DeleteOptions()),
        (make_pod("finished").node("n").phase("Succeeded"), DeleteOptions()),
        (make_pod("running").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=0)),
    ],
)
def test_goes_at_once(pod: PodBuilder, options: DeleteOptions) -> None:
    """The response contains the end of the pod, as in Kubernetes."""
    removal = step(pod, options)
    assert isinstance(removal, RemoveObject)
    metadata = removal.last.metadata
    assert to_seconds(metadata.deletionTimestamp) == NOW and metadata.HasField("deletionGracePeriodSeconds")
    assert (metadata.deletionGracePeriodSeconds, metadata.generation) == (0, 2)


def test_bound_pod_gets_its_grace() -> None:
    result = step(make_pod("a").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=5))
    assert isinstance(result, PutObject)
    assert to_seconds(result.obj.metadata.deletionTimestamp) == NOW + 5
    assert result.obj.metadata.deletionGracePeriodSeconds == 5
    assert not result.obj.metadata.resourceVersion


def test_negative_grace_of_pod_is_a_second() -> None:
    pod = make_pod("a").node("n").phase("Running").build()
    pod.spec.terminationGracePeriodSeconds = -5
    result = delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(pod, 7, b""), NOW)
    assert isinstance(result, PutObject) and result.obj.metadata.deletionGracePeriodSeconds == 1


def test_negative_grace_is_a_second() -> None:
    result = step(make_pod("a").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=-1))
    assert isinstance(result, PutObject) and result.obj.metadata.deletionGracePeriodSeconds == 1


def test_grace_defaults_to_thirty_seconds_and_only_shrinks() -> None:
    first = step(make_pod("a").node("n"))
    assert isinstance(first, PutObject) and first.obj.metadata.deletionGracePeriodSeconds == 30
    version = ObjectVersion(first.obj, 8, b"")
    longer = delete_step(POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=60), version, NOW + 1)
    assert longer is MutationEffect.NO_OP
    shorter = delete_step(POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=1), version, NOW + 1)
    assert isinstance(shorter, PutObject) and shorter.obj.metadata.deletionGracePeriodSeconds == 1


def test_delete_without_grace_keeps_the_earlier_grace_period() -> None:
    """A controller that deletes the pod as well does not end it earlier than its user wanted, nor later."""
    for given in (600, 5):
        first = step(make_pod("a").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=given))
        assert isinstance(first, PutObject)
        assert (
            delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(first.obj, 8, b""), NOW + 1) is MutationEffect.NO_OP
        )
        orphaning = DeleteOptions(propagationPolicy="Orphan")
        again = delete_step(POD_STRATEGY, "a", orphaning, ObjectVersion(first.obj, 8, b""), NOW + 1)
        assert isinstance(again, PutObject) and again.obj.metadata.deletionGracePeriodSeconds == given


@pytest.mark.parametrize("grace", [29, 25, 21])
def test_shorter_grace_counts_from_the_first_delete(grace: int) -> None:
    """It ends earlier, not later."""
    first = step(make_pod("a").node("n"))
    assert isinstance(first, PutObject)
    again = delete_step(POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=grace), ObjectVersion(first.obj, 8, b""), NOW + 20)
    assert isinstance(again, PutObject)
    assert to_seconds(again.obj.metadata.deletionTimestamp) == NOW + grace
    assert again.obj.metadata.deletionGracePeriodSeconds == grace


@pytest.mark.parametrize("grace", [19, 1])
def test_elapsed_grace_period_leaves_one_second(grace: int) -> None:
    """Whoever runs the pod counts what he is told from when he hears of it, and still sees to its end."""
    first = step(make_pod("a").node("n"))
    assert isinstance(first, PutObject)
    again = delete_step(POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=grace), ObjectVersion(first.obj, 8, b""), NOW + 20)
    assert isinstance(again, PutObject)
    assert to_seconds(again.obj.metadata.deletionTimestamp) == NOW + 20
    assert again.obj.metadata.deletionGracePeriodSeconds == 1
    held = first.obj
    held.metadata.finalizers.append("example.com/mine")
    at_once = delete_step(POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=0), ObjectVersion(held, 8, b""), NOW + 20)
    assert isinstance(at_once, PutObject)
    assert to_seconds(at_once.obj.metadata.deletionTimestamp) == NOW + 20
    assert at_once.obj.metadata.deletionGracePeriodSeconds == 0


def test_why_others_end_a_pod_is_in_the_write_that_ends_it() -> None:
    pod = make_pod("a").node("n").phase("Running").build()
    why = Disruption(reason="PreemptionByScheduler", message="for another")
    result = delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(pod, 7, b""), NOW, why=why)
    assert isinstance(result, PutObject) and result.obj.metadata.HasField("deletionTimestamp")
    (condition,) = result.obj.status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "DisruptionTarget", "True", "PreemptionByScheduler", "for another",
    )  # fmt: skip
    assert to_seconds(condition.lastTransitionTime) == NOW
    again = Disruption(reason="DeletionByTaintManager", message="")
    soon = delete_step(
        POD_STRATEGY, "a", DeleteOptions(gracePeriodSeconds=1), ObjectVersion(result.obj, 8, b""), NOW + 5, why=again
    )
    assert isinstance(soon, PutObject)
    (condition,) = soon.obj.status.conditions
    assert (condition.reason, to_seconds(condition.lastTransitionTime)) == ("DeletionByTaintManager", NOW)


def test_finalizers_hold_an_object_back() -> None:
    pod = make_pod("a").build()
    pod.metadata.finalizers.append("example.com/wait")
    result = delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(pod, 1, b""), NOW)
    assert isinstance(result, PutObject) and result.obj.metadata.HasField("deletionTimestamp")
    assert delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(result.obj, 2, b""), NOW) is MutationEffect.NO_OP


def test_first_delete_is_a_new_generation() -> None:
    """So whoever looks only at new generations sees it, as in Kubernetes; a shorter grace is none."""
    held = make_pod("held").build()
    held.metadata.finalizers.append("example.com/wait")
    for pod in (held, make_pod("graceful").node("n").phase("Running").build()):
        pod.metadata.generation = 4
        first = delete_step(POD_STRATEGY, "a", DeleteOptions(), ObjectVersion(pod, 1, b""), NOW)
        assert isinstance(first, PutObject) and first.obj.metadata.generation == 5
        again = DeleteOptions(gracePeriodSeconds=1, propagationPolicy="Orphan")
        second = delete_step(POD_STRATEGY, "a", again, ObjectVersion(first.obj, 2, b""), NOW)
        assert isinstance(second, PutObject) and second.obj.metadata.generation == 5


@pytest.mark.parametrize(
    ("preconditions", "reason"),
    [
        (Preconditions(uid="other"), "UIDMismatch"),
        (Preconditions(resourceVersion="6"), "Conflict"),
        (Preconditions(uid=""), "UIDMismatch"),
        (Preconditions(resourceVersion=""), "Conflict"),
    ],
)
def test_preconditions(preconditions: Preconditions, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        step(make_pod("a"), DeleteOptions(preconditions=preconditions))
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.ABORTED, reason)


def test_absent() -> None:
    with pytest.raises(Rejected, match='pods "a" not found'):
        delete_step(POD_STRATEGY, "a", DeleteOptions(), None, NOW)


@pytest.mark.parametrize("said_by", ["the delete", "the pod"])
def test_grace_period_end_is_limited_to_the_last_valid_time(said_by: str) -> None:
    pod, options = make_pod("a").node("n").phase("Running").version(7).build(), DeleteOptions()
    if said_by == "the pod":
        pod.spec.terminationGracePeriodSeconds = 2**63 - 1
    else:
        options.gracePeriodSeconds = 2**63 - 1
    result = delete_step(POD_STRATEGY, "a", options, ObjectVersion(pod, 7, b""), NOW)
    assert isinstance(result, PutObject)
    assert result.obj.metadata.deletionGracePeriodSeconds == MAX_GRACE
    assert to_seconds(result.obj.metadata.deletionTimestamp) == NOW + MAX_GRACE


@pytest.mark.parametrize(
    ("present", "policy", "expected"),
    [
        ([], "Orphan", ["orphan"]),
        ([], "Foreground", ["foregroundDeletion"]),
        (["mine"], "Foreground", ["mine", "foregroundDeletion"]),
        (["foregroundDeletion", "mine"], "Background", ["mine"]),
        (["foregroundDeletion"], "Orphan", ["orphan"]),
        (["orphan"], "", ["orphan"]),
    ],
)
def test_propagation_policy_is_stored_as_a_finalizer(present: list[str], policy: str, expected: list[str]) -> None:
    builder = make_pod("a")
    pod = builder.build()
    pod.metadata.finalizers.extend(present)
    options = DeleteOptions(propagationPolicy=policy) if policy else DeleteOptions()
    result = delete_step(POD_STRATEGY, "a", options, ObjectVersion(pod, 1, b""), NOW)
    assert isinstance(result, PutObject) and list(result.obj.metadata.finalizers) == expected
    assert delete_step(POD_STRATEGY, "a", options, ObjectVersion(result.obj, 2, b""), NOW) is MutationEffect.NO_OP


def test_second_delete_may_change_the_propagation_policy() -> None:
    pod = make_pod("a").build()
    first = delete_step(POD_STRATEGY, "a", DeleteOptions(propagationPolicy="Foreground"), ObjectVersion(pod, 1, b""), NOW)
    assert isinstance(first, PutObject)
    again = ObjectVersion(first.obj, 2, b"")
    second = delete_step(POD_STRATEGY, "a", DeleteOptions(propagationPolicy="Orphan"), again, NOW + 9)
    assert isinstance(second, PutObject) and list(second.obj.metadata.finalizers) == ["orphan"]
    assert to_seconds(second.obj.metadata.deletionTimestamp) == NOW
    assert isinstance(
        delete_step(POD_STRATEGY, "a", DeleteOptions(propagationPolicy="Background"), again, NOW + 9), RemoveObject
    )


@pytest.mark.parametrize("resource", [item for item in ALL if item.plural not in WATCHED], ids=lambda item: item.plural)
@pytest.mark.parametrize("policy", ["Orphan", "Foreground", "Background", ""])
def test_foreground_deletion_needs_a_collected_kind(resource: Resource[Any], policy: str) -> None:
    options = DeleteOptions(propagationPolicy=policy)
    strategy, obj = STRATEGIES[resource.plural], resource.message(metadata=ObjectMeta(name="a"))
    assert delete_step(strategy, "a", options, ObjectVersion(obj, 1, b""), NOW) is MutationEffect.DELETE
    obj.metadata.finalizers.extend(["orphan", "foregroundDeletion"])
    obj.metadata.deletionTimestamp.seconds = 1
    assert delete_step(strategy, "a", options, ObjectVersion(obj, 1, b""), NOW) is MutationEffect.DELETE, (
        "nor what waited for it before"
    )
    obj.metadata.finalizers.append("mine")
    result = delete_step(strategy, "a", options, ObjectVersion(obj, 1, b""), NOW)
    assert isinstance(result, PutObject) and list(result.obj.metadata.finalizers) == ["mine"]


def test_unknown_propagation_policy_is_refused() -> None:
    with pytest.raises(Rejected, match="Orphan, Foreground, Background"):
        step(make_pod("a"), DeleteOptions(propagationPolicy="Sideways"))


def test_namespace_ends_only_when_it_is_empty() -> None:
    namespace = Namespace(metadata=ObjectMeta(name="n"), spec=NamespaceSpec(finalizers=["kubernetes"]))
    result = delete_step(NAMESPACE_STRATEGY, "n", DeleteOptions(), ObjectVersion(namespace, 1, b""), NOW)
    assert isinstance(result, PutObject) and result.obj.status.phase == "Terminating"
    assert result.obj.metadata.HasField("deletionTimestamp")
    assert not result.obj.metadata.HasField("deletionGracePeriodSeconds"), "as in Kubernetes"
    assert delete_step(NAMESPACE_STRATEGY, "n", DeleteOptions(), ObjectVersion(result.obj, 2, b""), NOW) is MutationEffect.NO_OP
    del result.obj.spec.finalizers[:]
    assert (
        delete_step(NAMESPACE_STRATEGY, "n", DeleteOptions(), ObjectVersion(result.obj, 2, b""), NOW) is MutationEffect.DELETE
    )
