"""The packets of a watch: the events of a revision stay together, and a client can resume after each packet."""

import json
import random

import pytest

from pinnace.gateway.api_resources import ApiResource, find
from pinnace.gateway.json_codec import JsonCache
from pinnace.gateway.watch_events import PACKET, Encoded, JsonEncoder, ProtobufEncoder, encode, packed
from tests.unit.gateway.test_shared_watches import response
from tests.unit.gateway.test_watch_cuts import Event


def pods() -> ApiResource:
    found = find("", "v1", "pods")
    assert found is not None
    return found


def encoded(data: bytes) -> Encoded:
    return encode(JsonEncoder(pods(), JsonCache()), data)


def read(text: bytes) -> list[Event]:
    """The events of the complete lines."""
    lines = [json.loads(each) for each in text.rpartition(b"\n")[0].splitlines()]
    return [
        Event(each["type"], each["object"]["metadata"].get("name", ""), int(each["object"]["metadata"]["resourceVersion"]))
        for each in lines
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
    found = encoded(data)
    everything = read(b"".join(found.packets))
    assert [each.revision for each in everything] == revisions
    assert [each for each in read(b"".join(found.bookmarked)) if each.kind != "BOOKMARK"] == everything
    text = b""
    for record in records(found.bookmarked):
        text += record
        if received := read(text):
            resumed = received[-1].revision
            assert [each for each in everything if each.revision <= resumed and each not in received] == []


def test_events_of_small_revisions_share_packets_and_need_no_bookmarks() -> None:
    found = encoded(response([number // 3 for number in range(33, 133)]))
    assert found.bookmarked is found.packets
    assert all(len(each) <= PACKET for each in found.packets) and len(found.packets) < 5
    last = [read(each)[-1].revision for each in found.packets]
    first = [read(each)[0].revision for each in found.packets]
    assert all(before < after for before, after in zip(last, first[1:], strict=False))


def test_large_revision_is_one_packet_without_bookmarks() -> None:
    found = encoded(response([10, 11, *[12] * 40, 13], padding=1_000))
    (large,) = [each for each in found.packets if len(each) > PACKET]
    assert {each.revision for each in read(large)} == {12} and len(read(large)) == 40


def test_initial_state_has_no_bookmarks() -> None:
    found = encoded(response([5] * 40, version=0, padding=1_000))
    assert found.version == "" and found.bookmarked is found.packets and len(found.packets) > 1


def test_protobuf_frames_stay_together() -> None:
    found = encode(ProtobufEncoder(pods()), response([10, *[12] * 40, 13], padding=1_000))
    assert len(found.bookmarked) > len(found.packets)
    assert all(len(each) <= PACKET for each in found.bookmarked)


def test_packed_keeps_order_and_joins_adjacent_parts() -> None:
    parts = [b"a" * 9_000, b"b" * 9_000, b"", b"c" * 100, b"d" * 20_000, b"e"]
    assert list(packed(parts)) == [b"a" * 9_000, b"b" * 9_000 + b"c" * 100, b"d" * 20_000, b"e"]
    assert list(packed([])) == list(packed([b""])) == []
