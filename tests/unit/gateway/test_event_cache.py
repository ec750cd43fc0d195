"""Events are encoded once for all watches of a kind and media type, and lists are split without decoding their items."""

import json
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.json_codec import JsonCache
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.gateway.api_resources import ApiResource, find_resource
from pinnace.gateway.watch_events import EventCache, JsonEncoder, ProtobufEncoder
from pinnace.gateway.wire import WireError, split_list


def pods() -> ApiResource:
    result = find_resource("", "v1", "pods")
    assert result is not None
    return result


def response(name: str, version: str = "7", annotation: str = "") -> bytes:
    pod_watch_response = PodWatchResponse(resourceVersion=version)
    event: Any = pod_watch_response.events.add(type=WatchEventType.ADDED)
    event.object.metadata.name = name
    event.object.metadata.annotations["x"] = annotation
    return pod_watch_response.SerializeToString()


class Counting(JsonEncoder):
    def __init__(self) -> None:
        super().__init__(pods(), JsonCache())
        self.calls = 0

    def event(self, kind: str, data: bytes) -> bytes:
        self.calls += 1
        return super().event(kind, data)


def test_events_are_encoded_once_for_all_watches() -> None:
    cache, first, second = EventCache(), Counting(), Counting()
    chunks = {cache.encode(item, response("a")) for item in (first, second, first)}
    (result,) = chunks
    (packet,) = result.packets
    assert json.loads(packet)["object"]["metadata"]["name"] == "a" and result.version == "7"
    assert (first.calls, second.calls) == (1, 0)


def test_media_types_do_not_share_events() -> None:
    cache = EventCache()
    (as_json,) = cache.encode(JsonEncoder(pods(), JsonCache()), response("a")).packets
    (as_protobuf,) = cache.encode(ProtobufEncoder(pods()), response("a")).packets
    assert as_json.startswith(b"{") and as_protobuf[4:].startswith(b"\x0a\x05ADDED")


def test_old_events_are_evicted() -> None:
    cache, encoder = EventCache(limit=10_000), Counting()
    for number in range(5):
        cache.encode(encoder, response(f"pod-{number}", annotation="x" * 2000))
    cache.encode(encoder, response("pod-4", annotation="x" * 2000))
    assert encoder.calls == 5
    cache.encode(encoder, response("pod-0", annotation="x" * 2000))
    assert encoder.calls == 6


def test_list_is_split_into_metadata_and_items() -> None:
    pod_list = PodList()
    pod_list.metadata.resourceVersion = "5"
    for name in ("a", "b"):
        pod_list.items.add().metadata.name = name
    metadata, items = split_list(pod_list.SerializeToString())
    assert metadata == pod_list.metadata.SerializeToString()
    assert list(items) == [item.SerializeToString() for item in pod_list.items]
    assert split_list(b"") == (b"", [])


def test_malformed_list_is_an_error() -> None:
    with pytest.raises(WireError):
        split_list(b"\x12\x7fx")
