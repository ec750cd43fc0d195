"""Numbers, times and texts: conversions between them, and the functions over texts.

Texts are formatted as Go does. Each function is linear in the size of its arguments.
"""

import base64
import math
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import re2

from pinnace.cel.meter import Meter
from pinnace.cel.types import Duration, EvaluationFailure, MapList, SetList, Timestamp, TypeValue, Uint, name_of

MAX_INT, MIN_INT, MAX_UINT = 2**63 - 1, -(2**63), 2**64 - 1
STEP = 100
"""Time of one unit of work in nanoseconds (`pinnace.cel.meter`)."""
MAX_PATTERNS = 512
"""Maximum number of compiled patterns that are kept."""
SECOND = 10**9
"""In nanoseconds."""
MIN_TIME, MAX_TIME = -62135596800 * SECOND, 253402300800 * SECOND - 1
MAX_TEXT = 4 << 20
"""Maximum length of a string that a function makes, in characters."""
_LISTS = frozenset({list, SetList, MapList})
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION_TEXT = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([-+])(\d\d):(\d\d))", re.ASCII
)
_INTEGER = re.compile(r"[-+]?\d{1,20}", re.ASCII)
_DOUBLE = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,5})?|[-+]?(?:inf|infinity)|nan", re.ASCII | re.IGNORECASE)
TO_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
TO_LOWER = {code - 32: code for code in range(ord("a"), ord("z") + 1)}
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPES = {
    ord(char): escape
    for char, escape in zip('\a\b\f\n\r\t\v\\"', ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v", "\\\\", '\\"'), strict=True)
}
_CLAUSE = re.compile(r"%(?:%|(?:\.(\d{1,3}))?([a-zA-Z]))")
_INTEGERS = {"b": "b", "o": "o", "x": "x", "X": "X", "d": "d"}
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def check_int(value: int, low: int = MIN_INT, high: int = MAX_INT, message: str = "integer overflow") -> int:
    if low <= value <= high:
        return value
    raise EvaluationFailure(message)


def to_unsigned(value: int) -> Uint:
    return Uint(check_int(value, 0, MAX_UINT, "unsigned integer overflow"))


def to_duration(value: int) -> Duration:
    return Duration(check_int(value, message="integer overflow"))


def to_timestamp(value: int) -> Timestamp:
    return Timestamp(check_int(value, MIN_TIME, MAX_TIME, "timestamp overflow"))


# Conversions


def format_double(value: float) -> str:
    """Return a double as Go's %g does."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _shortest_digits(value)
    point = exponent + len(digits) - 1
    if point < -4 or point >= 21:
        head, tail = digits[0], digits[1:]
        return f"{sign}{head}{'.' + tail if tail else ''}e{'-' if point < 0 else '+'}{abs(point):02d}"
    return sign + _format_without_exponent(digits, exponent)


def _shortest_digits(value: float) -> tuple[str, str, int]:
    text = repr(abs(value))
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) - len(fraction)
    digits = (whole + fraction).lstrip("0") or "0"
    stripped = digits.rstrip("0") or "0"
    if digits != "0":
        power += len(digits) - len(stripped)
    return ("-" if math.copysign(1, value) < 0 else ""), stripped, power if stripped != "0" else 0


def _format_without_exponent(digits: str, exponent: int) -> str:
    if exponent >= 0:
        return digits + "0" * exponent
    if len(digits) > -exponent:
        return f"{digits[:exponent]}.{digits[exponent:]}"
    return f"0.{'0' * (-exponent - len(digits))}{digits}"


def format_duration(value: int) -> str:
    """Return seconds with a fraction: "5400s", "1.5s"."""
    seconds = value / SECOND
    sign, digits, exponent = _shortest_digits(seconds)
    return f"{sign}{_format_without_exponent(digits, exponent)}s"


def format_timestamp(value: int) -> str:
    """Return a timestamp in RFC 3339, with as many digits of nanoseconds as it has."""
    seconds, nanos = divmod(value, SECOND)
    text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{text.zfill(19)}{fraction}Z"


def parse_duration(text: str) -> Duration:
    """Parse a duration as Go's time.ParseDuration does: "1h30m", "-1.5s"."""
    if len(text) > 100 or not _DURATION_TEXT.fullmatch(text):
        raise EvaluationFailure(f'time: invalid duration "{text[:100]}"')
    total = 0
    for number, unit in _DURATION.findall(text):
        whole, _, fraction = number.partition(".")
        fraction = fraction[:18]
        total += int(whole or 0) * _UNITS[unit] + (int(fraction) * _UNITS[unit] // 10 ** len(fraction) if fraction else 0)
    if text.startswith("-"):
        total = -total
    return Duration(check_int(total, message=f'time: invalid duration "{text}"'))


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
    return to_timestamp((seconds - offset) * SECOND + int((fraction or "0").ljust(9, "0")))


def parse_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise EvaluationFailure(f'strconv.ParseInt: parsing "{text[:100]}": invalid syntax')
    return check_int(int(text), message=f'strconv.ParseInt: parsing "{text}": value out of range')


def parse_uint(text: str) -> Uint:
    if not _INTEGER.fullmatch(text) or text[0] in "+-":
        raise EvaluationFailure(f'strconv.ParseUint: parsing "{text[:100]}": invalid syntax')
    return Uint(check_int(int(text), 0, MAX_UINT, f'strconv.ParseUint: parsing "{text}": value out of range'))


def parse_double(text: str) -> float:
    if len(text) > 1000 or not _DOUBLE.fullmatch(text):
        raise EvaluationFailure(f'strconv.ParseFloat: parsing "{text[:100]}": invalid syntax')
    return float(text)


def parse_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise EvaluationFailure(f'strconv.ParseBool: parsing "{text[:100]}": invalid syntax')


def double_to_int(value: float) -> int:
    if math.isnan(value) or not MIN_INT < value < MAX_INT:
        raise EvaluationFailure("integer overflow")
    return int(value)


def double_to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < MAX_UINT:
        raise EvaluationFailure("unsigned integer overflow")
    return Uint(value)


def bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationFailure("invalid UTF-8 in bytes, cannot convert to string") from None


def type_value(value: Any) -> TypeValue:
    return TypeValue(name_of(value))


# Times


@lru_cache(maxsize=256)
def _find_zone(name: str) -> Any:
    if match := re.fullmatch(r"([-+]?)(\d\d):(\d\d)", name, re.ASCII):
        minutes = int(match[2]) * 60 + int(match[3])
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except Exception:
        raise EvaluationFailure(f"unknown time zone {name[:100]}") from None


def date_at(value: int, zone: str = "UTC") -> datetime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value // 1000)
    if zone == "UTC":
        return moment
    try:
        return moment.astimezone(_find_zone(zone))
    except (OverflowError, ValueError):
        raise EvaluationFailure("timestamp overflow") from None


def truncate(value: int, unit: int) -> int:
    return abs(value) // unit * (1 if value >= 0 else -1)


# Strings


class Pattern(NamedTuple):
    """A compiled regular expression of RE2. `worst`: work for each character if it visits all states, 10 ns for each one."""

    search: Callable[[str], Any]
    find_all: Callable[[str], Iterator[Any]]
    worst: float


_patterns: dict[str, Pattern] = {}


def compile_pattern(pattern: str) -> Pattern:
    """Return a regular expression of RE2, which matches in linear time. Raises EvaluationFailure."""
    known = _patterns.get(pattern)
    if known is not None:
        return known
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 4 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise EvaluationFailure(f"error parsing regexp: {text}") from None
    if len(_patterns) >= MAX_PATTERNS:
        _patterns.clear()
    found = _patterns[pattern] = Pattern(compiled.search, compiled.finditer, compiled.programsize * 10 / STEP)
    return found


def _compile_for_search(meter: Meter, text: str, pattern: str) -> Pattern:
    """Return the pattern. Raises CostExceeded if a search may exceed the limit in the worst case."""
    compiled = _patterns.get(pattern)
    if compiled is None:
        started = time.thread_time_ns()
        compiled = compile_pattern(pattern)
        meter.charge(0, (time.thread_time_ns() - started) // STEP)
    meter.reserve(int(len(text) * compiled.worst))
    return compiled


def _search_metered(meter: Meter, text: str, pattern: str) -> Any:
    """Search, and count the time as work: most patterns take a thousandth of the worst case.

    The clock is one that is fast to read. It also counts when other processes run, so the worst case limits it.
    """
    compiled = _compile_for_search(meter, text, pattern)
    started = time.perf_counter_ns()
    match = compiled.search(text)
    elapsed = (time.perf_counter_ns() - started) // STEP
    meter.charge(0, elapsed if elapsed < 200 else min(elapsed, 200 + int(len(text) * compiled.worst)))
    return match


def match_pattern(meter: Meter, text: str, pattern: str) -> bool:
    return _search_metered(meter, text, pattern) is not None


def find_pattern(meter: Meter, text: str, pattern: str) -> str:
    match = _search_metered(meter, text, pattern)
    return match.group(0) if match else ""


def find_all_patterns(meter: Meter, text: str, pattern: str, limit: int = -1) -> list[str]:
    found = list[str]()
    if limit == 0:
        return found
    compiled = _compile_for_search(meter, text, pattern)
    used, counted = time.thread_time_ns(), time.perf_counter_ns()
    for match in compiled.find_all(text):
        meter.charge(0, 20)
        if time.perf_counter_ns() - counted > 1_000_000:
            before, used, counted = used, time.thread_time_ns(), time.perf_counter_ns()
            meter.charge(0, (used - before) // STEP)
        found.append(match.group(0))
        if len(found) == limit:
            break
    meter.charge(0, (time.thread_time_ns() - used) // STEP)
    return found


def _index_error(index: int) -> EvaluationFailure:
    return EvaluationFailure(f"index out of range: {index}")


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _index_error(index)
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _index_error(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        return text.rfind(part) if part else len(text)
    if offset < 0:
        raise _index_error(offset)
    if not part:
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        end = max(start, len(text))
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


def add_strings(meter: Meter, a: str, b: str) -> str:
    _limit_text(meter, len(a) + len(b))
    return a + b


def replace_text(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old)
    _limit_text(meter, len(text) + count * max(0, len(new) - len(old)))
    return text.replace(old, new, min(limit, count + 1))


def split_text(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    meter.charge(0, text.count(separator))
    if not separator:
        parts = list(text)
        return parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def join_texts(meter: Meter, parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise EvaluationFailure(f"join: invalid input: {part!r:.100}")
    _limit_text(meter, sum(map(len, parts)) + len(separator) * len(parts) + 10 * len(parts))
    return separator.join(parts)


def quote(text: str) -> str:
    """Return a text as a literal of CEL."""
    return f'"{text.translate(_ESCAPES)}"'


def to_text(value: Any, meter: Meter | None = None) -> str:
    """Return the text of a value as `string.format` shows it for %s."""
    kind = type(value)
    if meter is not None:
        meter.charge(0, 20 + (len(value) if kind in _LISTS or kind is dict else 0))
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
        return f"[{', '.join(_nested_text(item, meter) for item in value)}]"
    if kind is dict:
        pairs = sorted((_nested_text(key, meter), _nested_text(item, meter)) for key, item in value.items())
        return f"{{{', '.join(f'{key}:{item}' for key, item in pairs)}}}"
    raise EvaluationFailure(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
        f"timestamps, was given {name_of(value)}"
    )


def _nested_text(value: Any, meter: Meter | None) -> str:
    kind = type(value)
    if kind is str:
        if meter is not None:
            meter.charge(0, 10 + len(value) // 50)
        return quote(value)
    if kind is bytes:
        return f"b{quote(str(value, errors='replace'))}"
    if kind is float:
        return f'"{format_double(value)}"' if math.isnan(value) or math.isinf(value) else f"{value:.6f}"
    if kind is Duration:
        return f'duration("{format_duration(value)}")'
    if kind is Timestamp:
        return f'timestamp("{format_timestamp(value)}")'
    return to_text(value, meter)


def format_text(meter: Meter, text: str, args: list[Any]) -> str:
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
        meter.charge(0, 20)
        part = _format_clause(meter, match[2], int(match[1]) if match[1] else 6, args[index])
        _limit_text(meter, sum(map(len, parts[-1:])) + len(part) + 100)
        parts.append(part)
        index += 1
    parts.append(text[at:])
    return "".join(parts)


def _format_clause(meter: Meter, verb: str, precision: int, value: Any) -> str:
    kind = type(value)
    if verb == "s":
        return to_text(value, meter)
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
    return f"{mantissa}\u202f\u00d7\u202f10{str(int(exponent)).zfill(2).translate(_SUPERSCRIPT)}"


def decode_base64(text: str) -> bytes:
    """Return the bytes of a field of format byte."""
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise EvaluationFailure(f"Invalid byte formatted string: {error}") from None
