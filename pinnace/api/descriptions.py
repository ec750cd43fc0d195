"""What the comments in proto/ say of objects' messages and fields, as `make proto` has written it down (descriptions.json).

A comment that begins with "Required." is about a field that the server insists on, wherever its message is given.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

FILE = Path(__file__).with_name("descriptions.json")
_REQUIRED = "Required."


class Description(NamedTuple):
    """`text`: sentences, on one line; "" when nothing has been written."""

    text: str
    required: bool = False


def of_message(message: Descriptor) -> str:
    return _all().get(message.full_name, {}).get("", "")


def of_field(field: FieldDescriptor) -> Description:
    text = _all().get(field.full_name.rpartition(".")[0], {}).get(field.json_name, "")
    return Description(text.removeprefix(_REQUIRED).strip(), text.startswith(_REQUIRED))


@cache
def _all() -> Mapping[str, Mapping[str, str]]:
    """By full name of the message, and JSON name of the field."""
    found: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text())
    return found
