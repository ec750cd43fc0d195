"""The heartbeat timer: which heartbeat a response acknowledges, and when the server is silent for too long."""

from pinnace.runtime.clock import HeartbeatTimer


def test_acknowledgment_counts_from_the_send_time() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    first, second = pulse.record_beat(1.0), pulse.record_beat(1.2)
    assert (first, second) == (1, 2)
    assert pulse.record_acknowledgement(second, 1.3) == 1.2


def test_out_of_order_acknowledgment_is_ignored() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    pulse.record_beat(1.0)
    pulse.record_beat(1.2)
    pulse.record_acknowledgement(2, 1.3)
    assert pulse.record_acknowledgement(1, 1.4) is None


def test_acknowledgment_of_an_unsent_heartbeat_is_ignored() -> None:
    assert HeartbeatTimer(0.2, 0.5, 0.0).record_acknowledgement(7, 1.0) is None


def test_server_without_acknowledgments_is_silent() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    assert [pulse.is_silent(now) for now in (0.2, 0.4, 0.6)] == [False, False, True]


def test_server_with_acknowledgments_is_not_silent() -> None:
    pulse = HeartbeatTimer(0.2, 0.5, 0.0)
    for number in range(1, 20):
        pulse.record_beat(number * 0.2)
        pulse.record_acknowledgement(number, number * 0.2 + 0.01)
        assert not pulse.is_silent(number * 0.2 + 0.2)
