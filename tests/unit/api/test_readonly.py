"""Read-only views cannot be changed, not even by reading missing map keys."""

import copy

import pytest
from google.protobuf import json_format

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.wire import read_only
from tests.builders import make_node, make_pod


def _pod() -> Pod:
    return make_pod("p").label("app", "web").node_selector("disk", "ssd").req(cpu=1).build()


def test_reading_a_map_adds_no_keys() -> None:
    pod = _pod()
    shown, before = read_only(pod), pod.SerializeToString()
    labels = shown.metadata.labels
    with pytest.raises(KeyError, match="prize"):
        _ = labels["prize"]
    assert labels["app"] == "web" and labels.get("prize") is None and labels.get("prize", "1") == "1"
    assert dict(labels) == {"app": "web"} and list(labels.items()) == [("app", "web")] and "prize" not in labels
    assert shown.spec.nodeSelector == {"disk": "ssd"}
    with pytest.raises(KeyError):
        _ = shown.metadata.annotations["missing"]
    with pytest.raises(KeyError):
        _ = shown.spec.containers[0].resources.limits["cpu"]
    assert shown.spec.containers[0].resources.requests["cpu"].string == "1"
    assert pod.SerializeToString() == before


def test_read_only_view_refuses_writes_at_any_depth() -> None:
    pod = _pod()
    shown, before = read_only(pod), pod.SerializeToString()
    with pytest.raises(AttributeError, match=r"copy\.deepcopy"):
        shown.spec.priority = 3
    with pytest.raises(AttributeError, match=r"copy\.deepcopy"):
        shown.spec.containers[0].ClearField("image")
    with pytest.raises(TypeError):
        shown.metadata.labels["app"] = "other"
    with pytest.raises(AttributeError):
        shown.spec.containers.add()
    assert pod.SerializeToString() == before


def test_read_only_view_reads_like_the_message() -> None:
    pod = _pod()
    shown = read_only(pod)
    assert shown == pod and str(shown) == str(pod) and shown.SerializeToString() == pod.SerializeToString()
    assert shown.HasField("status") and not shown.spec.HasField("affinity")
    assert [container.name for container in shown.spec.containers[:1]] == [pod.spec.containers[0].name]
    assert json_format.MessageToDict(shown) == json_format.MessageToDict(pod)
    with pytest.raises(AttributeError, match="no_such"):
        getattr(shown.spec, "no_such")  # noqa: B009 (mypy knows better)


def test_copy_of_a_view_is_mutable_and_independent() -> None:
    node = make_node("n").label("zone", "a").build()
    own = copy.deepcopy(read_only(node))
    assert type(own) is Node and own == node
    own.metadata.labels["zone"] = "b"
    assert node.metadata.labels["zone"] == "a"
