"""The table of terms."""

import pytest

from pinnace.api.elections_pb2 import Term
from pinnace.api.scalars import to_micro_time
from pinnace.cli.verbs.leader import format_duration, measure_gaps, term_documents, term_rows


def term(
    token: int,
    began: float,
    ended: float | None = None,
    reason: str = "",
    *,
    presumed: bool = False,
    heartbeat: float | None = None,
) -> Term:
    made = Term(election="e", holder=f"h{token}", token=token, began=to_micro_time(began), reason=reason, presumed=presumed)
    if ended is not None:
        made.ended.CopyFrom(to_micro_time(ended))
    if heartbeat is not None:
        made.last_heartbeat.CopyFrom(to_micro_time(heartbeat))
    return made


TERMS = [term(1, 0.0, 2.0, "resigned"), term(5, 2.25, 9.0, "lease expired", presumed=True), term(7, 9.0)]


def test_term_rows_show_the_leaderless_gap() -> None:
    assert term_rows(TERMS) == [
        ("h1", "1", "1970-01-01 00:00:00.000", "1970-01-01 00:00:02.000", "2.00s", "resigned", "250ms", "250ms"),
        ("h5", "5", "1970-01-01 00:00:02.250", "1970-01-01 00:00:09.000", "<=6.75s", "lease expired?", "", ""),
        ("h7", "7", "1970-01-01 00:00:09.000", "", "", "leads", "", ""),
    ]


def test_outage_of_a_frozen_leader_counts_from_its_last_heartbeat() -> None:
    """The history showed the milliseconds after the term of a leader that had been frozen for a second."""
    terms = [term(1, 0.0, 4.75, "no heartbeats", heartbeat=3.75), term(5, 5.0)]
    assert term_rows(terms)[0][-2:] == ("250ms", "1.25s")
    first = term_documents(terms)[0]
    assert (first["gapSeconds"], first["outageSeconds"]) == (0.25, 1.25)
    assert first["lastHeartbeat"] == "1970-01-01T00:00:03.750000Z"


def test_records_have_what_is_known() -> None:
    first, presumed, last = term_documents(TERMS)
    assert presumed["presumed"] and "gapSeconds" not in presumed
    assert first["gapSeconds"] == 0.25 and (first["reason"], first["presumed"]) == ("resigned", False)
    assert last == {"election": "e", "holder": "h7", "token": 7, "began": "1970-01-01T00:00:09.000000Z"}


def test_two_clocks_that_disagree_leave_no_gap() -> None:
    assert next(measure_gaps([term(1, 0.0, 2.0, "resigned"), term(5, 1.999)])) == (0.0, 0.0)


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "0ms"), (0.0123, "12ms"), (1.017, "1.02s"), (192.0, "3m12s")])
def test_durations_have_milliseconds_while_they_matter(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
