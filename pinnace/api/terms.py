"""The time between two terms of an election, by the times in their records. All displays use it.

last heartbeat     end of the term     begin of the next term
      |                   |                      |
      |                   '-------- gap ---------|     no candidate is elected
      '---------------- outage ------------------'     no leader works: a frozen leader is still elected, but does nothing
"""

from typing import NamedTuple, Self

from pinnace.api.elections_pb2 import Term
from pinnace.api.scalars import to_seconds


class TermEnd(NamedTuple):
    """The end of a term in Unix seconds; see Term in proto/."""

    ended: float | None
    presumed: bool = False
    last_heartbeat: float | None = None

    @classmethod
    def of(cls, term: Term) -> Self:
        ended = to_seconds(term.ended) if term.HasField("ended") else None
        return cls(ended, term.presumed, to_seconds(term.last_heartbeat) if term.HasField("last_heartbeat") else None)

    def gap(self, began: float) -> float | None:
        """Return the seconds from the end until the next term, which began at `began`. None: the end is unknown. A negative
        difference, caused by clocks of different servers, is 0."""
        return None if self.ended is None or self.presumed else max(0.0, began - self.ended)

    def outage(self, began: float) -> float | None:
        """Return the seconds from the last heartbeat until the next term. It is the gap if the leader acted until the end.
        None: the end is unknown."""
        gap = self.gap(began)
        if gap is None or self.last_heartbeat is None:
            return gap
        return max(gap, began - self.last_heartbeat)
