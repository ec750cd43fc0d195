"""Building protobuf messages out of encoded parts.

An object is encoded once, when it is written, and from then on travels as bytes: protobuf lets us put the rest around it.

* A singular message field that occurs twice is merged. Every API object has `metadata = 1`, and `resourceVersion = 6` in it;
  so `value + stamp(revision)` *is* the object with its resourceVersion set, whatever kind it is.
* Repeated fields of two messages that are concatenated are concatenated. So a list is its header and its items one after
  another, and a watch response is its events one after another, in any grouping.

Source: https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from collections.abc import Iterable
from functools import lru_cache

from pinnace.api.verbs_pb2 import WatchEventType

_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    if number < 0x80:  # nearly every number here is a tag or a length, of one or two bytes
        return _ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field (a message, string or bytes) with its tag."""
    return b"%b%b%b" % (varint(number << 3 | 2), varint(len(payload)), payload)


@lru_cache(maxsize=1024)
def stamp(revision: int) -> bytes:
    """What sets `metadata.resourceVersion` when it is appended to an encoded object. Remembered: the objects of one
    transaction share their revision."""
    digits = b"%d" % revision
    return b"\x0a%c\x32%c%b" % (len(digits) + 2, len(digits), digits)  # field(1, field(6, digits)), in one go


def watch_event(kind: WatchEventType, stamped: bytes) -> bytes:
    """One event, encoded as field 1 (`events`) of any WatchResponse. `stamped` is an object with its resourceVersion."""
    length = varint(len(stamped))
    return b"\x0a%b\x08%c\x12%b%b" % (varint(len(stamped) + len(length) + 3), kind, length, stamped)


def watch_response(events: Iterable[bytes], revision: int, history: bytes = b"") -> bytes:
    """A WatchResponse of events from `watch_event`; without any it is a bookmark. Everything up to `revision` is told, which is
    one of `history`."""
    response = b"".join(events) + field(2, str(revision).encode())
    return response + field(3, history) if history else response


def list_response(items: Iterable[bytes], revision: int, continue_token: str = "", remaining: int | None = None) -> bytes:
    """A `<Kind>List` of stamped objects. Items are copied once: a list may be most of the memory that there is."""
    meta = field(2, str(revision).encode())
    if continue_token:
        meta += field(3, continue_token.encode())
    if remaining is not None:
        meta += b"\x20" + varint(remaining)
    parts = [field(1, meta)]
    for item in items:
        parts += (b"\x12" + varint(len(item)), item)  # field(2, item)
    return b"".join(parts)
