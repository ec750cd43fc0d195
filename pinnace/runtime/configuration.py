"""Parsers for the fields of a configuration file. Errors name the path of the field."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+").fullmatch
_PARTS = re.compile(r"([\d.]+)(ms|s|m|h)").findall
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


MAX_SHOWN = 100
"""The maximum length of an unknown name in an error message, in characters."""


class ConfigurationError(Exception):
    """The configuration is invalid. The message contains the field's path and the problem."""


def parse_fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of a mapping without null values, which count as absent as in Kubernetes. Raises ConfigurationError for
    a field that is not `allowed`."""
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{path or 'the document'}: expected fields ({', '.join(allowed)})")
    for name in raw:
        if name not in allowed:
            shown = str(name)[:MAX_SHOWN]
            where = f"{path}.{shown}" if path else shown
            raise ConfigurationError(f"{where}: unknown field; supported: {', '.join(allowed)}")
    return {name: value for name, value in raw.items() if value is not None}


def parse_list(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ConfigurationError(f"{path}: expected a list")
    return raw


def parse_text(raw: Any, path: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise ConfigurationError(f"{path}: expected text")
    return raw


def parse_seconds(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or raw <= 0:
        raise ConfigurationError(f"{path}: expected a number of seconds greater than 0")
    return float(raw)


def parse_duration(raw: Any, path: str) -> float:
    """Parse a duration in Go's notation. Return seconds."""
    result = sum(float(number) * _SECONDS[unit] for number, unit in _PARTS(raw)) if _is_duration(raw) else 0.0
    if not result:
        raise ConfigurationError(f'{path}: expected a duration greater than 0, such as "500ms", "5s" or "1m30s"')
    return result


def _is_duration(raw: Any) -> bool:
    return isinstance(raw, str) and _DURATION(raw) is not None


def parse_bool(raw: Any, path: str) -> bool:
    if not isinstance(raw, bool):
        raise ConfigurationError(f"{path}: expected true or false")
    return raw


def parse_weight(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 0:
        raise ConfigurationError(f"{path}: expected an integer, 0 or greater")
    return float(raw)
