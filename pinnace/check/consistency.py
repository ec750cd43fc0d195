"""I5: an acknowledged write survives. I6: no client sees a resourceVersion decrease. I7: reads and writes are linearizable. H:
the history is complete.

I7, over all keys together, because etcd gives all of them one order. No search is needed. Every call names its place in etcd's
order: a write its own revision, a list its snapshot, a get the versions between the one it found and the next. What remains is
whether places agree with real time: whatever certainly happened before a call began must be before its place. The calls are
processed in real time, and the smallest possible place of each is exact, because places only ever increase:

    floor at the begin of a call   the largest place of any call that had ended, and the latest revision that etcd's
                                   watch had reported by then
    a write at revision R          R > floor; or, if there was nothing to change, the version it named still existed at the
    floor a get that found version V     the version after V is later than the floor a get that found nothing, a write refused
    because something did (not) exist: true at the floor or at a revision after it a list                         snapshot >=
    floor

A conditional write (`expected`) replaced the version that it named, and no other write did: otherwise an update was lost.

A write with an unknown outcome may have happened at any time after its start, or never: it has no place to compare. But under
the `private` prefixes of a run only recorded clients write. There, every version that no acknowledged write claims must be
explained by an unknown one, each at most once, begun before it. Candidates for one version are candidates for all later ones,
so taking any is exact here too. (Two equal writes of this kind are not distinguished.)

I6: after a call of a client has ended that showed revision R, lists that begin later show R or later, and a get of an object
does not find an older version than the client has seen. In watch streams, revisions never decrease, not even across
reconnections. Reads that asked for less than the latest state (`stale`) are excluded.

I5: every write that was answered with a revision is in etcd's history at that revision, with the content of the answer and of
the request: a deleted pod is gone or marked there, and a written pod has the requested labels. Otherwise a write that is
acknowledged and never done would pass for one that found nothing to change.

H: etcd gives every change the next revision. So the recorder has every revision from its first on, in order; a key is created
when it is absent, keeps its create_revision until it is deleted, and is deleted only when it exists. A recorder that missed
something, and a store that was set back, both show here. All other verdicts rely on it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from pinnace.check.history import Call, Item, PodFacts, Stored, Told
from pinnace.check.index import History, moments
from pinnace.check.verdict import Findings

LINEARIZABILITY = ("I7", "API reads and writes are linearizable")
CLAIMS = ("create", "bind")
"""Writes that never succeed by finding that there is nothing to do."""


def examine_linearizability(history: History, found: Findings) -> None:
    search = _Scan(history, found)
    for began, index, call in moments(history.calls):
        if began:
            search.begin(index, call)
        else:
            search.end(index)
    search.explain()


class _Scan:
    def __init__(self, history: History, found: Findings) -> None:
        self._history = history
        self._found = found
        self._floor = 0
        self._recorded = 0  # of history.stored: those of which etcd's watch had told
        self._places: dict[int, int] = {}  # of calls that are under way
        self._private = history.run.private if history.run else ()
        self._claimed: set[tuple[str, int]] = set()
        self._authors: dict[tuple[str, int], str] = {}
        self._unknown: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)  # key -> (floor, verb)

    def begin(self, index: int, call: Call) -> None:
        floor = self._floor_at(call.began)
        if call.outcome == "unknown":
            self._note_unknown(call, call.items, floor)
            return
        self._found.examined += 1
        if call.verb == "list":
            place = self._list(call, floor) if call.outcome == "ok" else 0
        else:
            place = max((self._item(call, item, floor) for item in call.items), default=0)
        if place > floor:
            self._places[index] = place

    def end(self, index: int) -> None:
        self._floor = max(self._floor, self._places.pop(index, 0))

    def explain(self) -> None:
        """Accounts for every version under a private prefix."""
        for key, versions in self._history.keys.items():
            if not key.startswith(self._private or "\0"):
                continue
            begun = sorted(self._unknown[key])
            ready: Counter[str] = Counter()  # unknown writes by what they may have done, begun before the version
            for stored in versions:
                while begun and begun[0][0] < stored.revision:
                    ready[_effect_of(begun.pop(0)[1])] += 1
                if (key, stored.revision) in self._claimed:
                    continue
                self._found.examined += 1
                effect = _effect(self._history, stored)
                if not ready[effect]:
                    text = f"{key} was {effect}d at revision {stored.revision}, and no call did that"
                    self._found.violated(text, revision=stored.revision, at=stored.at)
                else:
                    ready[effect] -= 1

    def _floor_at(self, now: float) -> int:
        stored = self._history.stored
        count = self._recorded
        while count < len(stored) and stored[count].at < now:
            count += 1
        self._recorded = count
        return max(self._floor, stored[count - 1].revision if count else 0)

    def _note_unknown(self, call: Call, items: tuple[Item, ...], floor: int) -> None:
        if call.verb not in ("get", "list"):
            for item in items:
                self._unknown[item.key].append((floor, call.verb))

    def _list(self, call: Call, floor: int) -> int:
        if call.stale or call.of not in (0, call.id):
            return 0
        if call.snapshot < floor:
            self._violated(call, f"shows revision {call.snapshot}", floor)
        return call.snapshot

    def _item(self, call: Call, item: Item, floor: int) -> int:
        """The place of what a call did to one object, or saw of it; 0: it says nothing."""
        if call.verb == "get":
            return 0 if call.stale or call.outcome != "ok" else self._get(call, item, floor)
        if item.outcome == "ok" and call.outcome == "ok":
            return self._write(call, item, floor)
        if item.outcome == "unknown":
            self._note_unknown(call, (item,), floor)
            return 0
        return self._refusal(call, item, floor)

    def _get(self, call: Call, item: Item, floor: int) -> int:
        if not item.revision:
            return self._when(call, item.key, floor, lambda now: now is None, "did not find it")
        if item.revision > self._history.last_revision:
            return 0  # more than the history knows
        stored = self._history.version(item.key, item.revision)
        if stored is None or not stored.digest:
            self._violated(call, f"found {item.key} at revision {item.revision}, where it never was", floor)
        elif item.digest and item.digest != stored.digest:
            self._violated(call, f"found {item.key} at revision {item.revision} with other content than was stored", floor)
        self._still_there(call, item, floor)
        return item.revision

    def _write(self, call: Call, item: Item, floor: int) -> int:
        stored = self._history.version(item.key, item.revision)
        if stored is None:
            return 0  # I5 tells
        if item.revision <= floor:
            if _is_its_own(call, item) or not stored.digest:
                self._violated(call, f"{item.key}: acknowledged with revision {item.revision}", floor)
            else:
                self._still_there(call, item, floor)
            return item.revision
        self._claim(call, item, stored, floor)
        return item.revision

    def _claim(self, call: Call, item: Item, stored: Stored, floor: int) -> None:
        """The write may be its own: is it the one that it was to be?"""
        if item.key.startswith(self._private or "\0"):
            self._claimed.add((item.key, item.revision))
        before = self._history.before(stored)
        if item.expected and item.expected != item.revision and (before is None or before.revision != item.expected):
            was = f"revision {before.revision}" if before else "not there"
            self._violated(
                call, f"replaced {item.key} on condition that it was at revision {item.expected}; it was {was}", floor
            )
        if call.verb == "create" and before is not None:
            self._violated(call, f"created {item.key}, which was there since revision {before.create_revision}", floor)
        if _is_its_own(call, item):
            name = f"{call.verb} #{call.id} of {call.client}"
            other = self._authors.setdefault((item.key, item.revision), name)
            if other != name:
                self._violated(call, f"{item.key}: {other} was acknowledged with the same revision {item.revision}", floor)

    def _refusal(self, call: Call, item: Item, floor: int) -> int:
        code = item.code or call.code
        if code == "ALREADY_EXISTS" and call.verb == "create":
            return self._when(call, item.key, floor, lambda now: now is not None, "was refused because it exists")
        if code == "NOT_FOUND" and call.verb != "create":
            return self._when(call, item.key, floor, lambda now: now is None, "was refused because it does not exist")
        if code == "ABORTED" and item.expected:
            return self._when(
                call,
                item.key,
                floor,
                lambda now: now is None or now.revision != item.expected,
                f"was refused because it is not at revision {item.expected}",
            )
        return 0

    def _still_there(self, call: Call, item: Item, floor: int) -> None:
        """Was the version that the call names the latest at the floor, or after it?"""
        following = self._history.next_version(item.key, item.revision)
        if following is not None and following.revision <= floor:
            what = "replaced" if following.digest else "deleted"
            text = f"told of {item.key} at revision {item.revision}, which had been {what} at revision {following.revision}"
            self._violated(call, text, floor)

    def _when(self, call: Call, key: str, floor: int, holds: Callable[[Stored | None], bool], what: str) -> int:
        """The first revision from the floor on at which this holds of the key."""
        now = self._history.state(key, floor)
        if holds(now):
            return floor
        for stored in self._history.after(key, floor):
            if holds(stored if stored.digest else None):
                return stored.revision
        was = f"at revision {now.revision}" if now else "absent"
        self._violated(call, f"{what} ({key}), but it was {was} then, and has not changed so since", floor)
        return 0

    def _violated(self, call: Call, text: str, floor: int) -> None:
        where = f"{call.verb} #{call.id} of {call.client} from {call.server}"
        known = f"when it began, revision {floor} had certainly been reached"
        self._found.violated(f"{where} {text}; {known}", revision=floor, at=call.began)


def _is_its_own(call: Call, item: Item) -> bool:
    """Must this write have made the revision that it was answered with? One that found nothing to change is answered with what
    it found: if it is conditional, with the version that it named."""
    return call.verb in CLAIMS or item.expected not in (0, item.revision)


def _effect(history: History, stored: Stored) -> str:
    if not stored.digest:
        return "delete"
    if stored.create_revision == stored.revision:
        return "create"
    before = history.before(stored)
    marked = isinstance(stored.facts, PodFacts) and stored.facts.terminating
    was_marked = before is not None and isinstance(before.facts, PodFacts) and before.facts.terminating
    return "delete" if marked and not was_marked else "update"


def _effect_of(verb: str) -> str:
    """What a write does to its key, if it happens."""
    return verb if verb in ("create", "delete") else "update"


MONOTONIC_READS = ("I6", "resourceVersion never goes back: per object, and per client across API servers")


def examine_sessions(history: History, found: Findings) -> None:
    by_client: defaultdict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.outcome == "ok" and not call.stale and call.of in (0, call.id):
            by_client[call.client].append(call)
    for calls in by_client.values():
        _examine_calls(calls, found)
    for words in history.streams.values():
        _examine_stream(words, found)


def _examine_calls(calls: list[Call], found: Findings) -> None:
    objects: dict[str, int] = {}  # key -> the latest revision of it that was seen
    latest = 0
    for began, _, call in moments(calls):
        if began:
            found.examined += 1
            if problem := _problem(call, latest, objects):
                text = f"{call.client}: {call.verb} #{call.id} from {call.server} {problem}"
                found.violated(text, revision=latest, at=call.began)
            continue
        latest = max(latest, call.snapshot)
        for item in call.items:
            if item.outcome == "ok" and item.revision > objects.get(item.key, 0):
                objects[item.key] = item.revision
                latest = max(latest, item.revision)


def _problem(call: Call, latest: int, objects: dict[str, int]) -> str:
    if call.verb == "list" and call.snapshot < latest:
        return f"shows revision {call.snapshot}, when the client had seen revision {latest}"
    if call.verb == "get":
        for item in call.items:
            if 0 < item.revision < (seen := objects.get(item.key, 0)):
                return f"found {item.key} at revision {item.revision}, when the client had seen it at {seen}"
    return ""


def _examine_stream(words: list[Told], found: Findings) -> None:
    latest, initial = 0, False
    for told in words:
        match told.kind:
            case "began":
                initial = told.revision == 0
            case "relisted":
                initial = True
            case "ended":
                pass
            case _ if not initial or told.kind in ("synced", "bookmark"):
                found.examined += 1
                initial = initial and told.kind != "synced"
                if told.revision < latest:
                    text = (
                        f"watch {told.stream} of {told.client}: {told.kind} {told.key} from {told.server} is of revision "
                        f"{told.revision}, when revision {latest} had been told"
                    )
                    found.violated(text, revision=told.revision, at=told.at)
                latest = max(latest, told.revision)


DURABILITY = ("I5", "an acknowledged write survives kill -9 of anything")
READS = ("get", "list")


def examine_durability(history: History, found: Findings) -> None:
    for call in history.calls:
        if call.outcome != "ok" or call.verb in READS:
            continue
        for item in call.items:
            if item.outcome == "ok":
                found.examined += 1
                stored = history.version(item.key, item.revision)
                if problem := _unacknowledged(history, call, item, stored):
                    text = f"{call.verb} of {item.key} by {call.client} was acknowledged by {call.server}, but {problem}"
                    found.violated(text, revision=item.revision, at=call.ended)


def _unacknowledged(history: History, call: Call, item: Item, stored: Stored | None) -> str:
    if item.revision > history.last_revision:
        return f"the history ends at revision {history.last_revision}"
    if stored is None:
        return "nothing was written to it at that revision"
    if call.verb != "delete" and not stored.digest:
        return "it was deleted at that revision"
    if stored.digest and item.digest and item.digest != stored.digest:
        return f"something else is stored there (digest {stored.digest}, answered {item.digest})"
    if isinstance(stored.facts, PodFacts):
        if call.verb == "delete" and not stored.facts.terminating:
            return "the pod is there at that revision, and not marked to be deleted"
        if item.labels not in (None, stored.facts.labels):
            was, wanted = stored.facts.labels or "none", item.labels or "none"
            return f"other labels are stored there (digest {was}, asked for {wanted})"
    return ""


COMPLETE_HISTORY = ("H", "etcd's history is whole: every revision, in order")
FIRST = 2
"""An empty etcd is at revision 1."""


def examine_completeness(history: History, found: Findings) -> None:
    last = FIRST - 1
    alive: dict[str, int] = {}
    for stored in history.stored:
        found.examined += 1
        revision = stored.revision
        if not last <= revision <= last + 1 or revision < FIRST:
            text = f"revision {revision} follows revision {last}: {'it goes back' if revision < last else 'some are missing'}"
            found.violated(text, revision=revision, at=stored.at)
        last = revision
        if problem := _gap(alive, stored):
            found.violated(f"{stored.key} {problem}", revision=revision, at=stored.at)


def _gap(alive: dict[str, int], stored: Stored) -> str:
    """Also keeps `alive`: the create_revision of each key that is there."""
    created = alive.get(stored.key)
    if not stored.digest:
        return "" if alive.pop(stored.key, None) else "is deleted, and was not there"
    alive[stored.key] = stored.create_revision
    expected = created or stored.revision
    return "" if stored.create_revision == expected else f"has create_revision {stored.create_revision}, expected {expected}"
