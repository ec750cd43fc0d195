"""Checks of plugins' arguments (`args` in pluginConfig). What is wrong is a ValueError that begins with the field's path."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api import names


def check_names(args: Mapping[str, Any], allowed: Sequence[str], path: str = "") -> None:
    """Of the fields; apiVersion and kind may always stand there."""
    for name in args:
        if name not in (*allowed, "apiVersion", "kind"):
            raise ValueError(f"{path}{name}: not supported; there are {', '.join(allowed)}")


def fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Those of one object among the arguments, without those that are null."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{path}: expected fields ({', '.join(allowed)})")
    check_names(raw, allowed, f"{path}.")
    return {name: value for name, value in raw.items() if value is not None}


def items(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{path}: expected a list")
    return raw


def label_key(key: str, path: str) -> str:
    """Also the name of a resource."""
    if problems := names.label_key(key):
        raise ValueError(f"{path}: {problems[0]}, got {key!r}")
    return key


def whole_number(args: Mapping[str, Any], name: str, default: int, least: int, most: int, path: str = "") -> int:
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{path}{name}: expected a whole number from {least} to {most}, got {value!r}")
    return value


def flag(args: Mapping[str, Any], name: str) -> bool:
    """False when it is not there."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, got {value!r}")
    return value
