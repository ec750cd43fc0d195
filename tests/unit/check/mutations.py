"""What is done to honest histories to see whether anybody notices. Each takes an index of a history and its records, and gives
other records; StopIteration or IndexError when the history has no place for it."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from pinnace.api.resources import ELECTIONS_PREFIX, PODS, election_key
from pinnace.check.facts import ElectionFacts, Facts, PodFacts
from pinnace.check.history import Call, Fault, Item, Phase, Ran, Record, Run, Stored, Told
from tests.unit.check.world import KILL, PRIVATE, REQUESTS

R = TypeVar("R", bound=Record)
Records = list[Record]
Mutate = Callable[[Records, random.Random], Records]


@dataclass(frozen=True, slots=True)
class Mutation:
    breaks: str
    """The invariant that must be found violated."""
    mutate: Mutate
    also: frozenset[str]
    """Others that this cannot but violate."""

    @property
    def name(self) -> str:
        return f"{self.breaks}-{self.mutate.__name__}"


MUTATIONS: list[Mutation] = []


def breaks(invariant: str, *also: str) -> Callable[[Mutate], Mutate]:
    def add(mutate: Mutate) -> Mutate:
        MUTATIONS.append(Mutation(invariant, mutate, frozenset(also)))
        return mutate

    return add


# H: the history itself


@breaks("H", *(f"I{number}" for number in range(1, 13)))
def a_revision_is_missing(records: Records, rng: random.Random) -> Records:
    lost = rng.choice(_all(records, Stored)[:-1])
    return [record for record in records if not (isinstance(record, Stored) and record.revision == lost.revision)]


@breaks("H")
def the_store_was_set_back(records: Records, rng: random.Random) -> Records:
    last = _all(records, Stored)[-1]
    return [*records, replace(last, revision=last.revision - 3, key="/elsewhere", create_revision=last.revision - 3)]


@breaks("H")
def an_absent_key_is_deleted(records: Records, rng: random.Random) -> Records:
    return _append(records, "/registry/pods/default/never", None)


# I1 to I4: binds and elections


@breaks("I1")
def a_second_bind(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    return _append(records, pod.key, replace(_facts(pod), node="n1" if _facts(pod).node == "n0" else "n0"))


@breaks("I1")
def a_bind_is_undone(records: Records, rng: random.Random) -> Records:
    """Of a pod that is not running, so that nothing else is strange about it."""
    key = PODS.key("default", "new")
    records = _append(records, key, PodFacts("new", phase="Pending"))
    records = _append(records, key, PodFacts("new", phase="Pending", node="n0"))
    return _append(records, key, PodFacts("new", phase="Pending"))


@breaks("I1")
def a_uid_lives_twice(records: Records, rng: random.Random) -> Records:
    """A pod that was deleted is there again with its old uid, bound anew."""
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    again = replace(_facts(pod), phase="Pending", node="n1", token=_leader(records).create_revision)
    return _append(_append(records, pod.key, None), pod.key, again)


@breaks("I2")
def too_much_for_a_node(records: Records, rng: random.Random) -> Records:
    token = _leader(records).create_revision
    pods = (*REQUESTS[:1], ("cpu", 1500))
    for number in range(4):
        key = PODS.key("default", f"big{number}")
        facts = PodFacts(f"big{number}", phase="Pending", requests=pods)
        records = _append(records, key, facts)
        records = _append(records, key, replace(facts, node="n1", election="scheduler", token=token))
    return records


@breaks("I2")
def a_resource_that_the_node_has_not(records: Records, rng: random.Random) -> Records:
    return _bind_new(records, _leader(records).create_revision, (("pods", 1), ("example.com/gpu", 1)))


@breaks("I3")
def a_bind_by_a_deposed_leader(records: Records, rng: random.Random) -> Records:
    return _bind_new(records, _all(records, Stored, lambda s: s.key.startswith(ELECTIONS_PREFIX))[0].create_revision)


@breaks("I3")
def a_bind_when_nobody_leads(records: Records, rng: random.Random) -> Records:
    token = _leader(records).create_revision
    return _bind_new(_append(records, election_key("scheduler"), None), token)


@breaks("I3")
def a_bind_with_a_token_of_nobody(records: Records, rng: random.Random) -> Records:
    return _bind_new(records, _leader(records).create_revision + 1)


@breaks("I4")
def a_token_with_two_holders(records: Records, rng: random.Random) -> Records:
    leader = _leader(records)
    assert isinstance(leader.facts, ElectionFacts)
    return _append(records, leader.key, replace(leader.facts, holder="usurper"), lease=leader.lease)


@breaks("I4", "H")
def a_token_is_used_again(records: Records, rng: random.Random) -> Records:
    first, last = _all(records, Stored, lambda s: s.key.startswith(ELECTIONS_PREFIX) and bool(s.digest))[::2]
    records = _append(records, last.key, None)
    return _append(records, last.key, first.facts, lease=first.lease, create_revision=first.create_revision)


@breaks("I4")
def a_leadership_without_its_lease(records: Records, rng: random.Random) -> Records:
    leader = _leader(records)
    return _append(records, leader.key, leader.facts, lease=0)


# I5 to I7: calls


@breaks("I5")
def an_acknowledged_write_is_lost(records: Records, rng: random.Random) -> Records:
    call = rng.choice(_calls(records, "create", PRIVATE))
    now, last = _end(records)
    item = Item(PRIVATE + "lost", last.revision, digest="00")
    return [*records, replace(call, id=10_000, began=now, ended=now, items=(item,))]


@breaks("I5")
def an_acknowledged_write_is_not_what_is_stored(records: Records, rng: random.Random) -> Records:
    call = rng.choice(_calls(records, "create", PRIVATE))
    return _replace(records, call, replace(call, items=(replace(call.items[0], digest="00"),)))


@breaks("I5", "I6", "I7")
def acknowledged_beyond_the_end(records: Records, rng: random.Random) -> Records:
    call = _calls(records, "create", PRIVATE)[-1]
    return _replace(records, call, replace(call, items=(replace(call.items[0], revision=1_000_000),)))


@breaks("I6", "I7")
def a_list_goes_back_on_another_server(records: Records, rng: random.Random) -> Records:
    call = next(call for call in _all(records, Call) if call.verb == "list" and not call.more and call.of == call.id)
    now, _ = _end(records)
    return [*records, replace(call, id=10_000, of=10_000, server="behind", began=now, ended=now)]


@breaks("I6", "I7")
def an_object_goes_back(records: Records, rng: random.Random) -> Records:
    first, second = _first_update(records)
    now, _ = _end(records)
    reads = [_get(first, now, 1), _get(second, now, 0)]
    return [
        *records,
        *(replace(read, client="same", began=now + index, ended=now + index) for index, read in enumerate(reads[::-1])),
    ]


@breaks("I6", "I9")
def a_watch_goes_back(records: Records, rng: random.Random) -> Records:
    told = _told(records, rng, "bookmark")
    return _replace(records, told, told, replace(told, revision=told.revision - 1))


@breaks("I7")
def a_stale_get(records: Records, rng: random.Random) -> Records:
    first, _ = _first_update(records)
    now, _ = _end(records)
    return [*records, _get(first, now, 0)]


@breaks("I7")
def a_get_of_what_never_was(records: Records, rng: random.Random) -> Records:
    first, _ = _first_update(records)
    now, last = _end(records)
    return [*records, _get(replace(first, revision=last.revision), now, 0)]


@breaks("I7")
def a_get_with_other_content(records: Records, rng: random.Random) -> Records:
    call = rng.choice(_calls(records, "get", PRIVATE, lambda call: call.items[0].revision > 0))
    return _replace(records, call, replace(call, items=(replace(call.items[0], digest="00"),)))


@breaks("I7")
def a_get_finds_nothing_of_what_is_there(records: Records, rng: random.Random) -> Records:
    first, _ = _first_update(records)
    now, _ = _end(records)
    return [*records, replace(_get(first, now, 0), code="NOT_FOUND", items=(Item(first.key),))]


@breaks("I7")
def a_get_from_the_future(records: Records, rng: random.Random) -> Records:
    """It had ended when the write of what it found began."""
    write = _calls(records, "update", PRIVATE)[0]
    (item,) = write.items
    read = Call("new", 10_000, "s", "get", "priorityclasses", write.began - 0.0005, write.began - 0.0001, items=(item,))
    return [*records, read]


@breaks("I7")
def a_stale_list(records: Records, rng: random.Random) -> Records:
    call = next(call for call in _all(records, Call) if call.verb == "list" and not call.more and call.of == call.id)
    now, _ = _end(records)
    return [*records, replace(call, client="new", server="behind", began=now, ended=now)]


@breaks("I7")
def a_lost_update(records: Records, rng: random.Random) -> Records:
    """It replaced another version than the one that it was conditional on."""
    call = rng.choice(_calls(records, "update", PRIVATE))
    return _replace(records, call, replace(call, items=(replace(call.items[0], expected=call.items[0].expected - 1),)))


@breaks("I7")
def a_create_is_acknowledged_twice(records: Records, rng: random.Random) -> Records:
    call = rng.choice(_calls(records, "create", PRIVATE))
    return _replace(records, call, call, replace(call, client="new"))


@breaks("I7")
def a_create_is_refused_for_nothing(records: Records, rng: random.Random) -> Records:
    call = rng.choice(_calls(records, "create", PRIVATE, outcome="refused"))
    return _replace(records, call, replace(call, items=(Item(PRIVATE + "never", outcome="refused"),)))


@breaks("I7")
def an_update_is_refused_although_it_was_right(records: Records, rng: random.Random) -> Records:
    last = _all(records, Stored, lambda stored: stored.key.startswith(PRIVATE))[-1]
    now, _ = _end(records)
    item = Item(last.key, outcome="refused", expected=last.revision)
    call = Call("new", 1, "s", "update", "priorityclasses", now, now, outcome="refused", code="ABORTED", items=(item,))
    return [*records, call]


@breaks("I7")
def a_write_that_nobody_asked_for(records: Records, rng: random.Random) -> Records:
    return _append(records, PRIVATE + "ghost", None, digest="00")


@breaks("I7")
def a_lost_write_happens_twice(records: Records, rng: random.Random) -> Records:
    """Deleted by somebody who says so, and there again: the unknown create was repeated behind its client's back."""
    stored = {stored.key: stored for stored in _all(records, Stored)}
    lost = next(c for c in _calls(records, "create", PRIVATE, outcome="unknown") if c.items[0].key in stored)
    key = lost.items[0].key
    records = _append(records, key, None)
    now, last = _end(records)
    records = [*records, Call("new", 1, "s", "delete", "priorityclasses", now - 0.01, now, items=(Item(key, last.revision),))]
    return _append(records, key, None, digest="00")


