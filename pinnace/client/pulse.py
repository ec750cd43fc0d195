"""The heartbeats of one stream: when each was sent, and how long none has been answered. Pure; times are monotonic seconds."""

from pinnace.runtime.silence import Silence


class Pulse:
    def __init__(self, interval: float, patience: float, now: float) -> None:
        """`interval`: seconds between two beats. `patience`: seconds without an answer after which the server is `silent`."""
        self.interval = interval
        self._silence = Silence(patience, interval, now)
        self._sequence = 0
        self._sent: dict[int, float] = {}

    def beat(self, now: float) -> int:
        """The sequence number of a beat that is sent now."""
        self._sequence += 1
        self._sent[self._sequence] = now
        return self._sequence

    def answered(self, sequence: int, now: float) -> float | None:
        """When the answered beat had been sent; None if it never was."""
        sent = self._sent.get(sequence)
        if sent is not None:
            self._silence.heard(now)
            self._sent = {number: at for number, at in self._sent.items() if number > sequence}
        return sent

    def silent(self, now: float) -> bool:
        """Ask once per interval. Has the server owed an answer for too long?"""
        return self._silence.exceeded(now)
