"""Watch events as JSON lines or as length-delimited protobuf, in packets that a cut connection does not tear.

A transaction of the storage can change many objects, and their events have the same resourceVersion. A client that receives
only some of them, and resumes at that resourceVersion, would not receive the others. A client receives a TLS record either
completely or not at all. Therefore the events of a revision are one packet, which is written at once and fits into a record.

The events of a revision can be too large for a record. With bookmarks, they are several packets, and each except the last one
ends with a bookmark of the previous revision. A client whose connection breaks then resumes before the revision, and receives
its events again. Without bookmarks, they are one packet, which is one HTTP chunk in many records.

Sources: https://datatracker.ietf.org/doc/html/rfc8446#section-5.2
https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from pinnace.api.json_codec import JsonCache
from pinnace.api.ownership import encode_shown
from pinnace.api.resources import Resource
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.api.wire import field
from pinnace.gateway import tables
from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.http import ApiStatus, dump_json
from pinnace.gateway.media_types import TABLE, ResponseFormat, envelope
from pinnace.gateway.status import encode_status
from pinnace.gateway.wire import iterate_fields, last_bytes_field

PACKET = (16 << 10) - 16
"""The maximum size of a packet in bytes: a TLS record without the frame of an HTTP chunk."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark after the initial events."""
_TYPES: dict[int, str] = {WatchEventType.ADDED: "ADDED", WatchEventType.MODIFIED: "MODIFIED", WatchEventType.DELETED: "DELETED"}
_PREFIXES = {name: f'{{"type":"{name}","object":'.encode() for name in _TYPES.values()}


class Encoder(Protocol):
    resource: ApiResource
    shared: bool
    """Whether the encoding of an event depends only on the type of the encoder and the resource."""

    def event(self, kind: str, data: bytes) -> bytes: ...
    def bookmark(self, version: str, initial_end: bool) -> bytes: ...
    def error(self, status: ApiStatus) -> bytes: ...


class EncodedEvents(NamedTuple):
    """The encoded events of a response, and its resourceVersion: "" if it is a part of the initial state."""

    packets: tuple[bytes, ...]
    bookmarked: tuple[bytes, ...]
    """The packets for a client that accepts bookmarks."""
    version: str


