"""Regular expressions of schemas: Go's syntax (RE2), matched in linear time.

Source: https://github.com/google/re2/wiki/Syntax, and the messages of Go's regexp/syntax.
"""

from collections.abc import Callable
from functools import lru_cache

import re2

MAX_MEMORY = 4 << 20
"""Memory of one compiled expression in bytes. Go has its own limits, which are similar."""
_CACHED_LENGTH = 1_000
MAX_PROGRAMS = 400_000
"""Maximum size of all expressions of a schema, in instructions of RE2. An expression for host names in a published definition
has 254,000, because its classes of letters are counted for each repetition."""
_MAX_COST = 10_000
_LEAST_COST, _FAILURE_COST = 50, 100_000
"""What an expression counts at least, and what it counts if it is too large."""
_GO_MESSAGES = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": "expression too large",
}


class PatternError(ValueError):
    """The text is no regular expression. The message is Go's: "error parsing regexp: missing closing ): `(`"."""


class Pattern:
    """A regular expression. `size`: the number of its instructions. `cost`: of a match, for each character of the text; large
    expressions consist of classes of letters, few of whose instructions are active at once."""

    __slots__ = ("_search", "cost", "size")

    def __init__(self, pattern: str) -> None:
        """Raise PatternError."""
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MAX_MEMORY
        try:
            compiled = re2.compile(_encode(pattern), options)
        except re2.error as error:
            raise PatternError(_go_message(error)) from None
        self._search: Callable[[bytes], object | None] = compiled.search
        self.size: int = compiled.programsize
        self.cost = min(self.size, _MAX_COST)

    def matches(self, text: str) -> bool:
        """Return whether some part of the text matches."""
        return self._search(_encode(text)) is not None


def compile_pattern(pattern: str) -> Pattern:
    """Raise PatternError."""
    return _compile_cached(pattern) if len(pattern) <= _CACHED_LENGTH else Pattern(pattern)


_compile_cached = lru_cache(4096)(Pattern)


def _encode(text: str) -> bytes:
    """JSON can contain half surrogates, which UTF-8 cannot."""
    return text.encode(errors="replace")


def _go_message(error: Exception) -> str:
    text = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    problem, separator, where = text.partition(": ")
    return f"error parsing regexp: {_GO_MESSAGES.get(problem, problem)}" + (f": `{where}`" if separator else "")


class PatternBudget:
    """The work to compile the expressions of one schema: at most about 100 ms. An equal expression is compiled once."""

    def __init__(self) -> None:
        self._room = MAX_PROGRAMS
        self._checked: dict[str, str] = {}

    def check(self, pattern: str) -> str:
        """Return why an expression is invalid, or ""."""
        if pattern not in self._checked:
            self._checked[pattern] = self._compile(pattern)
        return self._checked[pattern]

    def _compile(self, pattern: str) -> str:
        self._room -= _LEAST_COST + len(pattern)
        if self._room < 0:
            return "the regular expressions of the schema are too large"
        try:
            self._room -= compile_pattern(pattern).size
        except PatternError as error:
            self._room -= _FAILURE_COST if "too large" in str(error) else 0
            return str(error)
        return ""
