"""Fields that this version of the messages does not have: they travel as bytes, and are neither judged nor defaulted.

JSON does not show them, nor the fractions of a second. Who changes an object by way of its JSON form keeps them with `revised`.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pinnace.api.codec import from_dict, write_value
from pinnace.api.merge import key_of
from pinnace.api.resources import Object, Resource
from pinnace.api.schema import map_value

T = TypeVar("T", bound=Object)


def says_more(message: Message) -> bool:
    """Has it fields that are not modelled? Then what looks like "none of the choices" may be one that we do not know."""
    return len(UnknownFieldSet(message)) > 0


def revised(resource: Resource[T], old: T, data: object) -> T:
    """The object that the data describes, with what the data cannot show as it is in `old`.

    What reads as before stays as it was, whole. What reads differently keeps the fields that are not modelled; so do the items
    of a list that are told apart by an identity (`merge.key_of`). Raises CodecError.
    """
    new = from_dict(resource, data)
    _restore(cast(Message, new), cast(Message, old))
    return new


def _restore(new: Message, old: Message) -> None:
    if says_more(old):
        new.MergeFrom(_unmodelled(old))
    for field, before in old.ListFields():
        if field.message_type is None:
            continue
        for into, was, of in _pairs(field, new, before):
            if write_value(of, into) == write_value(of, was):
                into.CopyFrom(was)
            else:
                _restore(into, was)


def _unmodelled(message: Message) -> Message:
    """A message of nothing else."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest


def _pairs(field: FieldDescriptor, new: Message, before: Any) -> Iterator[tuple[Message, Message, FieldDescriptor]]:
    """What of a field is the same thing in both: after, before, and its type."""
    after = getattr(new, field.name)
    value = map_value(field)
    if value is not None:
        if value.message_type is not None:
            yield from ((after[key], was, value) for key, was in before.items() if key in after)
    elif field.is_repeated:
        known = {each: was for was in before for each in _names(field, was)}
        for into in after:
            was = next((known[each] for each in _names(field, into) if each in known), None)
            if was is not None:
                yield into, was, field
    elif new.HasField(field.name):
        yield after, before, field


def _names(field: FieldDescriptor, item: Message) -> Iterator[object]:
    """By what an item of a list is found again: how it reads, and its identity."""
    shown = write_value(field, item)
    yield json.dumps(shown, sort_keys=True)
    if (key := key_of(field.json_name, shown)) is not None:
        yield key
