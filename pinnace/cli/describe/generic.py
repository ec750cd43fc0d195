"""All about an object of a kind without a description of its own: its metadata, and its other fields as they are."""

import re
from collections.abc import Mapping
from typing import Any

from pinnace.api.codec import to_dict
from pinnace.api.resources import Object
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Value


def describe(obj: Object) -> Fields:
    document = to_dict(obj)
    own = {_label(key): _value(value) for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**head(obj.metadata), **own}


def _label(key: str) -> str:
    """holderIdentity -> Holder Identity."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key)
    return words[:1].upper() + words[1:]


def _value(value: Any) -> Value:
    if isinstance(value, Mapping):
        return {_label(key): _value(item) for key, item in value.items()}
    if isinstance(value, list):
        if any(isinstance(item, Mapping | list) for item in value):
            return {str(index): _value(item) for index, item in enumerate(value)}
        return [_value_text(item) for item in value]
    return _value_text(value)


def _value_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
