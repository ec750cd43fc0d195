"""Violations with Kubernetes' messages, whose values are formatted as Go formats them.

Source: k8s.io/apimachinery/pkg/util/validation/field/errors.go of Kubernetes 1.36.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from pinnace.api.status import TYPE_INVALID, Violation

NO_FIELD = "<nil>"
"""The field of a violation of the object as a whole."""
MAX_TEXT = 10_000
"""Maximum number of characters of a value in a message. Kubernetes has no maximum; the value may be the size of the request."""
_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip
_HTML = re.compile("[<>&\u2028\u2029]")
_TEXT_EXPONENTS, _JSON_EXPONENTS = range(-4, 6), range(-6, 21)
"""The decimal exponents of floats that Go writes without an exponent, in text and in JSON: 100000 but 1e+06."""


class GoStruct(dict[str, Any]):
    """A struct of Go, which JSON shows in the order of its fields. Keys of maps are sorted."""


def required(field: str, detail: str = "") -> Violation:
    return Violation(field or NO_FIELD, _join("Required value", detail))


def invalid(field: str, value: Any, detail: str) -> Violation:
    return Violation(field or NO_FIELD, _join("Invalid value", format_value(value), detail))


def type_invalid(field: str, value: Any, detail: str) -> Violation:
    return Violation(field or NO_FIELD, _join("Invalid value", format_value(value), detail), TYPE_INVALID)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Violation:
    return Violation(field or NO_FIELD, _join("Unsupported value", format_value(value), format_supported(supported)))


def format_supported(supported: Iterable[str]) -> str:
    return _truncate("supported values: " + ", ".join(map(quote, supported)))


def duplicate(field: str, value: Any) -> Violation:
    return Violation(field or NO_FIELD, _join("Duplicate value", format_value(value)))


def forbidden(field: str, detail: str) -> Violation:
    return Violation(field or NO_FIELD, _join("Forbidden", detail))


def too_long(field: str, limit: int) -> Violation:
    return Violation(field or NO_FIELD, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, number: int, limit: int) -> Violation:
    items = "item" if limit == 1 else "items"
    return Violation(field or NO_FIELD, f"Too many: {number}: must have at most {limit} {items}")


def _join(*parts: str) -> str:
    return ": ".join(filter(None, parts))


def format_value(value: Any) -> str:
    """Return a value as the messages of Go's field errors show it."""
    if isinstance(value, str):
        return quote(_truncate(value))
    if isinstance(value, int | float):
        return format_scalar(value)
    return _truncate(to_json(value, MAX_TEXT + 1))


def format_scalar(value: bool | int | float) -> str:
    """Return a number or boolean as Go's %v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _format_float(value, _TEXT_EXPONENTS) if isinstance(value, float) else str(value)


def quote(text: str) -> str:
    """Return a text as Go's %q."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_quote_character, text))}"'


def _quote_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def to_json(value: Any, limit: int | None = None) -> str:
    """Return a value as Go's json.Marshal: sorted keys, and characters of HTML as escapes. `limit`: the number of characters
    after which the rest may be left out."""
    parts, size = list[str](), 0
    for part in _json_parts(value):
        parts.append(part)
        size += len(part)
        if limit is not None and size > limit:
            break
    return _HTML.sub(lambda match: f"\\u{ord(match[0]):04x}", "".join(parts))


def _json_parts(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        yield "{"
        for index, key in enumerate(value if isinstance(value, GoStruct) else sorted(value)):
            yield f"{',' if index else ''}{json.dumps(key, ensure_ascii=False)}:"
            yield from _json_parts(value[key])
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        for index, item in enumerate(value):
            yield "," if index else ""
            yield from _json_parts(item)
        yield "]"
    elif isinstance(value, float):
        yield _format_float(value, _JSON_EXPONENTS)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _format_float(value: float, plain: range) -> str:
    if not math.isfinite(value):
        return str(value)
    number = Decimal(repr(value))
    exponent = number.adjusted() if value else 0
    if exponent in plain:
        return f"{number:f}".removesuffix(".0")
    _, digits, _ = number.normalize().as_tuple()
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    power = f"{exponent:+03d}" if plain is _TEXT_EXPONENTS else f"{exponent:+d}"
    return f"{'-' if value < 0 else ''}{first}{'.' if rest else ''}{rest}e{power}"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."
