"""Custom objects: a message with metadata, apiVersion and kind, and the other fields as JSON.

The JSON is canonical (sorted keys, no spaces), so that equal objects have equal bytes.
"""

import json
from collections.abc import Mapping
from typing import Any

from pinnace.api.customobjects_pb2 import CustomObject

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
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
