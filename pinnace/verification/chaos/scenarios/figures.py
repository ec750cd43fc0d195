"""Figures and timelines of a scenario, computed from its history and logs. Times are monotonic seconds.

Times of etcd's changes are those at which the recorder received them, about a millisecond after the change.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, election_key
from pinnace.api.status import Code
from pinnace.history.records import (
    CallItem,
    CallRecord,
    ContainerRun,
    ElectionFacts,
    PodFacts,
    Record,
    StoredChange,
    WatchMessage,
)
from pinnace.runtime.logs import LogEvent, LogLine
from pinnace.verification.chaos.clients import MOVED
from pinnace.verification.check.index import History


@dataclass(frozen=True, slots=True)
class ScenarioMoment:
    """An event. `at`: monotonic seconds. `hit`: whether it is an action of the scenario rather than an effect."""

    at: float
    what: str
    hit: bool = False


def list_election_moments(
    records: Iterable[Record], election: str, since: float, reasons: Mapping[int, str]
) -> Iterator[ScenarioMoment]:
    """Yield the changes of leadership, resumed sessions, and the first bind of each new leader. `reasons`: the reasons for the
    ends of terms by token, as far as known."""
    holders: dict[int, str] = {}
    bound: set[int] = set()
    last = 0
    key = election_key(election)
    for record in records:
        if not isinstance(record, StoredChange):
            continue
        if record.key == key:
            if record.at >= since:
                yield list_leader_key_moments(record, last, holders.get(last, ""), reasons)
            if isinstance(record.facts, ElectionFacts):
                last = record.create_revision
                holders[last] = record.facts.holder
        elif isinstance(record.facts, PodFacts) and record.facts.election == election:
            token = record.facts.token
            if token not in bound and record.at >= since and token > min(holders, default=0):
                yield ScenarioMoment(record.at, f"{holders.get(token, 'an unknown leader')} binds its first pod")
            bound.add(token)


def list_leader_key_moments(stored: StoredChange, token: int, holder: str, reasons: Mapping[int, str]) -> ScenarioMoment:
    if not isinstance(stored.facts, ElectionFacts):
        why = reasons.get(token, "")
        return ScenarioMoment(
            stored.at, f"the election's key with {holder}'s token {token} is deleted" + (f": {why}" if why else "")
        )
    if stored.create_revision == stored.revision:
        return ScenarioMoment(stored.at, f"{stored.facts.holder} is elected with fencing token {stored.revision}")
    return ScenarioMoment(
        stored.at, f"{stored.facts.holder} resumes on another API server and keeps token {stored.create_revision}"
    )


def list_compacted_watches(records: Iterable[Record], since: float) -> Iterator[ScenarioMoment]:
    """Yield the watches whose revision was compacted."""
    for record in records:
        if (
            isinstance(record, WatchMessage)
            and record.kind == "ended"
            and record.code == Code.OUT_OF_RANGE.name
            and record.at >= since
        ):
            yield ScenarioMoment(
                record.at, f"{record.client} receives {record.code}: missed events are compacted; it starts over"
            )


def list_log_moments(
    lines: Iterable[LogLine], name: str, since: float, offset: float, kinds: tuple[type[LogEvent], ...]
) -> Iterator[ScenarioMoment]:
    """Yield the log lines of process `name` with an event of one of these classes. `offset`: seconds from the monotonic clock
    to Unix time."""
    for line in lines:
        if isinstance(line.event, kinds) and line.at - offset >= since:
            yield ScenarioMoment(line.at - offset, f"{name}: {line.message}")


def list_bind_times(seen: History, election: str, token: int = 0) -> Iterator[float]:
    """Yield the times of binds with this token of the election, or with any token if it is 0."""
    for change in seen.pods:
        now, before = change.now, change.before
        if now is not None and now.election == election and (before is None or not before.node) and token in (0, now.token):
            yield change.stored.at


def find_first_bind(seen: History, election: str, token: int) -> float | None:
    return next(list_bind_times(seen, election, token), None)


def measure_wait_for_bind(seen: History, election: str, token: int, since: float) -> float:
    """Return the seconds from `since` to the next bind with this token, or infinity."""
    return next((at - since for at in list_bind_times(seen, election, token) if at > since), float("inf"))


def measure_longest_gap(times: Iterable[float], since: float, until: float) -> float:
    """Return the longest interval between consecutive times within a period, including its start and end."""
    inside = [since, *(at for at in times if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(inside))


def select_calls(seen: History, since: float, until: float) -> list[CallRecord]:
    """Return the calls that began and ended within a period."""
    return [call for call in seen.calls if call.began >= since and call.ended <= until]


def count_succeeded_calls(calls: Iterable[CallRecord]) -> int:
    """Return the number of calls that succeeded; for a batch, with at least one successful item."""
    return sum(call.outcome == "ok" and (not call.items or any(item.outcome == "ok" for item in call.items)) for call in calls)


def find_slowest_call(calls: Iterable[CallRecord]) -> float:
    return max((call.ended - call.began for call in calls), default=0.0)


def measure_ninetieth_percentile(calls: Iterable[CallRecord]) -> float:
    """Return the 90th percentile of the latency. It is infinite without calls, or if more than 10% failed."""
    took = sorted(call.ended - call.began if call.outcome == "ok" else float("inf") for call in calls)
    return took[len(took) * 9 // 10] if took else float("inf")


def count_lost_answers(seen: History) -> int:
    return sum(call.outcome == "unknown" for call in seen.calls)


def list_broken_watches(seen: History, since: float, until: float) -> list[str]:
    """Return the codes of streams that ended within a period, except for those that their reader ended."""
    words = [word for stream in seen.streams.values() for word in stream]
    return [word.code for word in words if word.kind == "ended" and word.code != MOVED and since <= word.at <= until]


def count_unrequested_stops(seen: History, since: float, until: float) -> int:
    """Return the number of pods that a kubelet stopped within a period without a deletion."""
    stops = [ran for ran in seen.ran if ran.what == "stopped" and since <= ran.at <= until]
    asked = _find_deletions(seen)
    return sum(_pod_exists(seen, ran) and not _is_deletion_in_progress(seen, ran, asked[ran.key]) for ran in stops)


def _pod_exists(seen: History, ran: ContainerRun) -> bool:
    """Return whether the pod existed and was not terminating at this time, according to the recorder."""
    known = [stored.facts for stored in seen.keys.get(ran.key, ()) if stored.at <= ran.at]
    return bool(known) and isinstance(known[-1], PodFacts) and known[-1].uid == ran.uid and not known[-1].terminating


def _is_deletion_in_progress(seen: History, ran: ContainerRun, asked: Iterable[tuple[CallRecord, CallItem]]) -> bool:
    """Return whether the recorder received the deletion late: a call that had begun when the kubelet stopped the pod deleted
    it. This is the call with the revision in its response, or, if there is none, any call whose response was lost."""
    later = (stored for stored in seen.keys.get(ran.key, ()) if stored.at > ran.at)
    end = next((stored.revision for stored in later if not _is_not_deleted(stored, ran.uid)), 0)
    named = [(call, item) for call, item in asked if item.uid in ("", ran.uid)]
    answered = [call for call, item in named if item.revision == end]
    lost = [call for call, item in named if "unknown" in (call.outcome, item.outcome)]
    return end > 0 and any(call.began <= ran.at for call in answered or lost)


def _is_not_deleted(stored: StoredChange, uid: str) -> bool:
    return isinstance(stored.facts, PodFacts) and stored.facts.uid == uid and not stored.facts.terminating


def _find_deletions(seen: History) -> dict[str, list[tuple[CallRecord, CallItem]]]:
    """Return the requested deletions by key."""
    deletions: dict[str, list[tuple[CallRecord, CallItem]]] = defaultdict(list)
    for call in seen.calls:
        if call.verb == "delete":
            for item in call.items:
                deletions[item.key].append((call, item))
    return deletions


def find_quorum_return(seen: History) -> float:
    """Return the time at which a majority of three etcd members was running again, after two were killed: the start of the
    first of the two. Infinite if none was started."""
    killed = (fault for fault in seen.faults.values() if fault.name == "kill-etcd-member")
    return min((fault.ended for fault in killed if fault.ended is not None), default=float("inf"))


def format_milliseconds(seconds: float) -> str:
    return "never" if seconds == float("inf") else f"{seconds * 1000:,.0f} ms"


def count_lease_acquisitions(seen: History, since: float, until: float) -> Counter[str]:
    """Return the number of times that each node's lease was acquired within a period."""
    counts: Counter[str] = Counter()
    for key, versions in seen.keys.items():
        if key.startswith(f"{LEASES.prefix}{NODE_LEASE_NAMESPACE}/"):
            counts[key] = sum(since <= stored.at <= until and bool(stored.digest) for stored in versions)
    return counts


def measure_longest_overlap(seen: History, since: float, until: float) -> float:
    """Return the longest time within a period in which two kubelet processes ran the same pod."""
    runs: dict[str, list[float]] = defaultdict(list)  # start times by uid
    longest = 0.0
    for ran in sorted(seen.ran, key=lambda ran: ran.at):
        if ran.at > until:
            break
        started = runs[ran.uid]
        if ran.what == "started":
            started.append(ran.at)
        elif started:
            if len(started) > 1 and ran.at >= since:
                longest = max(longest, ran.at - started[-1])
            started.pop(0)
    return max([longest, *(until - started[-1] for started in runs.values() if len(started) > 1)])
