"""A fleet's session, and one that has left already."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from apiserver.cacher.cacher import Cacher
from apiserver.services import fleet as module
from apiserver.services.conversation import Conversation, Sign
from apiserver.services.fleet import FleetSession
from apiserver.services.nodelease import Signature, lease_object
from apiserver.sessions import Timing
from apiserver.storage.committer import Committer
from apiserver.storage.interface import Committed, Write
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage

TIMING = Timing(interval=0.05, silence=60.0, ttl=60)
KEY = LEASES.key(NODE_LEASE_NAMESPACE, "n")


async def nothing() -> AsyncIterator[HeartbeatRequest]:
    for request in list[HeartbeatRequest]():
        yield request


async def test_who_has_left_takes_no_node_from_its_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 0.0)
    storage = MemoryStorage()
    committer = Committer(storage)
    committing = asyncio.create_task(committer.run())
    newer = await storage.grant_lease(60)
    value = lease_object("n", Signature("f", 1, "stream"), 60, 1.0, "uid", None)
    written = await storage.transact([Write(KEY, value, 0, lease=newer)])
    assert isinstance(written, Committed)

    conversation = Conversation[HeartbeatRequest, HeartbeatResponse](nothing(), TIMING, SYSTEM_CLOCK)
    conversation.post(Sign.GONE)
    opening = HeartbeatRequest.Open(holder="f", nodes=["n"])

    async def permit(nodes: object) -> None:
        """All of them."""

    fleet = FleetSession(
        conversation, opening, permit, permit, storage, committer, Cacher(storage), TIMING, SYSTEM_CLOCK, Random(1)
    )
    async with asyncio.timeout(5):
        await fleet.run()

    found = await storage.get(KEY)
    assert found is not None and (found.mod_revision, found.lease) == (written.revision, newer)
    committing.cancel()
