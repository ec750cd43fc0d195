"""What would become of an object, line by line: unified differences of its YAML, as `diff -u` prints them. Pure."""

from collections.abc import Iterable, Iterator
from difflib import unified_diff

import click

from pinnace.api.codec import to_dict
from pinnace.api.resources import Object
from pinnace.cli.objects.written import written
from pinnace.cli.output.documents import dump
from pinnace.cli.terminal.console import escaped

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def difference(name: str, before: Object | None, after: Object | None) -> list[str]:
    """Lines; none when there is nothing to tell. What people do not write is left out."""
    return list(unified_diff(_lines(before), _lines(after), f"{name} (live)", f"{name} (applied)", lineterm=""))


def coloured(lines: Iterable[str]) -> Iterator[str]:
    """As on a terminal."""
    for line in lines:
        line = escaped(line)
        heading = line.startswith(("---", "+++"))
        yield click.style(line, bold=True) if heading else click.style(line, fg=_COLOURS.get(line[:1]))


def _lines(obj: Object | None) -> list[str]:
    return [] if obj is None else dump("yaml", written(to_dict(obj))).splitlines()
