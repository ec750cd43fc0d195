"""Each mutation of an honest history is reported by the responsible checker, and by no unrelated checker."""

import random
from functools import cache

import pytest

from pinnace.history.records import Record
from pinnace.verification.check.check import NAMES, check_history
from tests.unit.check.mutations import MUTATIONS, Mutation
from tests.unit.check.mutations.living import cut_short, unfired
from tests.unit.check.mutations.serving import unobserved
from tests.unit.check.world import World

pytestmark = pytest.mark.slow

SEEDS = 8


@cache
def honest(seed: int) -> list[Record]:
    return World(seed).live()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_planted_bug_is_found(mutation: Mutation) -> None:
    tried = 0
    for seed in range(SEEDS):
        try:
            records = mutation.mutate(honest(seed), random.Random(seed))
        except (IndexError, StopIteration, ValueError):
            continue  # not applicable to this history
        tried += 1
        report = check_history(records)
        violated = {verdict.name: verdict.violations[0].text for verdict in report.violated_verdicts}
        assert mutation.breaks in violated, f"seed {seed}: not found; found {violated}"
        assert violated.keys() <= {mutation.breaks} | mutation.also, f"seed {seed}: {violated}"
        assert report.status == "violated"
    assert tried >= SEEDS // 3


def test_every_invariant_has_a_mutation() -> None:
    assert {mutation.breaks for mutation in MUTATIONS} == set(NAMES)


def test_run_with_an_unfired_fault_is_void() -> None:
    report = check_history(unfired(World(0).live()))
    assert report.status == "void"
    assert report.void == ['fault "clock-jump" did not fire']


def test_run_without_a_required_observation_is_void() -> None:
    report = check_history(unobserved(World(0).live()))
    assert report.status == "void"
    assert report.void == ["fault 10000, flood apiserver-0, did not record an observation"]


def test_run_that_ends_before_the_pod_limit_is_void() -> None:
    report = check_history(cut_short(World(0).live(), random.Random(0)))
    assert report.status == "void"
    assert report.void == ["the run ended 0.1 s after the last fault, before the limit of 1 pods"]


def test_empty_run_is_void() -> None:
    report = check_history([])
    assert report.status == "void"
    assert {verdict.status for verdict in report.verdicts} == {"void"}


def test_only_requested_invariants_are_checked() -> None:
    verdicts = {verdict.name: verdict.status for verdict in check_history(World(0).live(), only={"I1", "I9"}).verdicts}
    assert {name for name, status in verdicts.items() if status == "holds"} == {"I1", "I8", "I9"}
    assert set(verdicts) == set(NAMES)
