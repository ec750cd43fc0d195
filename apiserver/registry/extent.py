"""How much an object may consist of.

To look at a part of an object (a container, an owner, a label) takes a hundred times as long as to receive it: four megabytes
of empty containers, two bytes each, kept a server from everything else for a minute, and filled four gigabytes with what was
wrong with them. So what is larger than any usual object is counted, before anybody looks inside. (Kubernetes has no such bound:
it does not answer all of its callers in one thread.)

What is stored may have more: it may be older than the bound, and statuses, defaults and bindings add to it.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pinnace.api.codec import map_value

USUAL = 16 << 10
"""Bytes of an object whose parts are not counted."""
MAX_PARTS = 10_000
"""Items of lists and maps, at any depth."""
_UNBOUNDED = 1 << 62


def parts_exceeded(obj: Any, stored: Any = None) -> bool:
    """Does the API object have more than MAX_PARTS? Of one that is `stored`, of the same kind, each field counts by itself (its
    metadata, its spec, its status), and may have as many as it has there."""
    if obj.ByteSize() <= USUAL or _left(obj, MAX_PARTS) >= 0:
        return False
    return stored is None or any(_grown(value, getattr(stored, field.name), field) for field, value in obj.ListFields())


def _grown(value: Any, before: Any, field: FieldDescriptor) -> bool:
    """Has the field more than MAX_PARTS, and than before?"""
    if _field_left(field, value, MAX_PARTS) >= 0:
        return False
    had = _UNBOUNDED - _field_left(field, before, _UNBOUNDED)
    return _field_left(field, value, max(had, MAX_PARTS)) < 0


def _left(message: Message, room: int) -> int:
    """Of the room, after the parts of the message; below 0: there are more, and who knows how many."""
    for field, value in message.ListFields():
        room = _field_left(field, value, room)
        if room < 0:
            break
    return room


def _field_left(field: FieldDescriptor, value: Any, room: int) -> int:
    """The same of one field, with its items."""
    if field.is_repeated:
        room -= len(value)
    if room < 0 or field.message_type is None:
        return room
    if not field.is_repeated:
        return _left(value, room)
    of = map_value(field)
    if of is None or of.message_type is not None:
        for each in value if of is None else value.values():
            room = _left(each, room)
    return room
