"""The election protocol, exhaustively within bounds; and without each of its guards, which must show.

The largest of the small bounds takes as long as all others: `make model` has it too.
"""

import importlib

import pytest

from apiserver.election.service import MAX_LEASE, TIMING, timing_of
from pinnace.client.election import ANSWER_TIMEOUT, OPEN_TIMEOUT
from tests.model.checker import check
from tests.model.election import Election
from tests.model.lease import LeaseModel, Rule
from tests.model.rules import ACTIONS, Guard
from tests.model.runs import ALONE, BREAKS, PAIR, SMALL, SPARE, TWO_LEADERS, Run, describe

pytestmark = pytest.mark.timeout(300)  # they only compute: seconds, but many on a machine that is busy
SHORT = 20
"""Steps of a counterexample that a person can follow."""


@pytest.mark.parametrize("run", [run for run in SMALL if run is not ALONE], ids=lambda run: run.title)
def test_nothing_is_wrong(run: Run) -> None:
    result = check(run.make(()), recovery=run.recovery)
    assert result.counterexample is None, "\n".join(map(describe, result.counterexample.trace[1:]))
    assert result.states > 300


@pytest.mark.parametrize("name", BREAKS)
def test_without_its_guards_it_is_not_safe(name: str) -> None:
    run, broken = BREAKS[name]
    counterexample = check(run.make(broken), recovery=run.recovery).counterexample
    assert counterexample is not None
    assert 0 < len(counterexample) <= SHORT
    assert all(map(describe, counterexample.trace[1:]))


def test_no_guard_is_left_out() -> None:
    tried = {guard for _, broken in BREAKS.values() for guard in broken}
    assert tried == {*Guard, *Rule}


@pytest.mark.parametrize("guard", SPARE, ids=lambda guard: guard.breaking)
def test_each_of_two_guards_stands_in_for_the_other(guard: Guard) -> None:
    assert check(PAIR.make((guard,))).counterexample is None


def test_two_may_believe_to_lead_for_a_moment() -> None:
    """It is no invariant of the protocol, and nothing rests on it: the one whose token is not the key's binds nothing."""
    counterexample = check(TWO_LEADERS.make(())).counterexample
    assert counterexample is not None
    assert counterexample.problem == "two candidates believe to lead"


@pytest.mark.parametrize("ttl", [2, 3, 5])
def test_a_leader_may_believe_in_itself_for_as_long_as_the_lease_lives(ttl: int) -> None:
    for validity in range(1, ttl + 3):
        counterexample = check(LeaseModel(ttl, validity), recovery=False).counterexample
        assert (counterexample is None) == (validity <= ttl)


def test_the_code_keeps_the_inequalities() -> None:
    """docs/design/election.md, "Timing", says what each is for."""
    assert TIMING.interval < ANSWER_TIMEOUT < TIMING.silence < TIMING.validity < TIMING.ttl
    assert TIMING.validity > ANSWER_TIMEOUT + OPEN_TIMEOUT
    assert 2 * TIMING.interval < TIMING.recent < TIMING.silence


def test_renaming_candidates_servers_and_numbers_changes_nothing() -> None:
    """The canonical form of a canonical form is itself, along some thousand states."""
    model = Election(faults=2)
    seen = frontier = set(model.initial())
    while len(seen) < 3000:
        found = {model.canonical(step.state) for state in frontier for step in model.steps(state)}
        assert {model.canonical(state) for state in found} == found
        frontier = found - seen
        seen = seen | found


@pytest.mark.parametrize("code", sorted({action.code for action in ACTIONS.values()}))
def test_what_an_action_abstracts_is_there(code: str) -> None:
    """Renamed or removed: then look at the model again."""
    parts = code.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return
    pytest.fail(f"no module of {code}")


def test_candidates_do_not_leave_a_server_with_longer_leases() -> None:
    longest = timing_of(MAX_LEASE)
    assert 2 * longest.interval < ANSWER_TIMEOUT < longest.silence < longest.validity
