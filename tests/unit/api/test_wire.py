"""Protobuf decodes the messages that `pinnace.api.wire` encodes by hand, for every kind."""

from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import ALL, PODS, Resource
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED
from tests.builders import make_pod

LENGTH_DELIMITED = 2
every_resource = pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)


def encoded(resource: Resource[Any], name: str) -> bytes:
    obj = resource.message()
    obj.metadata.name = name
    obj.metadata.labels["app"] = "web"
    return obj.SerializeToString()


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_varint_encoding(number: int) -> None:
    read = 0
    for position, byte in enumerate(wire.encode_varint(number)):
        read |= (byte & 0x7F) << 7 * position
    assert read == number
    assert wire.encode_varint(number)[-1] < 0x80


@given(st.integers(min_value=1000, max_value=2**29 - 1), st.binary(max_size=300))
def test_field_encoding(number: int, payload: bytes) -> None:
    (field,) = UnknownFieldSet(Pod.FromString(wire.field(number, payload)))
    assert (field.field_number, field.wire_type, field.data) == (number, LENGTH_DELIMITED, payload)


@every_resource
def test_stamp_sets_only_the_resource_version(resource: Resource[Any]) -> None:
    value = encoded(resource, "a")
    expected = resource.message.FromString(value)
    expected.metadata.resourceVersion = "812"
    assert resource.message.FromString(value + wire.encode_resource_version(812)) == expected


def test_later_stamp_wins() -> None:
    pod = Pod.FromString(
        make_pod("a").version(3).build().SerializeToString() + wire.encode_resource_version(4) + wire.encode_resource_version(5)
    )
    assert pod.metadata.resourceVersion == "5"


def test_stamp_creates_missing_metadata() -> None:
    assert Pod.FromString(wire.encode_resource_version(1)).metadata.resourceVersion == "1"


@every_resource
def test_watch_response_encoding(resource: Resource[Any]) -> None:
    kinds = (ADDED, MODIFIED, DELETED)
    events = [wire.watch_event(kind, encoded(resource, f"n{kind}") + wire.encode_resource_version(kind)) for kind in kinds]
    response: Any = resource.watch_response.FromString(wire.watch_response(events, 99))
    assert [(e.type, e.object.metadata.name, e.object.metadata.resourceVersion) for e in response.events] == [
        (ADDED, "n1", "1"),
        (MODIFIED, "n2", "2"),
        (DELETED, "n3", "3"),
    ]
    assert response.resourceVersion == "99"


def test_response_without_events_is_a_bookmark() -> None:
    assert PodWatchResponse.FromString(wire.watch_response((), 7)) == PodWatchResponse(resourceVersion="7")


@every_resource
def test_list_response_encoding(resource: Resource[Any]) -> None:
    items = [encoded(resource, name) + wire.encode_resource_version(5) for name in "ab"]
    page: Any = resource.list_message.FromString(wire.list_response(items, 7, "next", 0))
    assert [(item.metadata.name, item.metadata.resourceVersion) for item in page.items] == [("a", "5"), ("b", "5")]
    assert (page.metadata.resourceVersion, getattr(page.metadata, "continue")) == ("7", "next")
    assert page.metadata.HasField("remainingItemCount")
    assert page.metadata.remainingItemCount == 0


def test_last_page_has_no_token_and_no_remaining_count() -> None:
    page: Any = PODS.list_message.FromString(wire.list_response((), 7))
    assert not getattr(page.metadata, "continue")
    assert not page.metadata.HasField("remainingItemCount")
