"""The compiled writer gives the same JSON as the codec for all kinds."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api import field_writer, json_codec
from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Container, ContainerStatus, Event, Pod, PodCondition, PodSpec
from pinnace.api.json_codec import JsonCache, to_json, with_type
from pinnace.api.ownership import Creator
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.resources import ALL, EVENTS_V1, PODS, Resource
from pinnace.api.wire import read_only
from tests.builders import make_node, make_pod
from tests.examples import examples
from tests.messages import messages

EMPTY = (
    "status", "resources", "state", "lastState", "involvedObject", "source", "regarding", "deprecatedSource", "acceptedNames",
)  # fmt: skip


def without_empty(value: Any) -> Any:
    """Remove the empty messages and the nulls that only the gateway writes. Kubernetes' clients read their fields without a
    check."""
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {name: without_empty(each) for name, each in value.items()}
    if (template := result.get("jobTemplate")) and template.get("metadata") == {}:
        del template["metadata"]
    return {
        name: each
        for name, each in result.items()
        if each is not None and not (name in EMPTY and isinstance(each, dict) and not any(each.values()))
    }


@pytest.mark.parametrize("resource", (*ALL, EVENTS_V1), ids=lambda item: item.service)
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_compiled_writer_agrees_with_the_codec(resource: Resource[Any], data: st.DataObject) -> None:
    obj: Any = data.draw(messages(resource.message))
    written = json.loads(with_type(resource.api_version, resource.kind, to_json(obj)))
    assert without_empty(written) == without_empty(to_dict(obj))


@pytest.mark.parametrize("obj", [make_pod("a").label('ä\n"', "ü").req(cpu="100m").build(), make_node("n").build(), Pod()])
def test_special_characters_and_empty_objects(obj: Any) -> None:
    result = {name: value for name, value in to_dict(obj).items() if name not in ("apiVersion", "kind")}
    assert without_empty(json.loads(to_json(obj))) == without_empty(result)


def test_status_and_resources_are_always_written() -> None:
    written = json.loads(to_json(Pod(spec=PodSpec(containers=[Container()]))))
    assert written["status"] == {} and written["spec"]["containers"][0]["resources"] == {}
    budget = json.loads(to_json(PodDisruptionBudget()))
    assert budget["status"] == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    container = json.loads(to_json(ContainerStatus(name="a")))
    assert (container["image"], container["imageID"], container["lastState"]) == ("", "", {})


def test_absent_times_of_conditions_and_events_are_null() -> None:
    condition = json.loads(to_json(PodCondition(type="Ready", status="True")))
    assert condition == {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    event = json.loads(to_json(Event()))
    assert [event[name] for name in ("firstTimestamp", "lastTimestamp", "eventTime")] == [None, None, None]


def test_cache_is_bounded_in_bytes() -> None:
    cache = JsonCache(limit=4000)
    pods = [make_pod(f"pod-{number}").label("x", "y" * 200).build().SerializeToString() for number in range(40)]
    first = [cache.json(PODS, pod) for pod in pods]
    assert [cache.json(PODS, pod) for pod in pods] == first
    assert cache.size <= 4000


def test_pods_with_equal_specs_keep_their_nodes() -> None:
    """The JSON of a spec is cached without its node."""
    pod = make_pod("a").req(cpu="1").build()
    for node in ("", "n1", "n2", "", 'a"b'):
        pod.spec.nodeName = node
        for obj in (pod, read_only(pod)):
            spec = json.loads(to_json(obj))["spec"]
            assert spec.get("nodeName", "") == node
            assert list(spec) == list(json.loads(to_json(PodSpec.FromString(pod.spec.SerializeToString()))))
        assert without_empty(spec) == without_empty(to_dict(pod)["spec"])


def test_caches_of_parts_are_bounded() -> None:
    for index in range(3000):
        pod = make_pod("a").req(cpu="1").build()
        pod.spec.containers[0].env.add(name=f"v{index}", value="x" * 2000)
        pod.metadata.ownership = Creator(PODS, "m", "", 1.7e9)(pod)
        JsonCache().json(PODS, pod.SerializeToString())
    assert 0 < json_codec.PARTS.size <= json_codec.MAX_CACHED
    assert 0 < field_writer.PARTS.size <= field_writer.MAX_CACHED
