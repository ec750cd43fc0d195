"""How much an object may consist of.

To look at a part of an object (a container, an owner, a label) takes a hundred times as long as to receive it: four megabytes
of empty containers, two bytes each, kept a server from everything else for a minute, and filled four gigabytes with what was
wrong with them. So what is larger than any usual object is counted, before anybody looks inside. (Kubernetes has no such bound:
it does not answer all of its callers in one thread.)
"""

from typing import Any

from google.protobuf.message import Message

from pinnace.api.schema import map_value

USUAL = 16 << 10
"""Bytes of an object whose parts are not counted."""
MAX_PARTS = 10_000
"""Items of lists and maps, at any depth."""


def parts_exceeded(obj: Any) -> bool:
    """Does the API object have more than MAX_PARTS?"""
    return obj.ByteSize() > USUAL and _left(obj, MAX_PARTS) < 0


def _left(message: Message, room: int) -> int:
    """Of the room, after the parts of the message; below 0: there are more, and who knows how many."""
    for field, value in message.ListFields():
        if field.is_repeated:
            room -= len(value)
        if room < 0:
            break
        if field.message_type is None:
            continue
        if not field.is_repeated:
            room = _left(value, room)
            continue
        of = map_value(field)
        if of is None or of.message_type is not None:
            for each in value if of is None else value.values():
                room = _left(each, room)
    return room
