"""Schedules of cron jobs: the parser's messages, changes of the clock, and times in the past."""

from datetime import UTC, datetime

import pytest

from pinnace.api.cron import CronError, parse


def times(schedule: str, zone: str, start: str, count: int) -> list[str | None]:
    found, time = list[str | None](), datetime.fromisoformat(start).timestamp()
    for _ in range(count):
        following = parse(schedule, zone).next_after(time)
        if following is None:
            return [*found, None]
        time = following
        found.append(datetime.fromtimestamp(time, UTC).strftime("%m-%dT%H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("schedule", "zone", "start", "expected"),
    [
        # recorded on Kubernetes 1.36.2
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-30T00:30:00", "03-31T00:30:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["10-25T00:30:00", "10-25T01:30:00", "10-26T01:30:00"]),
        ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["03-29T01:00:00"]),
        # computed by hand from spec.go of robfig/cron
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T00:00Z", ["11-03T03:00:00", "11-05T02:00:00"]),
        ("*/30 * 4 11 *", "America/Sao_Paulo", "2018-11-03T00:00Z", ["11-04T03:00:00", "11-04T03:30:00"]),
        ("0 0 */2 * 1", "", "2026-11-29T00:00Z", ["11-30T00:00:00", "12-01T00:00:00", "12-03T00:00:00"]),
        ("0 0 * * 1", "", "2026-11-29T00:00Z", ["11-30T00:00:00", "12-07T00:00:00"]),
        ("0 0 13 * fri", "", "2026-11-29T00:00Z", ["12-04T00:00:00", "12-11T00:00:00", "12-13T00:00:00"]),
        ("5/20 1,2 ? jan-FEB *", "", "2026-12-31T00:00Z", ["01-01T01:05:00", "01-01T01:25:00", "01-01T01:45:00"]),
        ("59 23 31 2 *", "", "2026-11-29T00:00Z", [None]),
        (", * * * *", "", "2026-11-29T00:00Z", [None]),
        ("@weekly", "", "2026-11-29T00:00Z", ["12-06T00:00:00"]),
        ("@every 1h30m10.9s", "", "2026-11-29T00:00Z", ["11-29T01:30:10", "11-29T03:00:20"]),
        ("@every 1ms", "", "2026-11-29T00:00Z", ["11-29T00:00:01"]),
        ("CRON_TZ=Europe/Berlin 0 3 * * *", "UTC", "2026-11-29T00:00Z", ["11-29T02:00:00"]),
    ],
)
def test_next_times_match_kubernetes(schedule: str, zone: str, start: str, expected: list[str | None]) -> None:
    assert times(schedule, zone, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("* * L * *", 'failed to parse int from L: strconv.Atoi: parsing "L": invalid syntax'),
        ("@foo", "unrecognized descriptor: @foo"),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every ", 'failed to parse duration @every : time: invalid duration ""'),
        ("TZ=Moon/Base * * * * *", "provided bad location Moon/Base: unknown time zone Moon/Base"),
    ],
)
def test_invalid_schedule_has_the_message_of_kubernetes(schedule: str, message: str) -> None:
    with pytest.raises(CronError) as caught:
        parse(schedule)
    assert str(caught.value) == message


@pytest.mark.parametrize("zone", ["", "Europe/Berlin"])
@pytest.mark.parametrize("schedule", ["*/7 * * * *", "30 2 * * *", "30 6-16/4 * * 1-5", "0 0 29 2 *", "@every 7m"])
def test_last_between_is_the_last_of_the_next_times(schedule: str, zone: str) -> None:
    parsed = parse(schedule, zone)
    for end in (1774746000, 1792890000, 1792893601):  # around the changes of the clock in 2026
        begin, last = end - 3 * 86400.0, None
        time = parsed.next_after(begin)
        while time is not None and time <= end:
            last, time = time, parsed.next_after(time)
        assert parsed.last_between(begin, end) == last


@pytest.mark.parametrize("zone", ["Moon/Base", "../etc/passwd", "/UTC", "Europe", "local", "a" * 5000])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(CronError, match="unknown time zone"):
        parse("* * * * *", zone)
