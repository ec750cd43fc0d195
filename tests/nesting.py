"""What no version of the messages has: groups in groups, which every reader keeps and none understands."""

from typing import TypeVar

from google.protobuf.message import Message

from pinnace.api import wire

M = TypeVar("M", bound=Message)
_FIELD = 15_000


def groups(levels: int) -> bytes:
    return wire.encode_varint(_FIELD << 3 | 3) * levels + wire.encode_varint(_FIELD << 3 | 4) * levels


def nested(message: M, levels: int) -> M:
    """The message with so many levels below itself."""
    return type(message).FromString(message.SerializeToString() + groups(levels))
