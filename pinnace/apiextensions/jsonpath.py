"""JSONPaths of Kubernetes, as printer columns and selectable fields have them: `.spec.replicas`,
`.status.conditions[?(@.type=="Ready")].status`.

Supported are fields, quoted fields, indexes, slices, unions, wildcards, recursive descent and filters. The time to parse and to
evaluate a path is bounded: see MAX_LENGTH and MAX_STEPS.

Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/ and k8s.io/client-go/util/jsonpath of Kubernetes 1.36.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

MAX_LENGTH = 2_048
"""Maximum number of characters of a path. Kubernetes has no maximum."""
MAX_STEPS = 5_000
"""Maximum number of values that evaluations visit, for one object. A path that visits more has no values."""
_TERMINATORS = frozenset(" \t\r\n.,[]$@{}")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, ">": gt, "==": eq, "!=": ne, "<=": le, ">=": ge}
_QUOTED_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_FILTER = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]*")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JSONPathError(ValueError):
    """The text is no JSONPath. The message is Kubernetes'."""


class _EvaluationError(ValueError):
    """The path does not fit the object."""


class Steps:
    """The steps that remain for evaluations on one object."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise _EvaluationError("too many values")


Node = Callable[[list[Any], Steps], list[Any]]
"""Returns the values that a part of a path selects from each of several values."""


class JSONPath:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def find(self, obj: Any, steps: Steps | None = None) -> list[Any]:
        """Return the values at the path. Missing fields have none, and a path that does not fit the object has none. `steps`:
        shared with other evaluations."""
        try:
            return _walk(self._nodes, [obj], steps or Steps())
        except (_EvaluationError, RecursionError):
            return []


def _walk(nodes: Sequence[Node], values: list[Any], steps: Steps) -> list[Any]:
    for node in nodes:
        steps.take(len(values) + 1)
        values = node(values, steps)
    return values


@lru_cache(4096)
def compile_jsonpath(text: str) -> JSONPath:
    """`text`: as in a definition, without braces. Raises JSONPathError."""
    if len(text) > MAX_LENGTH:
        raise JSONPathError(f"the path has more than {MAX_LENGTH} characters")
    return JSONPath(_Parser(text).parse())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def parse(self) -> list[Node]:
        nodes = list[Node]()
        while self._position < len(self._text):
            if self._take_prefix("[?("):
                nodes.append(self._parse_filter())
            elif self._take_prefix(".."):
                if nodes and nodes[-1] is _collect_descendants:
                    raise JSONPathError("invalid multiple recursive descent")
                nodes.append(_collect_descendants)
                if self._rest_of_text()[:1].isalnum() or self._rest_of_text()[:1] == "_":
                    nodes.append(self._parse_field())
            else:
                nodes += self._parse_character()
        return nodes

    def _rest_of_text(self) -> str:
        return self._text[self._position :]

    def _take_prefix(self, prefix: str) -> bool:
        found = self._text.startswith(prefix, self._position)
        self._position += len(prefix) * found
        return found

    def _parse_character(self) -> list[Node]:
        character = self._text[self._position]
        self._position += 1
        match character:
            case "}" | "\r" | "\n":
                raise JSONPathError("unclosed action")
            case " " | "@" | "$":
                return []
            case "[":
                return self._parse_array()
            case '"' | "'":
                return [_constant_node(self._parse_quoted(character))]
            case ".":
                return [self._parse_field()]
        self._position -= 1
        if character in "+-" or character.isdigit():
            return [self._parse_number()]
        if character.isalpha() or character == "_":
            return [_identifier_node(self._take_word())]
        raise JSONPathError(f"unrecognized character in action: U+{ord(character):04X} '{character}'")

    def _take_word(self) -> str:
        start = self._position
        while self._position < len(self._text) and self._text[self._position] not in _TERMINATORS:
            self._position += 2 if self._text[self._position] == "\\" else 1
        return self._text[start : self._position]

    def _parse_field(self) -> Node:
        name = self._take_word()
        return _select_all if name == "*" else _field_node(name.replace("\\", ""))

    def _parse_number(self) -> Node:
        match = _NUMBER.match(self._text, self._position)
        text = match[0] if match else ""
        self._position += len(text)
        try:
            return _constant_node(float(text) if "." in text else int(text))
        except ValueError:
            raise JSONPathError(f"cannot parse number {text}") from None

    def _parse_quoted(self, quote: str) -> str:
        start = self._position
        while True:
            end = self._text.find(quote, self._position)
            if end < 0 or "\n" in self._text[start:end]:
                raise JSONPathError("unterminated quoted string")
            self._position = end + 1
            if self._text[end - 1] != "\\" or end == start:
                return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[1]), self._text[start:end])

    def _parse_array(self) -> list[Node]:
        end = self._text.find("]", self._position)
        text = self._text[self._position : end]
        if end < 0 or "\n" in text:
            raise JSONPathError("unterminated array")
        self._position = end + 1
        if text == "*":
            text = ":"
        if "," in text:
            return [_union_node([_parse_part(f"[{part.strip(' ')}]") for part in text.split(",")])]
        if key := _QUOTED_KEY.fullmatch(text):
            return _parse_part(f".{key[1]}")
        match = _SLICE.fullmatch(text)
        if not match:
            raise JSONPathError(f"invalid array index {text}")
        try:
            numbers = [int(part) if part else None for part in (match[1], (match[2] or ":")[1:], (match[3] or ":")[1:])]
        except ValueError:
            raise JSONPathError(f"array index {text} is not a number") from None
        return [_slice_node(numbers[0], numbers[1], numbers[2], is_index=match[2] is None)]

    def _parse_filter(self) -> Node:
        start, quote, closed = self._position, "", False
        for position in range(start, len(self._text)):
            character = self._text[position]
            if character == "\n":
                break
            if character in "\"'":
                if not quote:
                    quote = character
                elif character == quote and self._text[position - 1] != "\\":
                    closed = True
            elif character == ")" and bool(quote) == closed:
                return self._close_filter(start, position)
        raise JSONPathError("unterminated filter")

    def _close_filter(self, start: int, end: int) -> Node:
        if self._text[end + 1 : end + 2] != "]":
            raise JSONPathError("unclosed array expect ]")
        self._position = end + 2
        text = self._text[start:end]
        match = _FILTER.fullmatch(text)
        if not match:
            return _filter(_parse_part(text), [], "exists")
        return _filter(_parse_part(match[1]), _parse_part(match[3]), match[2])


def _parse_part(text: str) -> list[Node]:
    """Parse a part of a path. It has no brackets of its own, or ends at the first parenthesis, so that parts are not nested."""
    return _Parser(text).parse()


def _constant_node(value: Any) -> Node:
    return lambda values, _: [value] * len(values)


def _identifier_node(name: str) -> Node:
    if name in ("true", "false"):
        return _constant_node(name == "true")

    def evaluate(values: list[Any], steps: Steps) -> list[Any]:
        raise _EvaluationError(f"unrecognized identifier {name}")

    return evaluate


def _field_node(name: str) -> Node:
    return lambda values, _: [value[name] for value in values if isinstance(value, dict) and name in value]


def _select_all(values: list[Any], steps: Steps) -> list[Any]:
    result = list[Any]()
    for value in values:
        children = list(_children_of(value))
        steps.take(len(children))
        result += children
    return result


def _children_of(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _collect_descendants(values: list[Any], steps: Steps) -> list[Any]:
    """Return all objects and lists at any depth, and the values themselves."""
    result = list[Any]()
    for value in values:
        children = list(_children_of(value))
        steps.take(len(children) + 1)
        if children:
            result.append(value)
            result += _collect_descendants(children, steps)
    return result


def _union_node(parts: Sequence[Sequence[Node]]) -> Node:
    return lambda values, steps: [value for part in parts for value in _walk(part, values, steps)]


def _slice_node(first: int | None, last: int | None, step: int | None, *, is_index: bool) -> Node:
    """`is_index`: the text has no colon: one item."""

    def evaluate(values: list[Any], steps: Steps) -> list[Any]:
        result = list[Any]()
        for value in values:
            if value is None:
                continue
            if not isinstance(value, list):
                raise _EvaluationError("not an array or slice")
            start = first or 0
            start += len(value) if start < 0 else 0
            end = len(value) if last is None else last + (len(value) if last < 0 else 0)
            end = start + 1 if is_index else end
            if start == end:
                return result
            if not (0 <= start < len(value) and 0 <= end <= len(value) and start <= end and (step is None or step > 0)):
                raise _EvaluationError("array index out of bounds")
            selected = value[start : end : step or 1]
            steps.take(len(selected))
            result += selected
        return result

    return evaluate


def _filter(left: Sequence[Node], right: Sequence[Node], operator: str) -> Node:
    def evaluate(values: list[Any], steps: Steps) -> list[Any]:
        result = list[Any]()
        for value in values:
            if not isinstance(value, list):
                raise _EvaluationError("not an array or slice, and cannot be filtered")
            steps.take(len(value))
            result += [item for item in value if _passes_filter(item, left, right, operator, steps)]
        return result

    return evaluate


def _passes_filter(item: Any, left: Sequence[Node], right: Sequence[Node], operator: str, steps: Steps) -> bool:
    lefts = _walk(left, [item], steps)
    if operator == "exists":
        return bool(lefts)
    if not lefts:
        return False
    rights = _walk(right, [item], steps)
    if not rights:
        return False
    if len(lefts) > 1 or len(rights) > 1:
        raise _EvaluationError("can only compare one element at a time")
    compare = _OPERATORS.get(operator)
    one, other = lefts[0], rights[0]
    if compare is None or type(one) is not type(other) or not isinstance(one, str | int | float):
        raise _EvaluationError("incompatible types for comparison")
    return compare(one, other)
