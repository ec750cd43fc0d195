"""Logs of simulated containers are a function of the start and the time."""

import pytest

from pinnace.kubelet.runtime import simulated_log
from pinnace.kubelet.runtime.simulated_log import (
    SECOND,
    ContainerLog,
    SimulatedLogLine,
    default_lines,
    format_rfc3339,
    validate_log_text,
)

STARTED = 1_000_000_000
VALUES = {"container": "app", "pod": "web-1", "namespace": "shop", "image": "app:1", "node": "n", "ip": "10.0.0.1", "host": "h"}
MIXED = (
    SimulatedLogLine("start of {namespace}/{pod}"),
    SimulatedLogLine("second line"),
    SimulatedLogLine("beat {number} at {time:%H:%M:%S}", interval=10),
    SimulatedLogLine('{"tick": {number}}', interval=3, jitter=3),
)


def log(lines: tuple[SimulatedLogLine, ...] = MIXED, started: float = STARTED, seed: str = "uid") -> ContainerLog:
    return ContainerLog(lines, VALUES, started, seed, 0)


def texts(log: ContainerLog, after: float, until: float) -> list[str]:
    """Seconds after the start."""
    return [
        text
        for _, text in log.read(
            STARTED * SECOND + int(after * SECOND), STARTED * SECOND + int(until * SECOND), timestamps=False
        )
    ]


def test_lines_have_their_values_and_intervals() -> None:
    result = texts(log(MIXED[:3]), -1, 25)
    assert result == ["start of shop/web-1\n", "second line\n", "beat 1 at 01:46:50\n", "beat 2 at 01:47:00\n"]


def test_line_is_the_same_whenever_it_is_read() -> None:
    whole = texts(log(), -1, 1000)
    parts = [text for start in range(-1, 1000, 7) for text in texts(log(started=STARTED + 0.7), start, min(start + 7, 1000))]
    assert parts == whole
    assert len(whole) > 400
    assert texts(log(seed="other"), -1, 1000) != whole, "jitter depends on the pod"


@pytest.mark.parametrize("tail", [0, 1, 2, 7, 100, 433, 5000])
def test_tail_counts_lines_from_the_end(tail: int) -> None:
    until = (STARTED + 1000) * SECOND
    whole = [text for _, text in log().read(0, until, timestamps=False)]
    result = [text for _, text in log().read(log().start_time_of_tail(tail, 0, until), until, timestamps=False)]
    assert result == whole[len(whole) - min(tail, len(whole)) :]


def test_since_selects_lines_by_time_and_timestamps_show_it() -> None:
    since, until = (STARTED + 10) * SECOND, (STARTED + 31) * SECOND
    beats = log(MIXED[:3])
    result = [text for _, text in beats.read(beats.start_time_of_tail(None, since, until), until, timestamps=True)]
    assert result[0].startswith("2001-09-09T01:46:50.000000001Z beat 1 at")
    assert len(result) == 3


def test_old_lines_are_gone_and_nothing_is_computed_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_log, "MAX_LINES", 100)
    years = (STARTED + 10**9) * SECOND + 1
    heartbeats = log(default_lines("any"))
    result = [text for _, text in heartbeats.read(heartbeats.start_time_of_tail(None, 0, years), years, timestamps=False)]
    assert result[0] == f"container app: heartbeat {10**8 - 99}\n" and len(result) == 100


def test_next_time_is_the_time_of_the_next_line() -> None:
    after = STARTED * SECOND - 1
    times = []
    while len(times) < 50 and (moment := log().next_time(after)) is not None:
        times.append(moment)
        after = moment
    assert times == [moment for moment, _ in log().read(0, times[-1], timestamps=False)]
    assert log(MIXED[:2]).next_time(after) is None


def test_default_lines_depend_on_the_name_of_the_image() -> None:
    assert default_lines("docker.io/library/nginx:1.27@sha256:0") == default_lines("nginx")
    assert default_lines("registry.local:5000/nginx") != default_lines("registry.local:5000/app")
    assert texts(log(tuple(default_lines("me/app:2"))), -1, 11)[1:] == ["container app: heartbeat 1\n"]
    for lines in simulated_log.DEFAULTS.values():
        assert not any(validate_log_text(line.text) for line in lines)


def test_texts_with_mistakes_are_refused() -> None:
    assert validate_log_text('{"level": "info", "pod": "{pod}", "at": "{time:%s}"}') == ""
    assert "{nod} is not a placeholder; there are container, pod" in validate_log_text("{nod}")
    assert "only {time:FORMAT}" in validate_log_text("{pod:%s}")
    assert "printable" in validate_log_text("two\nlines")


def test_rfc3339_has_nine_digits() -> None:
    assert format_rfc3339(STARTED * SECOND + 5) == "2001-09-09T01:46:40.000000005Z"
