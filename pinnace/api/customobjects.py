"""Custom objects: a message with metadata, apiVersion and kind, and the other fields as JSON.

The JSON is canonical (sorted keys, no spaces), so that equal objects have equal bytes.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pinnace.api.customobjects_pb2 import CustomObject

_WHOLE_FLOAT = re.compile(rb"\d(\.0|e\+\d+)[],}]|^-?\d[\d.]*(\.0|e\+\d+)$")
"""A number that may be a float without a fraction. It also matches some text, at the cost of another pass."""
_MAX_PLAIN = 1e21
"""Go writes floats from this size on with an exponent."""
_TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")


def read_content(obj: CustomObject) -> dict[str, Any]:
    """Return the fields of an object other than apiVersion, kind and metadata."""
    result: dict[str, Any] = json.loads(obj.content) if obj.content else {}
    return result


def write_content(form: Mapping[str, Any]) -> bytes:
    """Return the encoded fields of an object's JSON form other than apiVersion, kind and metadata. Raises ValueError for text
    that is not valid Unicode."""
    content = {name: value for name, value in form.items() if name not in _TYPE_AND_METADATA}
    return dump_canonical(content) if content else b""


def dump_canonical(value: Any) -> bytes:
    """Raises ValueError for text that is not valid Unicode, and RecursionError."""
    data = _dump(value)
    return _dump(_with_whole_numbers(value)) if _WHOLE_FLOAT.search(data) else data


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()


def _with_whole_numbers(value: Any) -> Any:
    """Return the value with 1.0 as 1, as Kubernetes writes it."""
    match value:
        case dict():
            return {name: _with_whole_numbers(item) for name, item in value.items()}
        case list():
            return [_with_whole_numbers(item) for item in value]
        case float() if value.is_integer() and abs(value) < _MAX_PLAIN:
            return int(Decimal(repr(value)))
    return value