@breaks("I7")
def a_write_before_its_call(records: Records, rng: random.Random) -> Records:
    """An unknown write cannot have happened before it began."""
    stored = {stored.key: stored for stored in _all(records, Stored)}
    lost = next(c for c in _calls(records, "create", PRIVATE, outcome="unknown") if c.items[0].key in stored)
    now, _ = _end(records)
    return _replace(records, lost, replace(lost, began=now + 1, ended=now + 2))


# I8 and I9: watches


@breaks("I8", "I9")
def an_event_is_lost(records: Records, rng: random.Random) -> Records:
    return _replace(records, _live_event(records, rng))


@breaks("I8", "I9")
def an_event_of_a_selection_is_lost(records: Records, rng: random.Random) -> Records:
    return _replace(records, _live_event(records, rng, "of-n0"))


@breaks("I8")
def an_event_is_repeated(records: Records, rng: random.Random) -> Records:
    told = _live_event(records, rng)
    return _replace(records, told, told, told)


@breaks("I8", "I6", "I9")
def two_events_change_places(records: Records, rng: random.Random) -> Records:
    stream = [told for told in _all(records, Told) if told.stream == "all"]
    first, second = rng.choice([(a, b) for a, b in pairwise(stream) if _is_live(stream, a) and _is_live(stream, b)])
    return [second if record is first else first if record is second else record for record in records]


