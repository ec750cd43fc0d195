"""Durations as kubectl prints them: at most two units, fewer the longer it is.

Source: k8s.io/apimachinery/pkg/util/duration, HumanDuration.
"""

from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.times import format_rfc3339, to_seconds

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """5 -> "5s", 192 -> "3m12s", 172800 -> "2d". A second or two before zero is "0s" (clocks differ), more is "<invalid>"."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(seconds: int, big: int, big_name: str, small: int, small_name: str) -> str:
    rest = seconds % big // small
    return f"{seconds // big}{big_name}" + (f"{rest}{small_name}" if rest else "")


def is_set(instant: Time | MicroTime) -> bool:
    return bool(instant.seconds or instant.nanos)


def since(instant: Time | MicroTime, now: float) -> str:
    """How long ago an instant was, at Unix time `now`; "<unknown>" when it is not set."""
    return human_duration(now - to_seconds(instant)) if is_set(instant) else "<unknown>"


def created_at(instant: Time) -> str:
    """The instant itself, "2026-01-31T12:00:00Z"; "<unknown>" when it is not set."""
    return format_rfc3339(instant) if is_set(instant) else "<unknown>"
