"""Exhaustive checks of the election protocol within bounds. The removal of each guard must lead to a counterexample.

The tests skip the largest of the small runs, which takes as long as all others. `make model` includes it.
"""

import importlib

import pytest

from pinnace.apiserver.election.service import MAX_LEASE, TIMING, election_timing
from pinnace.client.election import OPEN_TIMEOUT, RESPONSE_TIMEOUT
from tests.model.checker import check
from tests.model.election import Election
from tests.model.lease import LeaseModel, Rule
from tests.model.rules import ACTIONS, Guard
from tests.model.runs import ALONE, BREAKS, PAIR, SMALL, SPARE, TWO_LEADERS, Run, describe

pytestmark = pytest.mark.timeout(300)  # only computation: seconds on an idle machine
SHORT = 20
"""Maximum number of steps of a readable counterexample."""


@pytest.mark.parametrize("run", [run for run in SMALL if run is not ALONE], ids=lambda run: run.title)
def test_invariants_hold(run: Run) -> None:
    result = check(run.make(()), recovery=run.recovery)
    assert result.counterexample is None, "\n".join(map(describe, result.counterexample.trace[1:]))
    assert result.states > 300


@pytest.mark.parametrize("name", BREAKS)
def test_removal_of_a_guard_has_a_counterexample(name: str) -> None:
    run, broken = BREAKS[name]
    counterexample = check(run.make(broken), recovery=run.recovery).counterexample
    assert counterexample is not None
    assert 0 < len(counterexample) <= SHORT
    assert all(map(describe, counterexample.trace[1:]))


def test_every_guard_is_removed_by_a_test() -> None:
    tried = {guard for _, broken in BREAKS.values() for guard in broken}
    assert tried == {*Guard, *Rule}


@pytest.mark.parametrize("guard", SPARE, ids=lambda guard: guard.breaking)
def test_model_holds_without_either_of_two_redundant_guards(guard: Guard) -> None:
    assert check(PAIR.make((guard,))).counterexample is None


def test_two_candidates_can_have_overlapping_terms() -> None:
    """Disjoint terms are not an invariant. Binds of a candidate whose token differs from that of the key fail."""
    counterexample = check(TWO_LEADERS.make(())).counterexample
    assert counterexample is not None
    assert counterexample.problem == "two candidates believe to lead"


@pytest.mark.parametrize("ttl", [2, 3, 5])
def test_term_is_safe_if_and_only_if_validity_does_not_exceed_the_ttl(ttl: int) -> None:
    for validity in range(1, ttl + 3):
        counterexample = check(LeaseModel(ttl, validity), recovery=False).counterexample
        assert (counterexample is None) == (validity <= ttl)


def test_default_timing_satisfies_the_inequalities() -> None:
    """docs/design/election.md, "Timing", explains each inequality."""
    assert TIMING.interval < RESPONSE_TIMEOUT < TIMING.silence < TIMING.validity < TIMING.ttl
    assert TIMING.validity > RESPONSE_TIMEOUT + OPEN_TIMEOUT
    assert 2 * TIMING.interval < TIMING.recent_seconds < TIMING.silence


def test_canonical_state_is_its_own_canonical_state() -> None:
    """The test checks some thousand states."""
    model = Election(faults=2)
    seen = frontier = set(model.initial())
    while len(seen) < 3000:
        result = {model.canonical(step.state) for state in frontier for step in model.steps(state)}
        assert {model.canonical(state) for state in result} == result
        frontier = result - seen
        seen = seen | result


@pytest.mark.parametrize("code", sorted({action.code for action in ACTIONS.values()}))
def test_code_of_each_action_exists(code: str) -> None:
    """If the code was renamed or removed, check whether the model still matches it."""
    parts = code.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            result = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            result = getattr(result, part)
        return
    pytest.fail(f"{code} does not exist")


def test_maximum_lease_is_compatible_with_the_candidate_timeouts() -> None:
    longest = election_timing(MAX_LEASE)
    assert 2 * longest.interval < RESPONSE_TIMEOUT < longest.silence < longest.validity
