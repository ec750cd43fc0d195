"""Schedules of cron jobs, exactly as the parser and the times of Kubernetes.

    "30 6 * * 1-5"                    minute, hour, day of month, month, day of week (0 is Sunday), numbers or "mon", "jan"
    "@hourly", "@daily", ...          the descriptors
    "@every 1h30m"                    an interval from the last time

A day matches if both its fields match, or, if neither has a "*" without a step, one of them. Times are compared in the zone of
the schedule: a time that the change of the clock skips does not exist, and one that it repeats occurs twice.

`parse` reads a field into the numbers that it contains, and the library cronsim finds the times. cronsim itself reads some
expressions in another way ("*/2" as a "*", 7 as Sunday, "L"), and handles changes of the clock as Debian does. A field for the
second turns this handling off.

Source: parser.go and spec.go of https://github.com/robfig/cron v3.
"""

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

from cronsim import CronSim, CronSimError

from pinnace.api.integers import parse_integer

MAX_YEARS = 5
"""A time that is later than this number of years after another one is not found, as in Kubernetes."""
_NO_NUMBER = "none"
"""A field without numbers, such as ",", which no time matches. cronsim rejects it."""
_REVERSE_MARGIN = 3 * 3600
"""Seconds by which a change of the clock can falsify a search backwards."""
_SHOWN = 64
"""Maximum number of characters of a text in an error."""


class CronError(ValueError):
    """The schedule is invalid. str() is Kubernetes' message."""


class Schedule(Protocol):
    """The times of a schedule, as whole seconds of Unix time."""

    def next_after(self, time: float) -> int | None:
        """Return the first time later than `time`, or None if there is none within MAX_YEARS years."""
        ...

    def last_between(self, begin: float, end: float) -> int | None:
        """Return the last time later than `begin` and not later than `end`, or None."""
        ...


class _Bounds(NamedTuple):
    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (_Bounds(0, 59), _Bounds(0, 23), _Bounds(1, 31), _Bounds(1, 12, _MONTHS), _Bounds(0, 6, _DAYS))
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "
_ZONE_PREFIXES = ("TZ=", "CRON_TZ=")
_match_zone_name = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}(/[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13})*").fullmatch


