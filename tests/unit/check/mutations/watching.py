"""I8 and I9: what watches tell."""

import random
from dataclasses import replace
from itertools import pairwise

from pinnace.history.records import RunPhase, WatchMessage
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    after,
    all_of,
    is_live,
    live_event,
    put_instead,
    told_of,
)


@breaks("I8", "I9")
def an_event_is_lost(records: Records, rng: random.Random) -> Records:
    return put_instead(records, live_event(records, rng))


@breaks("I8", "I9")
def an_event_of_a_selection_is_lost(records: Records, rng: random.Random) -> Records:
    return put_instead(records, live_event(records, rng, "of-n0"))


@breaks("I8")
def an_event_is_repeated(records: Records, rng: random.Random) -> Records:
    told = live_event(records, rng)
    return put_instead(records, told, told, told)


@breaks("I8", "I6", "I9")
def two_events_change_places(records: Records, rng: random.Random) -> Records:
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    first, second = rng.choice([(a, b) for a, b in pairwise(stream) if is_live(stream, a) and is_live(stream, b)])
    return [second if record is first else first if record is second else record for record in records]


@breaks("I8")
def an_event_with_other_content(records: Records, rng: random.Random) -> Records:
    told = live_event(records, rng)
    return put_instead(records, told, replace(told, digest="00"))


@breaks("I8")
def an_event_of_another_kind(records: Records, rng: random.Random) -> Records:
    told = live_event(records, rng)
    return put_instead(records, told, replace(told, kind="added" if told.kind != "added" else "modified"))


@breaks("I8", "I6", "I9")
def an_event_that_did_not_happen(records: Records, rng: random.Random) -> Records:
    told = live_event(records, rng)
    return put_instead(records, told, replace(told, key=told.key + "-not"), told)


@breaks("I8", "I9", "I6")
def a_resumption_leaves_a_gap(records: Records, rng: random.Random) -> Records:
    told = told_of(records, rng, "began", lambda told: told.revision > 1 and told.stream == "classes")
    later = next(t for t in after(records, told) if t.kind in ("modified", "added"))
    records = put_instead(records, later)
    return put_instead(records, told, replace(told, revision=later.revision))


@breaks("I8")
def a_resumption_repeats_the_last_event(records: Records, rng: random.Random) -> Records:
    """One only, which is of no earlier revision than what was told last."""
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    broken = zip(stream, stream[3:], strict=False)  # event, bookmark, ended, began
    resumed = [(event, began) for event, began in broken if began.kind == "began" and began.revision == event.revision]
    last, began = rng.choice([(event, began) for event, began in resumed if is_live(stream, event)])
    return put_instead(records, began, replace(began, revision=last.revision - 1), last)


@breaks("I8")
def a_list_misses_an_object(records: Records, rng: random.Random) -> Records:
    told = told_of(records, rng, "began", lambda told: told.revision == 0 and after(records, told)[0].kind == "added")
    return put_instead(records, after(records, told)[0])


@breaks("I8")
def a_list_keeps_what_is_gone(records: Records, rng: random.Random) -> Records:
    """An informer is not told that something has disappeared while it was away."""
    relist = told_of(records, rng, "relisted", lambda told: after(records, told)[0].kind == "deleted")
    return put_instead(records, after(records, relist)[0])


@breaks("I8")
def a_watch_falls_silent(records: Records, rng: random.Random) -> Records:
    """To the end of the run, long after. Its last events were never told, and nothing promised them."""
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    last = [told for told in stream if is_live(stream, told)][-1]
    silent = stream[stream.index(last) :]
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    records = [record for record in records if record not in silent]
    return put_instead(records, end, replace(end, at=end.at + 60.0))


@breaks("I8")
def a_watch_does_not_come_back(records: Records, rng: random.Random) -> Records:
    """It ends before its last events, in the middle of the run, and nobody follows it again."""
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    last = [told for told in stream if is_live(stream, told)][-1]
    silent = stream[stream.index(last) :]
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    ended = WatchMessage(last.client, last.stream, last.at, "ended", code="UNAVAILABLE")
    records = [ended if record is last else record for record in records if record is last or record not in silent]
    return put_instead(records, end, replace(end, at=end.at + 60.0))


@breaks("I8")
def a_watch_does_not_come_back_with_a_list(records: Records, rng: random.Random) -> Records:
    """It begins anew, is never told the end of the state, and ends for good."""
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    began = next(told for told in stream if told.kind == "began" and told.revision == 0)
    rest = stream[stream.index(began) + 1 :]
    end = next(record for record in records if isinstance(record, RunPhase) and record.name == "end")
    ended = WatchMessage(began.client, began.stream, began.at, "ended", code="UNAVAILABLE")
    records = put_instead([record for record in records if record not in rest], began, began, ended)
    return put_instead(records, end, replace(end, at=end.at + 60.0))


@breaks("I9", "I6")
def a_bookmark_comes_too_early(records: Records, rng: random.Random) -> Records:
    """Before the event that it promises, which comes after all."""
    stream = [told for told in all_of(records, WatchMessage) if told.stream == "all"]
    event, bookmark = rng.choice([(a, b) for a, b in pairwise(stream) if is_live(stream, a) and b.kind == "bookmark"])
    return [bookmark if record is event else event if record is bookmark else record for record in records]
