"""The standard functions of CEL, and cel-go's extensions that Kubernetes enables: strings (version 2), sets, optional types, lists
(version 3), and comprehensions of two variables.

A row declares a function: its id in cel-go, its signature, and its implementation over values (see `pinnace.cel.types`). An
implementation raises EvaluationFailure. Operators that do not evaluate all operands are in `pinnace.cel.evaluation`.

Source: https://github.com/google/cel-spec/blob/master/doc/langdef.md, https://pkg.go.dev/github.com/google/cel-go/ext
"""

import base64
import math
import operator
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import re2

from pinnace.cel import types
from pinnace.cel.meter import Meter
from pinnace.cel.types import (
    ABSENT,
    Duration,
    EvaluationFailure,
    MapList,
    Optional,
    SetList,
    Timestamp,
    Type,
    TypeValue,
    Uint,
    name_of,
)

Implementation = Callable[..., Any]
MAX_INT, MIN_INT, MAX_UINT = 2**63 - 1, -(2**63), 2**64 - 1
SECOND = 10**9
"""In nanoseconds."""
MIN_TIME, MAX_TIME = -62135596800 * SECOND, 253402300800 * SECOND - 1
MAX_TEXT = 4 << 20
"""Maximum length of a string that a function makes, in characters."""


class Overload:
    """A function of fixed types. `member`: it is called on its first parameter. `takes_meter`: so does the implementation, first."""

    __slots__ = ("id", "impl", "member", "name", "params", "result", "takes_meter", "variables")

    def __init__(
        self,
        id_: str,
        name: str,
        member: bool,
        params: tuple[Type, ...],
        result: Type,
        impl: Implementation | None,
        takes_meter: bool,
    ) -> None:
        self.id, self.name, self.member, self.params, self.result = id_, name, member, params, result
        self.impl, self.takes_meter = impl, takes_meter
        self.variables = frozenset(_variables((*params, result)))


def _variables(found: Iterable[Type]) -> Iterable[str]:
    for each in found:
        if each.kind == "param":
            yield each.name
        yield from _variables(each.params)


_TYPE_NAMES = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE, "string": types.STRING, "bytes": types.BYTES,
    "dyn": types.DYN, "duration": types.DURATION, "timestamp": types.TIMESTAMP, "null": types.NULL,
}  # fmt: skip


def define_type(short: str, value: Type) -> Type:
    """Give a type a short name for signatures."""
    _TYPE_NAMES[short] = value
    return value


def parse_type(text: str) -> Type:
    """Return the type that a signature names: "list(A)", "map(string, dyn)". Capital letters are type variables."""
    name, _, rest = text.partition("(")
    if not rest:
        return _TYPE_NAMES.get(name) or Type("param", name)
    params = tuple(parse_type(part) for part in _split_params(rest[:-1]))
    if name in ("list", "map", "type"):
        return Type(name, params=params)
    return Type("opaque", name, params)


