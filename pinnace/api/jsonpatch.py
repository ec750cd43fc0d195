"""JSON patches: operations on a JSON document, one after another; all of them, or none.

    {"op": "add", "path": P, "value": V}      a field is set, an item goes in before the one there ("-": behind the last)
    {"op": "remove", "path": P}
    {"op": "replace", "path": P, "value": V}  what is there is replaced; a field is set
    {"op": "move", "from": P, "path": P}      as remove and add
    {"op": "copy", "from": P, "path": P}      as add of what is there
    {"op": "test", "path": P, "value": V}     fails unless it is there and equal

A path is a JSON pointer: "/spec/taints/0"; "~1" stands for "/", "~0" for "~"; "" is the whole document. Messages are those of
the library that Kubernetes uses, and so are the limits: a patch can make no more of a document than it says itself, and
MAX_COPIED. That of the values which it says, and of those which it copies, is ours (see jsonextent).

As in Kubernetes, and unlike in the RFC, a field need not be there to be replaced, one that is not there is null to test and
copy, and -1 is the last item of an array (of an add: behind it).

Source: https://www.rfc-editor.org/rfc/rfc6902, https://www.rfc-editor.org/rfc/rfc6901 and, for what differs from them,
https://github.com/evanphx/json-patch/tree/v4.12.0
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pinnace.api.jsonextent import MAX_VALUES, left

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20
"""Bytes of JSON that the copies of one patch may add up to: each could double the document."""
MAX_DEPTH = 100
"""Parts of a path. No object of the API is so deep."""

_OPS = ("add", "remove", "replace", "move", "copy", "test")
_TAKES_VALUE = ("add", "replace", "test")
_TAKES_FROM = ("move", "copy")
_WHOLE = re.compile("0|-?[1-9][0-9]{0,8}")

Pointer = tuple[str, ...]


class JsonPatchError(ValueError):
    """The patch is none, or does not apply."""


@dataclass(frozen=True, slots=True)
class Operation:
    op: str
    path: Pointer
    value: Any = None
    source: Pointer = ()
    """Of a move or copy: "from"."""


def operations(patch: object) -> Sequence[Operation]:
    """A patch out of its JSON. Raises JsonPatchError."""
    if not isinstance(patch, Sequence) or isinstance(patch, str):
        raise JsonPatchError("expected a JSON array of operations")
    if len(patch) > MAX_OPERATIONS:
        raise JsonPatchError(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}")
    found = [_operation(number, each) for number, each in enumerate(patch)]
    if left(MAX_VALUES, [each.value for each in found if each.op in _TAKES_VALUE]) < 0:
        raise JsonPatchError(f"more than {MAX_VALUES:,} values: send it in parts")
    return found


def applied(document: Any, patch: Sequence[Operation]) -> Any:
    """The document as the patch leaves it; both stay as they were. Raises JsonPatchError, and RecursionError for values that
    are nested too deeply."""
    editor = _Editor(deepcopy(document))
    for operation in patch:
        editor.do(operation)
    return editor.document


class _Editor:
    """`document` is changed in place."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied = 0
        self._room = MAX_VALUES  # of copies

    def do(self, operation: Operation) -> None:
        path = operation.path
        match operation.op:
            case "add":
                self._add("add", path, deepcopy(operation.value))
            case "remove":
                self._remove("remove", path)
            case "replace":
                self._replace(path, deepcopy(operation.value))
            case "move":
                self._move(operation.source, path)
            case "copy":
                self._add("copy", path, self._copy(operation.source))
            case "test":
                self._test(path, operation.value)

    def _add(self, op: str, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, last = self._parent(op, path), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        else:
            parent.insert(_index(op, path, len(parent), last, behind=True), value)

    def _remove(self, op: str, path: Pointer) -> Any:
        """What was there."""
        if not path:
            raise JsonPatchError(f"{op} operation does not apply: the whole document cannot be removed")
        parent, key = self._place(op, path)
        return parent.pop(key)

    def _replace(self, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, last = self._parent("replace", path), path[-1]
        parent[_index("replace", path, len(parent), last) if isinstance(parent, list) else last] = value

    def _move(self, source: Pointer, path: Pointer) -> None:
        if path[: len(source)] == source:
            if path == source:
                self._find("move", source)
                return
            raise JsonPatchError(f'move operation does not apply: "{_text(source)}" cannot be moved into itself')
        self._add("move", path, self._remove("move", source))

    def _copy(self, source: Pointer) -> Any:
        found = self._field("copy", source)
        self._room = left(self._room, found)
        if self._room < 0:
            raise JsonPatchError(f"copy operation does not apply: the copies exceed {MAX_VALUES:,} values")
        self._copied += len(json.dumps(found, ensure_ascii=False))
        if self._copied > MAX_COPIED:
            raise JsonPatchError(f"copy operation does not apply: the copies exceed {MAX_COPIED} bytes")
        return deepcopy(found)

    def _test(self, path: Pointer, value: Any) -> None:
        if not _equal(self._field("test", path), value):
            raise JsonPatchError(f"testing value {_text(path)} failed: test failed")

    def _field(self, op: str, path: Pointer) -> Any:
        """As `_find`, but that a field is null that is not there."""
        parent = self._parent(op, path) if path else None
        return parent.get(path[-1]) if isinstance(parent, dict) else self._find(op, path)

    def _find(self, op: str, path: Pointer) -> Any:
        if not path:
            return self.document
        parent, key = self._place(op, path)
        return parent[key]

    def _place(self, op: str, path: Pointer) -> tuple[Any, str | int]:
        """An object or array, and the name or index of what is there at the path."""
        parent, last = self._parent(op, path), path[-1]
        if isinstance(parent, list):
            return parent, _index(op, path, len(parent), last)
        if last not in parent:
            raise _missing(op, path)
        return parent, last

    def _parent(self, op: str, path: Pointer) -> Any:
        """The object or array that the last part of the path is about."""
        found = self.document
        for part in path[:-1]:
            found = _child(op, path, found, part)
        if not isinstance(found, (dict, list)):
            raise _missing(op, path)
        return found


def _child(op: str, path: Pointer, parent: Any, part: str) -> Any:
    if isinstance(parent, dict) and part in parent:
        return parent[part]
    if isinstance(parent, list):
        return parent[_index(op, path, len(parent), part)]
    raise _missing(op, path)


def _index(op: str, path: Pointer, length: int, part: str, *, behind: bool = False) -> int:
    """Of an item of an array. `behind`: that may also be where the next one would be."""
    if behind and part == "-":
        return length
    if not _WHOLE.fullmatch(part):
        raise JsonPatchError(f'{op} operation does not apply: "{part[:32]}" in "{_text(path)}" is no index of an array')
    places, index = length + behind, int(part)
    if not -places <= index < places:
        raise _missing(op, path)
    return index % places


def _operation(number: int, data: object) -> Operation:
    where = f"operation {number}"
    if not isinstance(data, Mapping):
        raise JsonPatchError(f"{where}: expected a JSON object")
    op = data.get("op")
    if op not in _OPS:
        raise JsonPatchError(f"{where}: op: expected one of {', '.join(_OPS)}")
    if op in _TAKES_VALUE and "value" not in data:
        raise JsonPatchError(f"{where}: {op} needs a value")
    source = _pointer(where, "from", data.get("from")) if op in _TAKES_FROM else ()
    return Operation(op, _pointer(where, "path", data.get("path")), data.get("value"), source)


def _pointer(where: str, name: str, text: object) -> Pointer:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise JsonPatchError(f'{where}: {name}: expected a JSON pointer, such as "/metadata/labels/app"')
    parts = text.split("/")[1:]
    if len(parts) > MAX_DEPTH:
        raise JsonPatchError(f"{where}: {name}: more than {MAX_DEPTH} parts")
    if any("~" in part.replace("~0", "").replace("~1", "") for part in parts):
        raise JsonPatchError(f'{where}: {name}: "~" is written "~0", and "/" in a name "~1"')
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _text(path: Pointer) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _missing(op: str, path: Pointer) -> JsonPatchError:
    return JsonPatchError(f'{op} operation does not apply: doc is missing path: "{_text(path)}": missing value')


def _equal(one: Any, other: Any) -> bool:
    """As JSON has it: numbers by their value, and true is no number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
