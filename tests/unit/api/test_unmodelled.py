"""Fields that JSON does not show survive a change of the object's JSON form."""

from typing import Any

import pytest

from pinnace.api import codec, wire
from pinnace.api.codec import CodecError, decode_revision, has_unknown_fields, to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import NODES, PODS
from tests.builders import make_node, make_pod

FUTURE = wire.field(9001, b"of the future")


def more(message: Any) -> None:
    """Add a field that is not modelled."""
    message.MergeFromString(FUTURE)


def pod() -> Pod:
    """A pod with such a field at every depth."""
    made = make_pod("a").req(cpu="1").label("app", "web").build()
    made.spec.containers[0].name = "main"
    made.spec.containers.add(name="side", image="side:1")
    made.spec.tolerations.add(key="gpu")
    made.spec.tolerations.add(key="disk")
    made.status.startTime.seconds, made.status.startTime.nanos = 7, 9
    for message in (made, made.metadata, made.spec, *made.spec.containers, *made.spec.tolerations, made.status):
        more(message)
    more(made.spec.containers[0].resources)
    more(made.spec.containers[0].resources.requests["cpu"])
    return made


def test_unchanged_unmodelled_bytes_are_identical() -> None:
    old = pod()
    new = decode_revision(PODS, old, to_dict(old), to_dict(old))
    assert new == old and new is not old


def test_change_keeps_unmodelled_fields() -> None:
    old = pod()
    data = to_dict(old)
    data["spec"]["containers"][0]["image"] = "other:2"
    data["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    expected = pod()
    expected.spec.containers[0].image = "other:2"
    expected.spec.containers[0].resources.requests["cpu"].string = "2"
    assert decode_revision(PODS, old, to_dict(old), data) == expected


def test_items_are_matched_by_key_or_by_content() -> None:
    old = pod()
    data = to_dict(old)
    data["spec"]["containers"] = [{"name": "new"}, {"name": "side"}]
    data["spec"]["tolerations"] = [{"key": "disk"}, {"key": "gpu", "operator": "Exists"}]
    new = decode_revision(PODS, old, to_dict(old), data)
    assert [has_unknown_fields(container) for container in new.spec.containers] == [False, True]
    assert not new.spec.containers[1].image, "modelled fields are those of the data"
    assert [has_unknown_fields(toleration) for toleration in new.spec.tolerations] == [True, False]


def test_removed_field_is_removed_with_its_contents() -> None:
    old = pod()
    data = to_dict(old)
    del data["status"], data["spec"]["containers"][0]["resources"]
    new = decode_revision(PODS, old, to_dict(old), data)
    assert not new.HasField("status") and not new.spec.containers[0].HasField("resources")
    assert has_unknown_fields(new.spec.containers[0])


def test_content_match_ignores_hidden_fields() -> None:
    """The fraction of a second in the taint's time is not shown in JSON."""
    old = make_node("a").build()
    for key in ("gpu", "disk"):
        old.spec.taints.add(key=key).timeAdded.nanos = 7
    form = to_dict(old)
    data = to_dict(old)
    data["spec"]["taints"].reverse()
    data["spec"]["unschedulable"] = True
    new = decode_revision(NODES, old, form, data)
    assert [(taint.key, taint.timeAdded.nanos) for taint in new.spec.taints] == [("disk", 7), ("gpu", 7)]


@pytest.mark.parametrize("name", ["ephemeralContainers", "ports"])
def test_item_key_may_be_inlined_or_have_a_default(name: str) -> None:
    old = pod()
    if name == "ports":
        more(old.spec.containers[0].ports.add(containerPort=80))
    else:
        more(old.spec.ephemeralContainers.add(ephemeralContainerCommon={"name": "debug", "image": "1"}))
    form, data = to_dict(old), to_dict(old)
    if name == "ports":
        data["spec"]["containers"][0]["ports"][0] |= {"protocol": "TCP", "name": "http"}
    else:
        data["spec"]["ephemeralContainers"][0]["image"] = "2"
    new = decode_revision(PODS, old, form, data)
    (item,) = new.spec.containers[0].ports if name == "ports" else new.spec.ephemeralContainers
    assert has_unknown_fields(item) and to_dict(new) == data


def test_update_may_repair_an_undecodable_object() -> None:
    """An older API server has stored the malformed quantity."""
    old = pod()
    old.spec.containers[0].resources.requests["cpu"].string = "much"
    form, data = to_dict(old), to_dict(old)
    data["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    expected = pod()
    expected.spec.containers[0].resources.requests["cpu"].string = "2"
    assert decode_revision(PODS, old, form, data) == expected


def test_update_keeps_a_malformed_value_and_refuses_a_new_one() -> None:
    """Other fields of the object can still be changed."""
    old = pod()
    old.spec.containers[0].resources.requests["cpu"].string = "much"
    form, data = to_dict(old), to_dict(old)
    data["metadata"]["labels"]["tier"] = "front"
    data["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
    new = decode_revision(PODS, old, form, data)
    assert to_dict(new) == data and has_unknown_fields(new.spec.containers[0].resources.requests["cpu"])
    data["spec"]["containers"][0]["resources"]["requests"]["memory"] = "much"
    with pytest.raises(CodecError) as caught:
        decode_revision(PODS, old, form, data)
    assert [problem.field for problem in caught.value.problems] == ["spec.containers[0].resources.requests[memory]"]
    data["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "more"}
    with pytest.raises(CodecError, match='"more" is not a quantity'):
        decode_revision(PODS, old, form, data)
    data["spec"]["containers"][0] |= {"name": "renamed", "resources": {"requests": {"cpu": "much"}}}
    with pytest.raises(CodecError, match="is not a quantity"):
        decode_revision(PODS, old, form, data)


def test_unchanged_json_is_not_reencoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding each part at each enclosing level takes a second for an object of 10,000 parts."""
    old = pod()
    form, data = to_dict(old), to_dict(old)
    data["spec"]["containers"][0]["image"] = "other:2"
    data["spec"]["tolerations"][0]["operator"] = "Exists"
    monkeypatch.setattr(codec, "_write", lambda message: pytest.fail(f"{message.DESCRIPTOR.name} is written"))
    assert decode_revision(PODS, old, form, data).spec.containers[0].image == "other:2"


def test_violations_are_reported() -> None:
    with pytest.raises(CodecError, match="colour: unknown field"):
        decode_revision(PODS, pod(), to_dict(pod()), {"spec": {"colour": "red"}})
