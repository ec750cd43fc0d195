"""The fields of a message as FieldsV1, by writers that are compiled once per message type.

The result is that of `compare` with an empty object (pinnace.api.structured_merge), which takes ten times as long.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pinnace.api import fieldset
from pinnace.api.codec import INLINED, OWNERSHIP, SHOWN_WHEN_ZERO, Field, fields_of, map_value
from pinnace.api.fieldset import FieldSet, field_element
from pinnace.api.go_form import SHOWN_AS_NULL, SHOWN_WHEN_EMPTY
from pinnace.api.schema import List, Map, Scalar, Type, empty, type_of

NOTHING = FieldSet()
_LEAF = "{}"
Entries = dict[str, str]
"""The trees of fields and items by path element."""
_Value = Callable[[Any, FieldSet], tuple[bool, Entries]]
"""Returns whether a value has contents of its own owners, and their trees without the excluded ones."""


def fields_v1(message: Any, excluded: FieldSet, omitted: frozenset[str] = frozenset()) -> str:
    """Return the fields of an object as FieldsV1, without excluded ones. `omitted`: names of top-level fields that are left out
    with all their contents."""
    descriptor = message.DESCRIPTOR
    return _tree(_message_entries(descriptor, _skeleton(descriptor), omitted)(message, excluded))


@cache
def _skeleton(descriptor: Descriptor) -> "_Skeleton":
    return _Skeleton({**empty(descriptor), "metadata": {}})


class _Skeleton:
    """The fields of an empty object, which exist before the object and have no owner. Compared by identity."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self.form = form
        self.inner = {name: _Skeleton(value) for name, value in form.items() if isinstance(value, dict)}


_NO_SKELETON = _Skeleton({})


@cache
def _message_entries(
    descriptor: Descriptor, skeleton: _Skeleton, omitted: frozenset[str] = frozenset()
) -> Callable[[Any, FieldSet], Entries]:
    """Return the writer of a message. It is compiled on first use, because messages can be recursive."""
    compiled: Callable[[Any, FieldSet], Entries] | None = None

    def write(message: Any, excluded: FieldSet) -> Entries:
        nonlocal compiled
        if compiled is None:
            compiled = _compile(descriptor, skeleton, omitted)
        return compiled(message, excluded)

    return write


def _compile(descriptor: Descriptor, skeleton: _Skeleton, omitted: frozenset[str]) -> Callable[[Any, FieldSet], Entries]:
    of = type_of(descriptor)
    assert isinstance(of, Map)
    writers = dict[FieldDescriptor, tuple[str, bool, _Value | None]]()
    inlined = dict[FieldDescriptor, Callable[[Any, FieldSet], Entries]]()
    for field in descriptor.fields:
        name = field.json_name
        if name in omitted:
            continue
        if field.full_name in INLINED and field.message_type is not None:
            inlined[field] = _message_entries(field.message_type, skeleton)
        elif field.full_name != OWNERSHIP and (inside := of.field(name)) is not None:
            inner = skeleton.inner.get(name, _NO_SKELETON)
            writers[field] = field_element(name), name in skeleton.form, _value_writer(field, inside, inner)
    names = (*SHOWN_WHEN_ZERO.get(descriptor.full_name, ()), *SHOWN_AS_NULL.get(descriptor.full_name, ()))
    names += SHOWN_WHEN_EMPTY.get(descriptor.full_name, ())
    always = {field_element(name) for name in names if name not in skeleton.form and name not in omitted}

    def write(message: Any, excluded: FieldSet) -> Entries:
        entries = Entries()
        for field, value in message.ListFields():
            if field in inlined:
                entries |= inlined[field](value, excluded)
            elif field in writers:
                element, is_present, inner = writers[field]
                _add(entries, element, value, inner, is_present, excluded)
        for element in always:
            if element not in entries and element not in excluded.members:
                entries[element] = _LEAF
        return entries

    return write


