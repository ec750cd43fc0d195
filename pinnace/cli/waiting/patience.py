"""How long what is waited for may take: until the session's deadline, or not at all."""

from collections.abc import Callable
from typing import Any

from pinnace.cli.objects.follower import Follower
from pinnace.cli.session import Session


async def until(session: Session, follower: Follower[Any], satisfied: Callable[[], bool]) -> None:
    """As `Follower.until`. Raises TimeoutError when the session looks once and it is not so."""
    if not session.looks_once:
        await follower.until(satisfied)
        return
    await follower.start()
    if not satisfied():
        raise TimeoutError(f"timed out waiting for {session.waiting_for}")
