"""The layout of `describe`: nested labels and values, aligned within each level. `render` converts them to lines.

The module also contains fields that all kinds share, and the description of kinds without a function of their own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from pinnace.api.codec import Field, fields_of, to_dict
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.meta_v1_pb2 import MicroTime, ObjectMeta, Time
from pinnace.api.resources import Object
from pinnace.api.scalars import to_datetime
from pinnace.cli.terminal import one_line
from pinnace.printers import cluster
from pinnace.printers.columns import is_set, since

NONE = "<none>"
INDENT = GAP = "  "


@dataclass(frozen=True, slots=True)
class Rows:
    """A table under a label; `<none>` without rows."""

    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Detailed:
    """A line with nested fields."""

    text: str
    fields: Mapping[str, "Value"]


class NotShown(str):
    """Replaces data that the user cannot read, with the reason: `<not shown: User "jane" cannot list ...>`."""

    __slots__ = ()


Value: TypeAlias = "str | Sequence[str] | Mapping[str, Value] | Detailed | Rows"
"""A line, several lines, nested fields, a line with nested fields, or a table."""
Fields = Mapping[str, Value]
"""Labels, without the colon, and values in display order."""


_OF_APPLY = (LAST_APPLIED, "kubectl.kubernetes.io/last-applied-configuration")


def render(fields: Fields, indent: str = "") -> Iterator[str]:
    """Yield lines without a newline."""
    width = max((len(label) for label, value in fields.items() if _is_inline(value)), default=0) + len(GAP) + 1
    for label, value in fields.items():
        head = f"{indent}{label}:"
        if isinstance(value, str):
            yield _join(head, value, indent, width)
        elif isinstance(value, Detailed):
            yield _join(head, value.text, indent, width)
            yield from render(value.fields, indent + INDENT)
        elif isinstance(value, Rows):
            yield from _rows(head, value, indent, width)
        elif isinstance(value, Mapping):
            yield head if value else _join(head, NONE, indent, width)
            yield from render(value, indent + INDENT)
        else:
            lines = value or [NONE]
            yield _join(head, lines[0], indent, width)
            yield from (_join(indent, line, indent, width) for line in lines[1:])


def _is_inline(value: Value) -> bool:
    return not isinstance(value, Rows | Mapping)


def _join(head: str, value: str, indent: str, width: int) -> str:
    return f"{head + GAP:<{len(indent) + width}}{one_line(value)}".rstrip()


def _rows(head: str, value: Rows, indent: str, width: int) -> Iterator[str]:
    if not value.rows:
        yield _join(head, NONE, indent, width)
        return
    yield head
    rows = [tuple(one_line(cell) for cell in row) for row in value.rows]
    lines = [value.headers, tuple("-" * len(header) for header in value.headers), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(value.headers))]
    for line in lines:
        cells = (cell.ljust(size) for cell, size in zip(line, widths, strict=True))
        yield f"{indent}{INDENT}{INDENT.join(cells)}".rstrip()


def pairs(values: Mapping[str, str]) -> list[str]:
    """Return labels as sorted `key=value` strings."""
    return [f"{key}={value}" for key, value in sorted(values.items())]


def joined(values: Mapping[str, str]) -> str:
    """Return labels on one line: `app=web,tier=x`."""
    return ",".join(pairs(values)) or NONE


def instant(value: Time | MicroTime) -> str:
    """Format a time as kubectl does: RFC 1123 in the local time zone with a numeric zone. Empty if not set."""
    return to_datetime(value).astimezone().strftime("%a, %d %b %Y %H:%M:%S %z") if is_set(value) else ""


def head(meta: ObjectMeta) -> dict[str, Value]:
    """Return the first fields of all descriptions."""
    return {
        "Name": meta.name,
        **({"Namespace": meta.namespace} if meta.namespace else {}),
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "CreationTimestamp": instant(meta.creationTimestamp) or NONE,
    }


def controlled_by(meta: ObjectMeta) -> dict[str, str]:
    """Return the field with the controller, if there is one."""
    owner = next((each for each in meta.ownerReferences if each.controller), None)
    return {"Controlled By": f"{owner.kind}/{owner.name}"} if owner else {}


def annotations(meta: ObjectMeta) -> list[str]:
    """Return `key: value` lines without the annotation of `apply`, which contains all values of a secret."""
    shown = sorted((key, value) for key, value in meta.annotations.items() if key not in _OF_APPLY)
    return [f"{key}: {value}" for key, value in shown]


def finalizers(meta: ObjectMeta) -> str:
    """Return the finalizers on one line: "[a b]"."""
    return f"[{' '.join(meta.finalizers)}]"


def phase(meta: ObjectMeta, word: str, now: float) -> str:
    """Return the phase, or the time since the deletion."""
    return f"Terminating (lasts {since(meta.deletionTimestamp, now)})" if is_set(meta.deletionTimestamp) else word


def events_table(events: Iterable[Event], now: float) -> Rows:
    """Return the events, oldest first."""
    rows = [
        (
            event.type,
            event.reason,
            cluster.occurrences(event, now),
            event.reportingComponent or event.source.component,
            event.message.strip(),
        )
        for event in sorted(events, key=cluster.when)
    ]
    return Rows(("Type", "Reason", "Age", "From", "Message"), rows)


def describe_object(obj: Object) -> Fields:
    own = {label: value for label, value in fields(cast(Message, obj)).items() if label != "Metadata"}
    return {**head(obj.metadata), **own}


def fields(message: Message) -> Fields:
    """Return the fields of a message that are set, with labels derived from the field names."""
    document = {key: value for key, value in to_dict(message).items() if key not in ("apiVersion", "kind")}
    return _fields(document, cast(Descriptor, message.DESCRIPTOR))


def _fields(document: Mapping[str, Any], kind: Descriptor | None) -> Fields:
    known = fields_of(kind) if kind else {}
    return {_label(key): _value(value, known[key]) for key, value in document.items()}


def _label(name: str) -> str:
    """Convert a field name to a label: holderIdentity becomes Holder Identity."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return words[:1].upper() + words[1:]


def _value(value: Any, field: Field) -> Value:
    if field.value is not None:  # a map, whose keys are not field names
        return joined({key: _text(item) for key, item in value.items()})
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return {str(index): _fields(item, field.descriptor.message_type) for index, item in enumerate(value)}
    if isinstance(value, list):
        return [_text(item) for item in value]
    return _fields(value, field.descriptor.message_type) if isinstance(value, Mapping) else _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
