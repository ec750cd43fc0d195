"""Figures and timelines of a scenario, computed from its history and logs. Times are monotonic seconds.

Times of etcd's changes are those at which the recorder received them: about a millisecond after they happened.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, election_key
from pinnace.api.status import Code
from pinnace.chaos.clients import MOVED
from pinnace.check.history import Call, ElectionFacts, Item, PodFacts, Ran, Record, Stored, Told
from pinnace.check.index import History
from pinnace.runtime.logs import LogEvent, LogLine


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


def binds(seen: History, election: str, token: int = 0) -> Iterator[float]:
    """When pods were bound under this token of the election; without one, under any."""
    for change in seen.pods:
        now, before = change.now, change.before
        if now is not None and now.election == election and (before is None or not before.node) and token in (0, now.token):
            yield change.stored.at


def first_bind(seen: History, election: str, token: int) -> float | None:
    return next(binds(seen, election, token), None)


def wait_for_bind(seen: History, election: str, token: int, since: float) -> float:
    """From then to the next bind under this token; infinite when there was none."""
    return next((at - since for at in binds(seen, election, token) if at > since), float("inf"))


def longest_gap(times: Iterable[float], since: float, until: float) -> float:
    """The longest time between two neighbours, and between them and the ends, within a span."""
    inside = [since, *(at for at in times if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(inside))


def calls_within(seen: History, since: float, until: float) -> list[Call]:
    """Those that began and ended within a span."""
    return [call for call in seen.calls if call.began >= since and call.ended <= until]


def succeeded(calls: Iterable[Call]) -> int:
    """Calls that did, or told, something: of a batch at least one item."""
    return sum(call.outcome == "ok" and (not call.items or any(item.outcome == "ok" for item in call.items)) for call in calls)


def slowest(calls: Iterable[Call]) -> float:
    return max((call.ended - call.began for call in calls), default=0.0)


def nine_of_ten(calls: Iterable[Call]) -> float:
    """The time within which nine of ten calls are answered; infinite without calls, or when more than a tenth fail."""
    took = sorted(call.ended - call.began if call.outcome == "ok" else float("inf") for call in calls)
    return took[len(took) * 9 // 10] if took else float("inf")


def lost_answers(seen: History) -> int:
    return sum(call.outcome == "unknown" for call in seen.calls)


def broken_watches(seen: History, since: float, until: float) -> list[str]:
    """The codes of the streams that ended within a span, and not because their reader moved on."""
    words = [word for stream in seen.streams.values() for word in stream]
    return [word.code for word in words if word.kind == "ended" and word.code != MOVED and since <= word.at <= until]


def stopped_unasked(seen: History, since: float, until: float) -> int:
    """Pods that a kubelet stopped within a span, although nobody had deleted them."""
    stops = [ran for ran in seen.ran if ran.what == "stopped" and since <= ran.at <= until]
    asked = _deletes(seen)
    return sum(_lives(seen, ran) and not _ending(seen, ran, asked[ran.key]) for ran in stops)


def _lives(seen: History, ran: Ran) -> bool:
    """Whether the pod is in etcd at that time, and is to stay, by all that the recorder has been told until then."""
    known = [stored.facts for stored in seen.keys.get(ran.key, ()) if stored.at <= ran.at]
    return bool(known) and isinstance(known[-1], PodFacts) and known[-1].uid == ran.uid and not known[-1].terminating


def _ending(seen: History, ran: Ran, asked: Iterable[tuple[Call, Item]]) -> bool:
    """Whether the recorder was only told late: the pod does end, by a call that had begun when the kubelet stopped it. That is
    the call that was answered with the revision; where none was, any whose answer was lost."""
    later = (stored for stored in seen.keys.get(ran.key, ()) if stored.at > ran.at)
    end = next((stored.revision for stored in later if not _stays(stored, ran.uid)), 0)
    named = [(call, item) for call, item in asked if item.uid in ("", ran.uid)]
    answered = [call for call, item in named if item.revision == end]
    lost = [call for call, item in named if "unknown" in (call.outcome, item.outcome)]
    return end > 0 and any(call.began <= ran.at for call in answered or lost)


def _stays(stored: Stored, uid: str) -> bool:
    return isinstance(stored.facts, PodFacts) and stored.facts.uid == uid and not stored.facts.terminating


def _deletes(seen: History) -> dict[str, list[tuple[Call, Item]]]:
    """The deletions that were asked for, by key."""
    found: dict[str, list[tuple[Call, Item]]] = defaultdict(list)
    for call in seen.calls:
        if call.verb == "delete":
            for item in call.items:
                found[item.key].append((call, item))
    return found


def majority_again(seen: History) -> float:
    """When a majority of etcd's three members ran again, of which two had been killed: once the first of them was started.
    Infinite while none was."""
    killed = (fault for fault in seen.faults.values() if fault.name == "kill-etcd-member")
    return min((fault.ended for fault in killed if fault.ended is not None), default=float("inf"))


def milliseconds(seconds: float) -> str:
    return "never" if seconds == float("inf") else f"{seconds * 1000:,.0f} ms"


def lease_writes(seen: History, since: float, until: float) -> Counter[str]:
    """How often the lease of each node was taken (anew) within a span."""
    counts: Counter[str] = Counter()
    for key, versions in seen.keys.items():
        if key.startswith(f"{LEASES.prefix}{NODE_LEASE_NAMESPACE}/"):
            counts[key] = sum(since <= stored.at <= until and bool(stored.digest) for stored in versions)
    return counts


def longest_overlap(seen: History, since: float, until: float) -> float:
    """The longest time within a span for which two kubelet processes ran one pod. Each runs it once at most."""
    runs: dict[str, list[float]] = defaultdict(list)  # by uid: since when
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
