"""All about an object of a kind without a description of its own: its metadata, and its other fields as they are."""

import re
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from pinnace.api.codec import Field, fields_of, to_dict
from pinnace.api.resources import Object
from pinnace.cli.describe.common import head
from pinnace.cli.describe.text import Fields, Value, joined


def describe(obj: Object) -> Fields:
    own = {label: value for label, value in fields(cast(Message, obj)).items() if label != "Metadata"}
    return {**head(obj.metadata), **own}


def fields(message: Message) -> Fields:
    """What is set of a message, by labels made of the fields' names."""
    document = {key: value for key, value in to_dict(message).items() if key not in ("apiVersion", "kind")}
    return _fields(document, cast(Descriptor, message.DESCRIPTOR))


def _fields(document: Mapping[str, Any], kind: Descriptor | None) -> Fields:
    known = fields_of(kind) if kind else {}
    return {_label(key): _value(value, known[key]) for key, value in document.items()}


def _label(name: str) -> str:
    """holderIdentity -> Holder Identity."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return words[:1].upper() + words[1:]


def _value(value: Any, field: Field) -> Value:
    if field.value is not None:  # a map: its keys are the user's
        return joined({key: _text(item) for key, item in value.items()})
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return {str(index): _fields(item, field.descriptor.message_type) for index, item in enumerate(value)}
    if isinstance(value, list):
        return [_text(item) for item in value]
    return _fields(value, field.descriptor.message_type) if isinstance(value, Mapping) else _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
