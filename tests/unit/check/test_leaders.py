"""L2: which faults may move leadership."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pinnace.api.resources import election_key
from pinnace.history.records import ElectionFacts, FaultRecord, Record, RunInfo, RunPhase, StoredChange
from pinnace.verification.check.check import check_history

RUN = RunInfo(0.0, leaderless=3.0, bearable=("roll", "clock"), harmless=("compact",), freezing=("pause",))


def elected(revision: int, at: float, holder: str) -> StoredChange:
    return StoredChange(at, revision, election_key("e"), "digest", revision, 1, ElectionFacts(holder, 1))


def vacated(revision: int, at: float) -> StoredChange:
    return StoredChange(at, revision, election_key("e"))


def violations(*records: Record, faults: Sequence[FaultRecord], run: RunInfo = RUN) -> list[str]:
    report = check_history(
        [run, RunPhase(0.0, "load"), *faults, *records, RunPhase(20.0, "quiet"), RunPhase(30.0, "end")], ["L2"]
    )
    return [violation.text for verdict in report.verdicts if verdict.name == "L2" for violation in verdict.violations]


MOVED = (elected(2, 0.0, "a"), vacated(3, 10.0), elected(4, 10.1, "b"))


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ([], "there was no recent fault"),
        ([FaultRecord(1, "kill", "a", 9.9, 10.0)], ""),
        ([FaultRecord(1, "kill", "a", 2.0, 3.0)], "there was no recent fault"),
        ([FaultRecord(1, "roll", "s", 9.9, 10.0)], "only the bearable fault roll s was active"),
        ([FaultRecord(1, "roll", "s", 9.9, 10.0), FaultRecord(2, "roll", "t", 8.0, 9.0)], ""),
        ([FaultRecord(1, "roll", "s", 9.9, 10.0), FaultRecord(2, "kill", "a", 8.0, 9.0)], ""),
        ([FaultRecord(1, "kill", "a", 9.9, 10.0, fired=False)], "there was no recent fault"),
        ([FaultRecord(1, "kill", "a", 5.0, 7.5)], ""),
        ([FaultRecord(1, "kill", "a", 5.0, 6.5)], "there was no recent fault"),
        ([FaultRecord(1, "compact", "e", 9.0, 11.0)], "there was no recent fault"),
        ([FaultRecord(1, "compact", "e", 9.9, 9.9), FaultRecord(2, "compact", "e", 9.5, 9.5)], "there was no recent fault"),
        (
            [FaultRecord(1, "compact", "e", 9.9, 9.9), FaultRecord(2, "roll", "s", 9.9, 10.0)],
            "only the bearable fault roll s was active",
        ),
    ],
)
def test_moves_of_leadership_by_fault(faults: list[FaultRecord], problem: str) -> None:
    result = violations(*MOVED, faults=faults)
    assert bool(result) == bool(problem) and all(problem in text for text in result)


@pytest.mark.parametrize(
    ("faults", "violated"),
    [
        ([FaultRecord(1, "pause", "a", 5.0, 9.0)], True),
        ([FaultRecord(1, "pause", "a", 5.0, 7.0)], False),  # too short
        ([FaultRecord(1, "pause", "b", 5.0, 9.0)], False),  # not the leader
        ([FaultRecord(1, "pause", "a", 5.0, 9.0), FaultRecord(2, "clock", "s", 6.0, 6.1)], False),  # not the only fault
    ],
)
def test_frozen_leader_must_lose_its_term(faults: list[FaultRecord], violated: bool) -> None:
    assert bool(violations(elected(2, 0.0, "a"), faults=faults)) == violated


@pytest.mark.parametrize(
    ("elected_at", "faults", "violated"),
    [
        (None, [], True),  # no leader at all
        (9.0, [], True),
        (2.0, [], False),
        (9.0, [FaultRecord(1, "etcd", "e", 0.0, 7.0)], False),
        (9.0, [FaultRecord(1, "compact", "e", 0.0, 7.0)], True),
        (-5.0, [], False),
    ],
)
def test_leader_is_required_soon_after_load_begins(elected_at: float | None, faults: list[FaultRecord], violated: bool) -> None:
    first = [elected(2, elected_at, "a")] if elected_at is not None else []
    named = replace(RUN, elections=("e",))
    assert bool(violations(*first, faults=faults, run=named)) == violated
    assert not violations(*first, faults=faults)  # other elections have no time limit


def test_unsteady_election_is_not_judged() -> None:
    assert violations(*MOVED, faults=[])
    assert not violations(*MOVED, faults=[], run=replace(RUN, unsteady=("e",)))


def test_long_leaderless_time_does_not_excuse_a_move() -> None:
    """The limit of a gap does not extend the time in which a fault may move leadership."""
    patient = replace(RUN, leaderless=10.0)
    assert violations(*MOVED, faults=[FaultRecord(1, "kill", "a", 5.0, 6.5)], run=patient)


def test_frozen_leader_may_be_replaced() -> None:
    assert not violations(*MOVED, faults=[FaultRecord(1, "pause", "a", 8.5, 12.5)])
