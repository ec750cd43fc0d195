"""How deep messages are nested, found out by protobuf itself, as it reads them.

Most readers refuse what has more than 100 levels (protobuf's default in C++, Java and Python), and count from the outermost
message. So an object that can be read by itself cannot be read in a list if it is nested too deep, and no reader can read that
list. The fields that we know have a few levels; those that we do not know travel along (pinnace.api.unmodelled), and may be
groups in groups. To walk a message would cost more than all that is done with it: it is read inside an envelope that has the
missing levels.

Source: https://protobuf.dev/programming-guides/proto-limits/#depth; Kubernetes refuses CBOR of more than 64 levels, and drops
fields that it does not know.
"""

from operator import attrgetter
from typing import Any, Generic, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pinnace.api import wire

M = TypeVar("M")
LIMIT = 100
"""Levels that readers can be expected to read, the outermost message included."""
_PACKAGE = "pinnace.nesting"
_DEEPER, _MESSAGE = 1, 2


class Envelope(Generic[M]):
    """Reads messages of one type that could be so many `levels` (1 or more) deeper in others."""

    def __init__(self, message: type[M], levels: int) -> None:
        described: Any = message
        self._class = _envelope(described.DESCRIPTOR)
        self._begin = wire.varint(_DEEPER << 3 | 3) * (levels - 1) + wire.varint(_MESSAGE << 3 | 2)
        self._end = wire.varint(_DEEPER << 3 | 4) * (levels - 1)
        self._inside: Any = attrgetter(".".join(["deeper"] * (levels - 1) + ["message"]))

    def read(self, data: bytes) -> M:
        """The message. Raises DecodeError when it is no such message, or nested too deep."""
        message: M = self._inside(self._class.FromString(self._begin + wire.varint(len(data)) + data + self._end))
        return message


def _envelope(content: Any) -> Any:
    """A message that is in itself as often as one likes, as a group: that has no length, and so costs nothing to wrap.
    `content`: the description of what it is for."""
    name = content.full_name.replace(".", "_")
    pool, path = descriptor_pool.Default(), f"pinnace/nesting/{name}.proto"
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    except KeyError:
        pass
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=path, package=_PACKAGE, syntax="proto2", dependency=[content.file.name])
    made = file.message_type.add(name=name)
    label = kind.LABEL_OPTIONAL
    made.field.add(name="deeper", number=_DEEPER, label=label, type=kind.TYPE_GROUP, type_name=f".{_PACKAGE}.{name}")
    made.field.add(name="message", number=_MESSAGE, label=label, type=kind.TYPE_MESSAGE, type_name=f".{content.full_name}")
    pool.Add(file)  # that of the content: what is read is then of its class
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
