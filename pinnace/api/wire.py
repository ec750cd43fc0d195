"""Protobuf messages as bytes: assembling them from encoded parts, bounding their depth, splitting them into requests, and
read-only views of them.

An object is encoded once, when it is written, and from then on travels as bytes: protobuf allows adding fields around it.

* A singular message field that occurs twice is merged. Every API object has `metadata = 1`, and `resourceVersion = 6` in it;
  so `value + stamp(revision)` *is* the object with its resourceVersion set, whatever its kind.
* Repeated fields of two messages that are concatenated are concatenated. So a list is its header and its items one after
  another, and a watch response is its events one after another, in any grouping.

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


M = TypeVar("M")
LIMIT = 100
"""Levels that readers can be expected to read, the outermost message included."""
_PACKAGE = "pinnace.nesting"
_DEEPER, _MESSAGE = 1, 2


class Envelope(Generic[M]):
    """Reads messages of one type that could be so many `levels` (1 or more) deeper in others."""

    def __init__(self, message: type[M], levels: int) -> None:
        described: Any = message
        self._class = _envelope(described.DESCRIPTOR)
        self._begin = varint(_DEEPER << 3 | 3) * (levels - 1) + varint(_MESSAGE << 3 | 2)
        self._end = varint(_DEEPER << 3 | 4) * (levels - 1)
        self._inside: Any = attrgetter(".".join(["deeper"] * (levels - 1) + ["message"]))

    def read(self, data: bytes) -> M:
        """The message. Raises DecodeError when it is no such message, or nested too deep."""
        message: M = self._inside(self._class.FromString(self._begin + varint(len(data)) + data + self._end))
        return message


def _envelope(content: Any) -> Any:
    """A message that is in itself as often as one likes, as a group: that has no length, and so costs nothing to wrap.
    `content`: the description of what it is for."""
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
    pool.Add(file)  # that of the content: what is read is then of its class
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


V = TypeVar("V")

_READING = frozenset(
    {"ByteSize", "HasField", "IsInitialized", "SerializePartialToString", "SerializeToString", "UnknownFields", "WhichOneof"}
)
"""The methods of a message that leave it as it is, and answer with no part of it."""


def read_only(message: M) -> M:
    """A message, as it is shown."""
    return cast("M", _shown(message))


class ReadOnlyMessage:
    """`read_only` makes it, under the type of the message."""

    __slots__ = ("_message",)
    _message: Message

    def __init__(self, message: Message) -> None:
        object.__setattr__(self, "_message", message)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._message, name)
        if type(found) in _PLAIN:
            return found
        if name in type(self._message).DESCRIPTOR.fields_by_name:
            return _shown(found)
        if name in _READING or not callable(found):
            return found
        raise AttributeError(f"{name}: {_ADVICE}", name=name, obj=self)

    def ListFields(self) -> list[tuple[Any, Any]]:  # noqa: N802 (protobuf's name)
        return [(field, _shown(value)) for field, value in self._message.ListFields()]

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name}: {_ADVICE}", name=name, obj=self)

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> Message:
        made = type(self._message)()
        made.CopyFrom(self._message)
        return made

    def __eq__(self, other: object) -> bool:
        return self._message == (other._message if isinstance(other, ReadOnlyMessage) else other)

    __hash__ = None  # type: ignore[assignment]  # as messages

    def __repr__(self) -> str:
        return repr(self._message)


class ReadOnlyMap(Mapping[str, V]):
    """A map of a message, or a dict of messages."""

    __slots__ = ("_map",)

    def __init__(self, of: Mapping[str, V]) -> None:
        self._map = of

    def __getitem__(self, key: str) -> V:
        if key not in self._map:
            raise KeyError(key)
        return cast("V", _shown(self._map[key]))

    def get(self, key: str, default: Any = None) -> Any:
        return _shown(self._map[key]) if key in self._map else default

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __repr__(self) -> str:
        return repr(dict(self._map))


class ReadOnlySequence(Sequence[V]):
    """A repeated field, or a list of messages."""

    __slots__ = ("_values",)

    def __init__(self, of: Sequence[V]) -> None:
        self._values = of

    def __getitem__(self, index: Any) -> Any:
        found = self._values[index]
        return ReadOnlySequence(found) if isinstance(index, slice) else _shown(found)

    def __iter__(self) -> Iterator[V]:
        return map(_shown, self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return list(self._values) == (list(other._values) if isinstance(other, ReadOnlySequence) else other)

    __hash__ = None  # type: ignore[assignment]  # as lists

    def __repr__(self) -> str:
        return repr(list(self._values))


def _shown(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Message):
        return ReadOnlyMessage(value)
    if isinstance(value, MutableMapping):
        return ReadOnlyMap(value)
    return ReadOnlySequence(value) if isinstance(value, MutableSequence) else value


_PLAIN = frozenset({str, int, float, bool, bytes})
_ADVICE = "this object is everybody's, and only to be read; copy.deepcopy() makes one of your own"


T = TypeVar("T")

MAX_BYTES = 1 << 20
"""Of the items of one request: a gRPC server takes 4 MiB unless it is told otherwise."""


def portions(items: Iterable[T], most: int, size: Callable[[T], int] = methodcaller("ByteSize")) -> Iterator[list[T]]:
    """All of them, in order: at most `most` together, and MAX_BYTES. One that is larger than that goes alone. `size`: the bytes
    of an item; unless given they are messages."""
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