@breaks("I8")
def an_event_with_other_content(records: Records, rng: random.Random) -> Records:
    told = _live_event(records, rng)
    return _replace(records, told, replace(told, digest="00"))


@breaks("I8")
def an_event_of_another_kind(records: Records, rng: random.Random) -> Records:
    told = _live_event(records, rng)
    return _replace(records, told, replace(told, kind="added" if told.kind != "added" else "modified"))


@breaks("I8", "I6", "I9")
def an_event_that_did_not_happen(records: Records, rng: random.Random) -> Records:
    told = _live_event(records, rng)
    return _replace(records, told, replace(told, key=told.key + "-not"), told)


@breaks("I8", "I9", "I6")
def a_resumption_leaves_a_gap(records: Records, rng: random.Random) -> Records:
    told = _told(records, rng, "began", lambda told: told.revision > 1 and told.stream == "classes")
    later = next(t for t in _after(records, told) if t.kind in ("modified", "added"))
    records = _replace(records, later)
    return _replace(records, told, replace(told, revision=later.revision))


@breaks("I8")
def a_list_misses_an_object(records: Records, rng: random.Random) -> Records:
    told = _told(records, rng, "began", lambda told: told.revision == 0 and _after(records, told)[0].kind == "added")
    return _replace(records, _after(records, told)[0])


