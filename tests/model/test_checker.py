"""The model checker on models with a few states."""

from collections.abc import Iterable

import pytest

from tests.model import __main__ as command
from tests.model.checker import Step, TooManyStates, check
from tests.model.runs import Run


class Counter:
    """Counts from 0 to 5 in steps of 1 or 2. A fault leads from 5 to 7, which has no further steps."""

    def __init__(self, wrong: int = -1, good: int = 5) -> None:
        self._wrong = wrong
        self._good = good

    def initial(self) -> Iterable[int]:
        return (0,)

    def steps(self, state: int) -> Iterable[Step[int]]:
        for by in (1, 2):
            if state + by <= 5:
                yield Step(("add", str(by)), state + by)
        if state == 5:
            yield Step(("fail",), 7, fault=True)

    def ample(self, state: int) -> Iterable[Step[int]]:
        return self.steps(state)

    def canonical(self, state: int) -> int:
        return state

    def wrong(self, state: int) -> str | None:
        return f"it is {state}" if state == self._wrong else None

    def good(self, state: int) -> bool:
        return state in (self._good, 7)


def test_check_visits_every_state_once() -> None:
    result = check(Counter())
    assert (result.states, result.transitions, result.counterexample) == (7, 10, None)


def test_counterexample_is_as_short_as_possible() -> None:
    counterexample = check(Counter(wrong=4)).counterexample
    assert counterexample is not None
    assert counterexample.problem == "it is 4"
    assert [step.state for step in counterexample.trace] == [0, 2, 4]


def test_check_finds_a_state_without_recovery() -> None:
    counterexample = check(Counter(good=3)).counterexample
    assert counterexample is not None
    assert (counterexample.problem, counterexample.trace[-1].state) == ("there is no way out", 4)


def test_fault_does_not_count_as_recovery() -> None:
    assert check(Counter(good=-1)).counterexample is not None


def test_check_fails_above_the_state_limit() -> None:
    with pytest.raises(TooManyStates):
        check(Counter(), limit=3)


@pytest.mark.parametrize(("limit", "code"), [(100, 0), (3, command.OPEN)])
def test_exit_code_depends_on_whether_all_states_were_checked(monkeypatch: pytest.MonkeyPatch, limit: int, code: int) -> None:
    monkeypatch.setattr(command, "SMALL", (Run("counts", lambda _: Counter()),))
    monkeypatch.setattr(command, "LIMIT", limit)
    assert command.main([]) == code


def test_failure_takes_precedence_over_an_unfinished_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SMALL", (Run("fails", lambda _: Counter(wrong=0)), Run("stays open", lambda _: Counter())))
    monkeypatch.setattr(command, "LIMIT", 3)
    assert command.main([]) == command.FAILED
