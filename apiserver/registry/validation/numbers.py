"""Numbers that count something, and bounds that are a number or a percentage."""

import re
from collections.abc import Iterable

from google.protobuf.message import Message

from apiserver.registry.validation.violations import NEGATIVE, invalid
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import MAX_INT32, STRING
from pinnace.api.status import Violation

WHOLE = 100
"""Percent."""
_match_percent = re.compile(r"[0-9]+%").fullmatch
_MAX_DIGITS = len(str(MAX_INT32))
_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
)


def not_negative(message: Message, path: str, fields: Iterable[str], out: list[Violation]) -> None:
    """Each of the message's fields is 0 or more, or absent."""
    values = {field: getattr(message, field) for field in fields}
    out.extend(invalid(f"{path}.{field}", value, NEGATIVE) for field, value in values.items() if value < 0)


def validate_bound(bound: IntOrString, path: str, out: list[Violation], *, most: int = MAX_INT32) -> None:
    """`most`: percent. (Where there is no bound Kubernetes takes a percentage of any length.)"""
    if bound.type != STRING:
        if bound.intVal < 0:
            out.append(invalid(path, bound.intVal, NEGATIVE))
    elif not _match_percent(bound.strVal):
        out.append(invalid(path, bound.strVal, _PERCENT))
    elif len(digits := bound.strVal[:-1].lstrip("0")) > _MAX_DIGITS or int(digits or "0") > most:
        out.append(invalid(path, bound.strVal, f"must not be greater than {most}%"))


def is_nothing(bound: IntOrString) -> bool:
    """Is it 0, or 0%?"""
    return not bound.strVal.strip("0%") if bound.type == STRING else not bound.intVal
