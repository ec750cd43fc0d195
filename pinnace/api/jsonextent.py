"""How much a JSON document consists of.

A value takes two bytes to send, and a hundred times as long to be looked at as to be received: so whoever takes documents from
others counts first.
"""

from typing import Any

MAX_VALUES = 10_000
"""Values that a patch may have: fields of objects and items of arrays, at any depth. No object has more items in its lists and
maps, either."""


def left(room: int, document: Any) -> int:
    """Of the room, after the values in the document; below 0: there are more, and who knows how many."""
    waiting = [document]
    while waiting and room >= 0:
        match waiting.pop():
            case dict() as found:
                room -= len(found)
                waiting.extend(found.values() if room >= 0 else ())
            case list() as items:
                room -= len(items)
                waiting.extend(items if room >= 0 else ())
    return room
