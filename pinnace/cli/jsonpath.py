"""kubectl's JSONPath: `-o jsonpath=`, `--sort-by`, custom columns and `wait --for=jsonpath=`.

    template  = { text | "{" action "}" }
    action    = "range" path | "end" | path
    path      = ["$" | "@"] { step } | literal
    step      = "." name | ".*" | ".." [name] | "[" subscript "]"
    subscript = [ "*" | filter | item { "," item } ]    item = number | [a] ":" [b] [":" step] | "'" names "'"
    filter    = "?(" path [operator path] ")"
    literal   = "'" text "'" | '"' text '"' | number | "true" | "false"

Values are JSON values. Each step maps a sequence of values to a sequence of results, in document order. In names a backslash
escapes the next character: `.metadata.labels.kubernetes\\.io/hostname`. As in kubectl, a quoted name is parsed as a path:
['metadata.name'] consists of two steps.

A syntax error raises Failure (usage) with the position of the character, counted from 1. Evaluation raises Failure (not found)
where kubectl reports an error, such as an index out of bounds or an index of a value that is not a list.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pinnace.cli.outcomes import ExitCode, Failure, usage

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
        """Return the results for these values, in order."""


@dataclass(frozen=True, slots=True)
class Path:
    """A sequence of steps. The empty path, `@`, returns its input."""

    steps: tuple[Step, ...] = ()

    def find(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the results for several values."""
        for step in self.steps:
            values = list(step.find(values))
        return values


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: "text", 1.5 or true."""

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
    """All elements of a list or all values of a dictionary."""

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (child for value in values for child in _children(value))


@dataclass(frozen=True, slots=True)
class Descent:
    """`..`: the values and their descendants that are non-empty lists or dictionaries."""

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        for value in values:
            if children := _children(value):
                yield value
                yield from self.find(children)


@dataclass(frozen=True, slots=True)
class Index:
    """[n]: one element. A negative index counts from the end."""

    at: int

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        for items in _lists(values):
            if not -len(items) <= self.at < len(items):
                raise _nowhere(f"array index out of bounds: index {self.at}, length {len(items)}")
            yield items[self.at]


@dataclass(frozen=True, slots=True)
class Slice:
    """[start:stop:step]: the elements within the list. kubectl reports an error for bounds beyond the end."""

    part: slice

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (item for items in _lists(values) for item in items[self.part])


@dataclass(frozen=True, slots=True)
class Union:
    """[a,b]: the results of the first part for all values, followed by those of the next parts."""

    parts: tuple[Path, ...]

    def find(self, values: Sequence[Any]) -> Iterator[Any]:
        return (found for part in self.parts for found in part.find(values))


@dataclass(frozen=True, slots=True)
class Filter:
    """[?(left OPERATOR right)] compares, and [?(left)] tests for existence. Values of different types are unequal and not
    ordered."""

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
    """Format a value as kubectl does: a string without quotes, any other value as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _children(value: Any) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()


