"""Which beat an answer is for, and when the server owes one for too long."""

from pinnace.runtime.clock import HeartbeatTimer


def test_an_answer_is_worth_the_time_at_which_its_beat_was_sent() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    first, second = pulse.beat(1.0), pulse.beat(1.2)
    assert (first, second) == (1, 2)
    assert pulse.answered(second, 1.3) == 1.2


def test_an_answer_to_an_older_beat_than_one_that_was_answered_is_worth_nothing() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    pulse.beat(1.0)
    pulse.beat(1.2)
    pulse.answered(2, 1.3)
    assert pulse.answered(1, 1.4) is None


def test_an_answer_to_a_beat_that_was_never_sent() -> None:
    assert HeartbeatTimer(0.2, 0.5, 0.0).answered(7, 1.0) is None


def test_silent_without_answers() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    assert [pulse.silent(now) for now in (0.2, 0.4, 0.6)] == [False, False, True]


def test_not_silent_with_answers() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    for number in range(1, 20):
        pulse.beat(number * 0.2)
        pulse.answered(number, number * 0.2 + 0.01)
        assert not pulse.silent(number * 0.2 + 0.2)
