"""The simulated event loop keeps asyncio's promises, and its processes stop and die as real ones do."""

import asyncio

import pytest

from tests.simulation.loop import START, SimLoop, Stuck
from tests.simulation.process import Process


def test_time_jumps_and_timeouts_work() -> None:
    async def main() -> float:
        async with asyncio.TaskGroup() as group:
            sleeper = group.create_task(asyncio.sleep(100.0, "slept"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5.0):
                    await asyncio.Event().wait()
        assert sleeper.result() == "slept"
        return asyncio.get_running_loop().time()

    assert SimLoop(1).run(main()) == pytest.approx(START + 100.0, abs=0.01)


def test_callbacks_of_a_process_run_in_order_and_processes_in_any() -> None:
    def orders(seed: int) -> list[str]:
        loop, said = SimLoop(seed), list[str]()

        async def main() -> None:
            for name in "abc":
                process = Process(name, loop)
                for number in range(3):
                    loop.call_soon(said.append, f"{name}{number}", context=process.context)
            await asyncio.sleep(1)

        loop.run(main())
        return said

    runs = [orders(seed) for seed in range(20)]
    for said in runs:
        assert [word for word in said if word[0] == "b"] == ["b0", "b1", "b2"]
    assert len({tuple(said) for said in runs}) > 1
    assert orders(3) == orders(3)


def test_paused_process_catches_up_when_it_is_resumed() -> None:
    loop, ticks = SimLoop(1), list[float]()
    process = Process("ticker", loop)

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            ticks.append(round(loop.time() - START))

    async def main() -> None:
        process.start(tick)
        await asyncio.sleep(2.5)
        process.pause()
        await asyncio.sleep(5.0)
        assert ticks == [1, 2]
        process.resume()
        await asyncio.sleep(1.2)

    loop.run(main())
    assert ticks == [1, 2, 8, 9]  # the sleep that ended meanwhile, and the next


def test_crashed_process_has_no_effects_not_even_when_it_is_thrown_away() -> None:
    loop, effects = SimLoop(1), list[str]()
    process = Process("victim", loop)

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            effects.append("worked")
        finally:
            if loop.is_running():
                effects.append("cleaned up")
            await asyncio.sleep(0)
            effects.append("waited")

    async def main() -> None:
        process.start(work)
        await asyncio.sleep(0.5)
        process.crash()
        await asyncio.sleep(5.0)

    loop.run(main())
    assert effects == []


def test_unretrieved_exception_is_a_failure() -> None:
    loop = SimLoop(1)

    async def fail() -> None:
        raise ValueError("a bug")

    async def main() -> None:
        await Process("buggy", loop).start(fail)

    loop.run(main())
    assert loop.failures == ["buggy died: ValueError('a bug')"]


def test_run_without_an_end_is_stuck() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="no end"):
        SimLoop(1, max_steps=10_000).run(spin())
    with pytest.raises(Stuck, match="nobody will ever"):
        SimLoop(1).run(wait())
