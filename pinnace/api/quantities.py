"""The quantities inside API messages: their canonical form, and comparison by value.

The API server stores and serves each quantity in Kubernetes' canonical form (`canonicalize`). Two canonical texts can still
have one value ("1Gi", "1073741824"), so objects are compared by value across objects and versions: with `equal`, as
`Semantic.DeepEqual` does in Kubernetes, and with `keep_equal` for an update.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pinnace.api.quantity import QuantityError, canonical, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.schema import map_value

M = TypeVar("M", bound=Message)


class _Shape(Enum):
    SINGULAR = "singular"
    REPEATED = "repeated"
    MAP = "map"


class _Holder(NamedTuple):
    """A field that contains quantities, at any depth."""

    name: str
    shape: _Shape
    of_quantities: bool
    """The values are quantities themselves."""
    named: bool
    """The items of the list have a field `name`."""


def has_quantities(message: Descriptor) -> bool:
    return bool(_holders(message))


def canonicalize(message: Any) -> None:
    """Writes each quantity of the message in its canonical form. A text that is no quantity stays: validation reports it.

    Every pod that is created passes here, so only fields that are set are looked at."""
    plan = _plan(message.DESCRIPTOR)
    for field, value in message.ListFields():
        step = plan.get(field.number)
        if step is not None:
            step(value)


def _each(values: Iterable[Any]) -> None:
    for value in values:
        canonicalize(value)


def _each_value(values: Mapping[str, Any]) -> None:
    for key in values:
        canonicalize(values[key])


def _rewrite_each(quantities: Mapping[str, Quantity]) -> None:
    for key in quantities:
        _rewrite(quantities[key])


def _rewrite(quantity: Quantity) -> None:
    text = quantity.string
    try:
        better = canonical(text)
    except QuantityError:
        return
    if better != text:
        quantity.string = better


_STEPS: Mapping[tuple[_Shape, bool], Callable[[Any], None]] = {
    (_Shape.SINGULAR, True): _rewrite,
    (_Shape.SINGULAR, False): canonicalize,
    (_Shape.REPEATED, False): _each,
    (_Shape.MAP, True): _rewrite_each,
    (_Shape.MAP, False): _each_value,
}


def equal(one: M, other: M) -> bool:
    """Whether two messages of one type are the same, with quantities compared by value."""
    if one == other:
        return True
    if not _holders(one.DESCRIPTOR):
        return False
    copied = type(other)()
    copied.CopyFrom(other)
    _keep(copied, one)
    return copied == one


def keep_equal(new: Any, old: Any) -> None:
    """Gives each quantity in the spec of `new` the text of the equal one at its place in `old`, an object of the same kind: an
    update that changes no value changes nothing."""
    spec, before = getattr(new, "spec", None), getattr(old, "spec", None)
    if spec is not None and spec != before:
        _keep(spec, before)


def _keep(new: Any, old: Any) -> None:
    if isinstance(new, Quantity):
        if new.string != old.string and _same_value(new.string, old.string):
            new.string = old.string
        return
    for holder in _holders(new.DESCRIPTOR):
        after, before = getattr(new, holder.name), getattr(old, holder.name)
        if after != before:
            for now, was in _pairs(holder, after, before):
                _keep(now, was)


def _pairs(holder: _Holder, after: Any, before: Any) -> Iterable[tuple[Any, Any]]:
    """Values at the same place: under one key, of one name, or else at one index. A pair of items that do not belong together
    does no harm, because only equal values are touched."""
    if holder.shape is _Shape.MAP:
        return [(each, before[key]) for key, each in after.items() if key in before]
    if holder.shape is _Shape.SINGULAR:
        return [(after, before)]
    if holder.named:
        names = {each.name: each for each in before}
        if len(names) == len(before):  # environment variables may repeat a name
            return [(each, names[each.name]) for each in after if each.name in names]
    return zip(after, before, strict=False)


def _same_value(one: str, other: str) -> bool:
    try:
        return parse(one) == parse(other)
    except QuantityError:
        return False


@cache  # as many entries as there are message types
def _holders(message: Descriptor) -> tuple[_Holder, ...]:
    return tuple(_holder(field) for field in message.fields if _holds(field, frozenset((message.full_name,))))


@cache
def _plan(message: Descriptor) -> Mapping[int, Callable[[Any], None]]:
    """By field number: what `canonicalize` does with the value of the field."""
    return {message.fields_by_name[each.name].number: _STEPS[each.shape, each.of_quantities] for each in _holders(message)}


def _holder(field: FieldDescriptor) -> _Holder:
    value = map_value(field)
    shape = _Shape.MAP if value is not None else _Shape.REPEATED if field.is_repeated else _Shape.SINGULAR
    message = (value or field).message_type
    assert message is not None, "only messages hold quantities"
    named = shape is _Shape.REPEATED and "name" in message.fields_by_name
    return _Holder(field.name, shape, message.full_name == Quantity.DESCRIPTOR.full_name, named)


def _holds(field: FieldDescriptor, above: frozenset[str]) -> bool:
    """Whether the field may contain quantities. `above`: messages that contain it, which need not be asked again."""
    message = (map_value(field) or field).message_type
    if message is None or message.full_name in above:
        return False
    if message.full_name == Quantity.DESCRIPTOR.full_name:
        return True
    return any(_holds(each, above | {message.full_name}) for each in message.fields)
