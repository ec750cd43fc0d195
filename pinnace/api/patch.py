"""Application of patches to the JSON forms of objects.

    MERGE             RFC 7386 (pinnace.api.merge)
    STRATEGIC_MERGE   Kubernetes' strategic merge (pinnace.api.strategic_merge)
    JSON              RFC 6902: a list of operations that are applied atomically

Source: https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor

from pinnace.api import strategic_merge
from pinnace.api.merge import Data, merge_json
from pinnace.api.verbs_pb2 import PatchRequest

MAX_VALUES = 100_000
"""The maximum number of values in a patch: fields of objects and items of arrays at any depth. The largest known definition
of a custom resource has 32,000."""
MAX_COPIED_VALUES = 10_000
"""The maximum number of values that the copies in a patch add."""
MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20
"""The maximum total size of the copies in a patch, in bytes of JSON. Without a limit, each copy could double the document."""
MAX_DEPTH = 100
"""The maximum number of segments of a path. No API object is as deep."""
_OPS = ("add", "remove", "replace", "move", "copy", "test")
_TAKES_VALUE = ("add", "replace", "test")
_TAKES_FROM = ("move", "copy")
_WHOLE = re.compile("0|-?[1-9][0-9]{0,8}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
Pointer = tuple[str, ...]
_TOO_DEEP = "nested too deeply"
Patch = Data | Sequence[Data]


def count_room_left(room: int, document: Any) -> int:
    """Return `room` minus the number of values in the document. Counting stops when the result is negative."""
    waiting = [document]
    while waiting and room >= 0:
        match waiting.pop():
            case dict() as found:
                room -= len(found)
                waiting.extend(found.values() if room >= 0 else ())
            case list() as items:
                room -= len(items)
                waiting.extend(items if room >= 0 else ())
    return room


class JsonPatchError(ValueError):
    """The JSON patch is invalid or cannot be applied."""


@dataclass(frozen=True, slots=True)
class Operation:
    op: str
    path: Pointer
    value: Any = None
    source: Pointer = ()
    """The "from" of a move or copy operation."""


def check_operations(patch: object) -> Sequence[Data]:
    """Check that a JSON patch is a list of objects. `apply_json_patch` reads the operations. Raises JsonPatchError."""
    if not isinstance(patch, Sequence) or isinstance(patch, str):
        raise JsonPatchError("expected a JSON array of operations")
    if len(patch) > MAX_OPERATIONS:
        raise JsonPatchError(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}")
    for number, operation in enumerate(patch):
        if not isinstance(operation, Mapping):
            raise JsonPatchError(f"operation {number}: expected a JSON object")
    if count_room_left(MAX_VALUES, [operation.get("value") for operation in patch if operation.get("op") in _TAKES_VALUE]) < 0:
        raise JsonPatchError(f"more than {MAX_VALUES:,} values: split the patch")
    return patch


def apply_json_patch(document: Any, patch: Sequence[Data]) -> Any:
    """Return the patched document. The arguments are not modified. Raises JsonPatchError, and RecursionError for deeply nested
    values."""
    editor = _Editor(deepcopy(document))
    for number, operation in enumerate(patch):
        editor.do(_read_operation(number, operation))
    return editor.document


class _Editor:
    """Applies operations to `document` in place."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied = 0
        self._room = MAX_COPIED_VALUES  # the number of values that copies can still add

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
                self._test_value(path, operation.value)

    def _add(self, op: str, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, last = self._find_parent(op, path), path[-1]
        if isinstance(parent, dict):
            parent[last] = value
        else:
            parent.insert(_array_index(op, path, len(parent), last, behind=True), value)

    def _remove(self, op: str, path: Pointer) -> Any:
        """Remove the value at the path and return it."""
        if not path:
            raise JsonPatchError(f"{op} operation does not apply: the whole document cannot be removed")
        parent, key = self._find_place(op, path)
        return parent.pop(key)

    def _replace(self, path: Pointer, value: Any) -> None:
        if not path:
            self.document = value
            return
        parent, last = self._find_parent("replace", path), path[-1]
        parent[_array_index("replace", path, len(parent), last) if isinstance(parent, list) else last] = value

    def _move(self, source: Pointer, path: Pointer) -> None:
        if path[: len(source)] == source:
            if path == source:
                self._find("move", source)
                return
            raise JsonPatchError(f'move operation does not apply: "{_show_pointer(source)}" cannot be moved into itself')
        self._add("move", path, self._remove("move", source))

    def _copy(self, source: Pointer) -> Any:
        result = self._find_or_null("copy", source)
        self._room = count_room_left(self._room, result)
        if self._room < 0:
            raise JsonPatchError(f"copy operation does not apply: the copies exceed {MAX_COPIED_VALUES:,} values")
        text = json.dumps(result, ensure_ascii=False)
        self._copied += len(text)
        if self._copied > MAX_COPIED:
            raise JsonPatchError(f"copy operation does not apply: the copies exceed {MAX_COPIED} bytes")
        return json.loads(text)  # five times as fast as deepcopy

    def _test_value(self, path: Pointer, value: Any) -> None:
        if not json_equal(self._find_or_null("test", path), value):
            raise JsonPatchError(f"testing value {_show_pointer(path)} failed: test failed")

    def _find_or_null(self, op: str, path: Pointer) -> Any:
        """Find a value like `_find`. A missing field of an object is null."""
        parent = self._find_parent(op, path) if path else None
        return parent.get(path[-1]) if isinstance(parent, dict) else self._find(op, path)

    def _find(self, op: str, path: Pointer) -> Any:
        if not path:
            return self.document
        parent, key = self._find_place(op, path)
        return parent[key]

    def _find_place(self, op: str, path: Pointer) -> tuple[Any, str | int]:
        """Return the object or array that contains the value at the path, and the name or index of the value."""
        parent, last = self._find_parent(op, path), path[-1]
        if isinstance(parent, list):
            return parent, _array_index(op, path, len(parent), last)
        if last not in parent:
            raise _missing_path_error(op, path)
        return parent, last

    def _find_parent(self, op: str, path: Pointer) -> Any:
        """Return the object or array that contains the last segment of the path."""
        result = self.document
        for part in path[:-1]:
            result = _find_child(op, path, result, part)
        if not isinstance(result, (dict, list)):
            raise _missing_path_error(op, path)
        return result


def _find_child(op: str, path: Pointer, parent: Any, part: str) -> Any:
    if isinstance(parent, dict) and part in parent:
        return parent[part]
    if isinstance(parent, list):
        return parent[_array_index(op, path, len(parent), part)]
    raise _missing_path_error(op, path)


def _array_index(op: str, path: Pointer, length: int, part: str, *, behind: bool = False) -> int:
    """Return the index of an array item. `behind`: the position after the last item is valid."""
    if behind and part == "-":
        return length
    if not _WHOLE.fullmatch(part):
        raise JsonPatchError(f'{op} operation does not apply: "{part[:32]}" in "{_show_pointer(path)}" is not an array index')
    places, index = length + behind, int(part)
    if not -places <= index < places:
        raise _missing_path_error(op, path)
    return index % places


def _read_operation(number: int, data: Data) -> Operation:
    where = f"operation {number}"
    op = data.get("op")
    if op not in _OPS:
        raise JsonPatchError(f"{where}: op: expected one of {', '.join(_OPS)}")
    if op in _TAKES_VALUE and "value" not in data:
        raise JsonPatchError(f"{where}: {op} requires a value")
    source = _parse_pointer(where, "from", data.get("from")) if op in _TAKES_FROM else ()
    return Operation(op, _parse_pointer(where, "path", data.get("path")), data.get("value"), source)


def _parse_pointer(where: str, name: str, text: object) -> Pointer:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise JsonPatchError(f'{where}: {name}: expected a JSON pointer, for example "/metadata/labels/app"')
    parts = text.split("/")[1:]
    if len(parts) > MAX_DEPTH:
        raise JsonPatchError(f"{where}: {name}: more than {MAX_DEPTH} segments")
    if any("~" in part.replace("~0", "").replace("~1", "") for part in parts):
        raise JsonPatchError(f'{where}: {name}: "~" must be escaped as "~0", and "/" in a name as "~1"')
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def _show_pointer(path: Pointer) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _missing_path_error(op: str, path: Pointer) -> JsonPatchError:
    return JsonPatchError(f'{op} operation does not apply: doc is missing path: "{_show_pointer(path)}": missing value')


def json_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Numbers are compared by value; booleans are not numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(json_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class PatchError(ValueError):
    """The patch is invalid or cannot be applied."""


class PatchFormatError(PatchError):
    """A directive of a strategic merge patch has the wrong form."""


class UnmergeableError(PatchError):
    """A strategic merge patch cannot be merged into the object. Kubernetes returns 500."""


def parse(text: bytes, kind: PatchRequest.Type) -> Patch:
    """Parse a patch of this type. Raises PatchError."""
    try:
        parse_float = float if kind in (PatchRequest.MERGE, PatchRequest.JSON) else _whole_or_float
        decoded = text.decode()
        patch = json.loads(decoded, parse_constant=_no_constant, parse_float=parse_float)
        if _SURROGATE.search(decoded):
            json.dumps(patch, ensure_ascii=False).encode()  # rejects unpaired surrogates ("\ud800"), which are valid JSON
    except UnicodeError:
        raise PatchError("not valid UTF-8") from None
    except ValueError as error:
        raise PatchError(f"not JSON: {error}") from None
    except RecursionError:
        raise PatchError(_TOO_DEEP) from None
    if kind == PatchRequest.JSON:
        try:
            return check_operations(patch)
        except JsonPatchError as error:
            raise PatchError(str(error)) from None
    if not isinstance(patch, Mapping):
        raise PatchError("expected a JSON object")
    if count_room_left(MAX_VALUES, patch) < 0:
        raise PatchError(f"more than {MAX_VALUES:,} values: split the patch")
    return patch


def apply_any_patch(live: Data, kind: PatchRequest.Type, patch: Patch, message: Descriptor | None = None) -> dict[str, Any]:
    """Return the JSON form of the patched object. `message`: its type, whose merge keys a strategic merge uses. The result is
    not validated. Raises PatchError."""
    try:
        result = _apply_patch(live, kind, patch, message)
    except RecursionError:
        raise PatchError(_TOO_DEEP) from None
    except strategic_merge.FormatError as error:
        raise PatchFormatError(str(error)) from None
    except strategic_merge.MergeError as error:
        raise UnmergeableError(str(error)) from None
    except (JsonPatchError, strategic_merge.ListOfListsError) as error:
        raise PatchError(str(error)) from None
    if not isinstance(result, dict):
        raise PatchError("the result is not a JSON object")
    return result


def _apply_patch(live: Data, kind: PatchRequest.Type, patch: Patch, message: Descriptor | None) -> Any:
    if not isinstance(patch, Mapping):
        return apply_json_patch(dict(live), patch)
    if kind == PatchRequest.STRATEGIC_MERGE:
        return strategic_merge.merge(live, patch, message)
    return merge_json(live, patch)


def with_reset(form: dict[str, Any]) -> dict[str, Any]:
    """An empty list of managedFields resets them, as an empty entry does: messages do not tell empty lists from absent ones."""
    metadata = form.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        return {**form, "metadata": {**metadata, "managedFields": [{}]}}
    return form


def _whole_or_float(text: str) -> int | float:
    """Convert an integral number such as 3.0 to an integer, as Kubernetes does for strategic merge patches and applies."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
