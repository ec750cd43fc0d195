"""Spoils messages field by field: what comes out is a message of the type, and nearly as it should be."""

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pinnace.api.codec import map_value
from tests.fuzz import values

MANY = (2, 3, 20, 1001, 3000)
"""How often something is repeated: MAX_BATCH is 1000."""
LARGE = 1 << 20
"""Bytes of a message that is not made larger."""


def perturb(message: Message, rng: random.Random) -> None:
    """Changes some fields, at any depth. A text may hold values.INVALID_MARK."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        _step(message, rng)


def _step(message: Message, rng: random.Random) -> None:
    there = [field for field, _ in message.ListFields()]
    fields = there if there and rng.random() < 0.75 else list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.06:
        message.ClearField(field.name)
    elif map_value(field) is not None:
        _map(getattr(message, field.name), field, rng)
    elif field.is_repeated:
        _list(getattr(message, field.name), field, rng)
    elif field.message_type is None:
        setattr(message, field.name, _value(field, rng))
    else:
        child = getattr(message, field.name)
        child.SetInParent()
        if rng.random() < 0.95:
            _step(child, rng)


def _map(target: Any, field: FieldDescriptor, rng: random.Random) -> None:
    of = map_value(field)
    assert of is not None
    keys = sorted(target)
    key = rng.choice(keys) if keys and rng.random() < 0.5 else values.text(rng, "key")
    if rng.random() < 0.03:
        for number in range(rng.choice(MANY)):
            _put(target, f"k{number}", of, rng)
    _put(target, key, of, rng)


def _put(target: Any, key: str, of: FieldDescriptor, rng: random.Random) -> None:
    if of.message_type is None:
        target[key] = _value(of, rng, "value")
    else:
        _step(target[key], rng)


def _list(target: Any, field: FieldDescriptor, rng: random.Random) -> None:
    if len(target) and rng.random() < 0.15:
        size = sum(item.ByteSize() if isinstance(item, Message) else len(str(item)) for item in target)
        times = rng.choice([many for many in MANY if many * size < LARGE] or [1])
        target.extend(list(target) * times)
    elif field.message_type is None:
        target.append(_value(field, rng))
    elif len(target) and rng.random() < 0.8:
        _step(rng.choice(target), rng)
    else:
        _step(target.add(), rng)


def _value(field: FieldDescriptor, rng: random.Random, name: str = "") -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return values.text(rng, name or field.name)
        case FieldDescriptor.TYPE_BYTES:
            return values.data(rng)
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_INT64:
            return values.number(rng, 64)
        case FieldDescriptor.TYPE_UINT64:
            return values.number(rng, 64) % (1 << 64)
    return values.number(rng, 32)  # an enum is open: any number will do
