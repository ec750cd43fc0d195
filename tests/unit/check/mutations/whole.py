"""H: the history itself."""

import random
from dataclasses import replace

from pinnace.history.records import StoredChange
from tests.unit.check.mutations.registry import Records, breaks
from tests.unit.check.mutations.tools import (
    all_of,
    append,
)


@breaks("H", *(f"I{number}" for number in range(1, 13)))
def a_revision_is_missing(records: Records, rng: random.Random) -> Records:
    lost = rng.choice(all_of(records, StoredChange)[:-1])
    return [record for record in records if not (isinstance(record, StoredChange) and record.revision == lost.revision)]


@breaks("H")
def the_store_was_set_back(records: Records, rng: random.Random) -> Records:
    last = all_of(records, StoredChange)[-1]
    return [*records, replace(last, revision=last.revision - 3, key="/elsewhere", create_revision=last.revision - 3)]


@breaks("H")
def an_absent_key_is_deleted(records: Records, rng: random.Random) -> Records:
    return append(records, "/registry/pods/default/never", None)
