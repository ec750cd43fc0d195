"""The terms of an election as people and programs read them. A presumed end was then at the latest: what follows from it is a
bound, or not told."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from pinnace.api.elections_pb2 import Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.scalars import format_rfc3339, to_seconds
from pinnace.printers.columns import human_duration

HEADERS = ("HOLDER", "TOKEN", "FROM", "TO", "LASTED", "WHY IT ENDED", "GAP")


def rows(terms: Sequence[Term]) -> list[tuple[str, ...]]:
    return [
        (
            term.holder,
            str(term.token),
            moment(term.began),
            moment(term.ended) if term.HasField("ended") else "",
            "<=" * term.presumed + short(to_seconds(term.ended) - to_seconds(term.began)) if term.HasField("ended") else "",
            (term.reason + "?" * term.presumed) if term.HasField("ended") else "leads",
            "" if gap is None else short(gap),
        )
        for term, gap in zip(terms, gaps(terms), strict=True)
    ]


def records(terms: Sequence[Term]) -> list[dict[str, Any]]:
    """`gapSeconds`: until the next term; left out where that is not known."""
    return [_record(term, gap) for term, gap in zip(terms, gaps(terms), strict=True)]


def _record(term: Term, gap: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"election": term.election, "holder": term.holder, "token": term.token}
    found["began"] = format_rfc3339(term.began)
    if term.HasField("ended"):
        found |= {"ended": format_rfc3339(term.ended), "reason": term.reason, "presumed": term.presumed}
    return found if gap is None else found | {"gapSeconds": round(gap, 6)}


def gaps(terms: Sequence[Term]) -> Iterator[float | None]:
    """Seconds from the end of each term to the next; None: not known, or not yet. Two servers' clocks may make it a little less
    than nothing, which is nothing."""
    for term, following in pairwise(terms):
        known = term.HasField("ended") and not term.presumed
        yield max(0.0, to_seconds(following.began) - to_seconds(term.ended)) if known else None
    yield from [None] * bool(terms)


def short(seconds: float) -> str:
    """With milliseconds while they matter: "4ms", "1.02s", "3m12s"."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.2f}s" if seconds < 10.0 else human_duration(seconds)


def moment(instant: MicroTime) -> str:
    """ "2026-01-31 12:00:00.123": UTC, to the millisecond."""
    return format_rfc3339(instant).replace("T", " ")[:23]
