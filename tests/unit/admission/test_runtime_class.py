"""The runtime class of a pod: its overhead and its scheduling are added to the pod."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, RUNTIME_CLASSES
from pinnace.apiserver.admission.defaults import RuntimeClassAdmission
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.storage.interface import KeyValue
from tests.storage.memory import MemoryStorage
from tests.unit.registry.objects import changed, created

SANDBOX: dict[str, Any] = {
    "metadata": {"name": "sandbox"},
    "handler": "sandbox",
    "overhead": {"podFixed": {"cpu": "250m"}},
    "scheduling": {"nodeSelector": {"sandbox": "true"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]},
}
_REQUEST = WriteRequest(UNSECURED)


def admitted(**spec: Any) -> dict[str, Any]:
    """The spec of a pod in a cluster with the class `sandbox`. Raises Rejected."""
    cacher = Cacher(MemoryStorage())
    value = from_dict(RUNTIME_CLASSES, SANDBOX).SerializeToString()
    cacher.install_state(5, [KeyValue(RUNTIME_CLASSES.key("", "sandbox"), value, 5, 5, 1)])
    plugin = RuntimeClassAdmission(cacher.cache_of(RUNTIME_CLASSES))
    pod: Pod = from_dict(PODS, {"metadata": {"name": "a"}, "spec": spec})
    for _ in range(2):  # admission is idempotent
        plugin.admit(_REQUEST, pod)
    plugin.validate(_REQUEST, AdmissionOperation.CREATE, pod, None)
    result: dict[str, Any] = to_dict(pod)["spec"]
    return result


def refusal(**spec: Any) -> str:
    with pytest.raises(Rejected) as caught:
        admitted(**spec)
    return caught.value.refusal.message


def test_class_adds_overhead_node_selector_and_tolerations() -> None:
    own = {"key": "own", "operator": "Exists"}
    spec = admitted(runtimeClassName="sandbox", nodeSelector={"zone": "a"}, tolerations=[own])
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"zone": "a", "sandbox": "true"}
    assert spec["tolerations"] == [own, {"key": "sandbox", "operator": "Exists"}]


def test_pod_without_class_is_not_changed() -> None:
    assert admitted(restartPolicy="Never") == {"restartPolicy": "Never"}


def test_equal_overhead_is_accepted() -> None:
    assert admitted(runtimeClassName="sandbox", overhead={"cpu": "0.25"})["overhead"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "ghost"}, 'pod rejected: RuntimeClass "ghost" not found'),
        (
            {"runtimeClassName": "sandbox", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        ({"overhead": {"cpu": "1"}}, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
        (
            {"runtimeClassName": "sandbox", "nodeSelector": {"sandbox": "false"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sandbox] = true; pod.spec.nodeSelector[sandbox] = false",
        ),
    ],
    ids=["unknown", "other overhead", "no class", "other selector"],
)
def test_contradiction_is_forbidden(spec: dict[str, Any], why: str) -> None:
    assert refusal(**spec) == f'pods "a" is forbidden: {why}'


def test_class_is_validated() -> None:
    assert created(RUNTIME_CLASSES, from_dict(RUNTIME_CLASSES, SANDBOX)) == []
    problems = created(
        RUNTIME_CLASSES,
        from_dict(
            RUNTIME_CLASSES, SANDBOX | {"handler": "A", "scheduling": {"tolerations": [{"key": "a", "operator": "Exists"}] * 2}}
        ),
    )
    assert [problem.partition(":")[0] for problem in problems] == ["handler", "scheduling.tolerations[1]"]


def test_handler_is_immutable() -> None:
    new, old = (from_dict(RUNTIME_CLASSES, SANDBOX | {"handler": handler}) for handler in ("b", "a"))
    assert changed(RUNTIME_CLASSES, new, old) == ['handler: Invalid value: "b": field is immutable']
