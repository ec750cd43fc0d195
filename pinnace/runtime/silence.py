"""How long a peer has been silent, as far as one can tell.

Only time in which the observer was awake counts. One that was stalled itself (stopped, starved, swapping) hears late what was
said in time; it must not hold its own pause against the other. So the observer looks at regular steps, and a step that took
longer than it should counts as if it had not.
"""

LATENESS = 2.0
"""A step counts for at most this many times its length: a busy machine is late now and then."""


class Silence:
    """A pure value but for its state; times are monotonic seconds."""

    def __init__(self, limit: float, step: float, now: float) -> None:
        """`limit`: seconds of silence that are too many. `step`: seconds between two calls of `exceeded`."""
        self._limit = limit
        self._longest = step * LATENESS
        self._silent = 0.0
        self._looked = now

    def heard(self, now: float) -> None:
        self._silent = 0.0
        self._looked = now

    def lasts(self, now: float) -> float:
        """Looks. For how long has the peer been silent, in seconds? Whoever asks counts as an observer: else one that nobody
        looks at would never be silent for longer than a step."""
        self._silent += min(now - self._looked, self._longest)
        self._looked = now
        return self._silent

    def exceeded(self, now: float) -> bool:
        """Looks. Has the peer been silent for too long?"""
        return self.lasts(now) >= self._limit
