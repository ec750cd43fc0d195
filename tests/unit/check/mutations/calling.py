"""I5 to I7: what calls say."""

import random
from dataclasses import replace

from pinnace.history.records import CallItem, CallRecord, StoredChange, Verb
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
    calls_of,
    end_of,
    first_update,
    get_of,
    pod_of,
    put_instead,
    told_of,
)
from tests.unit.check.world import PRIVATE


def write_to(records: Records, rng: random.Random, verb: Verb, labels: str | None = None) -> Records:
    """A write of a pod that has labels and is to stay, answered with the pod as it was."""
    pod = pod_of(records, rng, lambda facts: bool(facts.labels) and not facts.terminating)
    now, _ = end_of(records)
    item = CallItem(pod.key, pod.revision, digest=pod.digest, labels=labels)
    return [*records, CallRecord("new", 1, "s", verb, "pods", now, now, items=(item,))]


@breaks("I5")
def an_acknowledged_write_is_lost(records: Records, rng: random.Random) -> Records:
    call = rng.choice(calls_of(records, "create", PRIVATE))
    now, last = end_of(records)
    item = CallItem(PRIVATE + "lost", last.revision, digest="00")
    return [*records, replace(call, id=10_000, began=now, ended=now, items=(item,))]


@breaks("I5")
def an_acknowledged_write_is_not_what_is_stored(records: Records, rng: random.Random) -> Records:
    call = rng.choice(calls_of(records, "create", PRIVATE))
    return put_instead(records, call, replace(call, items=(replace(call.items[0], digest="00"),)))


@breaks("I5")
def an_update_is_acknowledged_and_never_done(records: Records, rng: random.Random) -> Records:
    """It is answered with what was there, as if there were nothing to change."""
    return write_to(records, rng, "update", labels="00")


@breaks("I5")
def an_update_that_takes_all_labels_away_is_never_done(records: Records, rng: random.Random) -> Records:
    return write_to(records, rng, "update", labels="")


@breaks("I5")
def a_delete_is_acknowledged_and_never_done(records: Records, rng: random.Random) -> Records:
    return write_to(records, rng, "delete")


@breaks("I5", "I6", "I7")
def acknowledged_beyond_the_end(records: Records, rng: random.Random) -> Records:
    call = calls_of(records, "create", PRIVATE)[-1]
    return put_instead(records, call, replace(call, items=(replace(call.items[0], revision=1_000_000),)))


@breaks("I6", "I7")
def a_list_goes_back_on_another_server(records: Records, rng: random.Random) -> Records:
    call = next(call for call in all_of(records, CallRecord) if call.verb == "list" and not call.more and call.of == call.id)
    now, _ = end_of(records)
    return [*records, replace(call, id=10_000, of=10_000, server="behind", began=now, ended=now)]


@breaks("I6", "I7")
def an_object_goes_back(records: Records, rng: random.Random) -> Records:
    first, second = first_update(records)
    now, _ = end_of(records)
    reads = [get_of(first, now, 1), get_of(second, now, 0)]
    return [
        *records,
        *(replace(read, client="same", began=now + index, ended=now + index) for index, read in enumerate(reads[::-1])),
    ]


@breaks("I6", "I9")
def a_watch_goes_back(records: Records, rng: random.Random) -> Records:
    told = told_of(records, rng, "bookmark")
    return put_instead(records, told, told, replace(told, revision=told.revision - 1))


@breaks("I7")
def a_stale_get(records: Records, rng: random.Random) -> Records:
    first, _ = first_update(records)
    now, _ = end_of(records)
    return [*records, get_of(first, now, 0)]


@breaks("I7")
def a_get_of_what_never_was(records: Records, rng: random.Random) -> Records:
    first, _ = first_update(records)
    now, last = end_of(records)
    return [*records, get_of(replace(first, revision=last.revision), now, 0)]


@breaks("I7")
def a_get_with_other_content(records: Records, rng: random.Random) -> Records:
    call = rng.choice(calls_of(records, "get", PRIVATE, lambda call: call.items[0].revision > 0))
    return put_instead(records, call, replace(call, items=(replace(call.items[0], digest="00"),)))


