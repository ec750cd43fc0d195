"""Instants: Kubernetes' Time and MicroTime messages, and RFC 3339 text."""

from datetime import UTC, datetime

from pinnace.api.meta_v1_pb2 import MicroTime, Time


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


def format_rfc3339(instant: Time | MicroTime) -> str:
    """ "2026-01-31T12:00:00Z"; with microseconds for MicroTime."""
    text = datetime.fromtimestamp(instant.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{instant.nanos // 1000:06d}Z" if isinstance(instant, MicroTime) else f"{text}Z"


def parse_rfc3339(text: str) -> Time:
    """Raises ValueError when the text is no RFC 3339 instant with a zone."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f'"{text}" has no time zone; expected something like 2026-01-31T12:00:00Z')
    return Time(seconds=int(instant.timestamp()), nanos=instant.microsecond * 1000)
