"""CPU time by stage: each moment is charged to exactly one stage."""

import asyncio
import inspect

import pytest

from pinnace.apiserver.stage_cpu import ADMIT, COMMIT, DECODE, ENCODE, HANDLE, SECTIONS, StageCpuMeter
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_pod
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage


class Processor:
    """The CPU time of a thread, advanced by `work`."""

    def __init__(self) -> None:
        self.time = 0

    def work(self, amount: int) -> None:
        self.time += amount


@pytest.fixture
def processor() -> Processor:
    return Processor()


@pytest.fixture
def stages(processor: Processor) -> StageCpuMeter:
    return StageCpuMeter(lambda: processor.time)


def spent(stages: StageCpuMeter) -> dict[str, int]:
    return {stage: time for stage, time in stages.spent.items() if time}


def test_nested_stages_are_not_counted_twice(processor: Processor, stages: StageCpuMeter) -> None:
    def commit() -> None:
        processor.work(2)
        encode(30)
        processor.work(3)

    encode = stages.wrap("encode", processor.work)
    stages.wrap("commit", commit)()
    processor.work(1000)
    encode(1)
    assert spent(stages) == {"commit": 5, "encode": 31}


async def test_waiting_call_is_not_charged_for_others(processor: Processor, stages: StageCpuMeter) -> None:
    async def handle() -> str:
        processor.work(1)
        await there.wait()
        processor.work(2)
        return "done"

    there = asyncio.Event()
    calls = [asyncio.ensure_future(stages.wrap("handle", handle)()) for _ in range(3)]
    await asyncio.sleep(0)
    processor.work(1000)
    stages.wrap("fan-out", processor.work)(50)
    there.set()
    assert await asyncio.gather(*calls) == ["done"] * 3
    assert spent(stages) == {"handle": 9, "fan-out": 50}


async def test_stage_propagates_errors_and_cancellation(processor: Processor, stages: StageCpuMeter) -> None:
    async def fail() -> None:
        processor.work(1)
        raise ValueError

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            processor.work(10)
            await asyncio.sleep(0)
            processor.work(20)

    with pytest.raises(ValueError):
        await stages.wrap("handle", fail)()
    waiting = asyncio.ensure_future(stages.wrap("commit", wait)())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    processor.work(1000)
    assert spent(stages) == {"handle": 1, "commit": 30}


@pytest.mark.parametrize(("owner", "name", "stage"), SECTIONS, ids=lambda item: getattr(item, "__name__", item))
def test_wrapped_functions_exist_and_are_no_generators(owner: object, name: str, stage: str) -> None:
    function = getattr(owner, name)
    assert callable(function) and not inspect.isasyncgenfunction(function) and not inspect.isgeneratorfunction(function)


async def test_wrapped_functions_are_called_by_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU time of a wrapped function that is no longer called would be charged to another stage."""
    counted = StageCpuMeter()
    for owner, name, stage in SECTIONS:
        monkeypatch.setattr(owner, name, counted.wrap(stage, getattr(owner, name)))
    async with serving(MemoryStorage()) as address:
        client = Client(Connection([address]))
        await client.pods.create(make_pod("a").req().new())
        created = dict(counted.spent)
        await client.pods.patch("a", "default", {"metadata": {"labels": {"a": "b"}}})
        await client.connection.close()
    for stage in (DECODE, ADMIT, ENCODE, COMMIT, HANDLE):
        assert 0 < created[stage] < counted.spent[stage], stage
