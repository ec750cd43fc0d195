"""A fleet's session, and one that has left already."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.services import nodes as module
from pinnace.apiserver.services.nodes import FleetSession, LeaseSignature, encode_lease
from pinnace.apiserver.services.sessions import SessionStream, StreamEvent, Timing
from pinnace.apiserver.storage.committer import CommitOutcome, Committer
from pinnace.apiserver.storage.interface import Committed, StorageUnavailable, Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage

TIMING = Timing(interval=0.05, silence=60.0, ttl=60)


async def nothing() -> AsyncIterator[HeartbeatRequest]:
    for request in list[HeartbeatRequest]():
        yield request


async def permit(nodes: object) -> None:
    """All of them."""


def key(node: str) -> str:
    return LEASES.key(NODE_LEASE_NAMESPACE, node)


class Scene:
    """A fleet before a storage. Nobody waits for it to come back when it has left."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.committer = Committer(self.storage)
        self.stream = SessionStream[HeartbeatRequest, HeartbeatResponse](nothing(), TIMING, SYSTEM_CLOCK)

    async def play(self, *nodes: str) -> None:
        """To its end."""
        opening = HeartbeatRequest.Open(holder="f", nodes=nodes)
        cacher = Cacher(self.storage)
        fleet = FleetSession(
            self.stream, opening, permit, permit, self.storage, self.committer, cacher, TIMING, SYSTEM_CLOCK, Random(1)
        )
        async with asyncio.timeout(5):
            await fleet.run()


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(module, "RESUME_GRACE", 0.0)
    scene = Scene()
    committing = asyncio.create_task(scene.committer.run())
    yield scene
    committing.cancel()
    await asyncio.wait([committing])


async def test_closed_session_takes_no_node_from_its_successor(scene: Scene) -> None:
    newer = await scene.storage.grant_lease(60)
    value = encode_lease("n", LeaseSignature("f", 1, "stream"), 60, 1.0, "uid", None)
    written = await scene.storage.transact([Write(key("n"), value, 0, lease=newer)])
    assert isinstance(written, Committed)
    scene.stream.post_event(StreamEvent.GONE)
    await scene.play("n")
    result = await scene.storage.get(key("n"))
    assert result is not None and (result.mod_revision, result.lease) == (written.revision, newer)


async def test_partly_written_claims_are_removed_with_their_fleet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_many, claimed = Committer.commit_many, list[str]()

    async def in_part(committer: Committer, writes: Sequence[Write]) -> list[CommitOutcome]:
        """The first write fails, and then the fleet leaves."""
        if claimed:
            return await commit_many(committer, writes)
        claimed.extend(write.key for write in writes)
        scene.stream.post_event(StreamEvent.GONE)
        return [StorageUnavailable("not now"), *await commit_many(committer, writes[1:])]

    monkeypatch.setattr(Committer, "commit_many", in_part)
    await scene.play("a", "b")
    assert claimed == [key("a"), key("b")]
    assert not (await scene.storage.page(key(""))).items
