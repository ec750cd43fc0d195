"""The model checker itself: on models so small that their answers can be seen."""

from collections.abc import Iterable

import pytest

from tests.model import __main__ as command
from tests.model.checker import Step, TooManyStates, check
from tests.model.runs import Run


class Counter:
    """Counts up from 0 by 1 or 2, to 5 at most; by 7 is a fault, from which nothing leads back."""

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


def test_every_state_is_seen_once() -> None:
    result = check(Counter())
    assert (result.states, result.transitions, result.counterexample) == (7, 10, None)


def test_a_counterexample_is_a_shortest_one() -> None:
    counterexample = check(Counter(wrong=4)).counterexample
    assert counterexample is not None
    assert counterexample.problem == "it is 4"
    assert [step.state for step in counterexample.trace] == [0, 2, 4]


def test_a_state_without_a_way_out_is_found() -> None:
    counterexample = check(Counter(good=3)).counterexample
    assert counterexample is not None
    assert (counterexample.problem, counterexample.trace[-1].state) == ("there is no way out", 4)


def test_a_fault_is_no_way_out() -> None:
    assert check(Counter(good=-1)).counterexample is not None


def test_no_verdict_without_all_states() -> None:
    with pytest.raises(TooManyStates):
        check(Counter(), limit=3)


@pytest.mark.parametrize(("limit", "code"), [(100, 0), (3, command.OPEN)])
def test_the_exit_code_says_whether_all_was_proven(monkeypatch: pytest.MonkeyPatch, limit: int, code: int) -> None:
    monkeypatch.setattr(command, "SMALL", (Run("counts", lambda _: Counter()),))
    monkeypatch.setattr(command, "LIMIT", limit)
    assert command.main([]) == code


def test_the_exit_code_says_what_fails_before_what_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SMALL", (Run("fails", lambda _: Counter(wrong=0)), Run("stays open", lambda _: Counter())))
    monkeypatch.setattr(command, "LIMIT", 3)
    assert command.main([]) == command.FAILED