def _split_params(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text.strip() else parts


FUNCTIONS: dict[str, list[Overload]] = {}
"""All functions, by name."""


def declare(id_: str, signature: str, impl: Implementation | None, *, takes_meter: bool = False) -> None:
    """Declare a function: "size(string): int", or a member as ":string:startsWith(string): bool"."""
    target = ""
    if signature.startswith(":"):
        _, target, signature = signature.split(":", 2)
    left, _, result = signature.rpartition("): ")
    head, _, params = left.partition("(")
    if target:
        params = f"{target}, {params}" if params else target
    member = bool(target)
    overload = Overload(id_, head, member, tuple(map(parse_type, _split_params(params))), parse_type(result), impl, takes_meter)
    FUNCTIONS.setdefault(head, []).append(overload)


# Equality and order


_NUMBERS = frozenset({int, Uint, float})
_LISTS = frozenset({list, SetList, MapList})


def equals(meter: Meter, a: Any, b: Any) -> bool:
    """Compare two values of any types. Numbers of different types are equal if their values are. Lists of type set and map are
    compared without their order, as Kubernetes compares them."""
    type_a, type_b = type(a), type(b)
    if type_a in _NUMBERS:
        return type_b in _NUMBERS and a == b
    if type_a in _LISTS:
        if type_b not in _LISTS or len(a) != len(b):
            return False
        meter.charge(0, len(a))
        if type_a is SetList:
            return _equal_sets(meter, a, b)
        if type_a is MapList:
            return _equal_map_lists(meter, a, b)
        return all(equals(meter, x, y) for x, y in zip(a, b, strict=True))
    if type_a is dict:
        if type_b is not dict or len(a) != len(b):
            return False
        meter.charge(0, len(a))
        return all(key in b and equals(meter, value, b[key]) for key, value in a.items())
    if type_a is Optional:
        if type_b is not Optional or a is ABSENT or b is ABSENT:
            return a is b
        return equals(meter, a.value, b.value)
    return type_a is type_b and bool(a == b)


def _equal_sets(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    return set(map(_key, a)) >= set(map(_key, b))


def _equal_map_lists(meter: Meter, a: MapList, b: list[Any]) -> bool:
    items = {_item_key(item, a.keys): item for item in a}
    return all((found := items.get(_item_key(item, a.keys), ABSENT)) is not ABSENT and equals(meter, found, item) for item in b)


def _key(value: Any) -> Any:
    return (type(value), value) if isinstance(value, bool | int | float | str | bytes) else repr(value)


def _item_key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(_key(item.get(key)) for key in keys) if isinstance(item, dict) else ()


def _add_lists(meter: Meter, a: list[Any], b: list[Any]) -> list[Any]:
    meter.charge(0, len(a) + len(b))
    if type(a) is SetList:
        present = set(map(_key, a))
        return SetList([*a, *(item for item in b if _key(item) not in present and not present.add(_key(item)))])  # type: ignore[func-returns-value]
    if type(a) is MapList:
        merged = {_item_key(item, a.keys): item for item in a}
        merged.update((_item_key(item, a.keys), item) for item in b)
        result = MapList(merged.values())
        result.keys = a.keys
        return result
    return [*a, *b]


# Numbers


def _checked(value: int, low: int = MIN_INT, high: int = MAX_INT, message: str = "integer overflow") -> int:
    if low <= value <= high:
        return value
    raise EvaluationFailure(message)


def _unsigned(value: int) -> Uint:
    return Uint(_checked(value, 0, MAX_UINT, "unsigned integer overflow"))


def _duration(value: int) -> Duration:
    return Duration(_checked(value, message="integer overflow"))


def _timestamp(value: int) -> Timestamp:
    return Timestamp(_checked(value, MIN_TIME, MAX_TIME, "timestamp overflow"))


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationFailure("division by zero")
    return _checked(int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1))


def _modulo(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationFailure("modulus by zero")
    if b == -1 and a == MIN_INT:
        raise EvaluationFailure("integer overflow")
    return int(math.fmod(a, b)) if abs(a) < 2**53 and abs(b) < 2**53 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def _divide_double(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _multiply_double(a: float, b: float) -> float:
    return a * b


# Conversions


def format_double(value: float) -> str:
    """Return a double as Go's %g does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _shortest(value)
    point = exponent + len(digits) - 1
    if point < -4 or point >= 21:
        head, tail = digits[0], digits[1:]
        return f"{sign}{head}{'.' + tail if tail else ''}e{'-' if point < 0 else '+'}{abs(point):02d}"
    return sign + _plain(digits, exponent)


def _shortest(value: float) -> tuple[str, str, int]:
    text = repr(abs(value))
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) - len(fraction)
    digits = (whole + fraction).lstrip("0") or "0"
    stripped = digits.rstrip("0") or "0"
    if digits != "0":
        power += len(digits) - len(stripped)
    return ("-" if math.copysign(1, value) < 0 else ""), stripped, power if stripped != "0" else 0


def _plain(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    if len(digits) > -exponent:
        return f"{digits[:exponent]}.{digits[exponent:]}"
    return f"0.{'0' * (-exponent - len(digits))}{digits}"


def format_duration(value: int) -> str:
    """Return seconds with a fraction: "5400s", "1.5s"."""
    seconds = value / SECOND
    sign, digits, exponent = _shortest(seconds)
    return f"{sign}{_plain(digits, exponent)}s"


def format_timestamp(value: int) -> str:
    """Return a timestamp in RFC 3339, with as many digits of nanoseconds as it has."""
    seconds, nanos = divmod(value, SECOND)
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{text.zfill(19)}{fraction}Z"


_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION_TEXT = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}


def parse_duration(text: str) -> Duration:
    """Return what Go's time.ParseDuration does: "1h30m", "-1.5s"."""
    if len(text) > 100 or not _DURATION_TEXT.fullmatch(text):
        raise EvaluationFailure(f'time: invalid duration "{text[:100]}"')
    total = 0
    for number, unit in _DURATION.findall(text):
        whole, _, fraction = number.partition(".")
        fraction = fraction[:18]
        total += int(whole or 0) * _UNITS[unit] + (int(fraction) * _UNITS[unit] // 10 ** len(fraction) if fraction else 0)
    if text.startswith("-"):
        total = -total
    return Duration(_checked(total, message=f'time: invalid duration "{text}"'))


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([-+])(\d\d):(\d\d))", re.ASCII
)


def parse_timestamp(text: str) -> Timestamp:
    """Return a time in RFC 3339."""
    match = _TIMESTAMP.fullmatch(text) if len(text) <= 100 else None
    if match is None:
        raise EvaluationFailure(f'parsing time "{text[:100]}" as "2006-01-02T15:04:05Z07:00": cannot parse')
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError as error:
        raise EvaluationFailure(f'parsing time "{text}": {error}') from None
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    offset = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1) if sign else 0
    return _timestamp((seconds - offset) * SECOND + int((fraction or "0").ljust(9, "0")))


_INTEGER = re.compile(r"[-+]?\d{1,20}", re.ASCII)
_DOUBLE = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,5})?|[-+]?(?:inf|infinity)|nan", re.ASCII | re.IGNORECASE)


