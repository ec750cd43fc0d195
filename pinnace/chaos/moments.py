"""What came of a fault, moment by moment: read from the history and from the logs. Pure.

Times of what is in etcd are those at which the recorder was told: a millisecond or so after it happened.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinnace.api.resources import election_key
from pinnace.api.status import Code
from pinnace.check.facts import ElectionFacts, PodFacts
from pinnace.check.history import Record, Stored, Told
from pinnace.runtime.log_events import LogEvent, LogLine


@dataclass(frozen=True, slots=True)
class Moment:
    """`at`: monotonic seconds. `hit`: it is what was done to the cluster, and not what came of it."""

    at: float
    what: str
    hit: bool = False


def of_election(records: Iterable[Record], election: str, since: float, reasons: Mapping[int, str]) -> Iterator[Moment]:
    """Who lost the lead, who was elected, who went on elsewhere, and when each new leader bound its first pod. `reasons`: why
    terms ended, by token, as far as it is known."""
    holders: dict[int, str] = {}
    bound: set[int] = set()
    last = 0
    key = election_key(election)
    for record in records:
        if not isinstance(record, Stored):
            continue
        if record.key == key:
            if record.at >= since:
                yield _of_the_key(record, last, holders.get(last, ""), reasons)
            if isinstance(record.facts, ElectionFacts):
                last = record.create_revision
                holders[last] = record.facts.holder
        elif isinstance(record.facts, PodFacts) and record.facts.election == election:
            token = record.facts.token
            if token not in bound and record.at >= since and token > min(holders, default=0):
                yield Moment(record.at, f"{holders.get(token, 'nobody known')} binds its first pod")
            bound.add(token)


def _of_the_key(stored: Stored, token: int, holder: str, reasons: Mapping[int, str]) -> Moment:
    if not isinstance(stored.facts, ElectionFacts):
        why = reasons.get(token, "")
        return Moment(
            stored.at, f"the election's key is deleted, and with it {holder}'s token {token}" + (f": {why}" if why else "")
        )
    if stored.create_revision == stored.revision:
        return Moment(stored.at, f"{stored.facts.holder} is elected; its fencing token is {stored.revision}")
    return Moment(stored.at, f"{stored.facts.holder} goes on with another API server, and keeps token {stored.create_revision}")


def of_watches(records: Iterable[Record], since: float) -> Iterator[Moment]:
    """Who was told that the past it wanted to go on from is gone."""
    for record in records:
        if isinstance(record, Told) and record.kind == "ended" and record.code == Code.OUT_OF_RANGE.name and record.at >= since:
            yield Moment(record.at, f"{record.client} is told {record.code}: what it has missed is gone; it begins anew")


def of_log(
    lines: Iterable[LogLine], name: str, since: float, offset: float, kinds: tuple[type[LogEvent], ...]
) -> Iterator[Moment]:
    """The lines in the log of the process `name` that have an event of one of the kinds. `offset`: of the monotonic clock to
    Unix time, in seconds."""
    for line in lines:
        if isinstance(line.event, kinds) and line.at - offset >= since:
            yield Moment(line.at - offset, f"{name} says: {line.message}")
