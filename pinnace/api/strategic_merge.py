"""Strategic merge patches, with the merge keys and strategies of the fields' Go types.

Objects are merged field by field, and null removes a field. A list is replaced, unless its field has the patch strategy
`merge`: then lists of values are united, and items of lists of objects with the same merge key are merged. The merge key is one
field (`x-kubernetes-patch-merge-key`), also where server-side apply uses several keys, so the first item with the key is meant:
ports are merged by containerPort, whatever their protocol. Items take the order of the patch; other items keep their position
relative to them.

    {"$patch": "replace", ...}                 replaces the object with the other fields; as a list item: replaces the list
    {"$patch": "delete"}                       empties the object; as a list item: removes the items with this key
    {"$deleteFromPrimitiveList/<field>": [..]} removes these values from the list
    {"$retainKeys": [..]}                      removes all fields except these, which must contain the fields of the patch
    {"$setElementOrder/<field>": [..]}         sorts the items of the list; the list of the patch must have the same order

Other fields with a directive's prefix remain in the object as unknown fields. Messages are those of Kubernetes.

Source: k8s.io/apimachinery/pkg/util/strategicpatch of Kubernetes 1.36.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api.codec import fields_of
from pinnace.api.schema import load_extensions, schema_name

_PATCH, _RETAIN, _DELETE_FROM, _ORDER = "$patch", "$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder"
_REPLACE, _DELETE, _MERGE = "replace", "delete", "merge"
_RETAIN_STRATEGY = "retainKeys"
_MERGE_KEY, _STRATEGY = "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy"
_MAP, _LIST = "map[string]interface {}", "[]interface {}"

Object = dict[str, Any]
Key = tuple[str, Any]
"""A value with its Go type: 80 and 80.0 differ, and so do 1 and true."""
_DROPPED = object()


class MergeError(ValueError):
    """The patch cannot be merged into the object."""


class FormatError(ValueError):
    """A directive of the patch has the wrong form."""


class ListOfListsError(ValueError):
    def __init__(self) -> None:
        super().__init__("lists of lists are not supported")


@dataclass(frozen=True, slots=True)
class _Schema:
    """The type of a value: an object of a message, or a map whose values have the type of a field. Neither: the type is
    unknown, and only maps are merged."""

    message: Descriptor | None = None
    value: FieldDescriptor | None = None


@dataclass(frozen=True, slots=True)
class _FieldSchema:
    element: _Schema
    """The type of the field, or of the items of a list."""
    is_list: bool = False
    strategy: str = ""
    key: str = ""
    """The merge key."""


def merge(live: Mapping[str, Any], patch: Mapping[str, Any], message: Descriptor | None) -> Object:
    """Return the patched object. `message`: the type of the object, or None for an object without lists. The arguments are not
    modified. Raises MergeError, FormatError, ListOfListsError, and RecursionError for deeply nested values."""
    return _merge_maps(_copy(live), _copy(patch), _Schema(message))


def _merge_maps(original: Object, patch: Object, schema: _Schema) -> Object:
    """Return the merged map. Both arguments are modified."""
    if _PATCH in patch:
        return _apply_directive(patch)
    if _RETAIN in patch:
        original = _retain(original, patch, patch.pop(_RETAIN))
    for name in [name for name in patch if name.startswith(_ORDER)]:
        _merge_ordered(original, patch, name, patch.pop(name), schema)
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            _merge_field(original, _field_of(name, _DELETE_FROM, "primitive list"), value, schema, deletes=True)
        else:
            _merge_field(original, name, value, schema)
    return original


def _apply_directive(patch: Object) -> Object:
    directive = patch[_PATCH]
    if directive == _REPLACE:
        del patch[_PATCH]
        return patch
    if directive == _DELETE:
        return {}
    raise _unknown_patch_type(directive, patch)


def _retain(original: Object, patch: Object, names: Any) -> Object:
    """Return the fields of `original` that $retainKeys contains. Raises FormatError if it lacks a field of the patch."""
    if not isinstance(names, list):
        raise FormatError("invalid patch format of retainKeys")
    retained = {name for name in names if isinstance(name, str)}
    for name, value in patch.items():
        if value is not None and name not in retained and not name.startswith((_DELETE_FROM, _ORDER)):
            raise FormatError("invalid patch format of retainKeys")
    return {name: value for name, value in original.items() if name in retained}


def _merge_field(original: Object, name: str, value: Any, schema: _Schema, *, deletes: bool = False) -> None:
    """Merge a value of the patch into the field. `deletes`: the value is a list of values to remove."""
    if value is None:
        original.pop(name, None)
        return
    live: Any = original.get(name)
    if name not in original or go_type_name(live) != go_type_name(value):
        if not deletes:
            _discard_nulls(value)
            _set_without_directives(original, name, value)
        return
    if isinstance(value, dict):
        field = _look_up(schema, name)
        original[name] = value if field.strategy == _REPLACE else _merge_maps(live, value, field.element)
    elif isinstance(value, list):
        original[name] = _merge_lists(live, value, _look_up_list(schema, name), deletes=deletes)
    else:
        original[name] = value


def _merge_lists(live: list[Any], patch: list[Any], field: _FieldSchema, *, deletes: bool = False) -> list[Any]:
    if field.strategy != _MERGE and not deletes:
        return patch
    if not live and not patch:
        return live
    if _element_type(live, patch) != _MAP:
        if deletes:
            gone = set(map(_hashable_key, patch))
            return [value for value in live if _hashable_key(value) not in gone]
        united = list({_hashable_key(value): value for value in (*live, *patch)}.values())
        return _in_order(united, patch, live, field.key)
    if not field.key:
        raise MergeError("cannot merge lists without merge key for struct")
    live, patch = _apply_item_directives(live, patch, field.key)
    return _in_order(_merge_items(live, patch, field), patch, live, field.key)


def _apply_item_directives(live: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Return the live list and the patch after the directives of the patch. A replaced list has no patch."""
    rest = [item for item in patch if _PATCH not in item]
    replaces, gone = False, set[Key]()
    for item in patch:
        directive = item.get(_PATCH)
        if directive == _DELETE:
            gone.add(_merge_key(item, key))
        elif directive == _REPLACE:
            replaces = True
        elif directive == _MERGE:
            raise MergeError("merging lists cannot yet be specified in the patch")
        elif _PATCH in item:
            raise _unknown_patch_type(directive, item)
    if replaces:
        return rest, []
    return [item for item in live if key not in item or _merge_key(item, key) not in gone] if gone else live, rest


