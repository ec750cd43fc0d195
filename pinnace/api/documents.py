"""A parser that reads YAML or JSON text as plain data with line numbers.

The data consists of dictionaries with string keys, lists, and JSON scalars. Scalars are interpreted as by Kubernetes' tools: as
in YAML 1.1, an unquoted `yes` is a boolean and `0644` is octal. Dates and keys remain strings. Most JSON is valid YAML. JSON
that is not, such as a sequence of objects (the output of jq), is parsed as JSON with one line number per object.

The text is untrusted. It is parsed event by event (JSON object by object), and parsing stops when a limit is exceeded: size,
depth, or number of values after alias expansion. Values are plain data: no tag creates an object.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

import yaml
from yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

MAX_SIZE = 3 << 20
"""The maximum size of a text in bytes."""
MAX_DEPTH = 64
MAX_NODES = 500_000
"""The maximum number of values in a text, after alias expansion. A manifest with 1,000 pods has about 50,000."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"
_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq")} | {"!", None}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_BINARY = re.compile(r"[-+]?0[bB][01]+")
_OCTAL = re.compile(r"[-+]?0[oO]?[0-7]+")
_HEXADECIMAL = re.compile(r"[-+]?0[xX][0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    word: value
    for spellings, value in (("~ null", None), ("true yes on y", True), ("false no off n", False))
    for spelling in spellings.split()
    for word in (spelling, spelling.capitalize(), spelling.upper())
} | {"": None}
_NUMBERS = (_INTEGER, _BINARY, _OCTAL, _HEXADECIMAL, _FLOAT)
_NUMERIC = frozenset("+-.0123456789")
"""The first characters of numbers."""
_MAX_PLAIN = 64
"""The maximum length of a number or word. Longer scalars are strings."""
_SPACE = re.compile(r"[ \t\r\n]*")
_NO_UNICODE = "not valid Unicode"


class DocumentError(ValueError):
    """The text cannot be parsed beyond this line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _NotYaml(DocumentError):
    """The text is not valid YAML. It may be valid JSON."""


class LocatedDict(dict[str, Any]):
    """A dictionary with line numbers. `line`: the first line of the mapping. `lines`: the line of each key. Lines start at
    1."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class LocatedList(list[Any]):
    """A list with line numbers. `line`: the first line of the list. `lines`: the line of each item. Lines start at 1."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


@dataclass(frozen=True, slots=True)
class Document:
    data: Any
    line: int
    mistakes: tuple[tuple[int, str], ...]
    """Errors that do not prevent parsing, such as duplicate keys: (line, message)."""


def parse(text: str) -> Iterator[Document]:
    """Yield the documents of a text. Empty documents are skipped. Raises DocumentError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise DocumentError(text.count("\n", 0, error.start) + 1, _NO_UNICODE) from None
    if size > MAX_SIZE:
        raise DocumentError(1, f"the text is too large: {size} bytes, at most {MAX_SIZE} are allowed")
    if not text.lstrip().startswith("{"):
        yield from _parse_yaml(text)
        return
    try:
        documents = list(_parse_yaml(text))
    except _NotYaml as error:
        yield from _JsonParser(text).documents(error)
    else:
        yield from documents


def load_plain_documents(text: str) -> list[Any]:
    """Return the documents of a configuration file as plain dictionaries and lists. Raises DocumentError, including for
    duplicate keys."""
    result = []
    for document in parse(text):
        for line, what in document.mistakes:
            raise DocumentError(line, what)
        result.append(_to_plain_value(document.data))
    return result


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_plain_value(item) for key, item in value.items()}
    return [_to_plain_value(item) for item in value] if isinstance(value, list) else value


def _parse_yaml(text: str) -> Iterator[Document]:
    try:
        yield from _Parser(text).documents()
    except yaml.YAMLError as error:
        raise _NotYaml(*describe_yaml_error(error, text)) from None


