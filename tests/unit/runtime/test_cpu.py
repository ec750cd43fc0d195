"""CPU pressure is measured by the rate at which a process is preempted."""

from pinnace.runtime.cpu import PREEMPTIONS_WHEN_SHORT, CpuPressure, count_preemptions, no_preemptions
from tests.clock import FakeClock


async def test_pressure_is_the_rate_since_the_previous_check() -> None:
    clock, count = FakeClock(), 5 * PREEMPTIONS_WHEN_SHORT
    pressure = CpuPressure(lambda: count, clock)
    assert not pressure.is_high(), "earlier preemptions do not count"
    await clock.advance(0.1)
    count += PREEMPTIONS_WHEN_SHORT // 5
    assert pressure.is_high()
    await clock.advance(0.1)
    assert not pressure.is_high()
    await clock.advance(10.0)
    count += PREEMPTIONS_WHEN_SHORT
    assert not pressure.is_high(), "the rate over ten seconds is low"


def test_preemptions_are_read_from_the_kernel() -> None:
    assert count_preemptions() >= no_preemptions() == 0
