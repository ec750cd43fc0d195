"""On an honest history, each checker reports that its invariant holds."""

import pytest

from pinnace.verification.check.check import NAMES, check_history
from tests.unit.check.world import World


@pytest.mark.parametrize("seed", range(40))
def test_honest_history_holds(seed: int) -> None:
    report = check_history(World(seed).live())
    assert {verdict.name: verdict.violations for verdict in report.violated_verdicts} == {}
    assert {verdict.name for verdict in report.verdicts if verdict.status == "holds"} == set(NAMES)
    assert report.status == "holds"
