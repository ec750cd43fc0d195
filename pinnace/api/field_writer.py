"""The fields of a message as FieldsV1, by writers that are compiled once per message type.

The result is that of `compare` with an empty object (pinnace.api.structured_merge), which takes many times as long. Which
fields exist does not depend on most values, so the texts of parts are cached: those of pod specs, containers and volumes by
their bytes, those of other messages by the fields that are present, and the keys of their maps and items. All caches
are bounded.
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
from pinnace.api.parts import SHARED_PARTS, PartCache, encode_without
from pinnace.api.schema import List, Map, Scalar, Type, empty_object, type_of

NOTHING = FieldSet()
MAX_CACHED = 4 << 20
"""Maximum bytes of the cached parts, with their texts."""
_MAX_SHAPES = 256
"""Maximum number of cached combinations of keys per list."""
_SHAPE_BYTES = 2048
"""Estimated bytes of a key of the cache without texts."""
_OWN_LISTS = frozenset({"pinnace.core.v1.PodStatus.podIPs"})
"""Lists whose keys differ between objects with otherwise equal fields. At most one per message."""
_MAX_ELEMENT = 256
"""Maximum length of the keys or elements of a map or list that are cached."""
_MAX_KEYS = 16
"""Maximum number of keys of maps whose text is cached."""
_first = itemgetter(0)
_quote: Callable[[str], str] = encode_basestring
_Texts = Callable[[Any, FieldSet], list[str]]
"""Returns the fields of a message that are not excluded, each as a member of a JSON object."""
_Inside = Callable[[Any, FieldSet], str]
"""Returns the fields or items of a value that are not excluded, as the members of a JSON object in order."""
PARTS = PartCache(MAX_CACHED)


def fields_v1(message: Any, excluded: FieldSet, omitted: frozenset[str] = frozenset()) -> str:
    """Return the fields of an object as FieldsV1, without excluded ones. `omitted`: names of top-level fields that are left out
    with all their contents."""
    descriptor = message.DESCRIPTOR
    return f"{{{','.join(sorted(_message_texts(descriptor, _build_skeleton(descriptor), omitted)(message, excluded)))}}}"


@cache
def _build_skeleton(descriptor: Descriptor) -> "_Skeleton":
    return _Skeleton({**empty_object(descriptor), "metadata": {}})


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

    if descriptor.full_name in SHARED_PARTS:
        return _cached_by_bytes(write, SHARED_PARTS[descriptor.full_name])
    return _cached_by_signature(write, _signature_functions(descriptor, skeleton), _own_writer(descriptor))


@cache
def is_simple(descriptor: Descriptor) -> bool:
    """Return whether each field has one owner."""
    of = type_of(descriptor)
    assert isinstance(of, Map)
    if any(field.full_name in INLINED for field in descriptor.fields):
        return False
    inner = (of.field(field.json_name) for field in descriptor.fields)
    return all(each is None or isinstance(each, Scalar) or each.atomic for each in inner)


class ItemElements:
    """The path elements of the items of a list. Those of short lists are cached by the keys of the items."""

    def __init__(self, field: FieldDescriptor, of: List) -> None:
        message = field.message_type
        names = sorted(of.keys) if message is not None else []
        self._keys = [_Key(fields_of(message)[key], of.default(key)) for key in names] if message is not None else []
        paths = [key.path for key in self._keys]
        self._values: Callable[[Any], Any] = attrgetter(*paths) if paths else lambda item: item
        self._begin = f"k:{{{_quote(names[0])}:" if len(names) == 1 else ""
        self._cached = dict[tuple[Any, ...], tuple[str, ...]]()

    def of_items(self, items: Sequence[Any]) -> tuple[str, ...] | None:
        """Return the elements; None if an item lacks keys, or two items have the same."""
        values = tuple(map(self._values, items))
        if len(values) == 1 and self._begin and isinstance(value := values[0], str) and value:
            return (f"{self._begin}{_quote(value)}}}",)
        elements = self._cached.get(values)
        if elements is None:
            if not all(map(all, values) if len(self._keys) > 1 else values) or len(set(values)) < len(values):
                return None
            elements = tuple(map(self._element_of_values, values))
            if len(elements) <= _MAX_KEYS and sum(map(len, elements)) <= _MAX_ELEMENT:
                if len(self._cached) >= _MAX_SHAPES:
                    self._cached.clear()
                self._cached[values] = elements
        return elements

    def in_order(self, items: Sequence[Any]) -> list[tuple[str, Any]] | None:
        """Return the items with their elements in the order of FieldsV1; None if an item lacks keys, or two items have the
        same."""
        elements = self.of_items(items)
        if elements is None or len(elements) < 2:
            return list(zip(elements, items, strict=True)) if elements is not None else None
        values = map(self._values, items)
        return [(element, item) for _, element, item in sorted(zip(values, elements, items, strict=True), key=_first)]

    def _element_of_values(self, values: Any) -> str:
        if not self._keys:
            return fieldset.value_element(values)
        if len(self._keys) == 1:
            return fieldset.key_element({self._keys[0].name: values})
        return fieldset.key_element(dict(zip([key.name for key in self._keys], values, strict=True)))

    def unique(self, items: Iterable[Any]) -> tuple[dict[str, Any], set[str]]:
        """Return the items by element, and the elements of several items. Items without keys are omitted."""
        unique, repeated = dict[str, Any](), set[str]()
        for item in items:
            element = self._element_of_item(item)
            if element is not None:
                if element in unique:
                    repeated.add(element)
                unique[element] = item
        return unique, repeated

    def _element_of_item(self, item: Any) -> str | None:
        if not self._keys:
            return fieldset.value_element(item)
        values = {key.name: value for key in self._keys if (value := key.read(item)) is not None}
        return fieldset.key_element(values) if values else None


@cache
def _signature_functions(descriptor: Descriptor, skeleton: _Skeleton) -> Mapping[FieldDescriptor, Callable[[Any], Any]]:
    """Return functions for the fields of a message that have several owners. Their results, and which fields are present,
    determine the text of the message, except if one is None."""
    of = type_of(descriptor)
    assert isinstance(of, Map)
    result = dict[FieldDescriptor, Callable[[Any], Any]]()
    for field in descriptor.fields:
        inside = of.field(field.json_name)
        if field.full_name in INLINED:
            result[field] = _no_signature
        elif isinstance(inside, List | Map) and not inside.atomic and field.full_name not in _OWN_LISTS:
            result[field] = _signature_function(field, inside)
        elif field.message_type is not None and skeleton.form.get(field.json_name) is not None:
            result[field] = lambda value: (bool(value.ListFields()),) if isinstance(value, Message) else ()
    return result


def _signature_function(field: FieldDescriptor, of: List | Map) -> Callable[[Any], Any]:
    if isinstance(of, List):
        message = field.message_type
        is_whole = isinstance(of.element, Scalar) or of.element.atomic
        if is_whole or (message is not None and is_simple(message)):
            return _list_signature(ItemElements(field, of), is_whole)
    elif map_value(field) is not None and isinstance(of.element, Scalar):
        return tuple
    return _no_signature


def _no_signature(value: Any) -> None:
    return None


def _list_signature(elements: ItemElements, is_whole: bool) -> Callable[[Any], Any]:
    """Return a function that returns the elements of a list, and the shapes of its items. `is_whole`: an item has one owner."""
    if is_whole:
        return elements.of_items

    def signature(items: Any) -> Any:
        keys = elements.of_items(items)
        return (keys, *map(shape_of, items)) if keys is not None else None

    return signature


def _own_writer(descriptor: Descriptor) -> Callable[[Any, FieldSet], str]:
    """Return the writer of the list whose items differ between objects: a member of the JSON of the message."""
    of = type_of(descriptor)
    own = next((field for field in descriptor.fields if field.full_name in _OWN_LISTS), None)
    inside = of.field(own.json_name) if own is not None and isinstance(of, Map) else None
    if own is None or not isinstance(inside, List):
        return lambda message, excluded: ""
    write, items, element = _list_writer(own, inside), attrgetter(own.name), field_element(own.json_name)
    name = f"{_quote(element)}:"

    def write_own(message: Any, excluded: FieldSet) -> str:
        if not (value := items(message)):
            return ""
        text = write(value, excluded.child(element))
        if element in excluded.members:
            return f"{name}{{{text}}}" if text else ""
        return f'{name}{{".":{{}},{text}}}' if text else name + "{}"

    return write_own


def _cached_by_signature(
    write: _Inside, signatures: Mapping[FieldDescriptor, Callable[[Any], Any]], write_own: Callable[[Any, FieldSet], str]
) -> _Inside:
    """Cache the texts of messages by what determines them. `write_own`: writes the member that differs between objects."""

    def write_cached(value: Any, excluded: FieldSet) -> str:
        present = value.ListFields()
        key: list[Any] = [write, id(excluded), *map(_first, present)]
        for field, inside in present:
            if field in signatures:
                signature = signatures[field](inside)
                if signature is None or len(signature) > _MAX_KEYS:
                    return write(value, excluded)
                key.append(signature)
        own = write_own(value, excluded)
        key.append(bool(own))
        shape = tuple(key)
        entry: tuple[str, str, FieldSet] | None = PARTS.texts.get(shape)
        if entry is None:
            text = write(value, excluded)
            before, _, after = text.partition(own) if own else (text, "", "")
            entry = before, after, excluded  # the sets of cached identities must exist
            PARTS.add(shape, _SHAPE_BYTES + 3 * len(text), entry)
        return f"{entry[0]}{own}{entry[1]}" if own else entry[0]

    return write_cached


def _cached_by_bytes(write: _Inside, different: str) -> _Inside:
    """Cache the texts of messages by their bytes. `different`: a string of which only the presence matters."""

    def write_cached(value: Any, excluded: FieldSet) -> str:
        data, string = encode_without(value, different)
        key = write, id(excluded), data, bool(string)
        entry: tuple[str, FieldSet] | None = PARTS.texts.get(key)
        if entry is None:
            entry = write(value, excluded), excluded  # the sets of cached identities must exist
            PARTS.add(key, len(data) + len(entry[0]), entry)
        return entry[0]

    return write_cached


def _map_writer(inner: _Inside | None) -> _Inside:
    if inner is None:

        def write_keys(value: Any, excluded: FieldSet) -> str:
            hidden = excluded.members
            keys = [key for key in value if field_element(key) not in hidden] if hidden else list(value)
            return (
                _join_leaves_once(tuple(keys))
                if len(keys) <= _MAX_KEYS and sum(map(len, keys)) <= _MAX_ELEMENT
                else _join_leaves(keys)
            )

        return write_keys

    def write_map(value: Any, excluded: FieldSet) -> str:
        elements = {field_element(key): key for key in value}
        items = [(element, value[elements[element]]) for element in sorted(elements)]
        return _join_items(items, inner, excluded)

    return write_map


@lru_cache(maxsize=1024)
def _join_leaves_once(keys: tuple[str, ...]) -> str:
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


def _list_writer(field: FieldDescriptor, of: List) -> _Inside:
    message = field.message_type
    is_granular = isinstance(of.element, Map) and not of.element.atomic
    inner = _message_writer(message, _NO_SKELETON) if message is not None and is_granular else None
    elements_of = ItemElements(field, of)

    def write_list(value: Any, excluded: FieldSet) -> str:
        items = elements_of.in_order(value)
        if items is None:
            return _join_repeated(*elements_of.unique(value), inner, excluded)
        return _join_items(items, inner, excluded)

    return write_list


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
