"""The indexes of pods of an Indexed job, and the completed indexes."""

import tracemalloc

import pytest

from pinnace.controllers.job import (
    plan_job_sync,
)
from pinnace.controllers.job_indexes import (
    INDEX,
    CompletionIndexes,
    find_surplus_pods,
    first_missing_indexes,
    index_of,
    parse_indexes,
    set_pod_index,
)
from pinnace.controllers.job_status import (
    count_pods,
)
from tests.unit.controllers.jobs import NOW, pod, pods
from tests.workloads import make_job, named


@pytest.mark.parametrize(
    ("text", "numbers"), [("", set()), ("0", {0}), ("1,3-5,7", {1, 3, 4, 5, 7}), ("0-2", {0, 1, 2}), ("8,9", {8, 9})]
)
def test_indexes_are_parsed_and_formatted(text: str, numbers: set[int]) -> None:
    result = parse_indexes(text, 10)
    assert (len(result), set(result.missing_below(10))) == (len(numbers), set(range(10)) - numbers)
    assert str(result) == str(CompletionIndexes().with_indexes(numbers)) == text


def test_indexes_beyond_the_completions_are_dropped() -> None:
    assert str(parse_indexes("0-99999999,5", 3)) == "0-2"


@pytest.mark.parametrize("part", ["x", "3-x", "-", "5-3", "1-2-3", "9" * 5000, " 1"])
def test_malformed_ranges_are_ignored(part: str) -> None:
    assert str(parse_indexes(f"{part},0,2", 10)) == "0,2"


def test_consecutive_indexes_are_stored_as_ranges() -> None:
    """Two billion indexes take twelve characters in a status."""
    job = make_job("j", parallelism=2, completions=1_000_000, completionMode="Indexed")
    job.status.completedIndexes = "0-999990"
    tracemalloc.start()
    try:
        made = plan_job_sync(job, [], NOW)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [index_of(item) for item in made.create] == [999_991, 999_992]
    assert made.status.succeeded == 999_991
    assert peak < 1_000_000  # bytes


def test_adjacent_and_overlapping_ranges_are_merged() -> None:
    assert str(parse_indexes("4-6,0,1,5-7", 10).with_indexes([2, 9])) == "0-2,4-7,9"


def test_each_missing_index_gets_one_pod_with_its_number() -> None:
    job = make_job("j", parallelism=3, completions=4, completionMode="Indexed")
    job.status.completedIndexes = "0"
    made = plan_job_sync(job, [], NOW).create
    assert [index_of(item) for item in made] == [1, 2, 3]
    assert (made[0].metadata.generateName, made[0].spec.hostname) == ("j-1-", "j-1")
    assert made[0].spec.containers[0].env[0].name == "JOB_COMPLETION_INDEX"
    assert first_missing_indexes(job, CompletionIndexes([(0, 0)]), [pod(job, "x"), *made[:1]], 5) == [2, 3]


@pytest.mark.parametrize(("policy", "made"), [("Failed", [2]), ("TerminatingOrFailed", [0, 2])])
def test_index_of_a_terminating_pod_is_reused_by_replacement_policy(policy: str, made: list[int]) -> None:
    """By default, two pods of one index may run for a while. With `Failed`, the job waits until the first has ended."""
    job = make_job("j", parallelism=2, completions=4, completionMode="Indexed", podReplacementPolicy=policy)
    ending, done = pod(job, "ending", terminating=True), pod(job, "done", "Succeeded")
    set_pod_index(ending, job, 0)
    set_pod_index(done, job, 1)
    assert [index_of(item) for item in plan_job_sync(job, [ending, done], NOW).create] == made


@pytest.mark.parametrize("name", ["a.b", "a" * 62])
def test_pod_has_no_host_name_if_the_job_name_is_invalid_as_one(name: str) -> None:
    """Validation rejects such a job, but a stored one would never get a pod."""
    (made,) = plan_job_sync(make_job(name, completions=1, completionMode="Indexed"), [], NOW).create
    assert (made.metadata.generateName, made.spec.hostname) == (f"{name[:55]}-0-", ""), "a long name does not hide the index"


def test_index_of_thousands_of_digits_is_ignored() -> None:
    job = make_job("j", completionMode="Indexed", completions=2)
    odd = pod(job, "p")
    odd.metadata.annotations[INDEX] = "9" * 5000
    assert index_of(odd) is None


def test_most_advanced_pod_of_an_index_is_kept() -> None:
    """A pending pod may be older, for example because its node was deleted."""
    job = make_job("j", parallelism=3, completions=2, completionMode="Indexed")
    own = pods(job, "Pending", "Running", "Running", "Running", "Pending")
    for each, index in zip(own, (1, 1, 0, 7, 1), strict=True):
        set_pod_index(each, job, index)
    own[1].metadata.creationTimestamp.seconds = 50
    assert sorted(named(find_surplus_pods(job, own, NOW))) == ["p0", "p3", "p4"]


@pytest.mark.parametrize("index", ["2", "x", ""])
@pytest.mark.parametrize("terminating", [False, True])
def test_failed_pod_without_a_current_index_is_not_counted(index: str, terminating: bool) -> None:
    """An Indexed job may be scaled down while it runs. Pods of the removed indexes do not count."""
    job = make_job("j", parallelism=2, completions=2, completionMode="Indexed", backoffLimit=0)
    odd = pod(job, "odd", "Running" if terminating else "Failed", terminating=terminating)
    if index:
        odd.metadata.annotations[INDEX] = index
    count = count_pods(job, [odd])
    assert (count.failed, count.release, count.whole) == (0, [odd], True)
    odd.metadata.annotations[INDEX] = "1"
    assert count_pods(job, [odd]).failed == 1
