"""Times as text, in RFC 3339 format only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.codec import CodecError, from_dict
from pinnace.api.coordination_v1_pb2 import LeaseSpec
from pinnace.api.go_time import TimeError
from pinnace.api.meta_v1_pb2 import MicroTime, ObjectMeta, Time
from pinnace.api.scalars import format_rfc3339, parse_rfc3339, to_micro_time, to_seconds, to_time

FIRST, LAST = -62_135_596_800, 253_402_300_799


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("2026-01-31T12:00:00Z", 1769860800, 0),
        ("2026-01-31T3:00:00Z", 1769828400, 0),
        ("2026-01-31T13:30:00+01:30", 1769860800, 0),
        ("2026-01-31T12:00:00+24:60", 1769770800, 0),
        ("2026-01-31T12:00:00.5Z", 1769860800, 500_000_000),
        ("2026-01-31T12:00:00,5Z", 1769860800, 500_000_000),
        ("2026-01-31T12:00:00.123456789Z", 1769860800, 123_456_789),
        ("2026-01-31T12:00:00.1234567899Z", 1769860800, 123_456_789),
        ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ("2024-02-29T00:00:00Z", 1709164800, 0),
        ("0000-02-29T00:00:00Z", -62_162_121_600, 0),
        ("0001-01-01T00:00:00Z", FIRST, 0),
        ("9999-12-31T23:59:59Z", LAST, 0),
    ],
)
def test_time_is_parsed_as_by_go(text: str, seconds: int, nanos: int) -> None:
    assert parse_rfc3339(text) == Time(seconds=seconds, nanos=nanos)


@pytest.mark.parametrize(
    ("text", "rest", "element"),
    [
        ("", "", "2006"),
        ("now", "now", "2006"),
        ("2026-01-31", "", "T"),
        ("2026-01-31T12:00:00", "", "Z07:00"),
        ("2026-01-31 12:00:00Z", " 12:00:00Z", "T"),
        ("2026-01-31t12:00:00Z", "t12:00:00Z", "T"),
        ("2026-01-31T12:00:00z", "z", "Z07:00"),
        ("2026-01-31T12:00:00.Z", ".Z", "Z07:00"),
        ("20260131T120000Z", "0131T120000Z", "-"),
        ("2026-01-31T12:00Z", "Z", ":"),
        ("2026-1-31T12:00:00Z", "1-31T12:00:00Z", "01"),
        ("2026-01-31T12:00:00+0100", "+0100", "Z07:00"),
        ("٢٠٢٦-01-31T12:00:00Z", "٢٠٢٦-01-31T12:00:00Z", "2006"),
    ],
)
def test_malformed_time_is_refused_as_by_go(text: str, rest: str, element: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse_rfc3339(text)
    assert str(refused.value) == f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{rest}" as "{element}"'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-02-30T12:00:00Z", "day out of range"),
        ("2026-00-30T12:00:00Z", "month out of range"),
        ("2026-01-31T25:00:00Z", "hour out of range"),
        ("2026-01-31T12:60:00Z", "minute out of range"),
        ("2026-01-31T12:00:60Z", "second out of range"),
        ("2026-01-31T12:00:00+25:00", "time zone offset hour out of range"),
        ("2026-01-31T12:00:00-00:61", "time zone offset minute out of range"),
        ("2026-01-31T12:00:00Zx", 'extra text: "x"'),
    ],
)
def test_time_out_of_range_is_refused_as_by_go(text: str, problem: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse_rfc3339(text)
    assert str(refused.value) == f'parsing time "{text}": {problem}'


def test_long_text_is_cut_in_the_error() -> None:
    with pytest.raises(TimeError) as refused:
        parse_rfc3339("x" * 100_000)
    assert len(str(refused.value)) < 300


MICRO = "2006-01-02T15:04:05.000000Z07:00"


@pytest.mark.parametrize(
    ("fraction", "rest", "element"),
    [
        ("", "Z", ".000000"),
        (".123", ".123Z", ".000000"),
        (".12345", ".12345Z", ".000000"),
        (".1234567", "7Z", "Z07:00"),
        (".123456789", "789Z", "Z07:00"),
    ],
)
def test_micro_time_has_exactly_six_digits(fraction: str, rest: str, element: str) -> None:
    text = f"2026-01-31T12:00:00{fraction}Z"
    with pytest.raises(CodecError) as refused:
        from_dict(LeaseSpec, {"renewTime": text})
    message = f'parsing time "{text}" as "{MICRO}": cannot parse "{rest}" as "{element}"'
    assert [problem.message for problem in refused.value.problems] == [message]


def test_micro_time_accepts_a_comma_and_time_drops_its_fraction() -> None:
    spec = from_dict(LeaseSpec, {"renewTime": "2026-01-31T3:00:00,123456+24:00"})
    assert spec.renewTime == MicroTime(seconds=1769828400 - 86400, nanos=123_456_000)
    metadata = from_dict(ObjectMeta, {"creationTimestamp": "2026-01-31T12:00:00.999Z"})
    assert metadata.creationTimestamp == Time(seconds=1769860800)


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
