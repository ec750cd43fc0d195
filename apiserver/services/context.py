"""What a service may ask about the call that it answers, and for how long it may make the caller wait."""

from collections.abc import Callable
from typing import Protocol

from apiserver.auth.authentication import Credential, User

READ_TIMEOUT = 5.0
"""Seconds that a read may wait for the cache, when the caller's deadline is later."""
MOMENT = 0.2
"""Seconds before its caller's deadline at which a read that waits gives up: time to say what it has waited for."""


class Context(Protocol):
    """Of one call."""

    @property
    def user(self) -> User:
        """Who calls."""
        ...

    @property
    def credential(self) -> Credential:
        """What the caller has shown."""
        ...

    def time_remaining(self) -> float | None:
        """Seconds that the caller still waits; None: without end."""
        ...

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Calls it when the caller has taken the answer that is about to be given, or has gone."""
        ...


def patience(context: Context) -> float:
    """Seconds that a handler may wait, so that its refusal is still heard."""
    remaining = context.time_remaining()
    if remaining is None:
        return READ_TIMEOUT
    return max(0.0, min(READ_TIMEOUT, remaining - min(MOMENT, remaining / 5)))
