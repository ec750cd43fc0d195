"""Messages as they are shown to code that must not change them: read like the message itself, at any depth; nothing can be set.

Maps are what it is for: `labels["missing"]` of a message answers "" and puts the key in; here it raises KeyError, as a dict
does. Nothing is copied: what is shown is what is there now. `copy.deepcopy` makes a message of one's own.

It does not promise to be a message: C code of protobuf (`CopyFrom`, a client's call) takes only a copy.
"""

from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, NoReturn, TypeVar, cast

from google.protobuf.message import Message

M = TypeVar("M")
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
