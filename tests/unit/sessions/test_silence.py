"""When is a peer silent? Seconds on a clock that the tests write down."""

from pinnace.runtime.clock import SilenceTimer

LIMIT, STEP = 1.0, 0.1


def silent_after(*looks: float) -> list[bool]:
    silence = SilenceTimer(LIMIT, STEP, 0.0)
    return [silence.has_exceeded_limit(now) for now in looks]


def steps(start: float, end: float) -> list[float]:
    return [start + STEP * i for i in range(1, round((end - start) / STEP) + 1)]


def test_silent_at_the_limit_and_not_before() -> None:
    looked = silent_after(*steps(0.0, 1.1))
    assert looked.index(True) in (9, 10)


def test_heard_in_time() -> None:
    silence = SilenceTimer(LIMIT, STEP, 0.0)
    for second in range(10):
        assert not any(silence.has_exceeded_limit(now) for now in steps(second * 0.8, second * 0.8 + 0.7))
        silence.record_message(second * 0.8 + 0.75)


def test_pause_of_the_observer_is_not_held_against_the_peer() -> None:
    """SIGSTOP for a minute: when the observer wakes, its timer is due before it has read what came meanwhile."""
    assert silent_after(0.1, 0.2, 60.0, 60.1) == [False] * 4


def test_after_a_pause_the_peer_is_silent_in_the_usual_time() -> None:
    looked = silent_after(60.0, *steps(60.0, 61.0))
    assert looked[-1]
    assert not any(looked[:7])


def test_busy_observer_counts_what_it_was_late() -> None:
    """Looks that come half a step late, as on a loaded machine, still add up to the time that has passed."""
    looked = silent_after(*(0.15 * i for i in range(1, 8)))
    assert looked == [False] * 6 + [True]


def test_session_without_own_messages_becomes_silent() -> None:
    """Who asks how long the silence lasts looks as well: nobody else need."""
    silence = SilenceTimer(LIMIT, STEP, 0.0)
    assert [silence.silence_seconds(now) for now in steps(0.0, 2.0)][-1] > LIMIT
