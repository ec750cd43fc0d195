"""Printer columns of custom resources: the tables of `kubectl get`.

Source: k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pinnace.api import go_time
from pinnace.apiextensions.jsonpath import JSONPathError, Steps, compile_jsonpath
from pinnace.apiextensions.schema import objects, text
from pinnace.apiextensions.violations import format_scalar, to_json
from pinnace.printers.columns import human_duration

MAX_COLUMNS = 256
"""Maximum number of columns of a table. Kubernetes has no maximum."""
_AGE: Mapping[str, Any] = {
    "name": "Age",
    "type": "date",
    "description": (
        "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to "
        "be set in happens-before order across separate operations. Clients may not set this value. It is represented in "
        "RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: "
        "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    ),
    "jsonPath": ".metadata.creationTimestamp",
}


@dataclass(frozen=True, slots=True)
class Column:
    """`definition`: as in columnDefinitions of a Table."""

    definition: Mapping[str, Any]
    path: str


def columns_of(version: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns of a version of a definition (an element of spec.versions), without Name. Age if it has none.

    The columns end before the first whose path is no JSONPath.
    """
    result = list[Column]()
    for column in (objects(version.get("additionalPrinterColumns")) or [_AGE])[:MAX_COLUMNS]:
        path = text(column.get("jsonPath"))
        try:
            compile_jsonpath(path)
        except JSONPathError:
            break
        definition = {
            "name": text(column.get("name")),
            "type": text(column.get("type")),
            "format": text(column.get("format")),
            "description": text(column.get("description")) or f"Custom resource definition column (in JSONPath format): {path}",
            "priority": column.get("priority") or 0,
        }
        result.append(Column(definition, path))
    return tuple(result)


def cells(columns: Sequence[Column], obj: Mapping[str, Any], now: float) -> list[Any]:
    """Return the cells of an object, without its name. Dates are ages at `now` (Unix time in seconds), as Kubernetes' tables
    have."""
    result, steps = list[Any](), Steps()
    for column in columns:
        values = compile_jsonpath(column.path).find(obj, steps)
        result.append(_format_cell(column.definition["type"], values[0], now) if values else None)
    return result


def _format_cell(kind: str, value: Any, now: float) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return _print_value(value)
        case "integer" if is_number:
            return int(value) if abs(value) < 1 << 63 else None
        case "number" if is_number:
            return float(value)
        case "boolean" if isinstance(value, bool):
            return value
        case "date" if isinstance(value, str):
            return _format_age(value, now)
    return None


def _print_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    return format_scalar(value) if isinstance(value, int | float) else to_json(value)


def _format_age(value: str, now: float) -> str:
    if value in ("", "null"):
        return "<unknown>"
    try:
        return human_duration(now - go_time.parse(value).seconds)
    except go_time.TimeError:
        return "<invalid>"
