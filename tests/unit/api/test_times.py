"""Times as text, in RFC 3339 format only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.scalars import format_rfc3339, parse_rfc3339, to_micro_time, to_seconds, to_time

FIRST, LAST = -62_135_596_800, 253_402_300_799


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("2026-01-31T12:00:00Z", 1769860800, 0),
        ("2026-01-31t12:00:00z", 1769860800, 0),
        ("2026-01-31T13:30:00+01:30", 1769860800, 0),
        ("2026-01-31T12:00:00.5Z", 1769860800, 500_000_000),
        ("2026-01-31T12:00:00.123456789Z", 1769860800, 123_456_000),
        ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ("0001-01-01T00:00:00Z", FIRST, 0),
        ("9999-12-31T23:59:59Z", LAST, 0),
    ],
)
def test_parse(text: str, seconds: int, nanos: int) -> None:
    assert parse_rfc3339(text) == Time(seconds=seconds, nanos=nanos)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00:00Z",
        "20260131T120000Z",
        "2026-01-31T12:00Z",
        "2026-02-30T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31T12:00:00+0100",
        "2026-01-31T12:00:00Z\n",
        "٢٠٢٦-01-31T12:00:00Z",
    ],
)
def test_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time; expected an RFC 3339 time, e.g. 2026-01-31T12:00:00Z"):
        parse_rfc3339(text)


@given(st.integers(FIRST, LAST))
def test_seconds_round_trip(seconds: int) -> None:
    assert parse_rfc3339(format_rfc3339(Time(seconds=seconds))) == Time(seconds=seconds)


@given(st.integers(FIRST, LAST), st.integers(0, 999_999))
def test_microseconds_round_trip(seconds: int, micros: int) -> None:
    text = format_rfc3339(MicroTime(seconds=seconds, nanos=micros * 1000))
    assert parse_rfc3339(text) == Time(seconds=seconds, nanos=micros * 1000)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_time_is_written_as_a_valid_text(seconds: int, nanos: int) -> None:
    for instant in (Time(seconds=seconds, nanos=nanos), MicroTime(seconds=seconds, nanos=nanos)):
        parse_rfc3339(format_rfc3339(instant))


def test_unix_time_conversion() -> None:
    assert to_time(12.9) == Time(seconds=12)
    assert to_micro_time(12.5) == MicroTime(seconds=12, nanos=500_000_000)
    assert to_seconds(MicroTime(seconds=12, nanos=500_000_000)) == 12.5
