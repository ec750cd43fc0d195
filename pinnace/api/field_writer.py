"""The fields of a message as FieldsV1, by writers that are compiled once per message type.

The result is that of `compare` with an empty object (pinnace.api.structured_merge), which takes fifty times as long. Which fields
exist does not depend on most values. So the texts of parts are cached: those of pod specs, containers and volumes by their bytes,
those of messages with only simple fields by the fields that are present. The caches are bounded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from json.encoder import encode_basestring
from operator import attrgetter, itemgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pinnace.api import fieldset
from pinnace.api.codec import INLINED, OWNERSHIP, SHOWN_WHEN_ZERO, Field, fields_of, map_value
from pinnace.api.fieldset import FieldSet, field_element
from pinnace.api.go_form import SHOWN_AS_NULL, SHOWN_WHEN_EMPTY
from pinnace.api.schema import List, Map, Scalar, Type, empty, type_of

NOTHING = FieldSet()
MAX_CACHED = 4 << 20
"""Maximum bytes of the cached parts, with their texts."""
MAX_PART = 16 << 10
"""Maximum bytes of a part that is cached."""
_MAX_SHAPES = 256
"""Maximum number of cached combinations of fields per message type."""
_MAX_ELEMENT = 256
"""Maximum length of path elements whose JSON is cached."""
_MAX_KEYS = 16
"""Maximum number of keys of maps whose text is cached."""
_CACHED_PARTS: Mapping[str, tuple[str, ...]] = {
    "pinnace.core.v1.PodSpec": ("nodeName",),
    "pinnace.core.v1.Container": (),
    "pinnace.core.v1.Volume": (),
}
"""The messages whose texts are cached by their bytes: pods of a template share them. The values are strings that differ
between those pods."""
_first = itemgetter(0)
_quote: Callable[[str], str] = encode_basestring
_Texts = Callable[[Any, FieldSet], list[str]]
"""Returns the fields of a message that are not excluded, each as a member of a JSON object."""
_Inside = Callable[[Any, FieldSet], str]
"""Returns the fields or items of a value that are not excluded, as the members of a JSON object in order."""


def fields_v1(message: Any, excluded: FieldSet, omitted: frozenset[str] = frozenset()) -> str:
    """Return the fields of an object as FieldsV1, without excluded ones. `omitted`: names of top-level fields that are left out
    with all their contents. The message must not be in use elsewhere."""
    descriptor = message.DESCRIPTOR
    return f"{{{','.join(sorted(_message_texts(descriptor, _skeleton(descriptor), omitted)(message, excluded)))}}}"


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
def _message_texts(descriptor: Descriptor, skeleton: _Skeleton, omitted: frozenset[str] = frozenset()) -> _Texts:
    """Return the writer of a message. It is compiled on first use, because messages can be recursive."""
    compiled: _Texts | None = None

    def write(message: Any, excluded: FieldSet) -> list[str]:
        nonlocal compiled
        if compiled is None:
            compiled = _compile(descriptor, skeleton, omitted)
        return compiled(message, excluded)

    return write


def _compile(descriptor: Descriptor, skeleton: _Skeleton, omitted: frozenset[str]) -> _Texts:
    of = type_of(descriptor)
    assert isinstance(of, Map)
    writers = dict[FieldDescriptor, tuple[str, str, bool, _Inside | None]]()
    inlined = dict[FieldDescriptor, _Texts]()
    names = always_shown(descriptor)
    always = dict[FieldDescriptor, tuple[str, str]]()
    for field in descriptor.fields:
        name = field.json_name
        if name in omitted:
            continue
        if field.full_name in INLINED and field.message_type is not None:
            inlined[field] = _message_texts(field.message_type, skeleton)
        elif field.full_name != OWNERSHIP and (inside := of.field(name)) is not None:
            inner = _inside_writer(field, inside, skeleton.inner.get(name, _NO_SKELETON))
            element = field_element(name)
            is_present = name in skeleton.form if inner is not None else skeleton.form.get(name) is not None
            writers[field] = element, f"{_quote(element)}:", is_present, inner
            if name in names and name not in skeleton.form:
                always[field] = element, f"{_quote(element)}:{{}}"

    def write(message: Any, excluded: FieldSet) -> list[str]:
        texts, members, children = list[str](), excluded.members, excluded.children
        present = message.ListFields()
        for field, value in present:
            if field not in writers:
                if field in inlined:
                    texts += inlined[field](value, excluded)
                continue
            element, name, is_present, inner = writers[field]
            if inner is None:
                if element not in members and not (is_present and isinstance(value, Message) and not value.ListFields()):
                    texts.append(name + "{}")
            elif text := inner(value, children.get(element, NOTHING) if children else NOTHING):
                texts.append(f"{name}{{{text}}}" if is_present or element in members else f'{name}{{".":{{}},{text}}}')
            elif not is_present and element not in members:
                texts.append(name + "{}")
        if always:
            fields = {field for field, _ in present}
            texts += [text for field, (element, text) in always.items() if field not in fields and element not in members]
        return texts

    return write


@cache
def always_shown(descriptor: Descriptor) -> frozenset[str]:
    """Return the JSON names of the fields of a message that its JSON form always has."""
    tables = (SHOWN_WHEN_ZERO, SHOWN_AS_NULL, SHOWN_WHEN_EMPTY)
    return frozenset(name for table in tables for name in table.get(descriptor.full_name, ()))


def _inside_writer(field: FieldDescriptor, of: Type, skeleton: _Skeleton) -> _Inside | None:
    """Return the writer of the contents of a field; None for a value with one owner."""
    if isinstance(of, Scalar) or of.atomic:
        return None
    if isinstance(of, List):
        return _list_writer(field, of)
    if (values := map_value(field)) is not None:
        assert isinstance(of, Map) and of.element is not None
        return _map_writer(_inside_writer(values, of.element, _NO_SKELETON))
    assert field.message_type is not None
    return _message_writer(field.message_type, skeleton)


@cache
def _message_writer(descriptor: Descriptor, skeleton: _Skeleton) -> _Inside:
    texts = _message_texts(descriptor, skeleton)

    def write(value: Any, excluded: FieldSet) -> str:
        return ",".join(sorted(texts(value, excluded)))

    if descriptor.full_name in _CACHED_PARTS:
        return _cached_by_bytes(write, _CACHED_PARTS[descriptor.full_name])
    return _cached_by_shape(write) if skeleton is _NO_SKELETON and is_simple(descriptor) else write


@cache
def is_simple(descriptor: Descriptor) -> bool:
    """Return whether each field has one owner."""
    of = type_of(descriptor)
    assert isinstance(of, Map)
    if any(field.full_name in INLINED for field in descriptor.fields):
        return False
    inner = (of.field(field.json_name) for field in descriptor.fields)
    return all(each is None or isinstance(each, Scalar) or each.atomic for each in inner)


def _cached_by_shape(write: _Inside) -> _Inside:
    """Cache the texts of messages by the fields that are present."""
    texts = dict[tuple[FieldDescriptor, ...], str]()

    def write_cached(value: Any, excluded: FieldSet) -> str:
        if excluded is not NOTHING:
            return write(value, excluded)
        shape = shape_of(value)
        text = texts.get(shape)
        if text is None:
            if len(texts) >= _MAX_SHAPES:
                texts.clear()
            text = texts[shape] = write(value, excluded)
        return text

    return write_cached


class _PartCache:
    """Texts by the bytes of a message. A full cache is emptied."""

    def __init__(self, limit: int) -> None:
        self.texts = dict[tuple[Any, ...], tuple[str, FieldSet]]()
        """With the excluded fields, whose identity is a part of the key."""
        self.size = 0
        self._limit = limit

    def add(self, key: tuple[Any, ...], size: int, text: str, excluded: FieldSet) -> None:
        if size > MAX_PART:
            return
        self.size += size
        if self.size > self._limit:
            self.texts.clear()
            self.size = size
        self.texts[key] = text, excluded


PARTS = _PartCache(MAX_CACHED)


def _cached_by_bytes(write: _Inside, different: Sequence[str]) -> _Inside:
    """Cache the texts of messages by their bytes. `different`: strings of which only the presence matters."""

    def write_cached(value: Any, excluded: FieldSet) -> str:
        strings = [getattr(value, name) for name in different]
        for name in different:
            value.ClearField(name)
        data = value.SerializeToString()
        for name, string in zip(different, strings, strict=True):
            if string:
                setattr(value, name, string)
        key = (write, id(excluded), data, *map(bool, strings))
        entry = PARTS.texts.get(key)
        if entry is not None:
            return entry[0]
        text = write(value, excluded)
        PARTS.add(key, len(data) + len(text), text, excluded)
        return text

    return write_cached


def _map_writer(inner: _Inside | None) -> _Inside:
    if inner is None:

        def write_keys(value: Any, excluded: FieldSet) -> str:
            hidden = excluded.members
            keys = [key for key in value if field_element(key) not in hidden] if hidden else list(value)
            return _leaves(tuple(keys)) if len(keys) <= _MAX_KEYS else _join_leaves(keys)

        return write_keys

    def write_map(value: Any, excluded: FieldSet) -> str:
        elements = {field_element(key): key for key in value}
        items = [(element, value[elements[element]]) for element in sorted(elements)]
        return _join_items(items, inner, excluded)

    return write_map


@lru_cache(maxsize=1024)
def _leaves(keys: tuple[str, ...]) -> str:
    return _join_leaves(keys)


def _join_leaves(keys: Iterable[str]) -> str:
    return ",".join([f"{_quote(field_element(key))}:{{}}" for key in sorted(keys)])


def _join_items(items: Iterable[tuple[str, Any]], inner: _Inside | None, excluded: FieldSet) -> str:
    """Join the trees of items, which are in order by their elements."""
    texts, members, children = list[str](), excluded.members, excluded.children
    for element, item in items:
        text = inner(item, children.get(element, NOTHING) if children else NOTHING) if inner is not None else ""
        if element not in members:
            texts.append(f'{_quote(element)}:{{".":{{}},{text}}}' if text else f"{_quote(element)}:{{}}")
        elif text:
            texts.append(f"{_quote(element)}:{{{text}}}")
    return ",".join(texts)


class ItemElements:
    """The path elements of the items of a list. Those of short lists are cached by the keys of the items."""

    def __init__(self, field: FieldDescriptor, of: List) -> None:
        message = field.message_type
        self._keys = [_Key(fields_of(message)[key], of.default(key)) for key in of.keys] if message is not None else []
        paths = [key.path for key in self._keys]
        self._values: Callable[[Any], Any] = attrgetter(*paths) if paths else lambda item: item
        self._cached = dict[tuple[Any, ...], tuple[str, ...] | None]()

    def of_items(self, items: Sequence[Any]) -> tuple[str, ...] | None:
        """Return the elements; None if an item has no keys, or two items have the same."""
        values = tuple(map(self._values, items))
        try:
            return self._cached[values]
        except KeyError:
            pass
        found = [self._element(item) for item in items]
        elements = tuple([element for element in found if element is not None])
        result = elements if len(set(elements)) == len(found) else None
        if all(map(self._is_plain, values)) and len(values) <= _MAX_KEYS and sum(map(len, elements)) <= _MAX_ELEMENT:
            if len(self._cached) >= _MAX_SHAPES:
                self._cached.clear()
            self._cached[values] = result
        return result

    def _is_plain(self, value: Any) -> bool:
        """Return whether the values of keys suffice to make the element: none has a default, or is absent."""
        return all(value) if len(self._keys) > 1 else bool(value)

    def unique(self, items: Iterable[Any]) -> tuple[dict[str, Any], set[str]]:
        """Return the items by element, and the elements of several items. Items without keys are omitted."""
        unique, repeated = dict[str, Any](), set[str]()
        for item in items:
            element = self._element(item)
            if element is not None:
                if element in unique:
                    repeated.add(element)
                unique[element] = item
        return unique, repeated

    def _element(self, item: Any) -> str | None:
        if not self._keys:
            return fieldset.value_element(item)
        values = {key.name: value for key in self._keys if (value := key.read(item)) is not None}
        return fieldset.key_element(values) if values else None


def _list_writer(field: FieldDescriptor, of: List) -> _Inside:
    message = field.message_type
    is_granular = isinstance(of.element, Map) and not of.element.atomic
    inner = _message_writer(message, _NO_SKELETON) if message is not None and is_granular else None
    is_cached = inner is None or (message is not None and is_simple(message))
    elements_of = ItemElements(field, of)
    texts = dict[tuple[Any, ...], tuple[str, FieldSet]]()

    def write_list(value: Any, excluded: FieldSet) -> str:
        elements = elements_of.of_items(value)
        if elements is None:
            return _join_repeated(*elements_of.unique(value), inner, excluded)
        if not is_cached or not 1 < len(elements) <= _MAX_KEYS:
            items = zip(elements, value, strict=True)
            return _join_items(sorted(items, key=_rank_of_item) if len(elements) > 1 else items, inner, excluded)
        shapes = tuple([shape_of(item) for item in value]) if inner is not None else ()
        key = id(excluded), elements, shapes
        entry = texts.get(key)
        if entry is None:
            items = sorted(zip(elements, value, strict=True), key=_rank_of_item)
            entry = _join_items(items, inner, excluded), excluded
            if len(texts) >= _MAX_SHAPES:
                texts.clear()
            if len(entry[0]) <= MAX_PART:
                texts[key] = entry
        return entry[0]

    return write_list


def _rank_of_item(item: tuple[str, Any]) -> tuple[Any, ...]:
    return fieldset.rank(item[0])


def shape_of(message: Any) -> tuple[FieldDescriptor, ...]:
    """Return the fields that are present in a message."""
    return tuple(map(_first, message.ListFields()))


def _join_repeated(items: Mapping[str, Any], repeated: set[str], inner: _Inside | None, excluded: FieldSet) -> str:
    """Join the trees of items. Items with the same keys have one owner."""
    texts = list[str]()
    for element in sorted(items, key=fieldset.rank):
        if element not in repeated:
            if text := _join_items([(element, items[element])], inner, excluded):
                texts.append(text)
        elif element not in excluded.members:
            texts.append(f"{_quote(element)}:{{}}")
    return ",".join(texts)


class _Key:
    """A field that identifies the items of a list."""

    def __init__(self, field: Field, default: Any) -> None:
        self.name = field.descriptor.json_name
        self._field = field
        self._default = default
        parent = field.descriptor.containing_type
        assert parent is not None
        self.path = ".".join((*field.parents, field.name))
        self._value = attrgetter(self.path)
        self._is_always_shown = self.name in SHOWN_WHEN_ZERO.get(parent.full_name, ())

    def read(self, item: Any) -> Any:
        """Return the value; None if the item omits it and it has no default."""
        value = self._value(item)
        if value or self._is_always_shown:
            return value
        if self._field.descriptor.has_presence:
            for name in self._field.parents:
                item = getattr(item, name)
            if item.HasField(self._field.name):
                return value
        return self._default
