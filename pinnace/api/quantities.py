"""Quantities in API messages: their canonical form, and comparison by value.

The API server stores and serves quantities in Kubernetes' canonical form (`canonicalize`). Two canonical texts can have the
same value ("1Gi", "1073741824"). `semantically_equal` compares objects with quantities by value, as `Semantic.DeepEqual` does
in Kubernetes. `keep_equal` applies this to an update.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pinnace.api.codec import map_value
from pinnace.api.quantity import QuantityError, canonicalize_quantity, parse
from pinnace.api.resource_v1_pb2 import Quantity

M = TypeVar("M", bound=Message)
_MOST_KNOWN, _LONGEST_KNOWN = 512, 2048
"""The maximum number of cached canonical messages per type, and their maximum size in bytes: at most 1 MiB per type."""
_Step = Callable[[Any], None]
"""A function that canonicalizes the quantities in one field of a message."""


class _Shape(Enum):
    SINGULAR = "singular"
    REPEATED = "repeated"
    MAP = "map"


class _QuantityField(NamedTuple):
    """A field that contains quantities at any depth."""

    name: str
    shape: _Shape
    of_quantities: bool
    """Whether the values are quantities."""
    named: bool
    """Whether the list items have a field `name`."""


def has_quantities(message: Descriptor) -> bool:
    return bool(_holders_of(message))


def canonicalize(message: Any) -> None:
    """Rewrite each quantity of the message in canonical form. Invalid quantities are kept, and validation reports them.

    This function processes every created pod, so it visits only fields that can contain quantities. Specs and resource lists
    that are known to be canonical are recognized by their bytes, because many pods share a template."""
    for step in _plan_visit(message.DESCRIPTOR):
        step(message)


def _rewrite_canonically(quantity: Quantity) -> None:
    text = quantity.string
    try:
        better = canonicalize_quantity(text)
    except QuantityError:
        return
    if better != text:
        quantity.string = better


def _step(holder: _QuantityField, visit: _Step) -> _Step:
    """Return a step that applies `visit` to each value of the field."""
    name = holder.name

    def singular(message: Any) -> None:
        if message.HasField(name):
            visit(getattr(message, name))

    def repeated(message: Any) -> None:
        for value in getattr(message, name):
            visit(value)

    def mapped(message: Any) -> None:
        values = getattr(message, name)
        for key in values:
            visit(values[key])

    return {_Shape.SINGULAR: singular, _Shape.REPEATED: repeated, _Shape.MAP: mapped}[holder.shape]


def _visit(holder: _QuantityField, message: Descriptor) -> _Step:
    """Return the function that canonicalizes one value of the field."""
    if holder.of_quantities:
        return _rewrite_canonically
    small = len(message.fields) <= 4 and all(item.of_quantities for item in _holders_of(message))
    return CanonicalMessageCache(message).visit if small or holder.name == "spec" else canonicalize


class CanonicalMessageCache:
    """A cache of canonical messages of one type by their bytes. Serializing a message is cheaper than traversing it."""

    def __init__(self, message: Descriptor) -> None:
        self._message = message
        self._known: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._known)

    def visit(self, value: Any) -> None:
        before = value.SerializeToString()
        if before in self._known:
            return
        for step in _plan_visit(self._message):
            step(value)
        if len(before) > _LONGEST_KNOWN:
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(value.SerializeToString())


def semantically_equal(one: M, other: M) -> bool:
    """Return whether two messages of the same type are equal, with quantities compared by value."""
    if one == other:
        return True
    if not _holders_of(one.DESCRIPTOR):
        return False
    copied = type(other)()
    copied.CopyFrom(other)
    _keep_spellings(copied, one)
    return copied == one


def keep_equal(new: Any, old: Any) -> None:
    """Replace each quantity in the spec of `new` by the equal quantity at the same position in `old`, an object of the same
    kind. An update that changes no value then changes nothing."""
    spec, before = getattr(new, "spec", None), getattr(old, "spec", None)
    if spec is not None and spec != before:
        _keep_spellings(spec, before)


def _keep_spellings(new: Any, old: Any) -> None:
    if isinstance(new, Quantity):
        if new.string != old.string and _same_value(new.string, old.string):
            new.string = old.string
        return
    for holder in _holders_of(new.DESCRIPTOR):
        after, before = getattr(new, holder.name), getattr(old, holder.name)
        if after != before:
            for now, was in _match_values(holder, after, before):
                _keep_spellings(now, was)


def _match_values(holder: _QuantityField, after: Any, before: Any) -> Iterable[tuple[Any, Any]]:
    """Return values at the same position: with the same key, name or index. A wrong pair is harmless, because only equal values
    are replaced."""
    if holder.shape is _Shape.MAP:
        return [(each, before[key]) for key, each in after.items() if key in before]
    if holder.shape is _Shape.SINGULAR:
        return [(after, before)]
    if holder.named:
        names = {item.name: item for item in before}
        if len(names) == len(before):  # names of environment variables may repeat
            return [(item, names[item.name]) for item in after if item.name in names]
    return zip(after, before, strict=False)


def _same_value(one: str, other: str) -> bool:
    try:
        return parse(one) == parse(other)
    except QuantityError:
        return False


@cache  # one entry per message type
def _holders_of(message: Descriptor) -> tuple[_QuantityField, ...]:
    return tuple(_holder_of(field) for field in message.fields if _holds_quantities(field, frozenset((message.full_name,))))


@cache
def _plan_visit(message: Descriptor) -> tuple[_Step, ...]:
    return tuple(
        _step(holder, _visit(holder, _value_type(message.fields_by_name[holder.name]))) for holder in _holders_of(message)
    )


def _value_type(field: FieldDescriptor) -> Descriptor:
    """Return the message type of the values of a field that contains quantities."""
    message = (map_value(field) or field).message_type
    assert message is not None, "the field is not a message"
    return message


def _holder_of(field: FieldDescriptor) -> _QuantityField:
    value = map_value(field)
    shape = _Shape.MAP if value is not None else _Shape.REPEATED if field.is_repeated else _Shape.SINGULAR
    message = _value_type(field)
    named = shape is _Shape.REPEATED and "name" in message.fields_by_name
    return _QuantityField(field.name, shape, message.full_name == Quantity.DESCRIPTOR.full_name, named)


def _holds_quantities(field: FieldDescriptor, above: frozenset[str]) -> bool:
    """Return whether the field can contain quantities. `above`: messages that contain it, which are not visited again."""
    message = (map_value(field) or field).message_type
    if message is None or message.full_name in above:
        return False
    if message.full_name == Quantity.DESCRIPTOR.full_name:
        return True
    return any(_holds_quantities(field_descriptor, above | {message.full_name}) for field_descriptor in message.fields)