class EventCache:
    """The encoded events of recent responses, because an API server sends the same bytes to all watches with the same events.
    Limited to `limit` bytes in total. Evicts the oldest entries."""

    def __init__(self, limit: int = 4 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._known: dict[tuple[type, Resource[Any] | None, str, bytes], tuple[EncodedEvents, int]] = {}

    def encode(self, encoder: Encoder, data: bytes) -> EncodedEvents:
        """Encode the events of a response. Raises WireError, DecodeError."""
        if not encoder.shared:
            return encode_events(encoder, data)
        key = (type(encoder), encoder.resource.resource, encoder.resource.plural, data)
        result = self._known.get(key)
        if result is None:
            encoded = encode_events(encoder, data)
            size = sum(len(packet) for packets in {encoded.packets, encoded.bookmarked} for packet in packets)
            result = self._known[key] = encoded, len(data) + size
            self._size += result[1]
            while self._size > self._limit:
                self._size -= self._known.pop(next(iter(self._known)))[1]
        return result[0]


def encode_events(encoder: Encoder, data: bytes) -> EncodedEvents:
    """Encode the events of a response. Raises WireError, DecodeError."""
    events, version = list[tuple[int, bytes]](), ""
    for number, value in iterate_fields(data):
        if number == 1 and isinstance(value, bytes):
            kind, obj = _decode_event(value)
            events.append((revision_of(obj), encoder.event(kind, obj)))
        elif number == 2 and isinstance(value, bytes):
            version = value.decode()
    if not version:  # the events of the initial state are in no order: a client cannot resume before their end
        whole = tuple(join_small_chunks(event for _, event in events))
        return EncodedEvents(whole, whole, "")
    groups = [(revision, [event for _, event in group]) for revision, group in groupby(events, itemgetter(0))]
    packets = tuple(join_small_chunks(b"".join(group) for _, group in groups))
    if all(len(packet) <= PACKET for packet in packets):
        return EncodedEvents(packets, packets, version)
    pieces = (
        piece for revision, group in groups for piece in _split_revision(group, encoder.bookmark(str(revision - 1), False))
    )
    return EncodedEvents(packets, tuple(join_small_chunks(pieces)), version)


def _split_revision(group: Sequence[bytes], bookmark: bytes) -> Iterator[bytes]:
    """Split the events of one revision. The end of each piece, with its bookmark, is at most PACKET bytes."""
    if len(group) == 1 or sum(map(len, group)) <= PACKET:
        yield b"".join(group)
        return
    room, piece = PACKET - len(bookmark), b""
    for event in group:
        if piece and len(piece) + len(event) > room:
            piece += bookmark
            if len(piece) > PACKET:  # one event: the client receives its last byte with the bookmark
                yield piece[:-PACKET]
            yield piece[-PACKET:]
            piece = b""
        piece += event
    yield piece


def join_small_chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Join adjacent parts to packets. A larger part is a packet of its own."""
    held, size = list[bytes](), 0
    for part in parts:
        if size + len(part) > PACKET and held:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
        held.append(part)
        size += len(part)
    if size:
        yield held[0] if len(held) == 1 else b"".join(held)


def revision_of(obj: bytes) -> int:
    """Return the resourceVersion of an encoded object. Raises WireError."""
    version = last_bytes_field(last_bytes_field(obj, 1), 6)
    return int(version) if version.isdigit() else 0


def skip_through_revision(data: bytes, revision: int) -> bytes:
    """Return a response without the events up to a revision. Raises WireError."""
    return b"".join(
        field(number, value)
        for number, value in iterate_fields(data)
        if isinstance(value, bytes) and (number != 1 or revision_of(_decode_event(value)[1]) > revision)
    )


def _decode_event(data: bytes) -> tuple[str, bytes]:
    """Decode the type and the object of an event."""
    kind, obj = "", b""
    for number, value in iterate_fields(data):
        if number == 1 and isinstance(value, int):
            kind = _TYPES[value]
        elif number == 2 and isinstance(value, bytes):
            obj = value
    return kind, obj


def _bookmark_metadata(version: str, initial_end: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": version}
    return metadata | ({"annotations": {INITIAL_EVENTS_END: "true"}} if initial_end else {})


class JsonEncoder:
    shared = True

    def __init__(self, resource: ApiResource, cache: JsonCache) -> None:
        self.resource = resource
        self._cache = cache

    def event(self, kind: str, data: bytes) -> bytes:
        resource = self.resource
        assert resource.resource is not None
        text = self._cache.typed_json(resource.resource, data)
        return b"%b%b}\n" % (_PREFIXES[kind], text)

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_end)
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        return dump_json({"type": "BOOKMARK", "object": obj})

    def error(self, status: ApiStatus) -> bytes:
        return dump_json({"type": "ERROR", "object": status.document})


class TransformedEncoder(JsonEncoder):
    """Encodes events as tables with one row, or as metadata only."""

    shared = False

    def __init__(self, resource: ApiResource, form: ResponseFormat, include: str) -> None:
        super().__init__(resource, JsonCache())
        self._form = form
        self._include = include
        self._defined = False

    def event(self, kind: str, data: bytes) -> bytes:
        assert self.resource.resource is not None
        is_table = self._form.transform == TABLE
        obj, owners = tables.decode_for(self.resource.resource, data, self._include if is_table else "Metadata")
        if is_table:
            result, end = self._render_table([obj], {"resourceVersion": obj.metadata.resourceVersion}), tables.TABLE_END
        else:
            result, end = tables.partial_metadata(obj, self._form.version), tables.METADATA_END
        return b"%b%b}\n" % (_PREFIXES[kind], tables.with_owners(result, owners, end))

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = _bookmark_metadata(version, initial_end)
        if self._form.transform == TABLE:
            result = self._render_table([], {"resourceVersion": version})
            if initial_end:
                result["rows"] = [{"cells": [], "object": self._partial_metadata(metadata)}]
        else:
            result = self._partial_metadata(metadata)
        return dump_json({"type": "BOOKMARK", "object": result})

    def _partial_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{self._form.version}", "metadata": metadata}

    def _render_table(self, objects: list[Any], meta: dict[str, Any]) -> dict[str, Any]:
        definitions, self._defined = not self._defined, True
        return tables.render_table(
            self.resource,
            objects,
            meta,
            time.time(),
            version=self._form.version,
            include=self._include,
            definitions=definitions,
        )


class ProtobufEncoder:
    """Encodes events as frames: a 4-byte big-endian length and a WatchEvent."""

    shared = True

    def __init__(self, resource: ApiResource) -> None:
        self.resource = resource

    def event(self, kind: str, data: bytes) -> bytes:
        assert self.resource.resource is not None
        shown = encode_shown(self.resource.resource, data)
        return _encode_frame(kind, envelope(self.resource.api_version, self.resource.kind, shown))

    def bookmark(self, version: str, initial_end: bool) -> bytes:
        metadata = field(6, version.encode())
        if initial_end:
            metadata += field(12, field(1, INITIAL_EVENTS_END.encode()) + field(2, b"true"))
        return _encode_frame("BOOKMARK", envelope(self.resource.api_version, self.resource.kind, field(1, metadata)))

    def error(self, status: ApiStatus) -> bytes:
        return _encode_frame("ERROR", status_envelope(status))


def _encode_frame(kind: str, obj: bytes) -> bytes:
    event = field(1, kind.encode()) + field(2, field(1, obj))
    return len(event).to_bytes(4, "big") + event


def status_envelope(status: ApiStatus) -> bytes:
    """Return an error as protobuf with its envelope."""
    return encode_status(status.document)