def _add(entries: Entries, element: str, value: Any, inner: _Value | None, is_present: bool, excluded: FieldSet) -> None:
    """Add the tree of a value. `inner`: None for a value with one owner. `is_present`: it exists in empty objects."""
    is_member = element not in excluded.members
    if inner is None:
        if is_member and not (is_present and isinstance(value, Message) and not value.ListFields()):
            entries[element] = _LEAF
        return
    is_filled, children = inner(value, excluded.children.get(element, NOTHING))
    if is_present:
        if children:
            entries[element] = _tree(children)
    elif not is_filled or not children:
        if is_member:
            entries[element] = _LEAF
    else:
        entries[element] = f'{{".":{{}},{_tree(children)[1:]}' if is_member else _tree(children)


def _value_writer(field: FieldDescriptor, of: Type, skeleton: _Skeleton) -> _Value | None:
    if isinstance(of, Scalar) or of.atomic:
        return None
    if isinstance(of, List):
        return _list_writer(field, of)
    if (values := map_value(field)) is not None:
        assert isinstance(of, Map) and of.element is not None
        inner = _value_writer(values, of.element, _NO_SKELETON)

        def write_map(value: Any, excluded: FieldSet) -> tuple[bool, Entries]:
            entries = Entries()
            for key in value:
                _add(entries, field_element(key), value[key], inner, False, excluded)
            return True, entries

        return write_map
    assert field.message_type is not None
    write = _message_entries(field.message_type, skeleton)

    def write_message(value: Any, excluded: FieldSet) -> tuple[bool, Entries]:
        entries = write(value, excluded)
        return bool(entries) or (excluded is not NOTHING and bool(write(value, NOTHING))), entries

    return write_message


def _list_writer(field: FieldDescriptor, of: List) -> _Value:
    message = field.message_type
    is_granular = isinstance(of.element, Map) and not of.element.atomic
    inner = _message_entries(message, _NO_SKELETON) if message is not None and is_granular else None
    keys = [_Key(fields_of(message)[key], of.default(key)) for key in of.keys] if message is not None else []

    def element_of(item: Any) -> str | None:
        if not keys:
            return _value_element(item)
        values = tuple((key.name, value) for key in keys if (value := key.read(item)) is not None)
        return _key_element(values) if values else None

    def write_list(value: Any, excluded: FieldSet) -> tuple[bool, Entries]:
        entries, repeated = Entries(), set[str]()
        for item in value:
            element = element_of(item)
            if element is None:
                continue
            if element in entries or element in repeated:  # duplicates have one owner
                repeated.add(element)
                entries.pop(element, None)
                continue
            if inner is None:
                _add(entries, element, item, None, False, excluded)
            else:
                _add(entries, element, item, lambda each, below: (True, inner(each, below)), False, excluded)
        entries |= {element: _LEAF for element in repeated if element not in excluded.members}
        return True, entries

    return write_list


class _Key:
    """A field that identifies the items of a list."""

    def __init__(self, field: Field, default: Any) -> None:
        self.name = field.descriptor.json_name
        self._field = field
        self._default = default
        parent = field.descriptor.containing_type
        assert parent is not None
        self._is_always_shown = self.name in SHOWN_WHEN_ZERO.get(parent.full_name, ())

    def read(self, item: Any) -> Any:
        """Return the value; None if the item omits it and it has no default."""
        for name in self._field.parents:
            item = getattr(item, name)
        value = getattr(item, self._field.name)
        if value or self._is_always_shown or (self._field.descriptor.has_presence and item.HasField(self._field.name)):
            return value
        return self._default


@lru_cache(maxsize=4096)
def _key_element(keys: tuple[tuple[str, Any], ...]) -> str:
    return fieldset.key_element(dict(keys))


@lru_cache(maxsize=4096)
def _value_element(value: Any) -> str:
    return fieldset.value_element(value)


def _tree(entries: Entries) -> str:
    if len(entries) > 1:
        elements = sorted(entries) if all(map(_is_field, entries)) else sorted(entries, key=_rank)
        return f"{{{','.join([f'{_quoted(element)}:{entries[element]}' for element in elements])}}}"
    return f"{{{','.join([f'{_quoted(element)}:{tree}' for element, tree in entries.items()])}}}"


def _is_field(element: str) -> bool:
    return element[0] == "f"


_rank = lru_cache(maxsize=4096)(fieldset.rank)


@lru_cache(maxsize=4096)
def _quoted(element: str) -> str:
    return json.dumps(element, ensure_ascii=False)
