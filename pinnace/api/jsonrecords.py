"""Dataclasses as JSON, and back: for answers that are no messages of the API.

The fields of a record are text, numbers and bools, a StrEnum, records, a Sequence or a Mapping (by str) of these, or one of
these or None; no record holds another of its own kind. In JSON a field has its own name, in lowerCamelCase.

Who writes and who reads may be of different versions, as during a rollout. A field that the reader does not know is left out,
and one that is missing has its default. So a field that is added has a default, and one without a default stays for good. What
is there must be of its type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

R = TypeVar("R")

OMITTED = {"omitted": True}
"""Metadata of a field that is not written while it has its default."""
_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((float, int), "a number"),
}


class Malformed(ValueError):
    """Something is not of the type that is expected there: "ranking[2].rank: expected a whole number"."""

    def __init__(self, expected: str, path: str = "") -> None:
        path = path.removeprefix(".")
        super().__init__(f"{path}: {expected}" if path else expected)
        self._expected = expected
        self._path = path

    def below(self, step: str) -> "Malformed":
        """As whoever reads what is around it tells it."""
        between = "" if not self._path or self._path.startswith("[") else "."
        return Malformed(self._expected, f"{step}{between}{self._path}")


def to_json(record: Any) -> dict[str, Any]:
    """What `json` writes. The fields are in their order."""
    kind: Any = type(record)
    found: dict[str, Any] = {}
    for name, key, omitted in _written(kind):
        value = getattr(record, name)
        if omitted is MISSING or value != omitted:
            found[key] = _value(value)
    return found


def from_json(kind: type[R], value: object) -> R:
    """The record, of what `json` has read. Raises Malformed."""
    hint: Any = kind
    return cast(R, _reader(hint)(value))


def _value(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: _value(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_value(each) for each in value]
    return to_json(value)


@lru_cache
def _written(kind: type[Any]) -> list[tuple[str, str, Any]]:
    """The fields: name, key, and the value of which nothing is written."""
    return [(each.name, _key(each.name), each.default if "omitted" in each.metadata else MISSING) for each in fields(kind)]


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@lru_cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What reads a value of that type, and raises Malformed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return _optional(arguments)
    if origin is Sequence:
        return _list_of(_reader(arguments[0]))
    if origin is Mapping:
        return _object_of(_reader(arguments[1]))
    if is_dataclass(origin or hint):
        return _record(hint)
    return _scalar(hint) if hint in _SCALARS else _choice(hint)


def _scalar(hint: Any) -> Callable[[Any], Any]:
    types, expected = _SCALARS[hint]

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise Malformed(f"expected {expected}")
        return value

    return read


def _choice(kind: type[StrEnum]) -> Callable[[Any], Any]:
    known = {each.value: each for each in kind}

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise Malformed(f"expected one of {', '.join(known)}")
        return known[value]

    return read


def _optional(alternatives: tuple[Any, ...]) -> Callable[[Any], Any]:
    (present,) = (_reader(each) for each in alternatives if each is not type(None))
    return lambda value: None if value is None else present(value)


def _list_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Malformed("expected a list")
        return [_at(f"[{place}]", item, each) for place, each in enumerate(value)]

    return read


def _object_of(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {key: _at(f"[{key}]", item, each) for key, each in _object(value).items()}


def _record(hint: Any) -> Callable[[Any], Any]:
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    hints = get_type_hints(kind)
    known = []
    for each in fields(kind):
        of = hints[each.name]
        reader = _reader(of[arguments] if getattr(of, "__parameters__", ()) else of)
        known.append((each.name, _key(each.name), reader, each.default is MISSING and each.default_factory is MISSING))

    def read(value: Any) -> Any:
        there, found = _object(value), {}
        for name, key, reader, required in known:
            if key in there:
                found[name] = _at(key, reader, there[key])
            elif required:
                raise Malformed("it is missing", key)
        return kind(**found)

    return read


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("expected an object")
    return value


def _at(step: str, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except Malformed as error:
        raise error.below(step) from None