@breaks("I7")
def a_get_finds_nothing_of_what_is_there(records: Records, rng: random.Random) -> Records:
    first, _ = first_update(records)
    now, _ = end_of(records)
    return [*records, replace(get_of(first, now, 0), code="NOT_FOUND", items=(CallItem(first.key),))]


@breaks("I7")
def a_get_from_the_future(records: Records, rng: random.Random) -> Records:
    """It had ended when the write of what it found began."""
    write = calls_of(records, "update", PRIVATE)[0]
    (item,) = write.items
    read = CallRecord("new", 10_000, "s", "get", "priorityclasses", write.began - 0.0005, write.began - 0.0001, items=(item,))
    return [*records, read]


@breaks("I7")
def a_stale_list(records: Records, rng: random.Random) -> Records:
    call = next(call for call in all_of(records, CallRecord) if call.verb == "list" and not call.more and call.of == call.id)
    now, _ = end_of(records)
    return [*records, replace(call, client="new", server="behind", began=now, ended=now)]


@breaks("I7")
def a_lost_update(records: Records, rng: random.Random) -> Records:
    """It replaced another version than the one that it was conditional on."""
    call = rng.choice(calls_of(records, "update", PRIVATE))
    return put_instead(records, call, replace(call, items=(replace(call.items[0], expected=call.items[0].expected - 1),)))


@breaks("I7")
def two_updates_of_one_version_are_acknowledged(records: Records, rng: random.Random) -> Records:
    """Both were conditional on it, and one of them is told that the other's write was its own."""
    call = rng.choice(calls_of(records, "update", PRIVATE, lambda call: call.items[0].expected > 0))
    return put_instead(records, call, call, replace(call, client="new"))


@breaks("I7")
def an_update_is_acknowledged_with_what_was_there_before(records: Records, rng: random.Random) -> Records:
    update = calls_of(records, "update", PRIVATE, lambda call: call.items[0].expected > 0)[-1]
    now, _ = end_of(records)
    return [*records, replace(update, client="new", began=now, ended=now)]


@breaks("I7")
def a_create_is_acknowledged_twice(records: Records, rng: random.Random) -> Records:
    call = rng.choice(calls_of(records, "create", PRIVATE))
    return put_instead(records, call, call, replace(call, client="new"))


@breaks("I7")
def a_create_is_refused_for_nothing(records: Records, rng: random.Random) -> Records:
    call = rng.choice(calls_of(records, "create", PRIVATE, outcome="refused"))
    return put_instead(records, call, replace(call, items=(CallItem(PRIVATE + "never", outcome="refused"),)))


@breaks("I7")
def an_update_is_refused_although_it_was_right(records: Records, rng: random.Random) -> Records:
    last = all_of(records, StoredChange, lambda stored: stored.key.startswith(PRIVATE))[-1]
    now, _ = end_of(records)
    item = CallItem(last.key, outcome="refused", expected=last.revision)
    call = CallRecord("new", 1, "s", "update", "priorityclasses", now, now, outcome="refused", code="ABORTED", items=(item,))
    return [*records, call]


@breaks("I7")
def a_write_that_nobody_asked_for(records: Records, rng: random.Random) -> Records:
    return append(records, PRIVATE + "ghost", None, digest="00")


@breaks("I7")
def a_lost_write_happens_twice(records: Records, rng: random.Random) -> Records:
    """Deleted by somebody who says so, and there again: the unknown create was repeated behind its client's back."""
    stored = {stored.key: stored for stored in all_of(records, StoredChange)}
    lost = next(c for c in calls_of(records, "create", PRIVATE, outcome="unknown") if c.items[0].key in stored)
    key = lost.items[0].key
    records = append(records, key, None)
    now, last = end_of(records)
    records = [
        *records,
        CallRecord("new", 1, "s", "delete", "priorityclasses", now - 0.01, now, items=(CallItem(key, last.revision),)),
    ]
    return append(records, key, None, digest="00")


@breaks("I7")
def a_write_before_its_call(records: Records, rng: random.Random) -> Records:
    """An unknown write cannot have happened before it began."""
    stored = {stored.key: stored for stored in all_of(records, StoredChange)}
    lost = next(c for c in calls_of(records, "create", PRIVATE, outcome="unknown") if c.items[0].key in stored)
    now, _ = end_of(records)
    return put_instead(records, lost, replace(lost, began=now + 1, ended=now + 2))
