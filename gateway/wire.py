"""A reader for the fields of encoded protobuf messages. Forwarded messages are not decoded completely.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are not a valid protobuf message."""


def iterate_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message in order: the number, and an integer or bytes. Raises WireError."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _BYTES:
            length, at = _read_varint(data, at)
            if at + length > end:
                raise WireError("truncated field")
            yield number, data[at : at + length]
            at += length
        elif wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
            yield number, int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            raise WireError(f"unknown wire type {wire_type}")


def _list_type() -> Any:
    """Return a message class for lists of all kinds that does not decode the items."""
    file = descriptor_pb2.FileDescriptorProto(name="gateway/wire.proto", package="gateway", syntax="proto3")
    message, field = file.message_type.add(name="List"), descriptor_pb2.FieldDescriptorProto
    message.field.add(name="metadata", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_BYTES)
    message.field.add(name="items", number=2, label=field.LABEL_REPEATED, type=field.TYPE_BYTES)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gateway.List"))


_List = _list_type()


def split_list(data: bytes) -> tuple[bytes, Sequence[bytes]]:
    """Return the encoded metadata and items of a list. Raises WireError."""
    try:
        result = _List.FromString(data)
    except DecodeError as error:
        raise WireError(str(error)) from None
    return result.metadata, result.items


def last_bytes_field(data: bytes, number: int) -> bytes:
    """Return the last value of a length-delimited field, or b"". Raises WireError."""
    result = b""
    for each, value in iterate_fields(data):
        if each == number and isinstance(value, bytes):
            result = value
    return result


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
            if shift > 63:
                raise WireError("varint too long")
    except IndexError:
        raise WireError("truncated varint") from None
