"""The columns of a table: headers and cells; ages and pod templates as cells.

Durations have the form of kubectl (k8s.io/apimachinery, pkg/util/duration, HumanDuration).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.meta_v1_pb2 import LabelSelector, MicroTime, Time
from pinnace.api.resources import Object
from pinnace.api.scalars import format_rfc3339, to_seconds
from pinnace.api.selectors import from_message

T = TypeVar("T", bound=Object)

NONE = "<none>"
WIDE = ("CONTAINERS", "IMAGES", "SELECTOR")


@dataclass(frozen=True)
class Columns(Generic[T]):
    """`row(obj, now)` returns the cells for `headers`, then those for `wide`, which only `-o wide` shows."""

    headers: tuple[str, ...]
    wide: tuple[str, ...]
    row: Callable[[T, float], Sequence[str]]


def format_labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """5 -> "5s", 192 -> "3m12s", 172800 -> "2d". A second or two before zero is "0s" (clocks differ), more is "<invalid>"."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _format_two_units(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _format_two_units(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _format_two_units(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _format_two_units(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _format_two_units(seconds: int, big: int, big_name: str, small: int, small_name: str) -> str:
    rest = seconds % big // small
    return f"{seconds // big}{big_name}" + (f"{rest}{small_name}" if rest else "")


def is_set(instant: Time | MicroTime) -> bool:
    return bool(instant.seconds or instant.nanos)


def format_age(instant: Time | MicroTime, now: float) -> str:
    """The age of an instant at Unix time `now`; "<unknown>" if it is not set."""
    return human_duration(now - to_seconds(instant)) if is_set(instant) else "<unknown>"


def format_time(instant: Time) -> str:
    """The instant, such as "2026-01-31T12:00:00Z"; "<unknown>" if it is not set."""
    return format_rfc3339(instant) if is_set(instant) else "<unknown>"


def wide_cells(template: PodTemplateSpec, selector: LabelSelector) -> tuple[str, str, str]:
    """The cells under WIDE."""
    containers = template.spec.containers
    named, images = (",".join(getattr(container, field) for container in containers) for field in ("name", "image"))
    return named, images, str(from_message(selector)) or NONE
