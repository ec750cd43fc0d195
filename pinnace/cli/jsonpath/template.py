"""Templates: text, with what paths find between it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pinnace.cli.jsonpath.paths import Path, text_of


@dataclass(frozen=True, slots=True)
class Range:
    """{range PATH}...{end}: the body once for each value that the path finds, with paths that begin there."""

    path: Path
    body: "Template"


@dataclass(frozen=True, slots=True)
class Template:
    parts: tuple[str | Path | Range, ...]

    def render(self, value: Any) -> str:
        """Several values that one path finds stand one space apart. Raises Failure (not found)."""
        return "".join(self._rendered(value))

    def _rendered(self, value: Any) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Range):
                for each in part.path.find([value]):
                    yield part.body.render(each)
            else:
                yield " ".join(map(text_of, part.find([value])))