def _string_to_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise EvaluationFailure(f'strconv.ParseInt: parsing "{text[:100]}": invalid syntax')
    return _checked(int(text), message=f'strconv.ParseInt: parsing "{text}": value out of range')


def _string_to_uint(text: str) -> Uint:
    if not _INTEGER.fullmatch(text) or text[0] in "+-":
        raise EvaluationFailure(f'strconv.ParseUint: parsing "{text[:100]}": invalid syntax')
    return Uint(_checked(int(text), 0, MAX_UINT, f'strconv.ParseUint: parsing "{text}": value out of range'))


def _string_to_double(text: str) -> float:
    if len(text) > 1000 or not _DOUBLE.fullmatch(text):
        raise EvaluationFailure(f'strconv.ParseFloat: parsing "{text[:100]}": invalid syntax')
    return float(text)


def _string_to_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvaluationFailure(f'strconv.ParseBool: parsing "{text[:100]}": invalid syntax')


def _double_to_int(value: float) -> int:
    if math.isnan(value) or not MIN_INT < value < MAX_INT:
        raise EvaluationFailure("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < MAX_UINT:
        raise EvaluationFailure("unsigned integer overflow")
    return Uint(value)


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationFailure("invalid UTF-8 in bytes, cannot convert to string") from None


def _type(value: Any) -> TypeValue:
    return TypeValue(name_of(value))


# Times


@lru_cache(maxsize=256)
def _zone(name: str) -> Any:
    if match := re.fullmatch(r"([-+]?)(\d\d):(\d\d)", name, re.ASCII):
        minutes = int(match[2]) * 60 + int(match[3])
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except Exception:
        raise EvaluationFailure(f"unknown time zone {name[:100]}") from None


def _at(value: int, zone: str = "UTC") -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value // 1000)
    if zone == "UTC":
        return moment
    try:
        return moment.astimezone(_zone(zone))
    except (OverflowError, ValueError):
        raise EvaluationFailure("timestamp overflow") from None


def _truncate(value: int, unit: int) -> int:
    return abs(value) // unit * (1 if value >= 0 else -1)


# Strings


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """Return the compiled regular expression of RE2, which matches in linear time. Raises EvaluationFailure."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise EvaluationFailure(f"error parsing regexp: {text}") from None


def _matches(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    match = compile_pattern(pattern).search(text)
    return match.group(0) if match else ""


def _find_all(meter: Meter, text: str, pattern: str, limit: int = -1) -> list[str]:
    found = list[str]()
    if limit == 0:
        return found
    for match in compile_pattern(pattern).finditer(text):
        meter.charge(0, 20)
        found.append(match.group(0))
        if len(found) == limit:
            break
    return found


def _index_error(index: int) -> EvaluationFailure:
    return EvaluationFailure(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _index_error(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _index_error(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part) if part else len(text)
    if offset < 0:
        raise _index_error(offset)
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if start > end:
        raise EvaluationFailure(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _index_error(index)
    return text[start:end]


def _limit_text(meter: Meter, size: int) -> None:
    meter.charge(0, size // 100)
    if size > MAX_TEXT:
        raise EvaluationFailure("string is too long")


def _add_strings(meter: Meter, a: str, b: str) -> str:
    _limit_text(meter, len(a) + len(b))
    return a + b


def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old)
    _limit_text(meter, len(text) + count * max(0, len(new) - len(old)))
    return text.replace(old, new, min(limit, count + 1))


def _split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    meter.charge(0, text.count(separator))
    if not separator:
        parts = list(text)
        return parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _join(meter: Meter, parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise EvaluationFailure(f"join: invalid input: {part!r:.100}")
    _limit_text(meter, sum(map(len, parts)) + len(separator) * len(parts) + 10 * len(parts))
    return separator.join(parts)


_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER = {code - 32: code for code in range(ord("a"), ord("z") + 1)}
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPES = {
    ord(char): escape
    for char, escape in zip('\a\b\f\n\r\t\v\\"', ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v", "\\\\", '\\"'), strict=True)
}


def quote(text: str) -> str:
    """Return a text as a literal of CEL."""
    return f'"{text.translate(_ESCAPES)}"'


def to_text(value: Any) -> str:
    """Return the text of a value as `string.format` shows it for %s."""
    kind = type(value)
    if kind is str or kind is TypeValue:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if kind is float:
        return format_double(value)
    if kind is bytes:
        return str(value, errors="replace")
    if kind is Duration:
        return format_duration(value)
    if kind is Timestamp:
        return format_timestamp(value)
    if kind in (int, Uint):
        return str(int(value))
    if kind in _LISTS:
        return f"[{', '.join(map(_nested_text, value))}]"
    if kind is dict:
        pairs = sorted((_nested_text(key), _nested_text(item)) for key, item in value.items())
        return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
    raise EvaluationFailure(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, "
        f"was given {name_of(value)}"
    )


def _nested_text(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is bytes:
        return f"b{quote(str(value, errors='replace'))}"
    if kind is float:
        return f'"{format_double(value)}"' if math.isnan(value) or math.isinf(value) else f"{value:.6f}"
    if kind is Duration:
        return f'duration("{format_duration(value)}")'
    if kind is Timestamp:
        return f'timestamp("{format_timestamp(value)}")'
    return to_text(value)


_CLAUSE = re.compile(r"%(?:%|(?:\.(\d{1,3}))?([a-zA-Z]))")
_INTEGERS = {"b": "b", "o": "o", "x": "x", "X": "X", "d": "d"}


def _format(meter: Meter, text: str, args: list[Any]) -> str:
    parts, at, index = list[str](), 0, 0
    while (percent := text.find("%", at)) >= 0:
        parts.append(text[at:percent])
        match = _CLAUSE.match(text, percent)
        if match is None:
            raise EvaluationFailure(
                f'could not parse formatting clause: unrecognized formatting clause "{text[percent + 1 : percent + 2]}"'
            )
        at = match.end()
        if match[0] == "%%":
            parts.append("%")
            continue
        if index >= len(args):
            raise EvaluationFailure(f"index {index} out of range")
        part = _format_clause(match[2], int(match[1]) if match[1] else 6, args[index])
        _limit_text(meter, sum(map(len, parts[-1:])) + len(part) + 100)
        parts.append(part)
        index += 1
    parts.append(text[at:])
    return "".join(parts)


def _format_clause(verb: str, precision: int, value: Any) -> str:
    kind = type(value)
    if verb == "s":
        return to_text(value)
    if kind in (int, Uint) and verb in _INTEGERS:
        return format(int(value), _INTEGERS[verb])
    if verb == "b" and kind is bool:
        return str(int(value))
    if verb in "xX" and kind in (str, bytes):
        digits: str = (value.encode() if kind is str else value).hex()
        return digits.upper() if verb == "X" else digits
    if verb in ("f", "e") and (kind is float or value in ("NaN", "Infinity", "-Infinity")):
        return _format_double_clause(verb, min(precision, 100), float(value))
    if verb not in "sdfexXob":
        raise EvaluationFailure(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
    names = {"d": "integer", "f": "fixed-point", "e": "scientific", "b": "binary", "o": "octal", "x": "hex", "X": "hex"}
    kinds = {
        "d": "integers", "f": "doubles", "e": "doubles", "b": "integers and bools", "o": "integers",
        "x": "integers, byte buffers, and strings", "X": "integers, byte buffers, and strings",
    }  # fmt: skip
    raise EvaluationFailure(
        f"error during formatting: {names[verb]} clause can only be used on {kinds[verb]}, was given {name_of(value)}"
    )


def _format_double_clause(verb: str, precision: int, value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if verb == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10{str(int(exponent)).zfill(2).translate(_SUPERSCRIPT)}"


_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


# Lists


def _index_list(items: list[Any], index: Any) -> Any:
    if type(index) is float and index.is_integer():
        index = int(index)
    if not 0 <= index < len(items):
        raise EvaluationFailure(f"index out of bounds: {index}")
    return items[index]


def _index_map(entries: dict[Any, Any], key: Any) -> Any:
    if type(key) is bool and not any(type(each) is bool for each in entries):
        raise EvaluationFailure(f"no such key: {to_text(key)}")
    try:
        return entries[key]
    except KeyError:
        raise EvaluationFailure(f"no such key: {to_text(key)}") from None
    except TypeError:
        raise EvaluationFailure("unsupported key type") from None


def _in_list(meter: Meter, item: Any, items: list[Any]) -> bool:
    meter.charge(0, len(items))
    return any(equals(meter, item, each) for each in items)


def _in_map(key: Any, entries: dict[Any, Any]) -> bool:
    try:
        return key in entries
    except TypeError:
        return False


def _index_of_item(meter: Meter, items: list[Any], item: Any) -> int:
    meter.charge(0, len(items))
    return next((index for index, each in enumerate(items) if equals(meter, each, item)), -1)


def _last_index_of_item(meter: Meter, items: list[Any], item: Any) -> int:
    meter.charge(0, len(items))
    return next((index for index in range(len(items) - 1, -1, -1) if equals(meter, items[index], item)), -1)


def _check_comparable(items: list[Any]) -> None:
    kinds = set(map(type, items))
    if len(kinds) > 1 and not kinds <= _NUMBERS:
        raise EvaluationFailure("no such overload")


def _is_sorted(meter: Meter, items: list[Any]) -> bool:
    meter.charge(0, len(items))
    _check_comparable(items)
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _least(meter: Meter, items: list[Any]) -> Any:
    return _extreme(meter, items, "min", min)


def _greatest(meter: Meter, items: list[Any]) -> Any:
    return _extreme(meter, items, "max", max)


def _extreme(meter: Meter, items: list[Any], name: str, function: Callable[[list[Any]], Any]) -> Any:
    meter.charge(0, len(items))
    if not items:
        raise EvaluationFailure(f"{name} called on empty list")
    _check_comparable(items)
    return function(items)


def _sum_of(zero: Callable[[int], Any]) -> Implementation:
    def sum_items(meter: Meter, items: list[Any]) -> Any:
        meter.charge(0, len(items))
        return zero(sum(items))

    return sum_items


def _contains_all(meter: Meter, items: list[Any], part: list[Any]) -> bool:
    return all(_in_list(meter, item, items) for item in part)


def _intersects(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    return any(_in_list(meter, item, b) for item in a)


def _equivalent(meter: Meter, a: list[Any], b: list[Any]) -> bool:
    return _contains_all(meter, a, b) and _contains_all(meter, b, a)


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationFailure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationFailure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise EvaluationFailure(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(meter: Meter, items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationFailure("level must be non-negative")
    flat = list[Any]()
    for item in items:
        if type(item) in _LISTS and depth > 0:
            flat.extend(_flatten(meter, item, depth - 1))
        else:
            flat.append(item)
    meter.charge(0, len(items) + len(flat))
    return flat


def _range(meter: Meter, size: int) -> list[int]:
    meter.charge(0, max(0, size))
    return list(range(size))


def _distinct(meter: Meter, items: list[Any]) -> list[Any]:
    distinct = list[Any]()
    for item in items:
        if not _in_list(meter, item, distinct):
            distinct.append(item)
    return distinct


def _sort(meter: Meter, items: list[Any]) -> list[Any]:
    meter.charge(0, 4 * len(items))
    _check_comparable(items)
    return sorted(items)


def _insert(meter: Meter, entries: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _insert_map(meter, entries, {key: value})


def _insert_map(meter: Meter, entries: dict[Any, Any], added: dict[Any, Any]) -> dict[Any, Any]:
    meter.charge(0, len(entries) + len(added))
    for key in added:
        if key in entries:
            raise EvaluationFailure(f"insert failed: key '{to_text(key)}' already exists")
    return {**entries, **added}


# Optional values


def _is_zero(value: Any) -> bool:
    return value is None or (not value if not isinstance(value, Optional) else value is ABSENT)


def _value_of(optional: Optional) -> Any:
    if optional is ABSENT:
        raise EvaluationFailure("optional.none() dereference")
    return optional.value


def _optional_index(container: Any, key: Any) -> Optional:
    if type(container) is Optional:
        if container is ABSENT:
            return ABSENT
        container = container.value
    try:
        value = _index_map(container, key) if type(container) is dict else _index_list(container, key)
    except EvaluationFailure:
        return ABSENT
    return Optional(value)


def _declare_operators() -> None:
    for name in ("_==_", "_!=_"):
        declare("equals" if name == "_==_" else "not_equals", f"{name}(A, A): bool", None)
    declare("conditional", "_?_:_(bool, A, A): A", None)
    declare("logical_and", "_&&_(bool, bool): bool", None)
    declare("logical_or", "_||_(bool, bool): bool", None)
    declare("logical_not", "!_(bool): bool", operator.not_)
    declare("not_strictly_false", "@not_strictly_false(bool): bool", None)
    declare("negate_int64", "-_(int): int", lambda a: _checked(-a))
    declare("negate_double", "-_(double): double", operator.neg)
    declare("add_int64", "_+_(int, int): int", lambda a, b: _checked(a + b))
    declare("add_uint64", "_+_(uint, uint): uint", lambda a, b: _unsigned(int(a) + int(b)))
    declare("add_double", "_+_(double, double): double", operator.add)
    declare("add_string", "_+_(string, string): string", _add_strings, takes_meter=True)
    declare("add_bytes", "_+_(bytes, bytes): bytes", operator.add)
    declare("add_list", "_+_(list(A), list(A)): list(A)", _add_lists, takes_meter=True)
    declare("add_duration_duration", "_+_(duration, duration): duration", lambda a, b: _duration(int(a) + int(b)))
    declare("add_duration_timestamp", "_+_(duration, timestamp): timestamp", lambda a, b: _timestamp(int(a) + int(b)))
    declare("add_timestamp_duration", "_+_(timestamp, duration): timestamp", lambda a, b: _timestamp(int(a) + int(b)))
    declare("subtract_int64", "_-_(int, int): int", lambda a, b: _checked(a - b))
    declare("subtract_uint64", "_-_(uint, uint): uint", lambda a, b: _unsigned(int(a) - int(b)))
    declare("subtract_double", "_-_(double, double): double", operator.sub)
    declare("subtract_duration_duration", "_-_(duration, duration): duration", lambda a, b: _duration(int(a) - int(b)))
    declare("subtract_timestamp_duration", "_-_(timestamp, duration): timestamp", lambda a, b: _timestamp(int(a) - int(b)))
    declare("subtract_timestamp_timestamp", "_-_(timestamp, timestamp): duration", lambda a, b: _duration(int(a) - int(b)))
    declare("multiply_int64", "_*_(int, int): int", lambda a, b: _checked(a * b))
    declare("multiply_uint64", "_*_(uint, uint): uint", lambda a, b: _unsigned(int(a) * int(b)))
    declare("multiply_double", "_*_(double, double): double", _multiply_double)
    declare("divide_int64", "_/_(int, int): int", _divide)
    declare("divide_uint64", "_/_(uint, uint): uint", lambda a, b: Uint(_divide(int(a), int(b))))
    declare("divide_double", "_/_(double, double): double", _divide_double)
    declare("modulo_int64", "_%_(int, int): int", _modulo)
    declare("modulo_uint64", "_%_(uint, uint): uint", lambda a, b: Uint(_modulo(int(a), int(b))))
    for name, word, compare in (
        ("_<_", "less", operator.lt), ("_<=_", "less_equals", operator.le), ("_>_", "greater", operator.gt), ("_>=_", "greater_equals", operator.ge),
    ):  # fmt: skip
        for kind, suffix in (
            ("bool", "bool"), ("int", "int64"), ("uint", "uint64"), ("double", "double"), ("string", "string"), ("bytes", "bytes"),
            ("timestamp", "timestamp"), ("duration", "duration"),
        ):  # fmt: skip
            declare(f"{word}_{suffix}", f"{name}({kind}, {kind}): bool", compare)
        for a, b in (
            ("int", "double"),
            ("int", "uint"),
            ("uint", "double"),
            ("uint", "int"),
            ("double", "int"),
            ("double", "uint"),
        ):
            declare(f"{word}_{a}_{b}", f"{name}({a}, {b}): bool", compare)
    declare("index_list", "_[_](list(A), int): A", _index_list)
    declare("index_map", "_[_](map(A, B), A): B", _index_map)
    declare("in_list", "@in(A, list(A)): bool", _in_list, takes_meter=True)
    declare("in_map", "@in(A, map(A, B)): bool", _in_map)


def _declare_standard() -> None:
    for kind in ("bytes", "list(A)", "map(A, B)", "string"):
        name = kind.partition("(")[0]
        declare(f"size_{name}", f"size({kind}): int", len)
        declare(f"{name}_size", f":{kind}:size(): int", len)
    declare("type", "type(A): type(A)", _type)
    declare("to_dyn", "dyn(A): dyn", lambda a: a)
    for kind in ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"):
        declare(f"{kind}_to_{kind}", f"{kind}({kind}): {kind}", lambda a: a)
    declare("string_to_bool", "bool(string): bool", _string_to_bool)
    declare("string_to_bytes", "bytes(string): bytes", str.encode)
    declare("int64_to_double", "double(int): double", float)
    declare("string_to_double", "double(string): double", _string_to_double)
    declare("uint64_to_double", "double(uint): double", float)
    declare("string_to_duration", "duration(string): duration", parse_duration)
    declare("double_to_int64", "int(double): int", _double_to_int)
    declare("duration_to_int64", "int(duration): int", int)
    declare("string_to_int64", "int(string): int", _string_to_int)
    declare("timestamp_to_int64", "int(timestamp): int", lambda a: int(a) // SECOND)
    declare("uint64_to_int64", "int(uint): int", lambda a: _checked(int(a)))
    for kind, suffix in (
        ("bool", "bool"),
        ("double", "double"),
        ("duration", "duration"),
        ("int", "int64"),
        ("timestamp", "timestamp"),
    ):
        declare(f"{suffix}_to_string", f"string({kind}): string", to_text)
    declare("uint64_to_string", "string(uint): string", to_text)
    declare("bytes_to_string", "string(bytes): string", _bytes_to_string)
    declare("int64_to_timestamp", "timestamp(int): timestamp", lambda a: _timestamp(a * SECOND))
    declare("string_to_timestamp", "timestamp(string): timestamp", parse_timestamp)
    declare("double_to_uint64", "uint(double): uint", _double_to_uint)
    declare("int64_to_uint64", "uint(int): uint", _unsigned)
    declare("string_to_uint64", "uint(string): uint", _string_to_uint)
    declare("contains_string", ":string:contains(string): bool", lambda a, b: b in a)
    declare("ends_with_string", ":string:endsWith(string): bool", str.endswith)
    declare("starts_with_string", ":string:startsWith(string): bool", str.startswith)
    declare("matches", "matches(string, string): bool", _matches)
    declare("matches_string", ":string:matches(string): bool", _matches)
    getters: dict[str, Callable[[datetime], int]] = {
        "getFullYear": lambda t: t.year, "getMonth": lambda t: t.month - 1, "getDayOfYear": lambda t: t.timetuple().tm_yday - 1,
        "getDayOfMonth": lambda t: t.day - 1, "getDate": lambda t: t.day, "getDayOfWeek": lambda t: t.isoweekday() % 7,
        "getHours": lambda t: t.hour, "getMinutes": lambda t: t.minute, "getSeconds": lambda t: t.second,
        "getMilliseconds": lambda t: t.microsecond // 1000,
    }  # fmt: skip
    for name, get in getters.items():
        declare(f"timestamp_to_{name}", f":timestamp:{name}(): int", lambda t, get=get: get(_at(t)))
        declare(f"timestamp_to_{name}_with_tz", f":timestamp:{name}(string): int", lambda t, zone, get=get: get(_at(t, zone)))
    for name, unit in (("getHours", 3600 * SECOND), ("getMinutes", 60 * SECOND), ("getSeconds", SECOND)):
        declare(f"duration_to_{name}", f":duration:{name}(): int", lambda d, unit=unit: _truncate(int(d), unit))
    declare("duration_to_milliseconds", ":duration:getMilliseconds(): int", lambda d: _truncate(int(d), 10**6))


def _declare_strings() -> None:
    declare("string_char_at_int", ":string:charAt(int): string", _char_at)
    declare("string_index_of_string", ":string:indexOf(string): int", _index_of)
    declare("string_index_of_string_int", ":string:indexOf(string, int): int", _index_of)
    declare("string_last_index_of_string", ":string:lastIndexOf(string): int", _last_index_of)
    declare("string_last_index_of_string_int", ":string:lastIndexOf(string, int): int", _last_index_of)
    declare("string_lower_ascii", ":string:lowerAscii(): string", lambda text: text.translate(_LOWER))
    declare("string_upper_ascii", ":string:upperAscii(): string", lambda text: text.translate(_UPPER))
    declare("string_replace_string_string", ":string:replace(string, string): string", _replace, takes_meter=True)
    declare("string_replace_string_string_int", ":string:replace(string, string, int): string", _replace, takes_meter=True)
    declare("string_split_string", ":string:split(string): list(string)", _split, takes_meter=True)
    declare("string_split_string_int", ":string:split(string, int): list(string)", _split, takes_meter=True)
    declare("string_substring_int", ":string:substring(int): string", _substring)
    declare("string_substring_int_int", ":string:substring(int, int): string", _substring)
    declare("string_trim", ":string:trim(): string", lambda text: text.strip(_SPACES))
    declare("string_format", ":string:format(list(dyn)): string", _format, takes_meter=True)
    declare("strings_quote", "strings.quote(string): string", quote)
    declare("list_join", ":list(string):join(): string", _join, takes_meter=True)
    declare("list_join_string", ":list(string):join(string): string", _join, takes_meter=True)


def _declare_lists() -> None:
    for kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
        declare(f"list_{kind}_is_sorted_bool", f":list({kind}):isSorted(): bool", _is_sorted, takes_meter=True)
        declare(f"list_{kind}_max_{kind}", f":list({kind}):max(): {kind}", _greatest, takes_meter=True)
        declare(f"list_{kind}_min_{kind}", f":list({kind}):min(): {kind}", _least, takes_meter=True)
        declare(f"list_{kind}_sort", f":list({kind}):sort(): list({kind})", _sort, takes_meter=True)
    for kind, convert in (("int", _checked), ("uint", _unsigned), ("double", float), ("duration", _duration)):
        declare(f"list_{kind}_sum_{kind}", f":list({kind}):sum(): {kind}", _sum_of(convert), takes_meter=True)
    declare("list_a_index_of_int", ":list(A):indexOf(A): int", _index_of_item, takes_meter=True)
    declare("list_a_last_index_of_int", ":list(A):lastIndexOf(A): int", _last_index_of_item, takes_meter=True)
    declare("list_slice", ":list(A):slice(int, int): list(A)", _slice)
    declare("list_flatten", ":list(list(A)):flatten(): list(A)", _flatten, takes_meter=True)
    declare("list_flatten_int", ":list(dyn):flatten(int): list(dyn)", _flatten, takes_meter=True)
    declare("lists_range", "lists.range(int): list(int)", _range, takes_meter=True)
    declare("list_reverse", ":list(A):reverse(): list(A)", lambda items: items[::-1])
    declare("list_distinct", ":list(A):distinct(): list(A)", _distinct, takes_meter=True)
    declare("list_sets_contains_list", "sets.contains(list(A), list(A)): bool", _contains_all, takes_meter=True)
    declare("list_sets_equivalent_list", "sets.equivalent(list(A), list(A)): bool", _equivalent, takes_meter=True)
    declare("list_sets_intersects_list", "sets.intersects(list(A), list(A)): bool", _intersects, takes_meter=True)
    declare("@mapInsert_map_key_value", "cel.@mapInsert(map(A, B), A, B): map(A, B)", _insert, takes_meter=True)
    declare("@mapInsert_map_map", "cel.@mapInsert(map(A, B), map(A, B)): map(A, B)", _insert_map, takes_meter=True)


def _declare_optionals() -> None:
    declare("optional_of", "optional.of(A): optional_type(A)", Optional)
    declare(
        "optional_ofNonZeroValue",
        "optional.ofNonZeroValue(A): optional_type(A)",
        lambda a: ABSENT if _is_zero(a) else Optional(a),
    )
    declare("optional_none", "optional.none(): optional_type(A)", lambda: ABSENT)
    declare("optional_value", ":optional_type(A):value(): A", _value_of)
    declare("optional_hasValue", ":optional_type(A):hasValue(): bool", lambda a: a is not ABSENT)
    declare("optional_or_optional", ":optional_type(A):or(optional_type(A)): optional_type(A)", None)
    declare("optional_orValue_value", ":optional_type(A):orValue(A): A", None)
    for container, key, value in (("list(A)", "int", "A"), ("map(A, B)", "A", "B")):
        name = container.partition("(")[0]
        declare(f"{name}_optindex", f"_[?_]({container}, {key}): optional_type({value})", _optional_index)
        declare(
            f"optional_{name}_optindex", f"_[?_](optional_type({container}), {key}): optional_type({value})", _optional_index
        )
        declare(f"optional_{name}_index", f"_[_](optional_type({container}), {key}): optional_type({value})", _optional_index)


def decode_base64(text: str) -> bytes:
    """Return the bytes of a field of format byte."""
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise EvaluationFailure(f"Invalid byte formatted string: {error}") from None


_declare_operators()
_declare_standard()
_declare_strings()
_declare_lists()
_declare_optionals()
