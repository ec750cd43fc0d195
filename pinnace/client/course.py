"""What has become of one call so far: for who gives it up before it has ended."""

from dataclasses import dataclass

from pinnace.client.errors import ApiError, Unavailable, outcome_unknown, unanswered

CHANGES = ("Create", "Update", "Patch", "Delete", "Bind", "Evict", "Record", "Transfer")
"""How the methods begin that change something."""
SLOW = 0.5
"""Seconds after which an attempt without an answer is worth a word."""


@dataclass(slots=True)
class Course:
    """`method` is like "/pinnace.v1.Pods/Get"."""

    method: str
    met: Unavailable | None = None
    """The error of the last attempt that has ended."""
    sent_to: str = ""
    """The server that has the present attempt; empty: none."""
    sent_at: float = 0.0
    in_doubt: bool = False
    """The answer to an attempt was lost."""

    def sent(self, endpoint: str, now: float) -> None:
        self.sent_to, self.sent_at = endpoint, now

    def failed(self, error: ApiError) -> None:
        """The present attempt has ended so, or could not be sent."""
        self.in_doubt |= bool(self.sent_to) and isinstance(error, Unavailable) and error.retry_after is None
        self.met = error if isinstance(error, Unavailable) else None
        self.sent_to = ""

    def told(self, now: float) -> Unavailable | None:
        """What there is to say of a call that is given up; None: nothing is wrong that is known of."""
        slow = bool(self.sent_to) and now - self.sent_at >= SLOW
        cause = self.met or (unanswered(self.sent_to) if slow else None)
        if cause is None or not (self.in_doubt or self.sent_to) or not self._changes:
            return cause
        return outcome_unknown(cause)

    def ended(self, error: Unavailable) -> Unavailable:
        """What there is to say of a call whose last attempt has failed so: an earlier one may have been carried out."""
        return outcome_unknown(error) if self.in_doubt and self._changes else error

    @property
    def _changes(self) -> bool:
        return self.method.rpartition("/")[2].startswith(CHANGES)
