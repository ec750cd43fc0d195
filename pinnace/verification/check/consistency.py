"""Checkers for I5 (acknowledged writes survive), I6 (the resourceVersion of a client does not decrease), I7 (reads and writes
are linearizable) and H (the history is complete).

I7 is checked over all keys together, because etcd orders all of its writes. No search is necessary, because every call
determines its position in etcd's order: a write its own revision, a list its snapshot, and a get the range between its version
and the next. The checker compares these positions with real time: a call must be positioned after everything that certainly
happened before the call began. Calls are processed in order of time, each with its smallest possible position. This is exact,
because positions only increase:

    floor at the start of a call   the largest position of any call that had ended, and the latest revision that etcd's
                                   watch had reported
    a write at revision R          R > floor; or, if nothing changed, the returned version was still current at the floor
    a get that found version V     the version after V is later than the floor
    a get that found nothing, or
    a write refused because an
    object did (not) exist         true at the floor or at a later revision
    a list                         snapshot >= floor

A conditional write (`expected`) must have replaced the version that it required. If another write replaced that version, an
update was lost.

A write with an unknown outcome may have happened at any time after its start, or not at all, so it has no position. However,
only recorded clients write under the `private` prefixes of a run. Each version under such a prefix that no acknowledged write
created must be explained by an unknown write that began earlier. Each unknown write explains at most one version. A candidate
for a version is also a candidate for all later versions, so any choice is exact. (Two equal writes of this kind are not
distinguished.)

I6: after a call of a client returned revision R, lists that begin later return R or a later revision, and a get of an object
does not return an older version than the client received before. In watch streams, revisions do not decrease, even across
reconnections. Reads that permit stale data (`stale`) are excluded.

I5: every write that was acknowledged with a revision is in etcd's history at that revision, with the content of the response
and of the request: a deleted pod is absent or marked for deletion, and a written pod has the requested labels. Without the
comparison with the request, an acknowledged write that was not executed would look like a write that changed nothing.

H: etcd assigns consecutive revisions to changes. The recorder must therefore have every revision from its first, in order. A
key is only created if it is absent, keeps its create_revision until it is deleted, and is only deleted if it exists. H detects
missing changes and a store that was rolled back. All other verdicts depend on H.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from pinnace.history.records import CallItem, CallRecord, PodFacts, StoredChange, WatchMessage
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import History, list_call_moments

LINEARIZABILITY = ("I7", "API reads and writes are linearizable")
CLAIMS = ("create", "bind")
"""Verbs whose success always creates a revision."""
MONOTONIC_READS = ("I6", "resourceVersion never goes back: per object, and per client across API servers")
DURABILITY = ("I5", "an acknowledged write survives kill -9 of anything")
READS = ("get", "list")
COMPLETE_HISTORY = ("H", "etcd's history is complete: every revision, in order")
FIRST = 2
"""The first revision of a write. An empty etcd is at revision 1."""


def examine_linearizability(history: History, findings: Findings) -> None:
    search = _LinearizabilityScan(history, findings)
    for began, index, call in list_call_moments(history.calls):
        if began:
            search.begin_call(index, call)
        else:
            search.end_call(index)
    search.check_versions_explained()


class _LinearizabilityScan:
    def __init__(self, history: History, findings: Findings) -> None:
        self._history = history
        self._findings = findings
        self._floor = 0
        self._recorded = 0  # the number of changes that etcd's watch has reported
        self._places: dict[int, int] = {}  # positions of open calls by index
        self._private = history.run.private if history.run else ()
        self._claimed: set[tuple[str, int]] = set()
        self._authors: dict[tuple[str, int], str] = {}
        self._unknown: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # key -> (floor, verb)

    def begin_call(self, index: int, call: CallRecord) -> None:
        floor = self._revision_floor_at(call.began)
        if call.outcome == "unknown":
            self._note_unknown(call, call.items, floor)
            return
        self._findings.examined += 1
        if call.verb == "list":
            place = self._check_list(call, floor) if call.outcome == "ok" else 0
        else:
            place = max((self._check_item(call, item, floor) for item in call.items), default=0)
        if place > floor:
            self._places[index] = place

    def end_call(self, index: int) -> None:
        self._floor = max(self._floor, self._places.pop(index, 0))

    def check_versions_explained(self) -> None:
        """Check that a call explains each version under a private prefix."""
        for key, versions in self._history.keys.items():
            if not key.startswith(self._private or "\0"):
                continue
            begun = sorted(self._unknown[key])
            ready: Counter[str] = Counter()  # unknown writes that began before the version, by effect
            for stored in versions:
                while begun and begun[0][0] < stored.revision:
                    ready[_effect_of_verb(begun.pop(0)[1])] += 1
                if (key, stored.revision) in self._claimed:
                    continue
                self._findings.examined += 1
                effect = _effect_of_change(self._history, stored)
                if not ready[effect]:
                    text = f"{key} was {effect}d at revision {stored.revision}, but no recorded call did this"
                    self._findings.add_violation(text, revision=stored.revision, at=stored.at)
                else:
                    ready[effect] -= 1

    def _revision_floor_at(self, now: float) -> int:
        stored = self._history.stored
        count = self._recorded
        while count < len(stored) and stored[count].at < now:
            count += 1
        self._recorded = count
        return max(self._floor, stored[count - 1].revision if count else 0)

    def _note_unknown(self, call: CallRecord, items: tuple[CallItem, ...], floor: int) -> None:
        if call.verb not in ("get", "list"):
            for item in items:
                self._unknown[item.key].append((floor, call.verb))

    def _check_list(self, call: CallRecord, floor: int) -> int:
        if call.stale or call.of not in (0, call.id):
            return 0
        if call.snapshot < floor:
            self._report_violation(call, f"shows revision {call.snapshot}", floor)
        return call.snapshot

    def _check_item(self, call: CallRecord, item: CallItem, floor: int) -> int:
        """Return the position of a call for one object, or 0 if it is unknown."""
        if call.verb == "get":
            return 0 if call.stale or call.outcome != "ok" else self._check_get(call, item, floor)
        if item.outcome == "ok" and call.outcome == "ok":
            return self._check_write(call, item, floor)
        if item.outcome == "unknown":
            self._note_unknown(call, (item,), floor)
            return 0
        return self._check_refusal(call, item, floor)

    def _check_get(self, call: CallRecord, item: CallItem, floor: int) -> int:
        if not item.revision:
            return self._find_revision_where(call, item.key, floor, lambda now: now is None, "did not find it")
        if item.revision > self._history.last_revision:
            return 0  # after the end of the history
        stored = self._history.find_version(item.key, item.revision)
        if stored is None or not stored.digest:
            self._report_violation(call, f"found {item.key} at revision {item.revision}, but it was not written then", floor)
        elif item.digest and item.digest != stored.digest:
            self._report_violation(
                call, f"found {item.key} at revision {item.revision} with different content than etcd stored", floor
            )
        self._check_latest_at_floor(call, item, floor)
        return item.revision

    def _check_write(self, call: CallRecord, item: CallItem, floor: int) -> int:
        stored = self._history.find_version(item.key, item.revision)
        if stored is None:
            return 0  # reported by I5
        if item.revision <= floor:
            if _must_have_created_revision(call, item) or not stored.digest:
                self._report_violation(call, f"{item.key}: acknowledged with revision {item.revision}", floor)
            else:
                self._check_latest_at_floor(call, item, floor)
            return item.revision
        self._claim_version(call, item, stored, floor)
        return item.revision

    def _claim_version(self, call: CallRecord, item: CallItem, stored: StoredChange, floor: int) -> None:
        """Check a write that may have created its revision: its condition was met, and no other call created the revision."""
        if item.key.startswith(self._private or "\0"):
            self._claimed.add((item.key, item.revision))
        before = self._history.find_replaced_version(stored)
        if item.expected and item.expected != item.revision and (before is None or before.revision != item.expected):
            was = f"revision {before.revision}" if before else "absent"
            self._report_violation(
                call, f"replaced {item.key} on the condition that it was at revision {item.expected}, but it was {was}", floor
            )
        if call.verb == "create" and before is not None:
            self._report_violation(call, f"created {item.key}, which existed since revision {before.create_revision}", floor)
        if _must_have_created_revision(call, item):
            name = f"{call.verb} #{call.id} of {call.client}"
            other = self._authors.setdefault((item.key, item.revision), name)
            if other != name:
                self._report_violation(
                    call, f"{item.key}: {other} was acknowledged with the same revision {item.revision}", floor
                )

    def _check_refusal(self, call: CallRecord, item: CallItem, floor: int) -> int:
        code = item.code or call.code
        if code == "ALREADY_EXISTS" and call.verb == "create":
            return self._find_revision_where(
                call, item.key, floor, lambda now: now is not None, "was refused because it exists"
            )
        if code == "NOT_FOUND" and call.verb != "create":
            return self._find_revision_where(
                call, item.key, floor, lambda now: now is None, "was refused because it does not exist"
            )
        if code == "ABORTED" and item.expected:
            return self._find_revision_where(
                call,
                item.key,
                floor,
                lambda now: now is None or now.revision != item.expected,
                f"was refused because it is not at revision {item.expected}",
            )
        return 0

    def _check_latest_at_floor(self, call: CallRecord, item: CallItem, floor: int) -> None:
        """Check that the returned version was the latest at the floor, or became the latest after it."""
        following = self._history.next_version(item.key, item.revision)
        if following is not None and following.revision <= floor:
            what = "replaced" if following.digest else "deleted"
            text = f"returned {item.key} at revision {item.revision}, which had been {what} at revision {following.revision}"
            self._report_violation(call, text, floor)

    def _find_revision_where(
        self, call: CallRecord, key: str, floor: int, holds: Callable[[StoredChange | None], bool], what: str
    ) -> int:
        """Return the first revision from the floor at which the condition holds for the key, or 0 if there is none."""
        now = self._history.find_current_version(key, floor)
        if holds(now):
            return floor
        for stored in self._history.list_later_versions(key, floor):
            if holds(stored if stored.digest else None):
                return stored.revision
        was = f"at revision {now.revision}" if now else "absent"
        self._report_violation(call, f"{what} ({key}), but it was {was} and did not change accordingly afterwards", floor)
        return 0

    def _report_violation(self, call: CallRecord, text: str, floor: int) -> None:
        where = f"{call.verb} #{call.id} of {call.client} from {call.server}"
        known = f"when the call began, revision {floor} had certainly been reached"
        self._findings.add_violation(f"{where} {text}; {known}", revision=floor, at=call.began)


def _must_have_created_revision(call: CallRecord, item: CallItem) -> bool:
    """Return whether this write must have created the returned revision. A write without a change returns the existing version,
    which is the required version if the write is conditional."""
    return call.verb in CLAIMS or item.expected not in (0, item.revision)


def _effect_of_change(history: History, stored: StoredChange) -> str:
    if not stored.digest:
        return "delete"
    if stored.create_revision == stored.revision:
        return "create"
    before = history.find_replaced_version(stored)
    marked = isinstance(stored.facts, PodFacts) and stored.facts.terminating
    was_marked = before is not None and isinstance(before.facts, PodFacts) and before.facts.terminating
    return "delete" if marked and not was_marked else "update"


def _effect_of_verb(verb: str) -> str:
    """Return the effect of an executed write on its key."""
    return verb if verb in ("create", "delete") else "update"


def examine_sessions(history: History, findings: Findings) -> None:
    by_client: defaultdict[str, list[CallRecord]] = defaultdict(list)
    for call in history.calls:
        if call.outcome == "ok" and not call.stale and call.of in (0, call.id):
            by_client[call.client].append(call)
    for calls in by_client.values():
        _examine_calls(calls, findings)
    for messages in history.streams.values():
        _examine_stream(messages, findings)


def _examine_calls(calls: list[CallRecord], findings: Findings) -> None:
    objects: dict[str, int] = {}  # key -> the latest revision that the client has received
    latest = 0
    for began, _, call in list_call_moments(calls):
        if began:
            findings.examined += 1
            if problem := _session_problem(call, latest, objects):
                text = f"{call.client}: {call.verb} #{call.id} from {call.server} {problem}"
                findings.add_violation(text, revision=latest, at=call.began)
            continue
        latest = max(latest, call.snapshot)
        for item in call.items:
            if item.outcome == "ok" and item.revision > objects.get(item.key, 0):
                objects[item.key] = item.revision
                latest = max(latest, item.revision)


def _session_problem(call: CallRecord, latest: int, objects: dict[str, int]) -> str:
    if call.verb == "list" and call.snapshot < latest:
        return f"returned revision {call.snapshot}, after the client had received revision {latest}"
    if call.verb == "get":
        for item in call.items:
            if 0 < item.revision < (seen := objects.get(item.key, 0)):
                return f"found {item.key} at revision {item.revision}, after the client had received revision {seen}"
    return ""


def _examine_stream(messages: list[WatchMessage], findings: Findings) -> None:
    latest, initial = 0, False
    for message in messages:
        match message.kind:
            case "began":
                initial = message.revision == 0
            case "relisted":
                initial = True
            case "ended":
                pass
            case _ if not initial or message.kind in ("synced", "bookmark"):
                findings.examined += 1
                initial = initial and message.kind != "synced"
                if message.revision < latest:
                    text = (
                        f"watch {message.stream} of {message.client}: {message.kind} {message.key} from {message.server} has "
                        f"revision {message.revision}, after revision {latest}"
                    )
                    findings.add_violation(text, revision=message.revision, at=message.at)
                latest = max(latest, message.revision)


def examine_durability(history: History, findings: Findings) -> None:
    for call in history.calls:
        if call.outcome != "ok" or call.verb in READS:
            continue
        for item in call.items:
            if item.outcome == "ok":
                findings.examined += 1
                stored = history.find_version(item.key, item.revision)
                if problem := _is_unacknowledged(history, call, item, stored):
                    text = f"{call.verb} of {item.key} by {call.client} was acknowledged by {call.server}, but {problem}"
                    findings.add_violation(text, revision=item.revision, at=call.ended)


def _is_unacknowledged(history: History, call: CallRecord, item: CallItem, stored: StoredChange | None) -> str:
    if item.revision > history.last_revision:
        return f"the history ends at revision {history.last_revision}"
    if stored is None:
        return "it was not written at that revision"
    if call.verb != "delete" and not stored.digest:
        return "it was deleted at that revision"
    if stored.digest and item.digest and item.digest != stored.digest:
        return f"different content is stored at that revision (digest {stored.digest}, answered {item.digest})"
    if isinstance(stored.facts, PodFacts):
        if call.verb == "delete" and not stored.facts.terminating:
            return "the pod exists at that revision and is not marked for deletion"
        if item.labels not in (None, stored.facts.labels):
            was, wanted = stored.facts.labels or "none", item.labels or "none"
            return f"different labels are stored at that revision (digest {was}, requested {wanted})"
    return ""


def examine_completeness(history: History, findings: Findings) -> None:
    last = FIRST - 1
    alive: dict[str, int] = {}
    for stored in history.stored:
        findings.examined += 1
        revision = stored.revision
        if not last <= revision <= last + 1 or revision < FIRST:
            text = f"revision {revision} follows revision {last}: {'out of order' if revision < last else 'incomplete'}"
            findings.add_violation(text, revision=revision, at=stored.at)
        last = revision
        if problem := _find_revision_gap(alive, stored):
            findings.add_violation(f"{stored.key} {problem}", revision=revision, at=stored.at)


def _find_revision_gap(alive: dict[str, int], stored: StoredChange) -> str:
    """Return the problem of a change, or "". Update `alive`, the create_revision of each existing key."""
    created = alive.get(stored.key)
    if not stored.digest:
        return "" if alive.pop(stored.key, None) else "was deleted, but did not exist"
    alive[stored.key] = stored.create_revision
    expected = created or stored.revision
    return "" if stored.create_revision == expected else f"has create_revision {stored.create_revision}, expected {expected}"
