"""Fields that this version of the messages does not have: they travel as bytes, and are neither judged nor defaulted.

JSON does not show them, nor the fractions of a second. Who changes an object by way of its JSON form keeps them with `revised`.
What the form hides is told by a third object, the one that is read from the form of the old one: where both are equal, nothing
is hidden. So no part is written as JSON again to be compared: that took a second for an object with 10,000 parts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pinnace.api.codec import CodecError, Problem, readable, to_dict
from pinnace.api.merge import Key, key_of
from pinnace.api.resources import Object, Resource
from pinnace.api.scalars import SCALARS
from pinnace.api.schema import INLINED, map_value

T = TypeVar("T", bound=Object)


def says_more(message: Message) -> bool:
    """Has it fields that are not modelled? Then what looks like "none of the choices" may be one that we do not know."""
    return len(UnknownFieldSet(message)) > 0


def revised(resource: Resource[T], old: T, form: Mapping[str, Any], data: object) -> T:
    """The object that the data describes, with what the data cannot show as it is in `old`. `form`: the JSON form of `old`.

    What reads as before stays as it was, whole. What reads differently keeps the fields that are not modelled; so do the items
    of a list that are told apart by an identity (`merge.key_of`). What is stored may be no such object: a value that cannot be
    read stays where it is, and the change may mend it. Raises CodecError.
    """
    new, problems = readable(resource, data)
    shown, before = readable(resource, form)
    known = frozenset(before)
    _refuse(problems, known)
    _restore(cast(Message, new), cast(Message, old), cast(Message, shown))
    if problems:  # what has moved was not found again
        _refuse(readable(resource, to_dict(new))[1], known)
    return new


def _refuse(problems: Iterable[Problem], known: Collection[Problem]) -> None:
    if added := [problem for problem in problems if problem not in known]:
        raise CodecError(added)


def _restore(new: Message, old: Message, shown: Message) -> None:
    if old == shown:
        return
    if new == shown or _same_scalar(new, shown):
        new.CopyFrom(old)
        return
    if says_more(old):
        new.MergeFrom(_unmodelled(old))
    for field, before in old.ListFields():
        if field.message_type is not None:
            for into, was, as_shown in _pairs(field, new, before, getattr(shown, field.name)):
                _restore(into, was, as_shown)


def _same_scalar(new: Message, shown: Message) -> bool:
    """Are they one value in JSON, which they may say in several ways?"""
    scalar = SCALARS.get(new.DESCRIPTOR.full_name)
    return scalar is not None and scalar.write(new) == scalar.write(shown)


def _unmodelled(message: Message) -> Message:
    """A message of nothing else."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return rest


def _pairs(field: FieldDescriptor, new: Message, before: Any, shown: Any) -> Iterator[tuple[Message, Message, Message]]:
    """What of a field is the same thing in all: after, before, and as the form shows that."""
    after = getattr(new, field.name)
    value = map_value(field)
    if value is not None:
        if value.message_type is not None:
            yield from ((after[key], was, shown[key]) for key, was in before.items() if key in after)
    elif field.is_repeated:
        yield from _items(field, after, list(zip(before, shown, strict=True)))
    elif new.HasField(field.name):
        yield after, before, shown


def _items(
    field: FieldDescriptor, after: Sequence[Message], known: Sequence[tuple[Message, Message]]
) -> Iterator[tuple[Message, Message, Message]]:
    """Items of a list are found again by how they read, or else by their identity."""
    alike = {_bytes(shown): at for at, (_, shown) in enumerate(known)}
    same: dict[Key, int] | None = None
    for into in after:
        at = alike.get(_bytes(into))
        if at is None:
            if same is None:
                same = {key: at for at, (_, shown) in enumerate(known) if (key := _identity(field, shown)) is not None}
            key = _identity(field, into)
            at = same.get(key) if key is not None else None
        if at is not None:
            yield into, *known[at]


def _bytes(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _identity(field: FieldDescriptor, item: Message) -> Key | None:
    return key_of(field.json_name, _plain(item))


def _plain(message: Message) -> dict[str, Any]:
    """Its values that have no parts, as JSON has them: what identities are made of."""
    plain: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.full_name in INLINED:
            plain |= _plain(value)
        elif field.message_type is None and not field.is_repeated:
            plain[field.json_name] = value
    return plain
