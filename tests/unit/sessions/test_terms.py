"""What is remembered of a term, whoever tells it first and however often."""

import random
from itertools import permutations

from pinnace.api.elections_pb2 import Term
from pinnace.api.resources import term_key, terms_prefix
from pinnace.api.scalars import to_micro_time
from pinnace.apiserver.election import term_history as terms
from pinnace.apiserver.election.term_history import (
    LEASE_EXPIRED,
    NOT_ACKNOWLEDGED,
    HistoryWriter,
    decode_terms,
    end_term,
    merge_terms,
    presume_ends_before,
    terms_with_presumed_ends,
)
from pinnace.apiserver.storage.committer import Committer
from pinnace.apiserver.storage.interface import CommitOutcomeUnknown, Committed, CompareFailed, Write
from pinnace.runtime.tasks import run_until_first
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage
from tests.unit.storage.faults import JumpingClock


def term(token: int, ended: float | None = None, reason: str = "", *, presumed: bool = False) -> Term:
    made = Term(election="e", holder=f"h{token}", token=token, began=to_micro_time(token))
    if ended is not None:
        made.ended.CopyFrom(to_micro_time(ended))
        made.reason, made.presumed = reason, presumed
    return made


def test_end_that_was_seen_wins_over_one_that_is_presumed_in_any_order() -> None:
    accounts = [term(1), term(1, 5.5, LEASE_EXPIRED, presumed=True), term(1, 5.0, "resigned")]
    for order in permutations(accounts):
        known = None
        for account in order:
            known = merge_terms(known, account)
        assert known == accounts[2]


def test_first_of_two_ends_that_were_seen_stays() -> None:
    assert merge_terms(term(1, 5.0, "resigned"), term(1, 6.0, "no heartbeats")) == term(1, 5.0, "resigned")


def test_term_without_an_end_is_over_when_the_next_begins() -> None:
    assert presume_ends_before([term(1), term(2, 2.5, "resigned"), term(3)], term(4)) == [
        term(1, 2.0, LEASE_EXPIRED, presumed=True),
        term(3, 4.0, LEASE_EXPIRED, presumed=True),
    ]
    assert presume_ends_before([term(4)], term(4)) == []
    assert presume_ends_before([term(4), term(9)], term(4)) == [term(4, 9.0, LEASE_EXPIRED, presumed=True)]


def test_only_the_leaders_term_is_shown_without_an_end() -> None:
    noted = [term(1), term(2, 2.5, "resigned"), term(3)]
    first = term(1, 2.0, LEASE_EXPIRED, presumed=True)
    assert terms_with_presumed_ends(noted, 3, to_micro_time(9.0)) == [first, noted[1], noted[2]]
    assert terms_with_presumed_ends(noted, 0, to_micro_time(9.0)) == [
        first,
        noted[1],
        term(3, 9.0, LEASE_EXPIRED, presumed=True),
    ]


def test_term_is_not_over_before_it_began() -> None:
    assert end_term(term(5), NOT_ACKNOWLEDGED, to_micro_time(7.0)) == term(5, 7.0, NOT_ACKNOWLEDGED)
    assert end_term(term(5), NOT_ACKNOWLEDGED, to_micro_time(3.0)) == term(5, 5.0, NOT_ACKNOWLEDGED)


class Forgetful(MemoryStorage):
    """Does every write, and loses every other answer."""

    writes = 0

    async def transact(self, writes: list[Write]) -> Committed | CompareFailed:
        answer = await super().transact(writes)
        self.writes += 1
        if self.writes % 2:
            raise CommitOutcomeUnknown("lost")
        return answer


async def written_down(storage: MemoryStorage, *noted: Term) -> list[Term]:
    """What is stored once all was noted."""
    clock = JumpingClock()
    committer = Committer(storage, clock=clock)
    log = HistoryWriter(storage, committer, clock, 2, random.Random(0))

    async def write() -> None:
        for item in noted:
            await log._write_with_retries(item, clock.monotonic() + terms.WRITE_TIMEOUT)

    await run_until_first(write(), committer.run())
    page = await storage.page(terms_prefix("e"))
    return decode_terms(page.items)


async def test_lost_answers_change_nothing() -> None:
    noted = [term(1), term(1, 1.5, "resigned"), term(2), term(2, 2.5, "no heartbeats"), term(3)]
    assert await written_down(Forgetful(clock=FakeClock()), *noted) == [noted[1], noted[3], noted[4]]


async def test_terms_that_cannot_be_read_keep_no_other_from_being_written_down() -> None:
    storage = MemoryStorage(clock=FakeClock())
    for token in (1, 2):
        await storage.transact([Write(term_key("e", token), b"\xff", 0)])
    assert await written_down(storage, term(2), term(3)) == [term(2, 3.0, LEASE_EXPIRED, presumed=True), term(3)]
    assert await written_down(storage, term(4)) == [
        term(2, 3.0, LEASE_EXPIRED, presumed=True),
        term(3, 4.0, LEASE_EXPIRED, presumed=True),
        term(4),
    ]


async def test_oldest_are_forgotten() -> None:
    noted = [term(token) for token in range(1, terms.MAX_STORED_TERMS + 21)]
    kept = await written_down(MemoryStorage(clock=FakeClock()), *noted)
    assert [item.token for item in kept] == list(range(21, terms.MAX_STORED_TERMS + 21))
    assert [item.HasField("ended") for item in kept] == [True] * (terms.MAX_STORED_TERMS - 1) + [False]
