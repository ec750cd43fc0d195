"""Times in text, parsed exactly as by Go's time.Parse, with Go's errors.

    RFC3339        "2006-01-02T15:04:05Z07:00"          Time: any number of fractional digits, or none
    RFC3339_MICRO  "2006-01-02T15:04:05.000000Z07:00"   MicroTime: exactly six fractional digits

Go accepts an hour of one digit, a comma before the fraction, and offsets up to +24:60. It refuses a lower-case "t" or "z".

Source: https://github.com/golang/go/blob/master/src/time/format.go (parse)
"""

import json
from calendar import isleap, monthrange
from typing import NamedTuple

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"
TIME_ERROR = "parsing time "
"""The beginning of all errors."""
MAX_SHOWN = 64
"""The maximum number of characters of a text in an error."""
_MICRO_FRACTION = ".000000"
_ZONE = "Z07:00"
_MAX_FRACTION = 9
_DAYS_TO_1970 = 719_528
"""The days from the start of year 0 to 1970."""


class Instant(NamedTuple):
    """`seconds`: Unix time, rounded down. `nanos`: the fraction in nanoseconds."""

    seconds: int
    nanos: int


class TimeError(ValueError):
    """The text is not a time. str() is Go's message."""


def parse(text: str, layout: str = RFC3339) -> Instant:
    """Parse a time. Raises TimeError."""
    return _Parser(text, layout).parse()


class _Parser:
    def __init__(self, text: str, layout: str) -> None:
        self._text = self._rest = text
        self._layout = layout

    def parse(self) -> Instant:
        year = self._parse_year()
        self._expect_literal("-")
        month = self._parse_number("01", 1, 12, "month")
        self._expect_literal("-")
        day = self._parse_number("02")
        self._expect_literal("T")
        hour = self._parse_number("15", 0, 23, "hour", short=True)
        self._expect_literal(":")
        minute = self._parse_number("04", 0, 59, "minute")
        self._expect_literal(":")
        second = self._parse_number("05", 0, 59, "second")
        nanos = self._parse_fraction()
        offset = self._parse_zone()
        if self._rest:
            raise self._parse_error(f": extra text: {quote_shortened(self._rest)}")
        if not 1 <= day <= _days_in(year, month):
            raise self._parse_error(": day out of range")
        days = _days_before(year) + sum(_days_in(year, index) for index in range(1, month)) + day - 1 - _DAYS_TO_1970
        return Instant(days * 86_400 + hour * 3600 + minute * 60 + second - offset, nanos)

    def _parse_year(self) -> int:
        text = self._rest[:4]
        if len(text) < 4 or not _is_digits(text):
            raise self._mismatch_error("2006")
        self._rest = self._rest[4:]
        return int(text)

    def _expect_literal(self, character: str) -> None:
        if not self._rest.startswith(character):
            raise self._mismatch_error(character)
        self._rest = self._rest[1:]

    def _parse_number(self, element: str, low: int = 0, high: int = 99, name: str = "", *, short: bool = False) -> int:
        """Read two digits. `short`: one digit is sufficient."""
        text = self._rest[:2]
        if short and len(text) == 2 and not _is_digits(text):
            text = text[:1]
        if not _is_digits(text) or (len(text) < 2 and not short):
            raise self._mismatch_error(element)
        self._rest = self._rest[len(text) :]
        number = int(text)
        if not low <= number <= high:
            raise self._parse_error(f": {name} out of range")
        return number

    def _parse_fraction(self) -> int:
        """Return the fraction in nanoseconds. Further digits are ignored."""
        starts = self._rest[:1] in (".", ",")
        if self._layout == RFC3339_MICRO:
            size = len(_MICRO_FRACTION)
            if not starts or len(self._rest) < size or not _is_digits(self._rest[1:size]):
                raise self._mismatch_error(_MICRO_FRACTION)
        else:
            size = 1
            while starts and _is_digits(self._rest[size : size + 1]):
                size += 1
            if size == 1:
                return 0
        digits, self._rest = self._rest[1:size], self._rest[size:]
        return int(digits[:_MAX_FRACTION].ljust(_MAX_FRACTION, "0"))

    def _parse_zone(self) -> int:
        """Return the offset from UTC in seconds."""
        text = self._rest
        if text.startswith("Z"):
            self._rest = text[1:]
            return 0
        hours, minutes = text[1:3], text[4:6]
        if len(text) < 6 or text[3] != ":" or text[0] not in "+-" or not _is_digits(hours) or not _is_digits(minutes):
            raise self._mismatch_error(_ZONE)
        if int(hours) > 24:
            raise self._parse_error(": time zone offset hour out of range")
        if int(minutes) > 60:
            raise self._parse_error(": time zone offset minute out of range")
        self._rest = text[6:]
        offset = int(hours) * 3600 + int(minutes) * 60
        return -offset if text[0] == "-" else offset

    def _mismatch_error(self, element: str) -> TimeError:
        return self._parse_error(
            f" as {quote_shortened(self._layout)}: cannot parse {quote_shortened(self._rest)} as {quote_shortened(element)}"
        )

    def _parse_error(self, problem: str) -> TimeError:
        return TimeError(f"{TIME_ERROR}{quote_shortened(self._text)}{problem}")


def quote_shortened(text: str) -> str:
    return json.dumps(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...", ensure_ascii=False)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _days_in(year: int, month: int) -> int:
    return 29 if month == 2 and isleap(year) else monthrange(2001, month)[1]


def _days_before(year: int) -> int:
    """Return the days from the start of year 0 to the start of a year. Year 0 is a leap year."""
    last = year - 1
    return year * 365 + (last // 4 - last // 100 + last // 400 + 1 if year else 0)
