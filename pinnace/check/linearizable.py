"""I7: API reads and writes are linearizable; over all keys together, since etcd gives all of them one order.

There is no search. Every call names its place in etcd's order: a write its own revision, a list its snapshot, a get the
versions between the one it found and the next. What is left to decide is whether places agree with real time: whatever is
certain to have happened before a call began must be before its place. Going through the calls in real time, the smallest
possible place of each is exact, since places are only ever pushed up:

    floor at the begin of a call   the largest place of any call that had ended, and the latest revision of which
                                   etcd's watch had told by then
    a write at revision R          R > floor; or, where nothing was to be changed, what it named still was there at the floor
    a get that found version V     the version after V is later than the floor
    a get that found nothing, a write refused for what was (not) there: it was so at the floor or at a revision after it
    a list                         snapshot >= floor

A conditional write (`expected`) replaced the very version that it named, and nobody else did: otherwise an update was lost.

A write with an unknown outcome may have happened at any time from its start on, or never: it has no place to compare. But under
the `private` prefixes of a run nobody else writes. There every version that no answered write claims must be explained by an
unknown one, each at most once, begun before it. Candidates for one version are candidates for all later ones, so taking any is
exact here too. (Two such writes that are alike are not told apart.)
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from pinnace.check.facts import PodFacts
from pinnace.check.history import Call, Item, Stored
from pinnace.check.index import History
from pinnace.check.timeline import moments
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I7", "API reads and writes are linearizable"
CLAIMS = ("create", "bind")
"""Writes that never succeed by finding that there is nothing to do."""


def examine(history: History, found: Findings) -> None:
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
