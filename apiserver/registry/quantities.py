"""Quantities that an update says in other words: "1" for what was "1000m".

Kubernetes stores each quantity in one spelling, and compares values. Here the text stays as it was written, and objects are
compared as they are: another spelling would restart all pods of a Deployment, and be refused for what cannot change. So a
quantity that keeps its value keeps its text, too.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.schema import map_value


class _Holder(NamedTuple):
    """A field in which there may be quantities, at any depth."""

    name: str
    mapped: bool
    listed: bool
    named: bool
    """Have the items of the list names?"""


def keep_spelling(new: Any, old: Any) -> None:
    """Gives each quantity in the spec of `new` the text of the equal one that is at its place in `old`, an object of the same
    kind. (The status is not an update's to change.) What is the same in both is not looked into."""
    spec, before = getattr(new, "spec", None), getattr(old, "spec", None)
    if spec is not None and spec != before:
        _keep(spec, before)


def _keep(new: Any, old: Any) -> None:
    if isinstance(new, Quantity):
        if new.string != old.string and _equal(new.string, old.string):
            new.string = old.string
        return
    for field in _holders(new.DESCRIPTOR):
        after, before = getattr(new, field.name), getattr(old, field.name)
        if after != before:
            for now, was in _pairs(field, after, before):
                _keep(now, was)


def _pairs(field: _Holder, after: Any, before: Any) -> Iterable[tuple[Any, Any]]:
    """What is at the same place: under one key, of one name, or else at one index. Of what has moved without a name some may be
    paired with others, which does no harm: no value changes."""
    if field.mapped:
        return [(each, before[key]) for key, each in after.items() if key in before]
    if not field.listed:
        return [(after, before)]
    if field.named:
        names = {each.name: each for each in before}
        if len(names) == len(before):  # variables may have one name several times
            return [(each, names[each.name]) for each in after if each.name in names]
    return zip(after, before, strict=False)


def _equal(one: str, other: str) -> bool:
    try:
        return parse(one) == parse(other)
    except QuantityError:  # validation says it better
        return False


@cache  # as many entries as there are messages
def _holders(message: Descriptor) -> tuple[_Holder, ...]:
    return tuple(_holder(field) for field in message.fields if _holds(field, frozenset((message.full_name,))))


def _holder(field: FieldDescriptor) -> _Holder:
    mapped = map_value(field) is not None
    named = field.message_type is not None and "name" in field.message_type.fields_by_name
    return _Holder(field.name, mapped, field.is_repeated and not mapped, named)


def _holds(field: FieldDescriptor, above: frozenset[str]) -> bool:
    """May there be quantities in it? `above`: messages that it is in, which need not be asked again."""
    message = (map_value(field) or field).message_type
    if message is None or message.full_name in above:
        return False
    if message.full_name == Quantity.DESCRIPTOR.full_name:
        return True
    return any(_holds(each, above | {message.full_name}) for each in message.fields)
