"""How long what is deleted may take to stop."""

import pytest

from pinnace.cli.verbs.delete import grace_of


@pytest.mark.parametrize(
    ("period", "force", "now", "wanted"),
    [
        (None, False, False, None),
        (None, True, False, 0),
        (0, True, False, 0),
        (0, False, False, 1),
        (9, False, False, 9),
        (None, False, True, 1),
    ],
)
def test_only_force_takes_away_the_time_to_stop(period: int | None, force: bool, now: bool, wanted: int | None) -> None:
    assert grace_of(period, force=force, now=now) == wanted
