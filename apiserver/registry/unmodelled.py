"""Fields that this version of the messages does not have: they travel as bytes, and are neither judged nor defaulted."""

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


def says_more(message: Message) -> bool:
    """Has it fields that are not modelled? Then what looks like "none of the choices" may be one that we do not know."""
    return len(UnknownFieldSet(message)) > 0
