"""kubectl's rules for durations (k8s.io/apimachinery/pkg/util/duration, HumanDuration)."""

import pytest

from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.printers.columns import format_age, human_duration

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (5.9, "5s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (3 * MINUTE + 12, "3m12s"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 5 * MINUTE, "7h5m"),
        (8 * HOUR + 5 * MINUTE, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 3 * HOUR, "7d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 30 * DAY, "3y30d"),
        (9 * YEAR + 30 * DAY, "9y"),
    ],
)
def test_human_duration(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_since() -> None:
    assert format_age(Time(seconds=100), 105.5) == "5s"
    assert format_age(MicroTime(seconds=100, nanos=500_000_000), 105.4) == "4s"
    assert format_age(Time(), 105) == "<unknown>"
