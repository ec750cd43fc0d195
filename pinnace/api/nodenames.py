"""Sets of node names, as a certificate or a flag names them: by patterns that are short however many nodes there are.

    n7              this one
    node-0..99      node-0, node-1, ... node-99
    kubelet-*       whatever begins so

No DNS name has two dots in a row or an asterisk, so a pattern is never mistaken for a name.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pinnace.api.names import dns_subdomain

_RANGE = re.compile(r"(?P<prefix>.*?)(?P<first>\d{1,9})\.\.(?P<last>\d{1,9})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)


@dataclass(frozen=True)
class NodeNames:
    """`name in names`. `patterns` as they were written; `parse` makes it."""

    patterns: tuple[str, ...] = ()
    _exact: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    _prefixes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    _ranges: tuple[tuple[str, int, int], ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, patterns: Iterable[str]) -> "NodeNames":
        """Raises ValueError for what is no pattern."""
        exact, prefixes, ranges = set[str](), list[str](), list[tuple[str, int, int]]()
        patterns = tuple(patterns)
        for pattern in patterns:
            if found := _RANGE.fullmatch(pattern):
                ranges.append((found["prefix"], int(found["first"]), int(found["last"])))
            elif pattern.endswith("*"):
                prefixes.append(pattern.removesuffix("*"))
            else:
                exact.add(pattern)
        samples = [*exact, *(f"{prefix}0" for prefix in prefixes), *(f"{prefix}{last}" for prefix, _, last in ranges)]
        for sample in samples:
            if problems := dns_subdomain(sample):
                raise ValueError(f'a name such as "{sample[:64]}": {problems[0]}; write n7, node-0..99 or kubelet-*')
        return cls(patterns, frozenset(exact), tuple(prefixes), tuple(ranges))

    def __contains__(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._prefixes) or any(_within(name, *each) for each in self._ranges)


def _within(name: str, prefix: str, first: int, last: int) -> bool:
    number = name.removeprefix(prefix) if name.startswith(prefix) else ""
    return _NUMBER.fullmatch(number) is not None and first <= int(number) <= last
