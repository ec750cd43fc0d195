"""Paths: steps that each lead from some values to others. Pure.

Values are those of JSON: dictionaries, lists, strings, numbers, booleans, None. A step finds any number of them, in the order
in which they stand. Raises Failure (not found) where kubectl fails too: an index beyond the end, an index of what is no list.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pinnace.cli.outcomes import ExitCode, Failure

COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


class Step(Protocol):
    def find(self, values: Sequence[Any]) -> Iterable[Any]:
        """What the step leads to from these values."""


@dataclass(frozen=True, slots=True)
class Path:
    """Steps after one another. Without any it is the value itself: `@`."""

    steps: tuple[Step, ...] = ()

    def find(self, values: Sequence[Any]) -> Sequence[Any]:
        """What it leads to from each of several values."""
        for step in self.steps:
            values = list(step.find(values))
        return values


@dataclass(frozen=True, slots=True)
class Literal:
    """ "text", 1.5 or true: whatever the values are."""

    value: str | int | float | bool

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        yield self.value


@dataclass(frozen=True, slots=True)
class Field:
    name: str

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (value[self.name] for value in values if isinstance(value, dict) and self.name in value)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """All that is in a list or a dictionary."""

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (child for value in values for child in _children(value))


@dataclass(frozen=True, slots=True)
class Descent:
    """`..`: the values and all that is in them at any depth, but for what has nothing in it."""

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        for value in values:
            if children := _children(value):
                yield value
                yield from self.find(children)


@dataclass(frozen=True, slots=True)
class Index:
    """[n]; a negative one counts from the end."""

    at: int

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        for items in _lists(values):
            if not -len(items) <= self.at < len(items):
                raise _nowhere(f"array index out of bounds: index {self.at}, length {len(items)}")
            yield items[self.at]


@dataclass(frozen=True, slots=True)
class Slice:
    """[start:stop:step]: what there is of it. (kubectl makes an error of bounds beyond the end.)"""

    part: slice

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (item for items in _lists(values) for item in items[self.part])


@dataclass(frozen=True, slots=True)
class Union:
    """[a,b]: what the first finds from all values, then what the next finds."""

    parts: tuple[Path, ...]

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (found for part in self.parts for found in part.find(values))


@dataclass(frozen=True, slots=True)
class Filter:
    """[?(left OPERATOR right)], or [?(left)]: is it there? Values of different types are unequal, and neither is less."""

    left: Path
    operator: str = ""
    right: Path = Path()

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (item for items in _lists(values) for item in items if self._takes(item))

    def _takes(self, item: Any) -> bool:
        left, right = self.left.find([item]), self.right.find([item])
        if not (self.operator and left and right):
            return bool(left) and not self.operator
        if len(left) > 1 or len(right) > 1:
            raise _nowhere("a filter can only compare one value at a time")
        try:
            return COMPARE[self.operator](left[0], right[0])
        except TypeError:
            return False


def text_of(value: Any) -> str:
    """As kubectl prints it: a string is itself, all else is JSON on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _children(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()


def _lists(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values, which must be lists, or null: that has no items to look for."""
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise _nowhere(f"{text_of(value)[:60]} is not a list")


def _nowhere(message: str) -> Failure:
    return Failure(f"jsonpath: {message}", code=ExitCode.NOT_FOUND)
