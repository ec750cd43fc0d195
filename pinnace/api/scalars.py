"""Conversion of JSON scalars: strings, numbers, booleans, and messages that are one JSON value in Kubernetes (Quantity, Time,
IntOrString, FieldsV1,
JSONSchemaProps, RawExtension). Also conversion of times, and of integers in text.

Readers raise ValueError with the expected and the actual value. The codec adds the path.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pinnace.api import go_time, quantity
from pinnace.api.apiextensions_v1_pb2 import JSONSchemaProps
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import FieldsV1, MicroTime, Time
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.runtime_v1_pb2 import RawExtension

_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The Unix times of the start of year 1 and the end of year 9999."""
STRING = 1
"""The IntOrString.type of a string. The type of a number is 0."""
MAX_INT32 = 2**31 - 1
_ZEROS: Mapping[int, str | int | bytes] = {
    FieldDescriptor.TYPE_STRING: "",
    FieldDescriptor.TYPE_BYTES: b"",
    FieldDescriptor.TYPE_BOOL: False,
}


def to_time(seconds: float) -> Time:
    """Convert Unix time to Time with a precision of seconds."""
    return Time(seconds=int(seconds))


def to_micro_time(seconds: float) -> MicroTime:
    """Convert Unix time to MicroTime with a precision of microseconds."""
    whole = int(seconds)
    return MicroTime(seconds=whole, nanos=int((seconds - whole) * 1e6) * 1000)


def to_seconds(instant: Time | MicroTime) -> float:
    """Convert to Unix time."""
    return float(instant.seconds) + float(instant.nanos) / 1e9


def to_datetime(instant: Time | MicroTime) -> datetime:
    """Convert to a datetime in UTC with a precision of seconds. Times outside the years 1 to 9999, which only a faulty or
    malicious client can write, are clamped."""
    return datetime.fromtimestamp(min(max(instant.seconds, _FIRST), _LAST), UTC)


def format_rfc3339(instant: Time | MicroTime) -> str:
    """Format as "2026-01-31T12:00:00Z". MicroTime includes microseconds."""
    text = _format_unix_time(instant.seconds)
    if isinstance(instant, Time):
        return f"{text}Z"
    micros = min(max(instant.nanos, 0), 999_999_999) // 1000
    return f"{text}.{micros:06d}Z"


@lru_cache(maxsize=4096)  # objects of a time have many equal times
def _format_unix_time(seconds: int) -> str:
    return to_datetime(Time(seconds=seconds)).replace(tzinfo=None).isoformat()


def parse_rfc3339(text: str) -> Time:
    """Parse an RFC 3339 time as Go does. Raises TimeError."""
    instant = go_time.parse(text)
    return Time(seconds=instant.seconds, nanos=instant.nanos)


@dataclass(frozen=True, slots=True)
class Scalar:
    """The conversion between a message and a JSON value. `read` fills a new message."""

    write: Callable[[Any], Any]
    read: Callable[[Any, Any], None]


