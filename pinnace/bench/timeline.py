"""What happens to an election when its leader is hit, moment by moment."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.times import to_seconds
from pinnace.bench.leaders import Failover
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.cluster import view

POLL = 0.002


@dataclass(frozen=True, slots=True)
class Moment:
    """`at` is in seconds after the hit."""

    at: float
    what: str


class VacancyLog:
    """When it was first seen that nobody leads, by asking all the time."""

    def __init__(self) -> None:
        self.seen: float | None = None
        """Monotonic seconds."""

    async def record(self, client: Client) -> None:
        """Until cancelled, or seen."""
        while self.seen is None:
            try:
                if await view.leader(client) is None:
                    self.seen = time.monotonic()
            except ApiError:
                pass
            await asyncio.sleep(POLL)


def end_of_term(terms: Iterable[Term], failover: Failover) -> float | None:
    """When an API server ended the term of the leader that was hit (monotonic seconds, by its clock); None while that is not
    known, or only concluded."""
    term = next((term for term in terms if term.token == failover.old.token), None)
    if term is None or term.presumed or not term.HasField("ended"):
        return None
    return failover.hit + to_seconds(term.ended) - failover.hit_at


def timeline(failover: Failover, new: Election, vacancy: float | None) -> list[Moment]:
    """The moments of a failover in their order. `new` is the next leader, `vacancy` when nobody was seen to lead (monotonic
    seconds); None: it was too short to be seen, and is left out. The moment of the election is by the API server's clock."""
    elected = to_seconds(new.since) - failover.hit_at
    moments = [
        Moment(elected, f"{new.holder} is elected; its fencing token is {new.token}"),
        Moment(failover.gap, "its first pod is bound"),
    ]
    if vacancy is not None and vacancy >= failover.hit:
        at = min(vacancy - failover.hit, elected)  # the news of it took its time to get here
        moments.insert(0, Moment(at, "the API server has seen the connection break, and deletes the election's key"))
    return moments
