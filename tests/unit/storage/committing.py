"""A committer on a storage, and what it wrote."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pinnace.api.resources import COMMITS_PREFIX
from pinnace.apiserver.storage.committer import Committer, SendGroup, send_directly
from pinnace.apiserver.storage.interface import Storage, Write
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.cpu import no_preemptions
from tests.contract.steps import DEADLINE
from tests.unit.storage.faults import FaultyStorage

FIRST = 3
"""The revision of the first group in an empty store: before it, its lane creates a marker."""


@asynccontextmanager
async def committing(
    storage: Storage,
    max_in_flight: int = 2,
    clock: Clock = SYSTEM_CLOCK,
    send: SendGroup = send_directly,
    preempted: Callable[[], int] = no_preemptions,
) -> AsyncIterator[Committer]:
    committer = Committer(storage, max_in_flight=max_in_flight, send=send, clock=clock, preempted=preempted)
    running = asyncio.create_task(committer.run())
    try:
        async with asyncio.timeout(DEADLINE):
            yield committer
    finally:
        running.cancel()
        await asyncio.wait([running])


def creates(*keys: str) -> list[Write]:
    return [Write(key, b"value of " + key.encode(), 0) for key in keys]


def keys_of(storage: FaultyStorage) -> list[list[str]]:
    """Of each group, without the lanes' markers."""
    groups = ([write.key for write in group if not write.key.startswith(COMMITS_PREFIX)] for group in storage.groups)
    return [group for group in groups if group]
