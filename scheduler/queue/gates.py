"""The pods that PreEnqueue holds back, by what their plugins await.

An event is only noted here. Asking takes as long as plugins like, for each of thousands of pods: it is done later, in turns
(scheduler.feed), about each pod once for all that has happened by then. Who awaits nothing costs nothing.
"""

from collections import deque
from collections.abc import Callable

from scheduler.cache.changes import Change


def _nobody() -> None:
    """Is told."""


class Gates:
    """Pods are known by their uids."""

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = _nobody
        """Called when something has happened that somebody awaits."""
        self._held: dict[Change, dict[str, None]] = {}
        """By what they await: something, and somebody awaits it."""
        self._news = Change.NONE
        """What has happened since the last round, and somebody awaits."""
        self._round: deque[str] = deque()
        """Who is to be asked about."""

    def add(self, uid: str, awaits: Change) -> None:
        if awaits:
            self._held.setdefault(awaits, {})[uid] = None

    def discard(self, uid: str, awaits: Change) -> None:
        held = self._held.get(awaits, {})
        held.pop(uid, None)
        if not held:
            self._held.pop(awaits, None)

    def hear(self, change: Change) -> None:
        """Something has happened."""
        if any(awaits & change for awaits in self._held):
            self._news |= change
            self.on_due()

    @property
    def any_await(self) -> bool:
        return bool(self._held)

    def next(self) -> str | None:
        """The next pod to ask about; it may be gone or let go by now. None: nothing has happened that anybody awaits."""
        if not self._round:
            news, self._news = self._news, Change.NONE
            self._round.extend(uid for awaits, held in self._held.items() if awaits & news for uid in held)
        return self._round.popleft() if self._round else None
