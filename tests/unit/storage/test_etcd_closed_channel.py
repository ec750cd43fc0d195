"""A channel that is closed, as after a change of certificates, cancels its calls.

An API server ended by that: its watch took the cancellation for its own. Found by an hour of chaos.
"""

import asyncio
from typing import Any

import pytest

from pinnace.apiserver.storage.etcd import storage
from pinnace.apiserver.storage.etcd.storage import WatchReader
from pinnace.apiserver.storage.interface import StorageUnavailable


class CancelledCall:
    """As grpc.aio's calls behave once their channel is closed."""

    async def read(self) -> Any:
        raise asyncio.CancelledError

    async def write(self, request: object) -> None:
        raise asyncio.CancelledError


class SilentCall:
    """A call without responses, which counts the requests."""

    def __init__(self) -> None:
        self.requests = 0
        self._cancelled = asyncio.Event()

    async def read(self) -> Any:
        await self._cancelled.wait()
        raise asyncio.CancelledError

    async def write(self, request: object) -> None:
        self.requests += 1

    def cancel(self) -> None:
        self._cancelled.set()


async def test_reading_a_cancelled_watch_is_unavailable() -> None:
    with pytest.raises(StorageUnavailable, match="connection of the watch was closed"):
        await WatchReader(CancelledCall()).read()


async def test_watch_without_responses_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PROBE_INTERVAL", 0.01)
    monkeypatch.setattr(storage, "SILENCE_LIMIT", 0.04)
    call = SilentCall()
    reader = WatchReader(call)
    probing = asyncio.create_task(reader.probe_silent_watch())
    with pytest.raises(StorageUnavailable, match=r"not even progress \(etcd's gRPC proxy sends none"):
        await reader.read()
    await probing
    assert call.requests > 0


async def test_watch_of_a_member_that_calls_have_left_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API servers whose etcd was on a dead machine noticed it after three seconds, and elected no leader before."""
    monkeypatch.setattr(storage, "SUSPECT_INTERVAL", 0.01)
    monkeypatch.setattr(storage, "SUSPECT_LIMIT", 0.03)
    left = asyncio.Event()
    call = SilentCall()
    reader = WatchReader(call, left.is_set)
    probing = asyncio.create_task(reader.probe_silent_watch())
    reading = asyncio.create_task(reader.read())
    await asyncio.sleep(0.05)
    assert not reading.done() and call.requests == 0, "it has a second"
    left.set()
    async with asyncio.timeout(storage.PROBE_INTERVAL):
        with pytest.raises(StorageUnavailable, match="the watch received nothing"):
            await reading
    await probing
    assert call.requests > 0, "it was asked before"


async def test_writing_to_a_cancelled_watch_leaves_the_error_to_the_reader() -> None:
    await storage._write(CancelledCall(), storage._PROBE)


async def test_reader_that_is_cancelled_itself_ends() -> None:
    reading = asyncio.create_task(WatchReader(SilentCall()).read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_response_costs_no_more_iterations_of_the_event_loop_than_the_call() -> None:
    """Each response took three more iterations than the call: a busy API server could not follow the writes of its cluster, and
    its cache was three seconds behind."""

    class Buffered(CancelledCall):
        async def read(self) -> Any:
            return "response"

    reading = WatchReader(Buffered()).read()
    with pytest.raises(StopIteration, match="response"):
        reading.send(None)
