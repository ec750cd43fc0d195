"""What happens to an election when its leader is hit, moment by moment, as a client sees it that asks all the time."""

import asyncio
import time
from dataclasses import dataclass

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


class ElectionLog:
    """When nobody was seen to lead, and when each leader was first seen to; monotonic seconds."""

    def __init__(self) -> None:
        self.vacant: float | None = None
        self.elected: dict[int, tuple[str, float]] = {}
        """Holder and time, by token."""

    async def record(self, client: Client) -> None:
        """Until cancelled. Asks often enough to see a change within a few milliseconds; costs some CPU."""
        while True:
            try:
                leader = await view.leader(client)
            except ApiError:
                leader = None
            else:
                self.observe(leader.token if leader else 0, leader.holder if leader else "", time.monotonic())
            await asyncio.sleep(POLL)

    def observe(self, token: int, holder: str, now: float) -> None:
        """Token 0: nobody leads."""
        if token:
            self.elected.setdefault(token, (holder, now))
        elif self.vacant is None:
            self.vacant = now


def timeline(failover: Failover, log: ElectionLog) -> list[Moment]:
    """The moments of a failover in their order. One that was too short to be seen is left out."""
    moments = []
    if log.vacant is not None and log.vacant >= failover.hit:
        moments.append(Moment(log.vacant - failover.hit, "the API server has deleted its election key: nobody leads"))
    if failover.new_token in log.elected:
        holder, when = log.elected[failover.new_token]
        moments.append(Moment(when - failover.hit, f"{holder} is elected; its fencing token is {failover.new_token}"))
    moments.append(Moment(failover.gap, "the new leader's first pod is bound"))
    return sorted(moments, key=lambda moment: moment.at)
