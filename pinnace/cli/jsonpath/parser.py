"""Reading templates and paths. Pure; raises Failure (usage) that shows what is wrong and at which character, from 1.

    template  = { text | "{" action "}" }
    action    = "range" path | "end" | path
    path      = ["$" | "@"] { step } | literal
    step      = "." name | ".*" | ".." [name] | "[" subscript "]"
    subscript = [ "*" | filter | item { "," item } ]    item = number | [a] ":" [b] [":" step] | "'" names "'"
    filter    = "?(" path [operator path] ")"
    literal   = "'" text "'" | '"' text '"' | number | "true" | "false"

In names a backslash takes the meaning from what follows: `.metadata.labels.kubernetes\\.io/hostname`. A quoted name is read as
the same: ['metadata.name'] are two steps, as with kubectl.
"""

import re

from pinnace.cli.jsonpath.paths import COMPARE, Descent, Field, Filter, Index, Literal, Path, Slice, Step, Union, Wildcard
from pinnace.cli.jsonpath.template import Range, Template
from pinnace.cli.outcomes import Failure, usage

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
"""Of a number, with its sign: more than any list has items."""
_SHOWN = 200
"""Characters of a text that is wrong."""


def parse(text: str) -> Template:
    """A template, such as that of `-o jsonpath=`."""
    return _Parser(text).template()


def parse_path(text: str) -> Path:
    """One path, as `--sort-by`, custom columns and `wait` take it: {.x.y}, .x.y and x.y are the same."""
    return _Parser(text).only_path()


class _Parser:
    """Reads from left to right; each method leaves the position behind what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def template(self) -> Template:
        """All of the text."""
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
        while outer:  # the end of the text ends every range, as with kubectl
            path, before = outer.pop()
            parts = [*before, Range(path, Template(tuple(parts)))]
        return Template(tuple(parts))

    def only_path(self) -> Path:
        """All of the text is one path, in braces or not, which may begin with a name."""
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
        """`.`, `$` and `@` are the value itself."""
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
            raise self._wrong("expected the name of a field")
        return Wildcard() if name == "*" else Field(re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL))

    def _subscript(self) -> Step:
        self._space()
        if self._text.startswith("]", self._at):  # as with kubectl
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
                raise self._wrong(f'"{quoted}" is no name of a field', begin) from None
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
        """Of thousands of digits Python reads no number."""
        if len(digits) > _MOST_DIGITS:
            raise self._wrong(f"a number of {len(digits)} digits", at)
        return int(digits)

    def _boolean(self, word: str) -> bool:
        if word not in ("true", "false"):
            raise self._wrong(f'unrecognized identifier "{word}": a path begins with a dot', self._at - len(word))
        return word == "true"

    def _quoted(self) -> str | None:
        """What stands between quotes, with its backslashes."""
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
    """Half of a surrogate pair is no character."""
    code = match[1] or match[2]
    if not code:
        return _CONTROL.get(match[3], match[3])
    return "\ufffd" if code[:2].lower() in _SURROGATES and len(code) == 4 else chr(int(code, 16))
