"""The compiled writer gives the same JSON as the codec, for objects with all kinds of fields."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.json_codec import JsonCache, to_json, with_type
from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import ALL, PODS, Resource
from tests.builders import make_node, make_pod
from tests.messages import messages


@pytest.mark.parametrize("resource", ALL, ids=lambda each: each.plural)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_as_the_codec_writes_it(resource: Resource[Any], data: st.DataObject) -> None:
    obj: Any = data.draw(messages(resource.message))
    assert json.loads(with_type(resource.api_version, resource.kind, to_json(obj))) == to_dict(obj)


@pytest.mark.parametrize("obj", [make_pod("a").label('ä\n"', "ü").req(cpu="100m").build(), make_node("n").build(), Pod()])
def test_text_and_empty_objects(obj: Any) -> None:
    assert json.loads(to_json(obj)) == {
        name: value for name, value in to_dict(obj).items() if name not in ("apiVersion", "kind")
    }


def test_the_cache_is_bounded_in_bytes() -> None:
    cache = JsonCache(limit=4000)
    pods = [make_pod(f"pod-{number}").label("x", "y" * 200).build().SerializeToString() for number in range(40)]
    first = [cache.json(PODS, each) for each in pods]
    assert [cache.json(PODS, each) for each in pods] == first
    assert cache.size <= 4000
