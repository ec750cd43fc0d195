"""Conversions in the worker process."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator

import pytest

from pinnace.gateway import workers
from pinnace.gateway.http import ApiStatus
from pinnace.gateway.media_types import json_to_yaml, parse_body
from pinnace.gateway.workers import ConversionWorker, _ConversionJob, is_large_json
from tests.garbage import freed_at_once

DEADLINE = 30.0
pytestmark = pytest.mark.processes


@pytest.fixture
async def converting() -> AsyncIterator[ConversionWorker]:
    result = ConversionWorker()
    task = asyncio.create_task(result.run())
    yield result
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_result_and_error_come_from_another_process(converting: ConversionWorker) -> None:
    async with asyncio.timeout(DEADLINE):
        assert await converting.convert("a", json_to_yaml, b'{"a": [1]}') == b"a:\n- 1\n"
        assert await converting.convert("a", os.getpid) != os.getpid()
        with pytest.raises(ApiStatus) as caught:
            await converting.convert("a", parse_body, b"{", "application/json")
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


async def test_failed_conversion_frees_its_data_at_once(converting: ConversionWorker) -> None:
    async with asyncio.timeout(DEADLINE):
        with freed_at_once(_ConversionJob), pytest.raises(ApiStatus):
            await converting.convert("a", parse_body, b"{", "application/json")


async def test_users_take_turns(converting: ConversionWorker) -> None:
    finished: list[str] = []

    async def convert(user: str) -> None:
        await converting.convert(user, os.getpid)
        finished.append(user)

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(convert(user) for user in ["a"] * 4 + ["b"]))
    assert finished.index("b") <= 1


async def test_slow_conversion_is_ended_and_the_next_one_served(
    converting: ConversionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(DEADLINE):
        await converting.convert("a", os.getpid)
        monkeypatch.setattr(workers, "TIMEOUT", 0.1)
        with pytest.raises(ApiStatus) as caught:
            await converting.convert("a", time.sleep, DEADLINE)
        assert caught.value.code == 504
        monkeypatch.setattr(workers, "TIMEOUT", DEADLINE)
        assert await converting.convert("a", os.getpid)


async def test_dead_worker_is_replaced(converting: ConversionWorker) -> None:
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ApiStatus) as caught:
            await converting.convert("a", os._exit, 1)
        assert (caught.value.code, caught.value.retry_after) == (503, 1)
        assert await converting.convert("a", os.getpid)


async def test_waiting_conversions_of_a_user_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_QUEUED", 1)
    idle = ConversionWorker()
    waiting = asyncio.create_task(idle.convert("a", os.getpid))
    await asyncio.sleep(0)
    with pytest.raises(ApiStatus) as caught:
        await idle.convert("a", os.getpid)
    assert caught.value.code == 429
    waiting.cancel()


def test_size_and_number_of_values_make_json_large() -> None:
    secret = json.dumps({"data": {"a": "x" * (1 << 20)}}).encode()
    assert not is_large_json(secret) and not is_large_json(b"[1,2]" * 100)
    assert is_large_json(json.dumps({str(number): "x" * 30 for number in range(3000)}).encode())
