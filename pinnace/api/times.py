"""Instants: Kubernetes' Time and MicroTime messages, and RFC 3339 text."""

import re
from contextlib import suppress
from datetime import UTC, datetime

from pinnace.api.meta_v1_pb2 import MicroTime, Time

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[-+]\d\d:\d\d)", re.ASCII)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""Unix times of the years 1 and 9999."""


def to_time(seconds: float) -> Time:
    """Unix time to Time, whole seconds."""
    return Time(seconds=int(seconds))


def to_micro_time(seconds: float) -> MicroTime:
    """Unix time to MicroTime, microseconds."""
    whole = int(seconds)
    return MicroTime(seconds=whole, nanos=int((seconds - whole) * 1e6) * 1000)


def to_seconds(instant: Time | MicroTime) -> float:
    """Unix time."""
    return float(instant.seconds) + float(instant.nanos) / 1e9


def to_datetime(instant: Time | MicroTime) -> datetime:
    """In UTC, whole seconds. An instant outside the years 1 to 9999, which only a broken or hostile writer can have made, is
    the nearest one inside."""
    return datetime.fromtimestamp(min(max(instant.seconds, _FIRST), _LAST), UTC)


def format_rfc3339(instant: Time | MicroTime) -> str:
    """ "2026-01-31T12:00:00Z"; with microseconds for MicroTime."""
    text = to_datetime(instant).replace(tzinfo=None).isoformat()
    micros = min(max(instant.nanos, 0), 999_999_999) // 1000
    return f"{text}.{micros:06d}Z" if isinstance(instant, MicroTime) else f"{text}Z"


def parse_rfc3339(text: str) -> Time:
    """To the microsecond. Raises ValueError when the text is no RFC 3339 instant with a zone."""
    if _RFC3339.fullmatch(text):
        with suppress(ValueError, OverflowError):  # the 31st of February, the year 0
            instant = datetime.fromisoformat(text.upper())
            return Time(seconds=int(instant.replace(microsecond=0).timestamp()), nanos=instant.microsecond * 1000)
    raise ValueError(f'"{text[:40]}" is not a time; expected something like 2026-01-31T12:00:00Z')
