"""Spoils the bytes of messages: what comes out may be no message at all.

Source: https://protobuf.dev/programming-guides/encoding/
"""

import random
from collections.abc import Callable

from pinnace.api import wire

DEEP = (50, 99, 101, 1000, 30_000)
"""Levels of nesting; protobuf reads a hundred."""
UNKNOWN = (15, 99, 9001, (1 << 29) - 1)
"""Numbers of fields that no message has."""


def mutate(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """`encoded`, changed in a few places; `other` is another message, to take pieces from."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        encoded = rng.choice(_MUTATIONS)(encoded, other, rng)
    return encoded


def _flip(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    changed = bytearray(encoded)
    for _ in range(rng.choice((1, 1, 3, 20)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    return encoded[: rng.randrange(len(encoded) + 1)]


def _cut(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(encoded) + 1)
    return encoded[:at] + encoded[at + rng.choice((1, 2, 5, 50)) :]


def _splice(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    return encoded[: rng.randrange(len(encoded) + 1)] + other[rng.randrange(len(other) + 1) :]


def _insert(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(encoded) + 1)
    return encoded[:at] + rng.choice((rng.randbytes(4), b"\0" * 8, b"\xff" * 10, other[:20])) + encoded[at:]


def _twice(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """All fields a second time: singular ones are merged, lists grow, the keys of maps collide."""
    return encoded + rng.choice((encoded, other))


def _overlong(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """A byte that may be a varint, written with more bytes than it needs, or than there may be."""
    if not encoded:
        return b"\x80" * 11
    at = rng.randrange(len(encoded))
    padding = bytes((encoded[at] | 0x80,)) + b"\x80" * rng.choice((1, 4, 8, 9, 12)) + b"\0"
    return encoded[:at] + padding + encoded[at + 1 :]


def _wrong_type(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """A field under its number, but with another wire type."""
    number = rng.randrange(1, 12)
    body = rng.choice((b"", b"\0", b"\x01" * 8, b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x05abc"))
    return encoded + wire.encode_varint(number << 3 | rng.randrange(8)) + body


def _unknown(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    field = wire.field(rng.choice(UNKNOWN), other[: rng.choice((0, 5, 5000))])
    return rng.choice((encoded + field, field + encoded, encoded + field * 500))


def _inside(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """As a field of a message: one's own are shifted by a level."""
    return wire.field(rng.choice((1, 2, 3, 11)), encoded)


def _deep(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """A field in itself, many times; as a message, or as a group, which is as deep with a byte for each level."""
    depth = rng.choice(DEEP)
    if rng.random() < 0.5:
        return encoded + bytes((1 << 3 | 3,)) * depth + bytes((1 << 3 | 4,)) * depth
    nested = b""
    for _ in range(min(depth, 1000)):
        nested = wire.field(1, nested)
    return encoded + nested


def _no_key(encoded: bytes, other: bytes, rng: random.Random) -> bytes:
    """Fields that there cannot be: number 0, and numbers that are too large."""
    return encoded + rng.choice((b"\0\0", b"\x02\x01a", b"\xff\xff\xff\xff\xff\x01\x01", b"\x80\0", b"\x07"))


_MUTATIONS: tuple[Callable[[bytes, bytes, random.Random], bytes], ...] = (
    _flip, _flip, _truncate, _cut, _splice, _insert, _twice, _overlong, _wrong_type, _unknown, _inside, _deep, _no_key,
)  # fmt: skip
