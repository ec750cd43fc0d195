"""Histories in files: one JSON object a line."""

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from os import SEEK_END
from pathlib import Path
from typing import Any

from pinnace.check.facts import ElectionFacts, Facts, LeaseFacts, NodeFacts, PodFacts
from pinnace.check.history import Call, Compaction, Fault, Item, Observed, Phase, Ran, Record, Run, Stored, Told

_RECORDS: dict[str, type[Any]] = {kind.tag: kind for kind in (Run, Stored, Compaction, Call, Told, Ran, Fault, Observed, Phase)}
_FACTS: dict[str, type[Any]] = {"pod": PodFacts, "node": NodeFacts, "election": ElectionFacts, "lease": LeaseFacts}
_FACT_TAGS = {kind: tag for tag, kind in _FACTS.items()}
_NAMES = tuple(field.name for field in fields(Run) if field.default == ())
"""Fields of Run that are tuples."""
_FIELDS = {
    kind: tuple((field.name, field.default) for field in fields(kind)) for kind in (*_RECORDS.values(), *_FACTS.values(), Item)
}
_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class HistoryError(Exception):
    """A file is not a history; the message says where."""


def encode(record: Record) -> str:
    """One line, with its end."""
    data = _told(record)
    if isinstance(record, Stored) and record.facts is not None:
        data["facts"] = {"t": _FACT_TAGS[type(record.facts)], **_told(record.facts)}
    elif isinstance(record, Call) and record.items:
        data["items"] = [_told(item) for item in record.items]
    return _dumps({"t": record.tag, **data}) + "\n"


def decode(line: str | bytes) -> Record:
    """Raises HistoryError."""
    try:
        data = json.loads(line)
    except ValueError:  # it would tell the line, which may be of any length, and of any bytes
        raise HistoryError("no record of a history: it is not JSON") from None
    try:
        kind = _RECORDS[data.pop("t")]
        if kind is Stored:
            data["facts"] = _facts(data.get("facts"))
        elif kind is Call:
            data["items"] = tuple(Item(**item) for item in data.get("items", ()))
        elif kind is Run:
            data |= {name: tuple(data.get(name, ())) for name in _NAMES}
        record: Record = kind(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"no record of a history: {error!r}") from None
    return record


def read(path: Path) -> Iterator[Record]:
    """A last line without an end was cut off by the death of its writer, and is left out. Raises HistoryError, OSError."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode(line)
            except HistoryError as error:
                raise HistoryError(f"{path}:{number}: {error}") from None


def is_cut_off(path: Path) -> bool:
    """Whether the last line has no end. Raises OSError."""
    with path.open("rb") as file:
        if not file.seek(0, SEEK_END):
            return False
        file.seek(-1, SEEK_END)
        return file.read() != b"\n"


def _told(record: Record | Item | Facts) -> dict[str, Any]:
    """The fields that do not have their default."""
    told = {}
    for name, default in _FIELDS[type(record)]:
        value = getattr(record, name)
        if default is MISSING or value != default:
            told[name] = value
    return told


def _facts(data: dict[str, Any] | None) -> Facts | None:
    if data is None:
        return None
    kind = _FACTS[data.pop("t")]
    for name in ("requests", "allocatable"):
        if name in data:
            data[name] = tuple((resource, amount) for resource, amount in data[name])
    if kind is ElectionFacts:
        data["scheduler_names"] = tuple(data.get("scheduler_names", ()))
    facts: Facts = kind(**data)
    return facts
