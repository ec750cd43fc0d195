"""Reading a document field by field: what is wrong is told with its path."""

from collections.abc import Mapping, Sequence
from typing import Any


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says where and why."""


def fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{path or 'the document'}: expected fields ({', '.join(allowed)})")
    for name in raw:
        if name not in allowed:
            where = f"{path}.{name}" if path else str(name)
            raise ConfigurationError(f"{where}: not supported; there are {', '.join(allowed)}")
    return raw


def items(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ConfigurationError(f"{path}: expected a list")
    return raw


def text(raw: Any, path: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise ConfigurationError(f"{path}: expected text")
    return raw


def seconds(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float) or raw <= 0:
        raise ConfigurationError(f"{path}: expected a number of seconds, more than 0")
    return float(raw)


def weight(raw: Any, path: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 0:
        raise ConfigurationError(f"{path}: expected a whole number, 0 (the usual weight) or more")
    return float(raw)
