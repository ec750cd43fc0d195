"""I12: pages."""

import random
from dataclasses import replace

from pinnace.history.records import CallItem, CallRecord, StoredChange
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    put_instead,
)


@breaks("I12")
def a_page_of_another_snapshot(records: Records, rng: random.Random) -> Records:
    page = rng.choice(all_of(records, CallRecord, lambda call: call.verb == "list" and call.of != call.id))
    return put_instead(records, page, replace(page, snapshot=page.snapshot + 1))


@breaks("I12")
def a_page_lacks_an_object(records: Records, rng: random.Random) -> Records:
    page = rng.choice(all_of(records, CallRecord, lambda call: call.verb == "list" and len(call.items) > 2))
    return put_instead(records, page, replace(page, items=(page.items[0], *page.items[2:])))


@breaks("I12")
def the_last_page_lacks_its_end(records: Records, rng: random.Random) -> Records:
    page = rng.choice(all_of(records, CallRecord, lambda call: call.verb == "list" and bool(call.items) and not call.more))
    return put_instead(records, page, replace(page, items=page.items[:-1]))


@breaks("I12", "I6")
def a_page_shows_a_newer_object(records: Records, rng: random.Random) -> Records:
    """As a list that is read from a cache which moves on between the pages."""
    versions: dict[str, list[StoredChange]] = {}
    for stored in all_of(records, StoredChange):
        versions.setdefault(stored.key, []).append(stored)
    for page in all_of(records, CallRecord, lambda call: call.verb == "list"):
        for item in page.items:
            for later in versions[item.key]:
                if later.revision > item.revision and later.digest:
                    newer = CallItem(later.key, later.revision, "", later.digest)
                    return put_instead(records, page, replace(page, items=tuple(newer if i is item else i for i in page.items)))
    raise IndexError("nothing has changed since any list")