def _merge_items(live: list[Any], patch: list[Any], field: _FieldSchema) -> list[Any]:
    """Merge each item of the patch into the first item with its key, or append it."""
    merged, places = list(live), dict[Key, int]()
    for place, item in enumerate(merged):
        if field.key in item:
            places.setdefault(_merge_key(item, field.key), place)
    for item in patch:
        key = _merge_key(item, field.key)
        if key in places:
            merged[places[key]] = _merge_maps(merged[places[key]], item, field.element)
        else:
            places[key] = len(merged)
            merged.append(item)
    return merged


def _merge_ordered(original: Object, patch: Object, directive: str, order: Any, schema: _Schema) -> None:
    """Merge the list that a $setElementOrder directive names, and sort it. The list is removed from the patch."""
    if not isinstance(order, list):
        raise _wrong_type(_LIST, order)
    name = _field_of(directive, _ORDER, "setElementOrder list")
    for result in (original, patch):
        if name in result and not isinstance(result[name], list):
            raise _wrong_type(_LIST, result[name])
    live: list[Any] = original.get(name, [])
    added: list[Any] = patch.get(name, [])
    field = _look_up_list(schema, name)
    _check_order(added, order, field.key)
    if name not in patch:
        if name not in original:
            return
        merged = live
    elif name not in original:
        merged = _without_directives(added)
    else:
        merged = _merge_lists(live, added, field)
    _element_type(live, added)
    original[name] = _in_order(merged, order, live, field.key)
    patch.pop(name, None)


def _check_order(patch: Sequence[Any], order: Sequence[Any], key: str) -> None:
    """Check that `order` contains the items of the patch in the same order, except those with directives."""
    if not patch or not order:
        return
    if key:
        for item in patch:
            _check_map(item)
    items = deque(item for item in patch if not (key and item.get(_PATCH) == _DELETE))
    for entry in order:
        while items and isinstance(items[0], dict) and _PATCH in items[0]:
            items.popleft()
        if items and _item_identity(items[0], key) == _item_identity(entry, key):
            items.popleft()
    if items:
        raise MergeError(
            f"The order in patch list:\n{_format_as_go(patch)}\n doesn't match {_ORDER} list:\n{_format_as_go(order)}\n"
        )


def _in_order(merged: Sequence[Any], order: Sequence[Any], live: Sequence[Any], key: str) -> list[Any]:
    """Sort the items in `order` by it. Other items keep their order; each is before the first of those that it preceded in
    `live`."""
    at, was = _index_by_key(order, key), _index_by_key(live, key)
    named, others = list[tuple[Any, Key]](), list[tuple[Any, Key]]()
    for item in merged:
        identity = _item_identity(item, key)
        (named if identity in at else others).append((item, identity))
    named.sort(key=lambda entry: at[entry[1]])
    added = [entry for entry in others if entry[1] not in was]
    others = [*reversed(added), *sorted((entry for entry in others if entry[1] in was), key=lambda entry: was[entry[1]])]
    result, index = list[Any](), 0
    for item, identity in named:
        while index < len(others) and identity in was and was.get(others[index][1], len(live)) < was[identity]:
            result.append(others[index][0])
            index += 1
        result.append(item)
    return [*result, *(item for item, _ in others[index:])]


def _index_by_key(items: Sequence[Any], key: str) -> dict[Key, int]:
    places = dict[Key, int]()
    for place, item in enumerate(items):
        places.setdefault(_item_identity(item, key), place)
    return places


