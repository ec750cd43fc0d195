"""A schedule is a function of its seed, contains each kind, and leaves the cluster time to recover."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from pinnace.cluster.spec import ClusterSpec
from pinnace.verification.chaos.engine import AT_ONCE, ScheduledFault, find_unscheduled_kinds, schedule_faults
from pinnace.verification.chaos.faults.base import FaultArea, FaultKind
from pinnace.verification.chaos.faults.table import KINDS

SPEC = ClusterSpec(nodes=20, kubelets=2, etcd_members=3, gateways=2, proxy=True)
SEEDS = range(10)


def dealt(seed: int, seconds: float, kinds: Sequence[FaultKind] = tuple(KINDS.values())) -> list[ScheduledFault]:
    return schedule_faults(seed, seconds, kinds, SPEC)


@cache
def an_hour(seed: int) -> list[ScheduledFault]:
    return dealt(seed, 3600)


def on_with(scheduled_faults: Sequence[ScheduledFault], strike: ScheduledFault) -> list[ScheduledFault]:
    """The other faults that are active when this one begins."""
    return [other for other in scheduled_faults if other is not strike and other.at <= strike.at < other.ends_at]


def test_same_seed_gives_the_same_schedule() -> None:
    assert dealt(7, 600) == dealt(7, 600)
    assert dealt(7, 600) != dealt(8, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_hour_has_500_faults_and_every_kind(seed: int) -> None:
    counts = Counter(strike.kind.name for strike in an_hour(seed))
    assert counts.total() >= 500
    assert counts.keys() == KINDS.keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_are_ordered_and_end_within_the_run(seed: int) -> None:
    scheduled_faults = dealt(seed, 180)
    assert all(strike.ends_at <= 180 for strike in scheduled_faults)
    assert [strike.at for strike in scheduled_faults] == sorted(strike.at for strike in scheduled_faults)


@pytest.mark.parametrize("seed", SEEDS)
def test_concurrent_faults_hit_different_areas(seed: int) -> None:
    scheduled_faults = an_hour(seed)
    for strike in scheduled_faults:
        others = on_with(scheduled_faults, strike)
        assert len(others) < AT_ONCE
        if strike.kind.area is not FaultArea.NONE:
            assert strike.kind.area not in [other.kind.area for other in others]


@pytest.mark.parametrize("seed", SEEDS)
def test_fault_of_all_areas_is_exclusive(seed: int) -> None:
    scheduled_faults = an_hour(seed)
    total = [strike for strike in scheduled_faults if strike.kind.area is FaultArea.ALL]
    assert total
    assert not any(on_with(scheduled_faults, strike) for strike in total)
    assert not any(
        other.kind.area is FaultArea.ALL for strike in scheduled_faults for other in on_with(scheduled_faults, strike)
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_kind_is_scheduled_before_any_repeats(seed: int) -> None:
    first = [strike.kind.name for strike in an_hour(seed)[: len(KINDS)]]
    assert sorted(first) == sorted(KINDS)


@pytest.mark.parametrize("seed", range(40))
def test_rest_of_a_short_run_fits_a_shorter_fault(seed: int) -> None:
    kinds = [KINDS["kill-leader"], KINDS["etcd-quorum"]]
    assert {strike.kind for strike in dealt(seed, 30, kinds)} == set(kinds)
    assert all(strike.ends_at <= 30 for strike in dealt(seed, 30, kinds))


def test_kind_that_exceeds_the_run_is_reported() -> None:
    kinds = [KINDS["kill-leader"], KINDS["blackhole-kubelet"]]
    assert find_unscheduled_kinds(kinds, dealt(1, 30, kinds)) == ()
    assert find_unscheduled_kinds(kinds, dealt(1, 4.5, kinds)) == ("blackhole-kubelet",), "the fault lasts at least 3 s"


def test_single_kind_is_scheduled_repeatedly() -> None:
    scheduled_faults = dealt(1, 60, [KINDS["kill-leader"]])
    assert len(scheduled_faults) > 3
    assert {strike.target for strike in scheduled_faults} == {"leader"}


def test_heavier_kinds_are_rarer() -> None:
    counts = Counter(strike.kind.name for strike in dealt(1, 3600))
    assert counts["etcd-quorum"] < counts["kill-leader"]