def describe_yaml_error(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return the line of a YAML error and its message on one line."""
    match error:
        case yaml.MarkedYAMLError():
            mark = error.problem_mark or error.context_mark
            what = ", ".join(part for part in (error.context, error.problem) if part)
            return mark.line + 1 if mark else 1, f"invalid YAML: {what}"
        case yaml.reader.ReaderError():
            return text.count("\n", 0, error.position) + 1, f"invalid YAML: {error.reason}"
    return 1, f"invalid YAML: {error}"


def is_string_unquoted(text: str) -> bool:
    """Return whether an unquoted scalar is interpreted as a string. Numbers of any length are not, because Kubernetes' tools
    interpret them as numbers."""
    return text not in _WORDS and not any(form.fullmatch(_without_underscores(text)) for form in _NUMBERS)


def line_of(data: object, path: tuple[str | int, ...], line: int) -> int:
    """Return the line of the value at the path, or of its nearest parent with a line. `line` is the line of `data`."""
    for step in path:
        if isinstance(data, LocatedDict) and step in data:
            line, data = data.lines[str(step)], data[str(step)]
        elif isinstance(data, LocatedList) and isinstance(step, int) and step < len(data):
            line, data = data.lines[step], data[step]
        else:
            break
    return line


class _Parser:
    def __init__(self, text: str) -> None:
        self._next = _LOADER(text).get_event
        self._nodes = 0
        self._anchors: dict[str, tuple[Any, int]] = {}
        """Values by anchor, each with its number of nodes after alias expansion."""
        self._mistakes: list[tuple[int, str]] = []

    def documents(self) -> Iterator[Document]:
        while (event := self._next()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors, self._mistakes = {}, []
                root = self._next()
                line = root.start_mark.line + 1
                data = self._parse_value(root, 0)
                if data is not None:
                    yield Document(data, data.line if isinstance(data, LocatedDict) else line, tuple(self._mistakes))

    def _parse_value(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is AliasEvent:
            return self._resolve_alias(event)
        before = self._nodes
        self._count(1, event)
        if event.tag not in _KNOWN_TAGS:
            raise DocumentError(event.start_mark.line + 1, f"the tag {event.tag} is not supported")
        value: Any
        if kind is ScalarEvent:
            value = _scalar_value(event)
        elif depth == MAX_DEPTH:
            raise _too_deep(event.start_mark.line + 1)
        elif kind is MappingStartEvent:
            value = self._parse_mapping(event, depth + 1)
        else:
            assert kind is SequenceStartEvent
            value = self._parse_sequence(event, depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _parse_mapping(self, start: Any, depth: int) -> LocatedDict:
        value = LocatedDict(start.start_mark.line + 1)
        lines = value.lines
        merged: list[LocatedDict] = []
        while type(event := self._next()) is not MappingEndEvent:
            line = event.start_mark.line + 1
            key = self._parse_key(event, line)
            item = self._parse_value(self._next(), depth)
            if key == _MERGE and event.implicit[0]:
                merged.extend(self._merge_sources(item, line))
            elif key in lines:
                self._mistakes.append((line, f'"{key}" is duplicated; first defined on line {lines[key]}'))
            else:
                value[key], lines[key] = item, line
        for source in merged:
            self._count(len(source), start)
            for key in source:
                if key not in lines:
                    value[key], lines[key] = source[key], source.lines[key]
        return value

    def _merge_sources(self, item: Any, line: int) -> list[LocatedDict]:
        """Return the mappings of a merge key. The mapping's own keys take precedence, followed by those of the first
        mapping."""
        sources = item if isinstance(item, LocatedList) else [item]
        if not all(isinstance(source, LocatedDict) for source in sources):
            raise DocumentError(line, "a merge key (<<) requires a mapping or a list of mappings")
        return list(sources)

    def _parse_key(self, event: Any, line: int) -> str:
        if type(event) is not ScalarEvent:
            raise DocumentError(line, "a key must be a string")
        return _scalar_text(event)

    def _parse_sequence(self, start: Any, depth: int) -> LocatedList:
        value = LocatedList(start.start_mark.line + 1)
        while type(event := self._next()) is not SequenceEndEvent:
            value.lines.append(event.start_mark.line + 1)
            value.append(self._parse_value(event, depth))
        return value

    def _resolve_alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise DocumentError(event.start_mark.line + 1, f"the alias *{event.anchor} has no preceding anchor")
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        return value

    def _count(self, nodes: int, event: Any) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _too_many(event.start_mark.line + 1)


class _JsonParser:
    """Parses a sequence of JSON objects."""

    def __init__(self, text: str) -> None:
        self._json = text
        self._line = 1
        self._nodes = 0
        self._mistakes: list[tuple[int, str]] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._build_object,
            parse_float=_unquoted_value,
            parse_int=_unquoted_value,
            parse_constant=_no_constant,
        )

    def documents(self, otherwise: DocumentError) -> Iterator[Document]:
        """Yield the objects of the text. Raises `otherwise` if the first object is invalid, because the text is not JSON
        then."""
        end = 0
        while (start := _next_object_position(self._json, end)) < len(self._json):
            self._line += self._json.count("\n", end, start)
            self._mistakes = []
            try:
                data, stop = self._decoder.raw_decode(self._json, start)
            except RecursionError:
                raise _too_deep(self._line) from None
            except ValueError as error:
                if end == 0:
                    raise otherwise from None
                line, what = (error.lineno, error.msg) if isinstance(error, json.JSONDecodeError) else (self._line, error)
                raise DocumentError(line, f"invalid JSON: {what}") from None
            self._check(data, 0)
            yield Document(data, self._line, tuple(self._mistakes))
            self._line += self._json.count("\n", start, stop)
            end = stop

    def _build_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, item in pairs:
            if key in value:
                self._mistakes.append((self._line, f'"{key}" is duplicated'))
            else:
                value[key] = item
        return value

    def _check(self, value: Any, depth: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _too_many(self._line)
        if isinstance(value, str):
            self._check_text(value)
        elif isinstance(value, dict | list):
            if depth == MAX_DEPTH:
                raise _too_deep(self._line)
            for key in value if isinstance(value, dict) else ():
                self._check_text(key)
            for item in value.values() if isinstance(value, dict) else value:
                self._check(item, depth + 1)

    def _check_text(self, text: str) -> None:
        if not _is_unicode(text):
            raise DocumentError(self._line, _NO_UNICODE)


def _next_object_position(text: str, at: int) -> int:
    """Return the position of the next object, or of the end of the text."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _too_deep(line: int) -> DocumentError:
    return DocumentError(line, f"nested more than {MAX_DEPTH} levels deep")


def _too_many(line: int) -> DocumentError:
    return DocumentError(line, f"more than {MAX_NODES} values after alias expansion")


def _is_unicode(text: str) -> bool:
    """Return whether the text is valid Unicode. JSON can contain an unpaired surrogate ("\\ud800"), which is invalid."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scalar_text(event: Any) -> str:
    """Return the text of a scalar. Unicode is checked here because PyYAML's pure Python loader accepts unpaired surrogates,
    unlike its C loader."""
    text: str = event.value
    if not _is_unicode(text):
        raise _NotYaml(event.start_mark.line + 1, _NO_UNICODE)
    return text


def _scalar_value(event: Any) -> Any:
    text = _scalar_text(event)
    if (event.implicit[0] and event.tag is None) or event.tag not in (None, "!", _TAG + "str"):
        return _unquoted_value(text)
    return text


def _unquoted_value(text: str) -> Any:
    return _resolve_plain_scalar(text) if len(text) <= _MAX_PLAIN else text


def _without_underscores(text: str) -> str:
    """Remove underscores from text that starts like a number, because go-yaml ignores them (1_000)."""
    return text.replace("_", "") if text[:1] in _NUMERIC else text


@lru_cache(maxsize=4096)
def _resolve_plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    digits = _without_underscores(text)
    if any(form.fullmatch(digits) for form in _NUMBERS):
        text = digits
    if _BINARY.fullmatch(text):
        return int(text, 2)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text.lower().replace("o", ""), 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text) and isfinite(number := float(text)):
        return int(number) if number.is_integer() else number  # as in the JSON of Kubernetes' tools
    return text
