"""The fields of a status that are as before, by writers that are compiled once per field.

The result is that of `compare` (pinnace.api.structured_merge), which takes many times as long. Statuses with other contents
than simple fields, maps, and lists of simple messages have no fast comparison.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from operator import eq
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pinnace.api.codec import INLINED, map_value
from pinnace.api.field_writer import ItemElements, always_shown, is_simple, shape_of
from pinnace.api.fieldset import FieldSet, field_element
from pinnace.api.scalars import SCALARS
from pinnace.api.schema import List, Map, Scalar, type_of

_MAX_CACHED = 1024
"""Maximum length of the elements of a result that is cached."""
_Item = tuple[str, tuple[str, ...]]
"""The element of an item, and those of its unchanged fields."""
_Part = tuple[str, tuple[_Item, ...]]
"""The element of a field, and its unchanged items."""
_Compare = Callable[[Any, Any], _Part | None]
"""Compares a value with that of a later message. None: the later message has no such value, or the value has one owner and
differs. Raises _NotComparable."""


class _NotComparable(Exception):
    """The fast comparison does not support the value."""


def unchanged_in_status(before: Any, after: Any) -> FieldSet | None:
    """Return the fields of a status that a later status still has, as fields of the object; None if the fast comparison does
    not support its contents. Equal results may be identical."""
    parts = list[_Part]()
    try:
        for field, value in before.ListFields():
            if part := _compile_comparison(field)(value, after):
                parts.append(part)
    except _NotComparable:
        return None
    size = sum([len(item) for _, items in parts for item, _ in items])
    return (_field_set if size <= _MAX_CACHED else _field_set.__wrapped__)(tuple(parts))


@lru_cache(maxsize=1024)
def _field_set(parts: tuple[_Part, ...]) -> FieldSet:
    result = FieldSet()
    status = field_element("status")
    for element, items in parts:
        result.insert(
            (
                status,
                element,
            )
        )
        for item, fields in items:
            result.insert((status, element, item))
            for field in fields:
                result.insert((status, element, item, field))
    return result


@cache
def _compile_comparison(field: FieldDescriptor) -> _Compare:
    parent = field.containing_type
    assert parent is not None
    of = type_of(parent)
    inside = of.field(field.json_name) if isinstance(of, Map) else None
    name, element = field.name, field_element(field.json_name)
    if inside is None or field.full_name in INLINED or field.json_name in always_shown(parent):
        return _reject
    if isinstance(inside, Scalar) or inside.atomic:
        whole: _Part = element, ()
        is_equal, has_presence = _choose_equality(field), field.has_presence

        def compare_leaf(value: Any, after: Any) -> _Part | None:
            if has_presence and not after.HasField(name):
                return None
            return whole if is_equal(value, getattr(after, name)) else None

        return compare_leaf
    message = field.message_type
    if (values := map_value(field)) is not None:
        assert isinstance(inside, Map)
        if not isinstance(inside.element, Scalar):
            return _reject

        is_equal = _choose_equality(values)

        def compare_keys(value: Any, after: Any) -> _Part | None:
            later = getattr(after, name)
            same = tuple(sorted(field_element(key) for key in value if key in later and is_equal(value[key], later[key])))
            return (element, tuple((key, ()) for key in same)) if later else None

        return compare_keys
    if not isinstance(inside, List) or message is None or not is_simple(message):
        return _reject
    elements_of, compare_items = ItemElements(field, inside), _item_comparison(message)

    def compare_lists(value: Any, after: Any) -> _Part | None:
        later = getattr(after, name)
        if not later:
            return None
        keys, others = elements_of.of_items(value), elements_of.of_items(later)
        if keys is None or others is None:
            raise _NotComparable
        pairs = [(key, item, later[others.index(key)]) for key, item in zip(keys, value, strict=True) if key in others]
        return element, tuple([(key, compare_items(item, other)) for key, item, other in pairs])

    return compare_lists


def _choose_equality(field: FieldDescriptor) -> Callable[[Any, Any], bool]:
    """Return the comparison of values by their JSON: times have no fractions there."""
    scalar = SCALARS.get(field.message_type.full_name) if field.message_type is not None and not field.is_repeated else None
    if scalar is None:
        return eq
    write = scalar.write
    return lambda value, other: bool(value == other or write(value) == write(other))


def _reject(value: Any, after: Any) -> _Part | None:
    raise _NotComparable


@cache
def _item_comparison(message: Any) -> Callable[[Any, Any], tuple[str, ...]]:
    """Return a function that returns the unchanged fields of a simple message."""
    elements = {field: field_element(field.json_name) for field in message.fields}
    names = always_shown(message)
    equalities = {field: _choose_equality(field) for field in message.fields}
    always = [(field, elements[field]) for field in message.fields if field.json_name in names]

    @lru_cache(maxsize=256)
    def names_of(shape: tuple[FieldDescriptor, ...]) -> tuple[str, ...]:
        return (*map(elements.__getitem__, shape), *(element for field, element in always if field not in shape))

    def compare_items(item: Any, other: Any) -> tuple[str, ...]:
        if item == other:
            return names_of(shape_of(item))
        present, later = item.ListFields(), dict(other.ListFields())
        same = [elements[field] for field, value in present if field in later and equalities[field](value, later[field])]
        absent = later.keys() | set(shape_of(item))
        return (*same, *(element for field, element in always if field not in absent))

    return compare_items
