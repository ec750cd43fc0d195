"""Batched writes, with a server that limits the size of requests."""

import asyncio
from collections.abc import Sequence

import pytest

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.apiserver.server import MAX_REQUEST
from pinnace.client.errors import ApiError, Fenced, Forbidden, fenced_error, unavailable_error
from pinnace.controllers.writes import BATCH, WriteBatcher, send_in_batches
from tests.builders import make_node


class Server:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def send(self, nodes: Sequence[Node]) -> list[BatchItem]:
        assert len(nodes) <= BATCH and sum(node.ByteSize() for node in nodes) < MAX_REQUEST
        self.calls.append([node.metadata.name for node in nodes])
        return [BatchItem(resourceVersion=node.metadata.name) for node in nodes]


def large(count: int) -> list[Node]:
    nodes = [make_node(f"n{number}").build() for number in range(count)]
    for node in nodes:
        node.metadata.annotations["about"] = "x" * (20 << 10)
    return nodes


async def test_large_objects_are_sent_in_several_calls() -> None:
    server, nodes = Server(), large(BATCH)
    assert await send_in_batches(server.send, nodes) == [None] * BATCH
    assert [name for call in server.calls for name in call] == [node.metadata.name for node in nodes]


async def test_concurrent_writes_share_a_batch() -> None:
    server, nodes = Server(), large(2 * BATCH)
    batcher = WriteBatcher(server.send)
    versions = await asyncio.gather(*(batcher.write_item(node) for node in nodes))
    assert versions == [node.metadata.name for node in nodes], "each write gets its own response"


async def test_small_objects_are_sent_in_full_batches() -> None:
    server = Server()
    batcher = WriteBatcher(server.send)
    await asyncio.gather(*(batcher.write_item(make_node(f"n{number}").build()) for number in range(BATCH + 1)))
    assert [len(call) for call in server.calls] == [BATCH, 1]


class Failing(Server):
    """A server whose first call fails."""

    def __init__(self, error: ApiError) -> None:
        super().__init__()
        self._error: ApiError | None = error

    async def send(self, nodes: Sequence[Node]) -> list[BatchItem]:
        items = await super().send(nodes)
        if self._error is None:
            return items
        error, self._error = self._error, None
        raise error


@pytest.mark.parametrize(
    ("error", "sent"), [(Forbidden(Refusal(Code.PERMISSION_DENIED, "", "no")), 2), (unavailable_error("no server"), 1)]
)
async def test_failed_call_fails_all_its_items(error: ApiError, sent: int) -> None:
    server, nodes = Failing(error), [make_node(f"n{number}").build() for number in range(BATCH + 1)]
    rest = None if sent == 2 else error
    assert await send_in_batches(server.send, nodes) == [error] * BATCH + [rest]
    assert len(server.calls) == sent, "the rest is not sent if the server is unavailable"


async def test_deposed_leader_sends_no_writes() -> None:
    with pytest.raises(Fenced):
        await send_in_batches(Failing(fenced_error("another leads")).send, large(1))
