"""The ways in which a field can be wrong, worded as Kubernetes words them.

Source: k8s.io/apimachinery/pkg/util/validation/field
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pinnace.api.status import Violation

MAX_SHOWN = 128
"""Characters of a value that are shown: what is wrong may be its size."""
NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"

Value = str | int | bool | Sequence[str] | Mapping[str, str]


def required(field: str, detail: str = "") -> Violation:
    return Violation(field, f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: Value, detail: str) -> Violation:
    return Violation(field, f"Invalid value: {_shown(value)}: {detail}")


def unsupported(field: str, value: str, supported: Iterable[str]) -> Violation:
    return Violation(field, f"Unsupported value: {_shown(value)}: supported values: {', '.join(map(_shown, supported))}")


def duplicate(field: str, value: Value, detail: str = "") -> Violation:
    return Violation(field, f"Duplicate value: {_shown(value)}: {detail}" if detail else f"Duplicate value: {_shown(value)}")


def not_found(field: str, value: str) -> Violation:
    return Violation(field, f"Not found: {_shown(value)}")


def forbidden(field: str, detail: str) -> Violation:
    return Violation(field, f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Violation:
    return Violation(field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, number: int, limit: int) -> Violation:
    return Violation(field, f"Too many: {number}: must have at most {limit} items")


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(_cut(value), ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    plain: object
    if isinstance(value, Mapping):
        plain = {key[:MAX_SHOWN]: text[:MAX_SHOWN] for key, text in islice(value.items(), MAX_SHOWN)}
    else:
        plain = [text[:MAX_SHOWN] for text in islice(value, MAX_SHOWN)]  # there may be thousands, and as many violations
    return _cut(json.dumps(plain, ensure_ascii=False, separators=(",", ":")))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
