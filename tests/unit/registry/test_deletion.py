import pytest

from apiserver.registry.deletion import MAX_GRACE, delete_step
from apiserver.registry.errors import Rejected
from apiserver.registry.mutation import Put, Sign, Version
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions, Preconditions
from pinnace.api.resources import PODS
from pinnace.api.status import Code
from pinnace.api.times import to_seconds
from tests.builders import PodBuilder, make_pod

NOW = 1_700_000_000.0


def step(builder: PodBuilder, options: DeleteOptions | None = None) -> Put[Pod] | Sign:
    pod = builder.version(7).build()
    return delete_step(PODS, pod.metadata.name, options or DeleteOptions(), Version(pod, 7, b""), NOW)


@pytest.mark.parametrize(
    ("pod", "options"),
    [
        (make_pod("unbound"), DeleteOptions()),
        (make_pod("finished").node("n").phase("Succeeded"), DeleteOptions()),
        (make_pod("running").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=0)),
    ],
)
def test_goes_at_once(pod: PodBuilder, options: DeleteOptions) -> None:
    assert step(pod, options) is Sign.REMOVE


def test_a_bound_pod_gets_its_grace() -> None:
    result = step(make_pod("a").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=5))
    assert isinstance(result, Put)
    assert to_seconds(result.obj.metadata.deletionTimestamp) == NOW + 5
    assert result.obj.metadata.deletionGracePeriodSeconds == 5
    assert not result.obj.metadata.resourceVersion


def test_a_negative_grace_is_a_second() -> None:
    result = step(make_pod("a").node("n").phase("Running"), DeleteOptions(gracePeriodSeconds=-1))
    assert isinstance(result, Put) and result.obj.metadata.deletionGracePeriodSeconds == 1


def test_grace_defaults_to_thirty_seconds_and_only_shrinks() -> None:
    first = step(make_pod("a").node("n"))
    assert isinstance(first, Put) and first.obj.metadata.deletionGracePeriodSeconds == 30
    version = Version(first.obj, 8, b"")
    longer = delete_step(PODS, "a", DeleteOptions(gracePeriodSeconds=60), version, NOW + 1)
    assert longer is Sign.KEEP
    shorter = delete_step(PODS, "a", DeleteOptions(gracePeriodSeconds=1), version, NOW + 1)
    assert isinstance(shorter, Put) and shorter.obj.metadata.deletionGracePeriodSeconds == 1


def test_finalizers_hold_an_object_back() -> None:
    pod = make_pod("a").build()
    pod.metadata.finalizers.append("example.com/wait")
    result = delete_step(PODS, "a", DeleteOptions(), Version(pod, 1, b""), NOW)
    assert isinstance(result, Put) and result.obj.metadata.HasField("deletionTimestamp")
    assert delete_step(PODS, "a", DeleteOptions(), Version(result.obj, 2, b""), NOW) is Sign.KEEP


@pytest.mark.parametrize(
    ("preconditions", "reason"),
    [(Preconditions(uid="other"), "UIDMismatch"), (Preconditions(resourceVersion="6"), "Conflict")],
)
def test_preconditions(preconditions: Preconditions, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        step(make_pod("a"), DeleteOptions(preconditions=preconditions))
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.ABORTED, reason)


def test_absent() -> None:
    with pytest.raises(Rejected, match='pods "a" not found'):
        delete_step(PODS, "a", DeleteOptions(), None, NOW)


@pytest.mark.parametrize("said_by", ["the delete", "the pod"])
def test_no_grace_ends_later_than_an_instant_can_say(said_by: str) -> None:
    pod, options = make_pod("a").node("n").phase("Running").version(7).build(), DeleteOptions()
    if said_by == "the pod":
        pod.spec.terminationGracePeriodSeconds = 2**63 - 1
    else:
        options.gracePeriodSeconds = 2**63 - 1
    result = delete_step(PODS, "a", options, Version(pod, 7, b""), NOW)
    assert isinstance(result, Put)
    assert result.obj.metadata.deletionGracePeriodSeconds == MAX_GRACE
    assert to_seconds(result.obj.metadata.deletionTimestamp) == NOW + MAX_GRACE
