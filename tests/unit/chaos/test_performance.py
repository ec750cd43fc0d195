"""The status of a scenario and the format of its moments."""

import pytest

from pinnace.cli.verbs.chaos import moment_line
from pinnace.history.verdict import Status, Verdict
from pinnace.verification.chaos.perform import SCENARIOS, ScenarioReport
from pinnace.verification.chaos.scenarios.base import ScenarioExpectation
from pinnace.verification.chaos.scenarios.figures import ScenarioMoment
from pinnace.verification.check.check import NAMES

MET, FAILED = ScenarioExpectation(True, "the gap", "20 ms"), ScenarioExpectation(False, "binds refused", "0")


def a_performance(
    *verdicts: Verdict,
    expectations: tuple[ScenarioExpectation, ...] = (MET,),
    lacking: tuple[str, ...] = (),
    void: tuple[str, ...] = (),
) -> ScenarioReport:
    return ScenarioReport(
        "kill-leader",
        [ScenarioMoment(0.0, "kill -9", hit=True)],
        expectations,
        verdicts,
        ["I1"],
        lacking,
        void,
        {"ok": 9},
        250.0,
    )


def verdict(name: str, status: Status) -> Verdict:
    return Verdict(name, "a statement", status, 10)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (a_performance(verdict("I1", "holds"), verdict("I12", "void")), "holds"),
        (a_performance(verdict("I1", "void")), "void"),
        (a_performance(verdict("I1", "holds"), void=("the history contains no writes",)), "void"),
        (a_performance(verdict("I1", "holds"), verdict("I12", "violated")), "violated"),
        (a_performance(verdict("I1", "holds"), expectations=(MET, FAILED)), "violated"),
        (a_performance(verdict("I1", "holds"), lacking=("pod a is Pending",)), "violated"),
    ],
)
def test_performance_status(found: ScenarioReport, status: Status) -> None:
    assert found.status == status
    assert found.to_json()["status"] == status


def test_violations_outside_the_scenario_are_shown() -> None:
    result = a_performance(verdict("I1", "holds"), verdict("I2", "holds"), verdict("I12", "violated"))
    assert [item.name for item in result.tested] == ["I1", "I12"]


def test_moment_lines_are_aligned() -> None:
    assert moment_line(ScenarioMoment(0.0, "kill -9", hit=True)) == "t =      0 ms  kill -9"
    assert moment_line(ScenarioMoment(1.2345, "x is elected")) == "  +  1,234 ms  x is elected"


def test_scenarios_refer_to_existing_invariants() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert scenario.invariants and set(scenario.invariants) <= set(NAMES)
