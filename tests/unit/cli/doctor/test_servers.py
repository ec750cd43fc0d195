"""Clocks and leaders: what an answer means."""

import pytest

from pinnace.cli.doctor.machine import Level
from pinnace.cli.doctor.servers import led, skewed


@pytest.mark.parametrize(
    ("there", "level", "said"),
    [
        (100.0, Level.OK, "in agreement with the server"),
        (98.0, Level.OK, "in agreement with the server"),  # a fraction that is left out, and a little
        (60.0, Level.WARNING, "39 s behind"),
        (200.0, Level.WARNING, "99 s ahead of"),
    ],
)
def test_clocks_that_differ(there: float, level: Level, said: str) -> None:
    result = skewed(there, before=100.0, after=101.0)
    assert result.level is level and said in result.message


def test_election_without_a_leader_is_a_problem() -> None:
    missing, present = led({"controllers": "controllers-0", "scheduler": ""}, ["scheduler", "controllers"])
    assert (missing.level, missing.message) == (Level.PROBLEM, 'election "scheduler" has no leader')
    assert (present.level, present.message) == (Level.OK, "controllers-0 leads controllers")