@dataclass(frozen=True)
class _Calendar:
    """Times by calendar fields. `expression` has a field for the second, and "*" or numbers in each of the others."""

    expression: str
    zone: tzinfo

    @cached_property
    def _never(self) -> bool:
        try:
            CronSim(self.expression, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError:
            return True  # no month has such a day, or a field has no number
        return False

    def next_after(self, time: float) -> int | None:
        if self._never:
            return None
        begin = datetime.fromtimestamp(time // 1, self.zone)
        for found in CronSim(self.expression, begin):
            if found.year > begin.year + MAX_YEARS:
                return None
            real = found.astimezone(UTC).astimezone(self.zone)
            if real.replace(tzinfo=None) == found.replace(tzinfo=None) or self._matches(real):
                return int(real.timestamp())
        return None

    def last_between(self, begin: float, end: float) -> int | None:
        if self._never:
            return None
        before = datetime.fromtimestamp(end // 1, self.zone) + timedelta(seconds=1)
        latest = next(CronSim(self.expression, before, reverse=True), None)
        if latest is None:
            return None
        time, last = self.next_after(max(begin, latest.timestamp() - _REVERSE_MARGIN)), None
        while time is not None and time <= end:
            last, time = time, self.next_after(time)
        return last

    def _matches(self, time: datetime) -> bool:
        """Return whether a time that replaces a skipped midnight is a time of the schedule."""
        return next(CronSim(self.expression, (time - timedelta(seconds=1)).replace(tzinfo=UTC))) == time.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Interval:
    """Times at a distance of `seconds` from the last one."""

    seconds: int

    def next_after(self, time: float) -> int | None:
        return int(time // 1) + self.seconds

    def last_between(self, begin: float, end: float) -> int | None:
        count = int(end // 1 - begin // 1) // self.seconds
        return int(begin // 1) + count * self.seconds if count > 0 else None


def load_zone(name: str) -> tzinfo:
    """Return a time zone by name; "" is UTC. Raises CronError."""
    if name in ("", "UTC"):
        return UTC
    if _match_zone_name(name) and ".." not in name:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
            pass
    raise CronError(f"unknown time zone {name[:_SHOWN]}")


@lru_cache(maxsize=4096)
def parse(schedule: str, zone: str = "") -> Schedule:
    """Parse a schedule. `zone` is a name as for `load_zone`; a zone in the schedule precedes it. Raises CronError."""
    if not schedule:
        raise CronError("empty spec string")
    if schedule.startswith(_ZONE_PREFIXES):
        prefix, _, schedule = schedule.partition(" ")
        zone = prefix.partition("=")[2]
        try:
            load_zone(zone)
        except CronError as error:
            raise CronError(f"provided bad location {zone[:_SHOWN]}: {error}") from None
        schedule = schedule.strip()
    if schedule.startswith(_EVERY):
        return _Interval(_parse_interval(schedule))
    if schedule.startswith("@"):
        if schedule not in _DESCRIPTORS:
            raise CronError(f"unrecognized descriptor: {schedule[:_SHOWN]}")
        schedule = _DESCRIPTORS[schedule]
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        shown = " ".join(fields)[:_SHOWN]
        raise CronError(f"expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{shown}]")
    parts = [_parse_field(text, bounds) for text, bounds in zip(fields, _FIELDS, strict=True)]
    return _Calendar(" ".join(("0", *parts)), load_zone(zone))


def _parse_field(text: str, bounds: _Bounds) -> str:
    """Return "*", or the numbers of a field separated by commas."""
    numbers, has_star = set[int](), False
    for expression in filter(None, text.split(",")):
        found, is_star = _parse_range(expression, bounds)
        numbers.update(found)
        has_star = has_star or is_star
    return "*" if has_star else ",".join(map(str, sorted(numbers))) or _NO_NUMBER


def _parse_range(expression: str, bounds: _Bounds) -> tuple[range, bool]:
    """Return the numbers of a range such as "1-5/2", and whether it is a "*" without a step."""
    span, *steps = expression.split("/")
    first, *lasts = span.split("-")
    is_star = first in ("*", "?")
    if is_star:
        low, high = bounds.low, bounds.high
    else:
        low = high = _parse_number(first, bounds)
        if len(lasts) > 1:
            raise CronError(f"too many hyphens: {expression[:_SHOWN]}")
        if lasts:
            high = _parse_number(lasts[0], bounds)
    if len(steps) > 1:
        raise CronError(f"too many slashes: {expression[:_SHOWN]}")
    step = _parse_integer(steps[0]) if steps else 1
    if steps and not lasts:
        high = bounds.high
    shown = expression[:_SHOWN]
    if low < bounds.low:
        raise CronError(f"beginning of range ({low}) below minimum ({bounds.low}): {shown}")
    if high > bounds.high:
        raise CronError(f"end of range ({high}) above maximum ({bounds.high}): {shown}")
    if low > high:
        raise CronError(f"beginning of range ({low}) beyond end of range ({high}): {shown}")
    if step == 0:
        raise CronError(f"step of range should be a positive number: {shown}")
    return range(low, high + 1, step), is_star and step == 1


def _parse_number(text: str, bounds: _Bounds) -> int:
    if (name := text.lower()) in bounds.names:
        return bounds.names.index(name) + bounds.low
    return _parse_integer(text)


def _parse_integer(text: str) -> int:
    number = parse_integer(text)
    shown = text[:_SHOWN]
    if number is None:
        digits = text[1:] if text[:1] in ("+", "-") else text
        problem = "value out of range" if digits.isascii() and digits.isdigit() else "invalid syntax"
        raise CronError(f'failed to parse int from {shown}: strconv.Atoi: parsing "{shown}": {problem}')
    if number < 0:
        raise CronError(f"negative number ({number}) not allowed: {shown}")
    return number


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_SECONDS = (1 << 63) / 1e9
_match_part = re.compile(r"(\d*)(\.\d*)?([^\d.]*)", re.ASCII).match


def _parse_interval(schedule: str) -> int:
    """Return the seconds of "@every DURATION": whole seconds, at least 1. Source: Go's time.ParseDuration."""
    text = schedule[len(_EVERY) :]
    rest = text[1:] if text[:1] in ("-", "+") else text
    seconds, shown = 0.0, text[:_SHOWN]
    problem = f'invalid duration "{shown}"' if not rest else ""
    while rest and rest != "0" and not problem:
        match = _match_part(rest)
        whole, fraction, unit = match.groups() if match is not None else ("", "", "")
        if not whole.strip("0") and not whole and len(fraction or "") < 2:
            problem = f'invalid duration "{shown}"'
        elif not unit:
            problem = f'missing unit in duration "{shown}"'
        elif unit not in _UNITS:
            problem = f'unknown unit "{unit[:_SHOWN]}" in duration "{shown}"'
        else:
            seconds += float(f"{whole[:20] or 0}{(fraction or '')[:20]}") * _UNITS[unit]
            rest = rest[match.end() :] if match is not None else ""
            if seconds >= _MAX_SECONDS or len(whole) > len(str(1 << 63)):
                problem = f'invalid duration "{shown}"'
    if problem:
        raise CronError(f"failed to parse duration {schedule[:_SHOWN]}: time: {problem}")
    return max(1, int(seconds)) if text[:1] != "-" else 1