def kind_of(value: object) -> str:
    """Describe a JSON value for an error message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"a boolean ({str(value).lower()})"
        case int() | float():
            return f"a number ({value})"
        case str():
            return f'a string ("{value[:32]}{"..." if len(value) > 32 else ""}")'
        case Mapping():
            return "an object"
    return "a list"


def _read_quantity(message: Quantity, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a quantity such as 500m or 1Gi, got {kind_of(value)}")
    text = str(value).strip()  # as in Kubernetes' Quantity.UnmarshalJSON
    quantity.parse(text)
    message.string = text


def _read_time(message: Time, value: object) -> None:
    """Read a time. As in Kubernetes, a fraction is dropped."""
    message.seconds = _parsed_time(value, go_time.RFC3339, "2026-01-31T12:00:00Z").seconds


def _read_micro_time(message: MicroTime, value: object) -> None:
    message.seconds, message.nanos = _parsed_time(value, go_time.RFC3339_MICRO, "2026-01-31T12:00:00.000000Z")


def _parsed_time(value: object, layout: str, example: str) -> go_time.Instant:
    if not isinstance(value, str):
        raise ValueError(f"expected a time such as {example}, got {kind_of(value)}")
    return go_time.parse(value, layout)


def _read_int_or_string(message: IntOrString, value: object) -> None:
    if isinstance(value, str):
        message.type, message.strVal = STRING, value
    elif isinstance(value, int) and not isinstance(value, bool) and -MAX_INT32 <= value <= MAX_INT32:
        message.intVal = value
    else:
        raise ValueError(f"expected a number or a string, got {kind_of(value)}")


def _read_fields(message: FieldsV1, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object, got {kind_of(value)}")
    message.Raw = json.dumps(value, separators=(",", ":")).encode()


def _write_fields(message: FieldsV1) -> Any:
    """Return an empty tree for invalid JSON, which the server never stores."""
    try:
        return json.loads(message.Raw)
    except ValueError:
        return {}


def _read_json(message: JSONSchemaProps | RawExtension, value: object) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected an object, got {kind_of(value)}")
    message.raw = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def _write_json(message: JSONSchemaProps | RawExtension) -> Any:
    """Return an empty object for a value that is not a JSON object. The server does not store such values."""
    try:
        value = json.loads(message.raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def int_or_string(message: IntOrString) -> str | int:
    """Return the number or the string: 1, "25%", "http"."""
    return message.strVal if message.type == STRING else message.intVal


SCALARS: Mapping[str, Scalar] = {
    Quantity.DESCRIPTOR.full_name: Scalar(lambda message: str(message.string), _read_quantity),
    Time.DESCRIPTOR.full_name: Scalar(format_rfc3339, _read_time),
    MicroTime.DESCRIPTOR.full_name: Scalar(format_rfc3339, _read_micro_time),
    IntOrString.DESCRIPTOR.full_name: Scalar(int_or_string, _read_int_or_string),
    FieldsV1.DESCRIPTOR.full_name: Scalar(_write_fields, _read_fields),
    JSONSchemaProps.DESCRIPTOR.full_name: Scalar(_write_json, _read_json),
    RawExtension.DESCRIPTOR.full_name: Scalar(_write_json, _read_json),
}
"""The conversions by full name of the message."""


def write_primitive(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def zero_primitive(field: FieldDescriptor) -> str | int | bytes:
    """Return the zero value of a scalar field, also of an item of a list."""
    return _ZEROS.get(field.type, 0)


def _read_string(value: object) -> str:
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
        raise ValueError(f"expected a string, got {kind_of(value)}{hint}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("not valid Unicode") from None
    return value


def _read_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, got {kind_of(value)}")
    return value


def _read_integer(value: object, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {kind_of(value)}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{value} does not fit into {bits} bits")
    return value


def _read_bytes(value: object) -> bytes:
    try:
        return base64.b64decode(_read_string(value), validate=True)
    except binascii.Error:
        raise ValueError("expected base64") from None


_PRIMITIVES: Mapping[int, Callable[[object], str | int | bytes]] = {
    FieldDescriptor.TYPE_STRING: _read_string,
    FieldDescriptor.TYPE_BOOL: _read_bool,
    FieldDescriptor.TYPE_INT32: partial(_read_integer, bits=32),
    FieldDescriptor.TYPE_INT64: partial(_read_integer, bits=64),
    FieldDescriptor.TYPE_BYTES: _read_bytes,
}


def primitive_reader(field: FieldDescriptor) -> Callable[[object], str | int | bytes]:
    """Return a function that converts a JSON value for a scalar field, or an item of a list."""
    primitive = _PRIMITIVES.get(field.type)
    if primitive is None:
        raise NotImplementedError(f"{field.full_name} has a type that Kubernetes' API does not use")
    return primitive
