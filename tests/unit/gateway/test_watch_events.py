"""The packets of a watch: the events of a revision stay together, and a client can resume after each packet."""

import json
import random

import pytest

from pinnace.api.json_codec import JsonCache
from pinnace.gateway.api_resources import ApiResource, find_resource
from pinnace.gateway.watch_events import PACKET, EncodedEvents, JsonEncoder, ProtobufEncoder, encode_events, join_small_chunks
from tests.unit.gateway.test_shared_watches import response
from tests.unit.gateway.test_watch_cuts import Event


def pods() -> ApiResource:
    result = find_resource("", "v1", "pods")
    assert result is not None
    return result


def encoded(data: bytes) -> EncodedEvents:
    return encode_events(JsonEncoder(pods(), JsonCache()), data)


def read(text: bytes) -> list[Event]:
    """The events of the complete lines."""
    lines = [json.loads(line) for line in text.rpartition(b"\n")[0].splitlines()]
    return [
        Event(line["type"], line["object"]["metadata"].get("name", ""), int(line["object"]["metadata"]["resourceVersion"]))
        for line in lines
    ]


def records(packets: tuple[bytes, ...]) -> list[bytes]:
    """The TLS records of the packets."""
    size = 16 << 10
    return [packet[at : at + size] for packet in packets for at in range(0, len(packet), size)]


@pytest.mark.parametrize("seed", range(30))
def test_client_with_bookmarks_loses_no_event_after_any_record(seed: int) -> None:
    rng = random.Random(seed)
    revisions = sorted(rng.choices(range(11, 20), k=rng.randrange(1, 60)))
    data = response(revisions, padding=rng.choice((10, 1_000, 5_000, 16_000, 17_000, 40_000)))
    result = encoded(data)
    everything = read(b"".join(result.packets))
    assert [item.revision for item in everything] == revisions
    assert [item for item in read(b"".join(result.bookmarked)) if item.kind != "BOOKMARK"] == everything
    text = b""
    for record in records(result.bookmarked):
        text += record
        if received := read(text):
            resumed = received[-1].revision
            assert [item for item in everything if item.revision <= resumed and item not in received] == []


def test_events_of_small_revisions_share_packets_and_need_no_bookmarks() -> None:
    result = encoded(response([number // 3 for number in range(33, 133)]))
    assert result.bookmarked is result.packets
    assert all(len(packet) <= PACKET for packet in result.packets) and len(result.packets) < 5
    last = [read(packet)[-1].revision for packet in result.packets]
    first = [read(packet)[0].revision for packet in result.packets]
    assert all(before < after for before, after in zip(last, first[1:], strict=False))


def test_large_revision_is_one_packet_without_bookmarks() -> None:
    result = encoded(response([10, 11, *[12] * 40, 13], padding=1_000))
    (large,) = [packet for packet in result.packets if len(packet) > PACKET]
    assert {item.revision for item in read(large)} == {12} and len(read(large)) == 40


def test_initial_state_has_no_bookmarks() -> None:
    result = encoded(response([5] * 40, version=0, padding=1_000))
    assert result.version == "" and result.bookmarked is result.packets and len(result.packets) > 1


def test_protobuf_frames_stay_together() -> None:
    result = encode_events(ProtobufEncoder(pods()), response([10, *[12] * 40, 13], padding=1_000))
    assert len(result.bookmarked) > len(result.packets)
    assert all(len(item) <= PACKET for item in result.bookmarked)


def test_packed_keeps_order_and_joins_adjacent_parts() -> None:
    parts = [b"a" * 9_000, b"b" * 9_000, b"", b"c" * 100, b"d" * 20_000, b"e"]
    assert list(join_small_chunks(parts)) == [b"a" * 9_000, b"b" * 9_000 + b"c" * 100, b"d" * 20_000, b"e"]
    assert list(join_small_chunks([])) == list(join_small_chunks([b""])) == []
