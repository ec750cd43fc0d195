"""Whether CPU time is short is told by how often a process is preempted."""

from pinnace.runtime.cpu import PREEMPTIONS_WHEN_SHORT, Pressure, never, preempted
from tests.clock import FakeClock


async def test_it_is_the_rate_since_the_last_look_that_counts() -> None:
    clock, count = FakeClock(), 5 * PREEMPTIONS_WHEN_SHORT
    pressure = Pressure(lambda: count, clock)
    assert not pressure.is_high(), "what was before says nothing"
    await clock.advance(0.1)
    count += PREEMPTIONS_WHEN_SHORT // 5
    assert pressure.is_high()
    await clock.advance(0.1)
    assert not pressure.is_high()
    await clock.advance(10.0)
    count += PREEMPTIONS_WHEN_SHORT
    assert not pressure.is_high(), "so many in ten seconds are few"


def test_the_kernel_tells() -> None:
    assert preempted() >= never() == 0