def _lists(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the lists, and skip null. Raises Failure for any other value."""
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise _nowhere(f"{text_of(value)[:60]} is not a list")


def _nowhere(message: str) -> Failure:
    return Failure(f"jsonpath: {message}", code=ExitCode.NOT_FOUND)


@dataclass(frozen=True, slots=True)
class Range:
    """{range PATH}...{end}: the body is rendered for each result of the path, with the result as the root."""

    path: Path
    body: "Template"


@dataclass(frozen=True, slots=True)
class Template:
    parts: tuple[str | Path | Range, ...]

    def render(self, value: Any) -> str:
        """Return the text. Several results of one path are separated by a space. Raises Failure (not found)."""
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


_NAME = re.compile(r"(?:\\.|[^\\.,\[\]$@{}\s()=!<>'\"])+", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_SLICE = re.compile(r"(-?\d+)?:(-?\d+)?(?::(\d+)?)?")
_INDEX = re.compile(r"-?\d+")
_OPERATOR = re.compile("|".join(COMPARE))
_WORD = re.compile(r"[A-Za-z]+")
_QUOTED = {mark: re.compile(rf"{mark}((?:\\.|[^\\{mark}])*){mark}", re.DOTALL) for mark in "'\""}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_SURROGATES = ("d8", "d9", "da", "db", "dc", "dd", "de", "df")
_MOST_DIGITS = 19
"""Maximum length of an integer with its sign. No list index needs more."""
_SHOWN = 200
"""Maximum length of an invalid template in messages, in characters."""


def parse(text: str) -> Template:
    """Parse a template, such as the one of `-o jsonpath=`."""
    return _Parser(text).template()


def parse_path(text: str) -> Path:
    """Parse one path, for `--sort-by`, custom columns and `wait`: {.x.y}, .x.y and x.y are equivalent."""
    return _Parser(text).only_path()


class _Parser:
    """A recursive-descent parser. Each method leaves the position after the text that it has parsed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def template(self) -> Template:
        """Parse the complete text as a template."""
        outer: list[tuple[Path, list[str | Path | Range]]] = []
        parts: list[str | Path | Range] = []
        while self._at < len(self._text):
            begin = self._at
            if not self._skip("{"):
                end = self._text.find("{", begin)
                self._at = end if end >= 0 else len(self._text)
                parts.append(self._text[begin : self._at])
                continue
            self._space()
            word = self._match(_WORD)
            if word == "range":
                outer.append((self._path(), parts))
                parts = []
            elif word == "end":
                if not outer:
                    raise self._wrong("{end} without a {range}", begin)
                path, before = outer.pop()
                parts = [*before, Range(path, Template(tuple(parts)))]
            elif word is not None:
                parts.append(Path((Literal(self._boolean(word)),)))
            else:
                parts.append(self._path())
            self._expect("}")
        while outer:  # as in kubectl, the end of the text closes all ranges
            path, before = outer.pop()
            parts = [*before, Range(path, Template(tuple(parts)))]
        return Template(tuple(parts))

    def only_path(self) -> Path:
        """Parse the complete text as one path. Braces and the leading dot are optional."""
        braced = self._skip("{")
        first = (self._name(),) if _NAME.match(self._text, self._at) else ()
        path = Path((*first, *self._steps(may_be_none=bool(first))))
        if braced:
            self._expect("}")
        if self._at < len(self._text):
            raise self._wrong(f'unexpected "{self._text[self._at]}"')
        return path

    def _path(self) -> Path:
        self._space()
        literal = self._literal()
        return Path(self._steps() if literal is None else (literal,))

    def _steps(self, *, may_be_none: bool = False) -> tuple[Step, ...]:
        """Parse the steps of a path. `.`, `$` and `@` alone are the value itself."""
        begin = self._at
        self._skip("$") or self._skip("@")
        steps: list[Step] = []
        while True:
            self._space()
            if self._skip(".."):
                steps.append(Descent())
                if not self._text.startswith("[", self._at):
                    steps.append(self._name())
            elif self._skip("."):
                alone = not steps and self._text[self._at : self._at + 1] in ("", "}", " ", ")")
                if not (alone or self._text.startswith("[", self._at)):
                    steps.append(self._name())
            elif self._skip("["):
                steps.append(self._subscript())
                self._expect("]")
            else:
                break
        if self._at == begin and not may_be_none:
            raise self._wrong("expected a path, such as .metadata.name")
        return tuple(steps)

    def _name(self) -> Step:
        name = self._match(_NAME)
        if name is None:
            raise self._wrong("expected a field name")
        return Wildcard() if name == "*" else Field(re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL))

    def _subscript(self) -> Step:
        self._space()
        if self._text.startswith("]", self._at):  # as in kubectl
            return Index(0)
        if self._skip("?("):
            return self._filter()
        parts = [self._item()]
        while self._skip(","):
            parts.append(self._item())
        return parts[0] if len(parts) == 1 else Union(tuple(Path((part,)) for part in parts))

    def _item(self) -> Step:
        self._space()
        begin = self._at
        step: Step
        if (match := _SLICE.match(self._text, self._at)) is not None:
            first, last, every = (None if group is None else self._whole(group, begin) for group in match.groups())
            if every == 0:
                raise self._wrong("the step of a slice must be > 0")
            self._at = match.end()
            step = Slice(slice(first, last, every))
        elif (number := self._match(_INDEX)) is not None:
            step = Index(self._whole(number, begin))
        elif self._skip("*"):
            step = Wildcard()
        elif (quoted := self._quoted()) is not None:
            try:
                step = parse_path(quoted)
            except Failure:
                raise self._wrong(f'"{quoted}" is not a field name', begin) from None
        else:
            raise self._wrong("expected a number, a slice, *, 'name' or ?(...)")
        self._space()
        return step

    def _filter(self) -> Step:
        left = self._path()
        operator = self._match(_OPERATOR)
        made = Filter(left, operator, self._path()) if operator else Filter(left)
        self._expect(")")
        self._space()
        return made

    def _literal(self) -> Literal | None:
        if (quoted := self._quoted()) is not None:
            return Literal(_ESCAPE.sub(_unescaped, quoted))
        if (number := self._match(_NUMBER)) is not None:
            return Literal(float(number) if "." in number else self._whole(number, self._at - len(number)))
        if (word := self._match(_WORD)) is not None:
            return Literal(self._boolean(word))
        return None

    def _whole(self, digits: str, at: int) -> int:
        """Python cannot parse integers of thousands of digits."""
        if len(digits) > _MOST_DIGITS:
            raise self._wrong(f"a number of {len(digits)} digits", at)
        return int(digits)

    def _boolean(self, word: str) -> bool:
        if word not in ("true", "false"):
            raise self._wrong(f'unrecognized identifier "{word}": a path begins with a dot', self._at - len(word))
        return word == "true"

    def _quoted(self) -> str | None:
        """Return the text between quotes, with its backslashes."""
        mark = self._text[self._at : self._at + 1]
        if mark not in _QUOTED:
            return None
        match = _QUOTED[mark].match(self._text, self._at)
        if match is None:
            raise self._wrong("unterminated quoted string")
        self._at = match.end()
        return match[1]

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _skip(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        self._at += len(token) if found else 0
        return found

    def _space(self) -> None:
        while self._text[self._at : self._at + 1] == " ":
            self._at += 1

    def _expect(self, token: str) -> None:
        self._space()
        if not self._skip(token):
            found = f'"{self._text[self._at]}"' if self._at < len(self._text) else "the end"
            raise self._wrong(f'expected "{token}", not {found}')

    def _wrong(self, message: str, at: int | None = None) -> Failure:
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}..."
        hint = "https://kubernetes.io/docs/reference/kubectl/jsonpath/ describes the language"
        return usage(f"jsonpath: {message} at character {(self._at if at is None else at) + 1} of {shown}", hint=hint)


def _unescaped(match: re.Match[str]) -> str:
    """Return the character of an escape sequence, and U+FFFD for a surrogate, which is not a character."""
    code = match[1] or match[2]
    if not code:
        return _CONTROL.get(match[3], match[3])
    return "\ufffd" if code[:2].lower() in _SURROGATES and len(code) == 4 else chr(int(code, 16))