def _item_identity(item: Any, key: str) -> Key:
    """Return the merge key of an item, or the item itself in a list of values."""
    if not key:
        return _hashable_key(item)
    _check_map(item)
    return _merge_key(item, key)


def _merge_key(item: Object, key: str) -> Key:
    if key not in item:
        raise MergeError(f"map: {_format_as_go(item)} does not contain declared merge key: {key}")
    return _hashable_key(item[key])


def _hashable_key(value: Any) -> Key:
    if isinstance(value, dict | list):
        raise MergeError(f"runtime error: hash of unhashable type {go_type_name(value)}")
    return go_type_name(value), value


def _check_map(item: Any) -> None:
    if not isinstance(item, dict):
        raise _wrong_type(_MAP, item)


def _element_type(*lists: Sequence[Any]) -> str:
    """Return the Go type of the items, which must all have the same one."""
    types = {go_type_name(item) for items in lists for item in items}
    if _LIST in types:
        raise ListOfListsError
    if len(types) > 1:
        raise MergeError(f"list element types are not identical: {_format_as_go(lists)}")
    if not types:
        raise MergeError("no elements in any of the given slices")
    return types.pop()


def _look_up(schema: _Schema, name: str) -> _FieldSchema:
    """Return the schema of a field. Raises MergeError if the type has no such field."""
    if schema.value is not None:
        return _FieldSchema(_schema_of(schema.value))
    if schema.message is None:
        return _FieldSchema(_Schema())
    field = fields_of(schema.message).get(name)
    if field is None:
        raise MergeError(f'unable to find api field in struct {schema.message.name} for the json field "{name}"')
    containing = field.descriptor.containing_type
    named = (schema.message, *([containing] if containing is not None else []))
    result = next((each for message in named if (each := _field_extensions(message, name))), {})
    strategies = [part for part in result.get(_STRATEGY, "").split(",") if part != _RETAIN_STRATEGY]
    element = _Schema(value=field.value) if field.value is not None else _schema_of(field.descriptor)
    is_list = field.value is None and bool(field.descriptor.is_repeated)
    return _FieldSchema(element, is_list, "".join(strategies), result.get(_MERGE_KEY, ""))


def _look_up_list(schema: _Schema, name: str) -> _FieldSchema:
    field = _look_up(schema, name)
    if schema.message is not None and not field.is_list:
        raise MergeError("expected slice or array type, but got: struct")
    return field


def _field_extensions(message: Descriptor, name: str) -> Mapping[str, str]:
    extension: Mapping[str, str] = load_extensions().get(schema_name(message), {}).get("properties", {}).get(name, {})
    return extension


def _schema_of(field: FieldDescriptor) -> _Schema:
    return _Schema(field.message_type)


def _field_of(directive: str, prefix: str, what: str) -> str:
    """Return the field that a directive such as "$setElementOrder/containers" names."""
    result, slash, name = directive.partition("/")
    if not slash or result != prefix:
        raise FormatError(f"invalid patch format of {what}")
    return name


def _set_without_directives(original: Object, name: str, value: Any) -> None:
    if (kept := _without_directives(value)) is _DROPPED:
        original.pop(name, None)
    else:
        original[name] = kept


def _without_directives(value: Any) -> Any:
    """Return a new value without the objects that have a $patch directive."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _DROPPED
        kept = ((name, _without_directives(each)) for name, each in value.items())
        return {name: each for name, each in kept if each is not _DROPPED}
    if isinstance(value, list):
        return [item for item in map(_without_directives, value) if item is not _DROPPED]
    return value


def _discard_nulls(value: Any) -> None:
    """Remove the null fields of a new value."""
    if isinstance(value, dict):
        for name in [name for name, each in value.items() if each is None]:
            del value[name]
        for item in value.values():
            _discard_nulls(item)
    elif isinstance(value, list):
        for item in value:
            _discard_nulls(item)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(each) for name, each in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _unknown_patch_type(directive: Any, item: Object) -> MergeError:
    text = f"%!s({'' if directive is None else go_type_name(directive) + '='}{_format_as_go(directive)})"
    text = directive if isinstance(directive, str) else text
    return MergeError(f"unknown patch type: {text} in map: {_format_as_go(item)}")


def _wrong_type(expected: str, value: Any) -> MergeError:
    return MergeError(f"expected a {expected}, but received a {'%!s(<nil>)' if value is None else go_type_name(value)}")


def go_type_name(value: Any) -> str:
    """Return the name of the Go type of a decoded JSON value: "string", "map[string]interface {}"; "nil" for null."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
    return _MAP if isinstance(value, dict) else _LIST


def _format_as_go(value: Any) -> str:
    """Format a JSON value as Go's verb %v does."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case float():
            return repr(value).removesuffix(".0")
        case dict():
            return f"map[{' '.join(f'{name}:{_format_as_go(each)}' for name, each in sorted(value.items()))}]"
        case str() | int():
            return str(value)
    return f"[{' '.join(map(_format_as_go, value))}]"
