"""Pod clients through which a scheduler is told late, or not at all."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.client import PodClient
from pinnace.client.connection import Connection
from pinnace.client.errors import unavailable_error
from pinnace.client.resource import WatchBatch


class HeldPods(PodClient):
    """Shows its watcher nothing while the gate is closed."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.gate = asyncio.Event()
        self.gate.set()

    async def watch(self, *args: Any, **kwargs: Any) -> AsyncGenerator[WatchBatch[Pod], None]:
        async for batch in super().watch(*args, **kwargs):
            await self.gate.wait()
            yield batch


class LosingPods(PodClient):
    """Loses binds, and later their answers: the caller cannot tell which."""

    def __init__(self, connection: Connection, *, lost_on: str) -> None:
        super().__init__(connection, PODS)
        self.lost_on = lost_on
        self.calls = 0

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        self.calls += 1
        if self.lost_on == "way there":
            raise unavailable_error("lost")
        items = await super().bind_batch(bindings, fence)
        if self.lost_on == "way back":
            raise unavailable_error("lost")
        return items


class LatePods(PodClient):
    """Sends binds under the token before: as a leader does that has been deposed and does not know."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.calls = 0
        self.fenced = asyncio.Event()

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        assert fence is not None
        self.calls += 1
        fence.token -= 1
        items = await super().bind_batch(bindings, fence)
        self.fenced.set()
        return items


class StuckPods(PodClient):
    """Binds are sent, and never answered."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.calls = 0

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        self.calls += 1
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")
