"""A channel that is closed, as after a change of certificates, cancels its calls.

An API server ended by that: its watch took the cancellation for its own. Found by an hour of chaos.
"""

import asyncio
from typing import Any

import pytest

from apiserver.storage.etcd import storage
from apiserver.storage.interface import Unavailable


class CancelledCall:
    """As grpc.aio's calls behave once their channel is closed."""

    async def read(self) -> Any:
        raise asyncio.CancelledError

    async def write(self, request: object) -> None:
        raise asyncio.CancelledError


async def test_reading_a_cancelled_watch_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="connection of the watch was closed"):
        await storage._read(CancelledCall())


async def test_watch_without_responses_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(CancelledCall):
        async def read(self) -> Any:
            await asyncio.Event().wait()

    monkeypatch.setattr(storage, "PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(storage, "SILENCE_LIMIT", 0.04)
    with pytest.raises(Unavailable, match=r"not even progress \(etcd's gRPC proxy sends none"):
        await storage._read(Silent())


async def test_writing_to_a_cancelled_watch_leaves_the_error_to_the_reader() -> None:
    await storage._write(CancelledCall(), storage._PROBE)


async def test_a_reader_that_is_cancelled_itself_ends() -> None:
    class Silent(CancelledCall):
        async def read(self) -> Any:
            await asyncio.Event().wait()

    reading = asyncio.create_task(storage._read(Silent()))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