@breaks("I8")
def a_list_keeps_what_is_gone(records: Records, rng: random.Random) -> Records:
    """An informer is not told that something has disappeared while it was away."""
    relist = _told(records, rng, "relisted", lambda told: _after(records, told)[0].kind == "deleted")
    return _replace(records, _after(records, relist)[0])


@breaks("I8")
def a_watch_falls_silent(records: Records, rng: random.Random) -> Records:
    """To the end of the run, long after. Its last events were never told, and nothing promised them."""
    stream = [told for told in _all(records, Told) if told.stream == "all"]
    last = [told for told in stream if _is_live(stream, told)][-1]
    silent = stream[stream.index(last) :]
    end = next(record for record in records if isinstance(record, Phase) and record.name == "end")
    records = [record for record in records if record not in silent]
    return _replace(records, end, replace(end, at=end.at + 60.0))


@breaks("I9", "I6")
def a_bookmark_comes_too_early(records: Records, rng: random.Random) -> Records:
    """Before the event that it promises, which comes after all."""
    stream = [told for told in _all(records, Told) if told.stream == "all"]
    event, bookmark = rng.choice([(a, b) for a, b in pairwise(stream) if _is_live(stream, a) and b.kind == "bookmark"])
    return [bookmark if record is event else event if record is bookmark else record for record in records]


# I10 and I11: pods


