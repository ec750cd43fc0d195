"""Texts of parts that many objects share, such as the specs of the pods of a template, by the bytes of the part."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from google.protobuf.message import Message

MAX_PART = 16 << 10
"""Maximum bytes of a part and its text that are cached."""
SHARED_PARTS: Mapping[str, str] = {
    "pinnace.core.v1.PodSpec": "nodeName",
    "pinnace.core.v1.Container": "",
    "pinnace.core.v1.Volume": "",
}
"""The messages whose texts are cached. The value is the string that differs between objects with the same part, or empty."""


class PartCache:
    """Texts of parts, limited to `limit` bytes. A full cache is emptied."""

    def __init__(self, limit: int) -> None:
        self.texts = dict[tuple[Any, ...], Any]()
        self.size = 0
        self._limit = limit

    def add(self, key: tuple[Any, ...], size: int, text: Any) -> None:
        """Add a text. `size`: of the key and the text in bytes. Texts above MAX_PART are not cached."""
        if size > MAX_PART:
            return
        if self.size + size > self._limit:
            self.texts.clear()
            self.size = 0
        self.size += size
        self.texts[key] = text


def encode_without(message: Any, name: str) -> tuple[bytes, str]:
    """Return the bytes of a message without one of its strings, and the string. `name`: of the string; empty: none."""
    if not name or not (string := getattr(message, name)):
        return message.SerializeToString(), ""
    if isinstance(message, Message):
        part: Any = type(message)()
        part.CopyFrom(message)
    else:
        part = deepcopy(message)  # of a read-only view
    part.ClearField(name)
    return part.SerializeToString(), string
