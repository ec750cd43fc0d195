"""Clocks and leaders: what an answer means."""

import pytest

from pinnace.cli.doctor.machine import FindingLevel
from pinnace.cli.doctor.servers import compare_clocks, compare_leaders


@pytest.mark.parametrize(
    ("there", "level", "said"),
    [
        (100.0, FindingLevel.OK, "in agreement with the server"),
        (98.0, FindingLevel.OK, "in agreement with the server"),  # a fraction that is left out, and a little
        (60.0, FindingLevel.WARNING, "39 s behind"),
        (200.0, FindingLevel.WARNING, "99 s ahead of"),
    ],
)
def test_clocks_that_differ(there: float, level: FindingLevel, said: str) -> None:
    result = compare_clocks(there, before=100.0, after=101.0)
    assert result.level is level and said in result.message


def test_election_without_a_leader_is_a_problem() -> None:
    missing, present = compare_leaders({"controllers": "controllers-0", "scheduler": ""}, ["scheduler", "controllers"])
    assert (missing.level, missing.message) == (FindingLevel.PROBLEM, 'election "scheduler" has no leader')
    assert (present.level, present.message) == (FindingLevel.OK, "controllers-0 leads controllers")