@breaks("I10")
def a_phase_goes_back(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    return _append(records, pod.key, replace(_facts(pod), phase="Pending"))


@breaks("I10")
def what_has_ended_runs_again(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    return _append(_append(records, pod.key, replace(_facts(pod), phase="Failed")), pod.key, _facts(pod))


@breaks("I10")
def running_nowhere(records: Records, rng: random.Random) -> Records:
    key = PODS.key("default", "new")
    return _append(_append(records, key, PodFacts("new", phase="Pending")), key, PodFacts("new", phase="Running"))


@breaks("I10")
def two_kubelets_accept_a_pod(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    return _append(records, pod.key, replace(_facts(pod), started=_facts(pod).started + 7))


@breaks("I10")
def a_write_is_applied_twice(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    return _append(records, pod.key, pod.facts, digest=pod.digest)


@breaks("I11")
def a_pod_runs_on_two_nodes(records: Records, rng: random.Random) -> Records:
    ran = rng.choice(_all(records, Ran, lambda ran: ran.what == "started"))
    return _replace(records, ran, ran, replace(ran, node="n9"))


@breaks("I11")
def a_pod_runs_where_it_is_not_bound(records: Records, rng: random.Random) -> Records:
    ran = rng.choice(_all(records, Ran, lambda ran: ran.what == "started"))
    return _replace(records, ran, replace(ran, node="n9"))


# I12: lists


@breaks("I12")
def a_page_of_another_snapshot(records: Records, rng: random.Random) -> Records:
    page = rng.choice(_all(records, Call, lambda call: call.verb == "list" and call.of != call.id))
    return _replace(records, page, replace(page, snapshot=page.snapshot + 1))


@breaks("I12")
def a_page_lacks_an_object(records: Records, rng: random.Random) -> Records:
    page = rng.choice(_all(records, Call, lambda call: call.verb == "list" and len(call.items) > 2))
    return _replace(records, page, replace(page, items=(page.items[0], *page.items[2:])))


@breaks("I12")
def the_last_page_lacks_its_end(records: Records, rng: random.Random) -> Records:
    page = rng.choice(_all(records, Call, lambda call: call.verb == "list" and bool(call.items) and not call.more))
    return _replace(records, page, replace(page, items=page.items[:-1]))


@breaks("I12", "I6")
def a_page_shows_a_newer_object(records: Records, rng: random.Random) -> Records:
    """As a list that is read from a cache which moves on between the pages."""
    versions: dict[str, list[Stored]] = {}
    for stored in _all(records, Stored):
        versions.setdefault(stored.key, []).append(stored)
    for page in _all(records, Call, lambda call: call.verb == "list"):
        for item in page.items:
            for later in versions[item.key]:
                if later.revision > item.revision and later.digest:
                    newer = Item(later.key, later.revision, "", later.digest)
                    return _replace(records, page, replace(page, items=tuple(newer if i is item else i for i in page.items)))
    raise IndexError("nothing has changed since any list")


# L1 and L2


@breaks("L1")
def a_pod_never_runs(records: Records, rng: random.Random) -> Records:
    pod = _pod(records, rng, lambda facts: facts.phase == "Running")
    changed: Records = []
    for record in records:
        if isinstance(record, Stored) and isinstance(record.facts, PodFacts) and record.facts.uid == _facts(pod).uid:
            record = replace(record, facts=replace(record.facts, phase="Pending", started=0))
        changed.append(record)
    return changed


@breaks("L1", "I8")
def a_pod_is_forgotten(records: Records, rng: random.Random) -> Records:
    """Created in the middle, and never bound, although there is room."""
    quiet = next(record for record in records if isinstance(record, Phase) and record.name == "quiet")
    end = next(record for record in records if isinstance(record, Phase) and record.name == "end")
    forgotten = _append(records, PODS.key("default", "forgotten"), PodFacts("f", phase="Pending", requests=REQUESTS))
    pod = forgotten[-1]
    assert isinstance(pod, Stored)
    forgotten[-1] = replace(pod, at=quiet.at)
    return _replace(forgotten, end, replace(end, at=end.at + 60.0))


@breaks("L1")
def a_pod_runs_too_late(records: Records, rng: random.Random) -> Records:
    """Everything after the faults takes a thousand times as long."""
    quiet = next(record for record in records if isinstance(record, Phase) and record.name == "quiet").at
    if not any(stored.at > quiet for stored in _all(records, Stored)):
        raise IndexError("all of them ran already")
    slow: Records = []
    for record in records:
        if isinstance(record, Stored | Phase) and record.at > quiet:
            record = replace(record, at=quiet + (record.at - quiet) * 1000)
        slow.append(record)
    return slow


@breaks("L2")
def leadership_moves_for_nothing(records: Records, rng: random.Random) -> Records:
    moved: Records = []
    for record in records:
        if isinstance(record, Fault):
            record = replace(record, began=record.began - 60.0, ended=record.began - 59.0)
        moved.append(record)
    return moved


@breaks("L2")
def nobody_leads(records: Records, rng: random.Random) -> Records:
    return _append(records, election_key("scheduler"), None, at=-8.0)


# Tools


def _all(records: Records, kind: type[R], where: Callable[[R], bool] = lambda record: True) -> list[R]:
    return [record for record in records if isinstance(record, kind) and where(record)]


def _calls(
    records: Records, verb: str, prefix: str, where: Callable[[Call], bool] = lambda call: True, outcome: str = "ok"
) -> list[Call]:
    return _all(
        records,
        Call,
        lambda call: call.verb == verb and call.outcome == outcome and call.items[0].key.startswith(prefix) and where(call),
    )


def _replace(records: Iterable[Record], old: Record, *new: Record) -> Records:
    """Each record but `old`, which makes room for `new`."""
    return [each for record in records for each in (new if record is old else (record,))]


def _end(records: Records) -> tuple[float, Stored]:
    last = _all(records, Stored)[-1]
    end = next(record for record in records if isinstance(record, Phase) and record.name == "end")
    return max(end.at, last.at) + 0.01, last


def _append(
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
    now, last = _end(records)
    revision = last.revision + 1
    if facts is None and not digest:
        return [*records, Stored(now + at, revision, key)]
    versions = _all(records, Stored, lambda stored: stored.key == key)
    created = versions[-1].create_revision if versions and versions[-1].digest else revision
    stored = Stored(now + at, revision, key, digest or f"{revision:016x}", create_revision or created, lease, facts)
    return [*records, stored]


def _facts(stored: Stored) -> PodFacts:
    assert isinstance(stored.facts, PodFacts)
    return stored.facts


def _pod(records: Records, rng: random.Random, where: Callable[[PodFacts], bool]) -> Stored:
    """The last version of a pod that is there at the end."""
    last = {stored.key: stored for stored in _all(records, Stored)}
    return rng.choice([stored for stored in last.values() if isinstance(stored.facts, PodFacts) and where(stored.facts)])


def _leader(records: Records) -> Stored:
    return _all(records, Stored, lambda stored: stored.key.startswith(ELECTIONS_PREFIX))[-1]


def _bind_new(records: Records, token: int, requests: tuple[tuple[str, int], ...] = REQUESTS) -> Records:
    key, facts = PODS.key("default", "new"), PodFacts("new", phase="Pending", requests=requests)
    return _append(_append(records, key, facts), key, replace(facts, node="n1", election="scheduler", token=token))


def _first_update(records: Records) -> tuple[Stored, Stored]:
    """Two versions of one private key, one after the other."""
    seen: dict[str, Stored] = {}
    for stored in _all(records, Stored, lambda stored: stored.key.startswith(PRIVATE)):
        if stored.key in seen:
            return seen[stored.key], stored
        seen[stored.key] = stored
    raise IndexError("no update")


def _get(found: Stored, now: float, number: int) -> Call:
    item = Item(found.key, found.revision, "", found.digest)
    return Call("new", number, "s", "get", "priorityclasses", now + number, now + number, items=(item,))


def _told(records: Records, rng: random.Random, kind: str, where: Callable[[Told], bool] = lambda told: True) -> Told:
    return rng.choice(_all(records, Told, lambda told: told.kind == kind and where(told)))


def _after(records: Records, told: Told) -> list[Told]:
    """What its stream was told next."""
    stream = _all(records, Told, lambda each: each.stream == told.stream)
    return stream[stream.index(told) + 1 :]


def _live_event(records: Records, rng: random.Random, name: str = "all") -> Told:
    stream = _all(records, Told, lambda told: told.stream == name)
    return rng.choice([told for told in stream if _is_live(stream, told)])


def _is_live(stream: list[Told], told: Told) -> bool:
    """An event, and none of the initial state."""
    if told.kind not in ("added", "modified", "deleted"):
        return False
    before = [each for each in stream[: stream.index(told)] if each.kind in ("began", "relisted", "synced")]
    return before[-1].kind == "synced" or (before[-1].kind == "began" and before[-1].revision > 0)


def unfired(records: Records) -> Records:
    """A fault was meant to happen, and did not; for the run as a whole, not for an invariant."""
    (run,) = _all(records, Run)
    return _replace(records, run, replace(run, faults=(KILL, "clock-jump")))
