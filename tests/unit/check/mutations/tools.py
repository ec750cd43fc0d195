"""Finding a place in a history, and making another history of it."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from pinnace.api.resources import ELECTIONS_PREFIX, PODS
from pinnace.history.records import CallItem, CallRecord, Facts, PodFacts, Record, RunPhase, StoredChange, WatchMessage
from tests.unit.check.mutations.registry import Records
from tests.unit.check.world import PRIVATE, REQUESTS

R = TypeVar("R", bound=Record)


def all_of(records: Records, kind: type[R], where: Callable[[R], bool] = lambda record: True) -> list[R]:
    return [record for record in records if isinstance(record, kind) and where(record)]


def calls_of(
    records: Records, verb: str, prefix: str, where: Callable[[CallRecord], bool] = lambda call: True, outcome: str = "ok"
) -> list[CallRecord]:
    return all_of(
        records,
        CallRecord,
        lambda call: call.verb == verb and call.outcome == outcome and call.items[0].key.startswith(prefix) and where(call),
    )


def put_instead(records: Iterable[Record], old: Record, *new: Record) -> Records:
    """Each record but `old`, which makes room for `new`."""
    return [item for record in records for item in (new if record is old else (record,))]


def end_of(records: Records) -> tuple[float, StoredChange]:
    last = all_of(records, StoredChange)[-1]
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    return max(end.at, last.at) + 0.01, last


def append(
    records: Records,
    key: str,
    facts: Facts | None,
    *,
    digest: str = "",
    lease: int = 0,
    create_revision: int = 0,
    at: float = 0.0,
) -> Records:
    """One more revision, after the end of the run. Without facts and digest it is a deletion."""
    now, last = end_of(records)
    revision = last.revision + 1
    if facts is None and not digest:
        return [*records, StoredChange(now + at, revision, key)]
    versions = all_of(records, StoredChange, lambda stored: stored.key == key)
    created = versions[-1].create_revision if versions and versions[-1].digest else revision
    stored = StoredChange(now + at, revision, key, digest or f"{revision:016x}", create_revision or created, lease, facts)
    return [*records, stored]


def facts_of(stored: StoredChange) -> PodFacts:
    assert isinstance(stored.facts, PodFacts)
    return stored.facts


def pod_of(records: Records, rng: random.Random, where: Callable[[PodFacts], bool]) -> StoredChange:
    """The last version of a pod that is there at the end."""
    last = {stored.key: stored for stored in all_of(records, StoredChange)}
    return rng.choice([stored for stored in last.values() if isinstance(stored.facts, PodFacts) and where(stored.facts)])


def leader_of(records: Records) -> StoredChange:
    return all_of(records, StoredChange, lambda stored: stored.key.startswith(ELECTIONS_PREFIX))[-1]


def bind_new(
    records: Records,
    token: int,
    requests: tuple[tuple[str, int], ...] = REQUESTS,
    election: str = "scheduler",
    scheduler: str = "default-scheduler",
) -> Records:
    key, facts = PODS.key("default", "new"), PodFacts("new", phase="Pending", requests=requests, scheduler=scheduler)
    return append(append(records, key, facts), key, replace(facts, node="n1", election=election, token=token))


def first_update(records: Records) -> tuple[StoredChange, StoredChange]:
    """Two versions of one private key, one after the other."""
    seen: dict[str, StoredChange] = {}
    for stored in all_of(records, StoredChange, lambda stored: stored.key.startswith(PRIVATE)):
        if stored.key in seen:
            return seen[stored.key], stored
        seen[stored.key] = stored
    raise IndexError("no update")


def get_of(found: StoredChange, now: float, number: int) -> CallRecord:
    item = CallItem(found.key, found.revision, "", found.digest)
    return CallRecord("new", number, "s", "get", "priorityclasses", now + number, now + number, items=(item,))


def told_of(
    records: Records, rng: random.Random, kind: str, where: Callable[[WatchMessage], bool] = lambda told: True
) -> WatchMessage:
    return rng.choice(all_of(records, WatchMessage, lambda told: told.kind == kind and where(told)))


def after(records: Records, told: WatchMessage) -> list[WatchMessage]:
    """What its stream was told next."""
    stream = all_of(records, WatchMessage, lambda item: item.stream == told.stream)
    return stream[stream.index(told) + 1 :]


def live_event(records: Records, rng: random.Random, name: str = "all") -> WatchMessage:
    stream = all_of(records, WatchMessage, lambda told: told.stream == name)
    return rng.choice([told for told in stream if is_live(stream, told)])


def is_live(stream: list[WatchMessage], told: WatchMessage) -> bool:
    """An event, and none of the initial state."""
    if told.kind not in ("added", "modified", "deleted"):
        return False
    before = [item for item in stream[: stream.index(told)] if item.kind in ("began", "relisted", "synced")]
    return before[-1].kind == "synced" or (before[-1].kind == "began" and before[-1].revision > 0)
