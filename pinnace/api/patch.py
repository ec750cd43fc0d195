"""Patches: what is to be different about an object, as JSON.

    MERGE             RFC 7386
    STRATEGIC_MERGE   as Kubernetes documents it: lists whose items have an identity merge item by item, sets grow
    JSON              RFC 6902: operations, see pinnace.api.jsonpatch

The first two merge as `apply` does (pinnace.api.merge), with nothing that was wanted before. The items of a list come in the
order of the patch, new ones before those that it does not name. A directive takes something away from what is there; then the
rest of the patch is merged:

    {"$patch": "replace", ...}                 the object is what follows; as an item of a list: the list is the other items
    {"$patch": "delete"}                       the object is empty; as an item of a list: the item of this identity goes
    {"$deleteFromPrimitiveList/<field>": [..]} these values go from the list
    {"$retainKeys": [..]}                      all fields but these go

Anything else that looks like a directive stays in the object as a field that there is not, and is refused by its name. So is
$setElementOrder, which only a client that merges by itself needs.

Differs from Kubernetes: ports are told apart by their number and protocol (as its server-side apply does), spread constraints
by their key and whenUnsatisfiable.

Source: https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/ and
https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pinnace.api.jsonextent import MAX_VALUES, left
from pinnace.api.jsonpatch import JsonPatchError, Operation, applied, operations
from pinnace.api.merge import SETS, Data, Key, Merge, in_order, is_list, key_of
from pinnace.api.verbs_pb2 import PatchRequest

_PATCH, _RETAIN, _DELETE_FROM = "$patch", "$retainKeys", "$deleteFromPrimitiveList"
_REPLACE, _DELETE = "replace", "delete"
_TOO_DEEP = "nested too deeply"


Patch = Data | Sequence[Operation]


class PatchError(ValueError):
    """This is no patch, or it does not apply."""


def parse(text: bytes, kind: PatchRequest.Type) -> Patch:
    """The patch as data. Raises PatchError."""
    try:
        patch = json.loads(text.decode(), parse_constant=_no_constant)
        json.dumps(patch, ensure_ascii=False).encode()  # halves of characters ("\ud800") are JSON, but no text
    except UnicodeError:
        raise PatchError("not a text in UTF-8") from None
    except ValueError as error:
        raise PatchError(f"not JSON: {error}") from None
    except RecursionError:
        raise PatchError(_TOO_DEEP) from None
    if kind == PatchRequest.JSON:
        try:
            return operations(patch)
        except JsonPatchError as error:
            raise PatchError(str(error)) from None
    if not isinstance(patch, Mapping):
        raise PatchError("expected a JSON object")
    if left(MAX_VALUES, patch) < 0:
        raise PatchError(f"more than {MAX_VALUES:,} values: send it in parts")
    return patch


def patched(live: Data, kind: PatchRequest.Type, patch: Patch) -> dict[str, Any]:
    """The object as the patch wants it: its JSON form, which may be that of no valid object. Raises PatchError."""
    try:
        result = _MERGES[kind].objects({}, live, patch) if isinstance(patch, Mapping) else applied(dict(live), patch)
    except RecursionError:
        raise PatchError(_TOO_DEEP) from None
    except JsonPatchError as error:
        raise PatchError(str(error)) from None
    if not isinstance(result, dict):
        raise PatchError("what comes of it is no JSON object")
    return result


class _Strategic(Merge):
    def objects(self, last: Data, live: Data, desired: Data) -> dict[str, Any]:
        match desired.get(_PATCH):
            case "delete":
                return {}
            case "replace":
                live = {}
        kept, fields = dict(live), dict[str, Any]()
        for name, value in desired.items():
            directive, _, field = name.partition("/")
            if name == _PATCH and value == _REPLACE:
                continue
            if name == _RETAIN and is_list(value):
                named = _plain(value)
                kept = {each: kept[each] for each in kept if each in named}
            elif directive == _DELETE_FROM and is_list(value) and is_list(kept.get(field, ())):
                gone = _plain(value)
                kept[field] = [each for each in kept.get(field, ()) if not _is_in(gone, each)]
            else:
                fields[name] = value
        return super().objects(last, kept, fields)

    def lists(self, name: str, last: Sequence[Any], live: Sequence[Any], desired: Sequence[Any]) -> list[Any] | None:
        if name in SETS:
            return _united(live, desired)
        if any(key_of(name, item) is None for item in (*live, *desired)):
            return None
        directives = [item.get(_PATCH) for item in desired]
        gone = {key_of(name, item) for item, directive in zip(desired, directives, strict=True) if directive == _DELETE}
        present = [] if _REPLACE in directives else [item for item in live if key_of(name, item) not in gone]
        places: dict[Key | None, int] = {}  # of the first item that is the same one
        for index, item in enumerate(present):
            places.setdefault(key_of(name, item), index)
        changed = dict[Key | None, Any]()
        for item, directive in zip(desired, directives, strict=True):
            if directive not in (_REPLACE, _DELETE):
                key = key_of(name, item)
                before = changed[key] if key in changed else present[places[key]] if key in places else {}
                changed[key] = self.objects({}, before, item)
        found = [(places.get(key), item) for key, item in changed.items()]
        taken = {index for index, _ in found}
        return in_order([(index, deepcopy(item)) for index, item in enumerate(present) if index not in taken], found)


def _united(live: Sequence[Any], desired: Sequence[Any]) -> list[Any]:
    """Two sets of values. What is no value is for the reader to refuse."""
    places = {item: index for index, item in enumerate(live) if not isinstance(item, dict | list)}
    wanted = _plain(desired)
    odd = [item for item in desired if isinstance(item, dict | list)]
    found = [(places.get(item), item) for item in dict.fromkeys(item for item in desired if _is_in(wanted, item))]
    return in_order([(index, item) for index, item in enumerate(live) if not _is_in(wanted, item)], found) + odd


_MERGES: Mapping[PatchRequest.Type, Merge] = {PatchRequest.MERGE: Merge(), PatchRequest.STRATEGIC_MERGE: _Strategic()}


def _plain(values: Sequence[Any]) -> set[Any]:
    """Those of the values that have no parts: what sets hold, and names."""
    return {value for value in values if not isinstance(value, dict | list)}


def _is_in(plain: set[Any], value: Any) -> bool:
    return not isinstance(value, dict | list) and value in plain


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
