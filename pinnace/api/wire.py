"""Protobuf messages as bytes: assembly from encoded parts, depth limits, splitting into requests, and read-only views.

An object is encoded once, when it is written. Its bytes are then reused, because protobuf allows fields to be appended.

* If a singular message field occurs twice, the occurrences are merged. Every API object has `metadata = 1`, which has
  `resourceVersion = 6`. So `value + stamp(revision)` is the object with its resourceVersion set, for every kind.
* Repeated fields of concatenated messages are concatenated. So a list is its header followed by its items, and a watch response
is
  any sequence of its events.

Source: https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any, Generic, NoReturn, TypeVar, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from pinnace.api.verbs_pb2 import WatchEventType

_ONE_BYTE = [bytes((number,)) for number in range(0x80)]
_OWNERSHIP = b"\xc2\x3e"
"""The tag of `metadata.ownership`, the last field of metadata. No text in UTF-8 contains it."""
KUBERNETES_MAGIC = b"k8s\x00"
M = TypeVar("M")
LIMIT = 100
"""The maximum nesting that protobuf readers support, including the outermost message."""
_PACKAGE = "pinnace.nesting"
V = TypeVar("V")
_READING = frozenset(
    {"ByteSize", "HasField", "IsInitialized", "SerializePartialToString", "SerializeToString", "UnknownFields", "WhichOneof"}
)
"""The methods of a message that neither modify it nor return a part of it."""
_PLAIN = frozenset({str, int, float, bool, bytes})
_ADVICE = "the object is shared and read-only; use copy.deepcopy() to modify a copy"
T = TypeVar("T")
MAX_BYTES = 1 << 20
"""The maximum size of the items of a request in bytes. A gRPC server accepts 4 MiB by default."""


def encode_varint(number: int) -> bytes:
    if number < 0x80:  # most numbers are tags or lengths of one or two bytes
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
    """Encode a length-delimited field (a message, string or bytes) with its tag."""
    return b"%b%b%b" % (encode_varint(number << 3 | 2), encode_varint(len(payload)), payload)


@lru_cache(maxsize=1024)
def encode_resource_version(revision: int) -> bytes:
    """Return the bytes that set `metadata.resourceVersion` when they are appended to an encoded object. The result is cached,
    because the objects of a transaction share their revision."""
    digits = b"%d" % revision
    return b"\x0a%c\x32%c%b" % (len(digits) + 2, len(digits), digits)  # equals field(1, field(6, digits))


def has_ownership(encoded: bytes) -> bool:
    """Return whether an encoded object may have stored owners of fields."""
    return _OWNERSHIP in encoded


def without_ownership(encoded: bytes) -> bytes:
    """Return an encoded object without the owners of its fields (pinnace.api.ownership). Metadata must be its first field."""
    if encoded[:1] != b"\x0a":
        return encoded
    length, start = (encoded[1], 2) if encoded[1] < 0x80 else _read_varint(encoded, 1)
    end = start + length
    at = encoded.rfind(_OWNERSHIP, start, end)
    if at < 0:
        return encoded
    size, begin = (encoded[at + 2], at + 3) if encoded[at + 2] < 0x80 else _read_varint(encoded, at + 2)
    if begin + size != end:
        return encoded
    return b"".join((b"\x0a", encode_varint(at - start), encoded[start:at], encoded[end:]))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number, shift = number & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7


def watch_event(kind: WatchEventType, stamped: bytes) -> bytes:
    """Encode an event as field 1 (`events`) of a WatchResponse. `stamped`: an encoded object with its resourceVersion."""
    length = encode_varint(len(stamped))
    return b"\x0a%b\x08%c\x12%b%b" % (encode_varint(len(stamped) + len(length) + 3), kind, length, stamped)


def watch_response(events: Iterable[bytes], revision: int, history: bytes = b"") -> bytes:
    """Encode a WatchResponse with events from `watch_event`, which contain all changes up to `revision` in `history`. Without
    events, it is a bookmark."""
    response = b"".join(events) + field(2, str(revision).encode())
    return response + field(3, history) if history else response


def list_response(items: Iterable[bytes], revision: int, continue_token: str = "", remaining: int | None = None) -> bytes:
    """Encode a `<Kind>List` of stamped objects. Items are copied once, because a list can use most of the memory."""
    meta = field(2, str(revision).encode())
    if continue_token:
        meta += field(3, continue_token.encode())
    if remaining is not None:
        meta += b"\x20" + encode_varint(remaining)
    parts = [field(1, meta)]
    for item in items:
        parts += (b"\x12" + encode_varint(len(item)), item)  # field(2, item)
    return b"".join(parts)


def kubernetes_envelope(api_version: str, kind: str, encoded: bytes) -> bytes:
    """Wrap an encoded object as in HTTP bodies of Kubernetes: the magic number, and a runtime.Unknown with its type and bytes.

    Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding
    """
    type_meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"".join((KUBERNETES_MAGIC, field(1, type_meta), field(2, encoded), b"\x1a\x00\x22\x00"))


_DEEPER, _MESSAGE = 1, 2


class Envelope(Generic[M]):
    """A reader for messages that must remain readable when they are nested `levels` (1 or more) deep in other messages."""

    def __init__(self, message: type[M], levels: int) -> None:
        described: Any = message
        self._class = _envelope_class(described.DESCRIPTOR)
        self._begin = encode_varint(_DEEPER << 3 | 3) * (levels - 1) + encode_varint(_MESSAGE << 3 | 2)
        self._end = encode_varint(_DEEPER << 3 | 4) * (levels - 1)
        self._inside: Any = attrgetter(".".join(["deeper"] * (levels - 1) + ["message"]))

    def read(self, data: bytes) -> M:
        """Decode the message. Raises DecodeError if it is malformed or nested too deeply."""
        message: M = self._inside(self._class.FromString(self._begin + encode_varint(len(data)) + data + self._end))
        return message


def _envelope_class(content: Any) -> Any:
    """Return a message class that contains itself as a group, at any depth. A group has no length prefix, so wrapping is cheap.
    `content`: the descriptor of the innermost message."""
    name = content.full_name.replace(".", "_")
    pool, path = descriptor_pool.Default(), f"pinnace/nesting/{name}.proto"
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    except KeyError:
        pass
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=path, package=_PACKAGE, syntax="proto2", dependency=[content.file.name])
    made = file.message_type.add(name=name)
    label = kind.LABEL_OPTIONAL
    made.field.add(name="deeper", number=_DEEPER, label=label, type=kind.TYPE_GROUP, type_name=f".{_PACKAGE}.{name}")
    made.field.add(name="message", number=_MESSAGE, label=label, type=kind.TYPE_MESSAGE, type_name=f".{content.full_name}")
    pool.Add(file)  # the pool of `content`, so that the message has the same class
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def read_only(message: M) -> M:
    """Return a read-only view of a message."""
    return cast("M", _read_only_view(message))


class ReadOnlyMessage:
    """A read-only view of a message. `read_only` returns it with the static type of the message."""

    __slots__ = ("_message",)
    _message: Message

    def __init__(self, message: Message) -> None:
        object.__setattr__(self, "_message", message)

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._message, name)
        if type(result) in _PLAIN:
            return result
        if name in type(self._message).DESCRIPTOR.fields_by_name:
            return _read_only_view(result)
        if name in _READING or not callable(result):
            return result
        raise AttributeError(f"{name}: {_ADVICE}", name=name, obj=self)

    def ListFields(self) -> list[tuple[Any, Any]]:  # noqa: N802 (protobuf's name)
        return [(field, _read_only_view(value)) for field, value in self._message.ListFields()]

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name}: {_ADVICE}", name=name, obj=self)

    __delattr__ = __setattr__  # type: ignore[assignment]  # both raise the same error

    def __deepcopy__(self, memo: Any) -> Message:
        made = type(self._message)()
        made.CopyFrom(self._message)
        return made

    def __eq__(self, other: object) -> bool:
        return self._message == (other._message if isinstance(other, ReadOnlyMessage) else other)

    __hash__ = None  # type: ignore[assignment]  # unhashable, like messages

    def __repr__(self) -> str:
        return repr(self._message)


class ReadOnlyMap(Mapping[str, V]):
    """A read-only view of a map field or of a dict of messages."""

    __slots__ = ("_map",)

    def __init__(self, of: Mapping[str, V]) -> None:
        self._map = of

    def __getitem__(self, key: str) -> V:
        if key not in self._map:
            raise KeyError(key)
        return cast("V", _read_only_view(self._map[key]))

    def get(self, key: str, default: Any = None) -> Any:
        return _read_only_view(self._map[key]) if key in self._map else default

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __repr__(self) -> str:
        return repr(dict(self._map))


class ReadOnlySequence(Sequence[V]):
    """A read-only view of a repeated field or of a list of messages."""

    __slots__ = ("_values",)

    def __init__(self, of: Sequence[V]) -> None:
        self._values = of

    def __getitem__(self, index: Any) -> Any:
        value = self._values[index]
        return ReadOnlySequence(value) if isinstance(index, slice) else _read_only_view(value)

    def __iter__(self) -> Iterator[V]:
        return map(_read_only_view, self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return list(self._values) == (list(other._values) if isinstance(other, ReadOnlySequence) else other)

    __hash__ = None  # type: ignore[assignment]  # unhashable, like lists

    def __repr__(self) -> str:
        return repr(list(self._values))


def _read_only_view(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Message):
        return ReadOnlyMessage(value)
    if isinstance(value, MutableMapping):
        return ReadOnlyMap(value)
    return ReadOnlySequence(value) if isinstance(value, MutableSequence) else value


def split_into_batches(items: Iterable[T], most: int, size: Callable[[T], int] = methodcaller("ByteSize")) -> Iterator[list[T]]:
    """Split items into batches of at most `most` items and MAX_BYTES, in order. An item above MAX_BYTES is a batch of its own.
    `size`: returns the size of an item in bytes; by default, items are messages."""
    portion, total = list[T](), 0
    for item in items:
        own = size(item)
        if portion and (len(portion) == most or total + own > MAX_BYTES):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += own
    if portion:
        yield portion
