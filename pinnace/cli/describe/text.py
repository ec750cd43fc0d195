"""The layout of `describe`: labels and values, nested, values of one level aligned. Values are data; `render` makes text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.scalars import to_datetime
from pinnace.cli.terminal.table import one_line
from pinnace.printers.columns import is_set

NONE = "<none>"
INDENT = GAP = "  "


@dataclass(frozen=True, slots=True)
class Rows:
    """A table under a label; without rows it is `<none>`."""

    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Detailed:
    """One line, and fields that belong to it."""

    text: str
    fields: Mapping[str, "Value"]


class NotShown(str):
    """One line in place of what whoever asks may not see, and why: `<not shown: User "jane" cannot list ...>`."""

    __slots__ = ()


Value: TypeAlias = "str | Sequence[str] | Mapping[str, Value] | Detailed | Rows"
"""One line; several lines under one another; nested fields; both; a table."""
Fields = Mapping[str, Value]
"""Labels (without the colon) and values, in the order in which they are shown."""


def render(fields: Fields, indent: str = "") -> Iterator[str]:
    """Lines without newline."""
    width = max((len(label) for label, value in fields.items() if _is_inline(value)), default=0) + len(GAP) + 1
    for label, value in fields.items():
        head = f"{indent}{label}:"
        if isinstance(value, str):
            yield _join(head, value, indent, width)
        elif isinstance(value, Detailed):
            yield _join(head, value.text, indent, width)
            yield from render(value.fields, indent + INDENT)
        elif isinstance(value, Rows):
            yield from _rows(head, value, indent, width)
        elif isinstance(value, Mapping):
            yield head if value else _join(head, NONE, indent, width)
            yield from render(value, indent + INDENT)
        else:
            lines = value or [NONE]
            yield _join(head, lines[0], indent, width)
            yield from (_join(indent, line, indent, width) for line in lines[1:])


def _is_inline(value: Value) -> bool:
    return not isinstance(value, Rows | Mapping)


def _join(head: str, value: str, indent: str, width: int) -> str:
    return f"{head + GAP:<{len(indent) + width}}{one_line(value)}".rstrip()


def _rows(head: str, value: Rows, indent: str, width: int) -> Iterator[str]:
    if not value.rows:
        yield _join(head, NONE, indent, width)
        return
    yield head
    rows = [tuple(one_line(cell) for cell in row) for row in value.rows]
    lines = [value.headers, tuple("-" * len(header) for header in value.headers), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(value.headers))]
    for line in lines:
        cells = (cell.ljust(size) for cell, size in zip(line, widths, strict=True))
        yield f"{indent}{INDENT}{INDENT.join(cells)}".rstrip()


def pairs(values: Mapping[str, str]) -> list[str]:
    """Labels as `key=value`, sorted."""
    return [f"{key}={value}" for key, value in sorted(values.items())]


def joined(values: Mapping[str, str]) -> str:
    """Pairs on one line: `app=web,tier=x`."""
    return ",".join(pairs(values)) or NONE


def instant(value: Time | MicroTime) -> str:
    """RFC 1123 in the local time zone, with the zone as a number, as kubectl has it; empty when not set."""
    return to_datetime(value).astimezone().strftime("%a, %d %b %Y %H:%M:%S %z") if is_set(value) else ""
