"""Kubernetes' JSON of objects, produced by writers that are compiled once per message type.

The JSON of an object is cached by its protobuf bytes, so that lists and watches of all clients share it. Objects have no
apiVersion and kind, as in lists; `with_type` adds them.

The forms are those of pinnace.api.codec, with the fields of SHOWN_WHEN_EMPTY and SHOWN_AS_NULL in addition. Fields are in the
order of their numbers, as in Kubernetes.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from json.encoder import encode_basestring
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from pinnace.api.codec import EMBEDDED, INLINED, OWNERSHIP, SHOWN_WHEN_ZERO, map_value
from pinnace.api.customobjects import dump_canonical
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.go_form import SHOWN_AS_NULL, SHOWN_WHEN_EMPTY
from pinnace.api.ownership import encode_shown, show_owners, take_owners
from pinnace.api.parts import SHARED_PARTS, PartCache, encode_without
from pinnace.api.resources import ALL, CustomResource, Resource
from pinnace.api.scalars import SCALARS, write_primitive
from pinnace.api.wire import has_ownership

MAX_CACHED = 8 << 20
"""Maximum bytes of the cached parts of objects, with their JSON."""
Writer = Callable[[Any], str]
_text: Writer = encode_basestring
_ZERO = {FieldDescriptor.TYPE_BOOL: "false", FieldDescriptor.TYPE_STRING: '""'}
PARTS = PartCache(MAX_CACHED)
Adder = Callable[[Any, list[str]], None]
"""Adds the fields of a message, each with its name, to a list."""
__all__ = ["DecodeError", "JsonCache", "to_json", "with_type", "writer"]


def _encode_base64(value: bytes) -> str:
    return f'"{write_primitive(value)}"'


_PRIMITIVES: dict[int, Writer] = {
    FieldDescriptor.TYPE_STRING: _text,
    FieldDescriptor.TYPE_BOOL: {False: "false", True: "true"}.__getitem__,
    FieldDescriptor.TYPE_INT32: repr,
    FieldDescriptor.TYPE_INT64: repr,
    FieldDescriptor.TYPE_BYTES: _encode_base64,
}


def _value_writer(of: FieldDescriptor) -> Writer:
    """Return a writer for a value: of a field, or an item of a list or map."""
    if of.message_type is None:
        return _PRIMITIVES[of.type]
    scalar = SCALARS.get(of.message_type.full_name)
    if of.full_name in EMBEDDED:
        return _embedded_writer(of.message_type)
    if scalar is None:
        return writer(of.message_type)
    write = scalar.write

    def write_scalar(value: Any) -> str:
        result = write(value)
        return _text(result) if isinstance(result, str) else json.dumps(result, separators=(",", ":"))

    return write_scalar


def _embedded_writer(descriptor: Descriptor) -> Writer:
    resource, write = next(resource for resource in ALL if resource.message.DESCRIPTOR is descriptor), writer(descriptor)
    return lambda value: with_type(resource.api_version, resource.kind, write(value).encode()).decode()


def _default_value(field: FieldDescriptor) -> Any:
    assert field.message_type is not None
    return GetMessageClass(field.message_type)()


def _field_writer(field: FieldDescriptor) -> Writer:
    """Return a writer for the value of a field."""
    if (of := map_value(field)) is not None:
        write = _value_writer(of)
        return lambda value: f"{{{','.join([f'{_text(key)}:{write(value[key])}' for key in sorted(value)])}}}"
    write = _value_writer(field)
    return (lambda value: f"[{','.join(map(write, value))}]") if field.is_repeated else write


@cache  # one entry per message type
def writer(descriptor: Descriptor) -> Writer:
    """Return a writer for messages of this type."""
    add: Adder | None = None

    def write(message: Message) -> str:
        nonlocal add
        if add is None:  # the fields are compiled on first use, because message types can be recursive
            add = _compile_message_encoder(descriptor)
        texts: list[str] = []
        add(message, texts)
        return f"{{{','.join(texts)}}}"

    return _cached_by_bytes(descriptor, write) if descriptor.full_name in SHARED_PARTS else write


def _cached_by_bytes(descriptor: Descriptor, write: Writer) -> Writer:
    """Cache the JSON of messages by their bytes, without the string that differs."""
    name = SHARED_PARTS[descriptor.full_name]

    def write_cached(message: Any) -> str:
        data, string = encode_without(message, name)
        key = descriptor, data, bool(string)
        parts: tuple[str, str] | None = PARTS.texts.get(key)
        if parts is None:
            before, after = _split_at(descriptor, message, name) if string else (write(message), "")
            parts = before, after
            PARTS.add(key, len(data) + len(before) + len(after), parts)
        return f"{parts[0]}{_text(string)}{parts[1]}" if string else parts[0]

    return write_cached


def _split_at(descriptor: Descriptor, message: Message, name: str) -> tuple[str, str]:
    """Return the JSON of a message before and after the value of a string."""
    texts: list[str] = []
    _compile_message_encoder(descriptor)(message, texts)
    field = next(field for field in descriptor.fields if field.name == name)
    begin = f"{_text(field.json_name)}:"
    (at,) = [position for position, text in enumerate(texts) if text.startswith(begin)]
    return f"{{{','.join([*texts[:at], begin])}", f"{','.join(['', *texts[at + 1 :]])}}}"


def _skip_value(value: Any, texts: list[str]) -> None:
    pass


@cache
def _compile_message_encoder(descriptor: Descriptor) -> Adder:
    """Return the adder of a message type. Descriptors are the keys of its tables, because their properties are slow."""
    table: dict[FieldDescriptor, tuple[str, Writer]] = {}
    inlined: dict[FieldDescriptor, Adder] = {}
    names = {field: f"{_text(field.json_name)}:" for field in descriptor.fields}
    for field in descriptor.fields:
        if field.full_name in INLINED and field.message_type is not None:
            inlined[field] = _compile_message_encoder(field.message_type)
        elif field.full_name == OWNERSHIP:
            inlined[field] = _skip_value
        else:
            table[field] = names[field], _field_writer(field)
    shown = SHOWN_WHEN_ZERO.get(descriptor.full_name, ())
    empty = SHOWN_WHEN_EMPTY.get(descriptor.full_name, ())
    absent = SHOWN_AS_NULL.get(descriptor.full_name, ())
    zeros = {field: names[field] + _ZERO.get(field.type, "0") for field in descriptor.fields if field.name in shown}
    zeros |= {
        field: names[field] + table[field][1](_default_value(field)) for field in descriptor.fields if field.name in empty
    }
    zeros |= {field: names[field] + "null" for field in descriptor.fields if field.name in absent}

    def add(message: Message, texts: list[str]) -> None:
        for field, value in message.ListFields():
            name, write = table[field]
            texts.append(name + write(value))

    def add_all(message: Message, texts: list[str]) -> None:
        present = message.ListFields()
        for field, value in present:
            if field in inlined:
                inlined[field](value, texts)
            else:
                name, write = table[field]
                texts.append(name + write(value))
        if zeros:
            fields = {field for field, _ in present}
            texts += [text for field, text in zeros.items() if field not in fields]

    return add_all if inlined or zeros else add


def to_json(message: Message) -> bytes:
    return writer(message.DESCRIPTOR)(message).encode()


def shown_json(resource: Resource[Any], obj: Any) -> bytes:
    """Return the JSON of an object of a built-in kind with its owners, and remove its stored owners."""
    owners = take_owners(resource, obj)
    texts: list[str] = []
    _compile_message_encoder(obj.DESCRIPTOR)(obj, texts)
    if owners:  # managedFields are the last field of metadata, which are the first field of objects
        metadata = texts[0][:-1]
        texts[0] = f'{metadata}{"" if metadata.endswith("{") else ","}"managedFields":{owners}}}'
    return f"{{{','.join(texts)}}}".encode()


def with_type(api_version: str, kind: str, body: bytes) -> bytes:
    """Add apiVersion and kind to the JSON of a list item."""
    head = f'{{"kind":"{kind}","apiVersion":"{api_version}"'.encode()
    return head + b"}" if body == b"{}" else head + b"," + body[1:]


class JsonCache:
    """A cache of the forms that clients see, by the stored bytes: JSON, and protobuf with owners. Limited to `limit` bytes in
    total. Evicts the least recently used entries."""

    def __init__(self, limit: int = 64 << 20) -> None:
        self._limit = limit
        self.size = 0
        """The current size in bytes."""
        self._known: OrderedDict[tuple[type | CustomResource, bytes, bool], bytes] = OrderedDict()

    def json(self, resource: Resource[Any], data: bytes) -> bytes:
        """Return the JSON of an encoded object: of a built-in kind without apiVersion and kind, of a custom kind with them.
        Raises DecodeError if the bytes are malformed."""
        return self._find_or_encode(resource, data, is_json=True)

    def protobuf(self, resource: Resource[Any], data: bytes) -> bytes:
        """Return an encoded object with its owners shown. Raises DecodeError."""
        return self._find_or_encode(resource, data, is_json=False) if has_ownership(data) else data

    def _find_or_encode(self, resource: Resource[Any], data: bytes, *, is_json: bool) -> bytes:
        key = (resource if isinstance(resource, CustomResource) else resource.message, data, is_json)
        result = self._known.get(key)
        if result is not None:
            self._known.move_to_end(key)
            return result
        result = self._encode(resource, data) if is_json else encode_shown(resource, data)
        self._known[key] = result
        self.size += len(data) + len(result)
        while self.size > self._limit and self._known:
            (_, old, _), text = self._known.popitem(last=False)
            self.size -= len(old) + len(text)
        return result

    def typed_json(self, resource: Resource[Any], data: bytes) -> bytes:
        """Return the JSON of an encoded object with apiVersion and kind. Raises DecodeError."""
        text = self.json(resource, data)
        return text if isinstance(resource, CustomResource) else with_type(resource.api_version, resource.kind, text)

    @staticmethod
    def _encode(resource: Resource[Any], data: bytes) -> bytes:
        if isinstance(resource, CustomResource) and resource.schema is not None:
            obj = CustomObject.FromString(data)
            show_owners(resource, obj)
            return dump_canonical(resource.schema.to_served(obj))
        return shown_json(resource, resource.message.FromString(data))
