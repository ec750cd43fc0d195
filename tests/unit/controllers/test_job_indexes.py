"""Which index each pod of an Indexed job has, and which have succeeded."""

import tracemalloc

import pytest

from controllers.job import INDEX, Indexes, counted, index_of, lacking, number, parsed, plan, surplus
from tests.unit.controllers.jobs import NOW, pod, pods
from tests.workloads import make_job, named


@pytest.mark.parametrize(
    ("text", "numbers"), [("", set()), ("0", {0}), ("1,3-5,7", {1, 3, 4, 5, 7}), ("0-2", {0, 1, 2}), ("8,9", {8, 9})]
)
def test_indexes_as_text(text: str, numbers: set[int]) -> None:
    found = parsed(text, 10)
    assert (len(found), set(found.others(10))) == (len(numbers), set(range(10)) - numbers)
    assert str(found) == str(Indexes().with_(numbers)) == text


def test_indexes_beyond_the_completions_are_forgotten() -> None:
    assert str(parsed("0-99999999,5", 3)) == "0-2"


@pytest.mark.parametrize("part", ["x", "3-x", "-", "5-3", "1-2-3", "9" * 5000, " 1"])
def test_malformed_index_is_none(part: str) -> None:
    assert str(parsed(f"{part},0,2", 10)) == "0,2"


def test_consecutive_indexes_are_stored_as_ranges() -> None:
    """Two billion of them are twelve characters in a status."""
    job = make_job("j", parallelism=2, completions=1_000_000, completionMode="Indexed")
    job.status.completedIndexes = "0-999990"
    tracemalloc.start()
    try:
        made = plan(job, [], NOW)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [index_of(each) for each in made.create] == [999_991, 999_992]
    assert made.status.succeeded == 999_991
    assert peak < 1_000_000  # bytes


def test_indexes_that_touch_or_overlap_are_one_run() -> None:
    assert str(parsed("4-6,0,1,5-7", 10).with_([2, 9])) == "0-2,4-7,9"


def test_each_index_has_one_pod_that_knows_it() -> None:
    job = make_job("j", parallelism=3, completions=4, completionMode="Indexed")
    job.status.completedIndexes = "0"
    made = plan(job, [], NOW).create
    assert [index_of(each) for each in made] == [1, 2, 3]
    assert (made[0].metadata.generateName, made[0].spec.hostname) == ("j-1-", "j-1")
    assert made[0].spec.containers[0].env[0].name == "JOB_COMPLETION_INDEX"
    assert lacking(job, Indexes([(0, 0)]), [pod(job, "x"), *made[:1]], 5) == [2, 3]


@pytest.mark.parametrize(("policy", "made"), [("Failed", [2]), ("TerminatingOrFailed", [0, 2])])
def test_an_index_is_free_when_its_pod_may_be_replaced(policy: str, made: list[int]) -> None:
    """By default two pods of one index may run for a while; a job that wants none waits until the first has ended."""
    job = make_job("j", parallelism=2, completions=4, completionMode="Indexed", podReplacementPolicy=policy)
    ending, done = pod(job, "ending", terminating=True), pod(job, "done", "Succeeded")
    number(ending, job, 0)
    number(done, job, 1)
    assert [index_of(each) for each in plan(job, [ending, done], NOW).create] == made


@pytest.mark.parametrize("name", ["a.b", "a" * 62])
def test_a_name_that_makes_no_host_name_is_none(name: str) -> None:
    """Such a job is refused by now, but one that is stored already would never get a pod."""
    (made,) = plan(make_job(name, completions=1, completionMode="Indexed"), [], NOW).create
    assert (made.metadata.generateName, made.spec.hostname) == (f"{name}-0-", "")


def test_an_index_of_thousands_of_digits_is_none() -> None:
    job = make_job("j", completionMode="Indexed", completions=2)
    odd = pod(job, "p")
    odd.metadata.annotations[INDEX] = "9" * 5000
    assert index_of(odd) is None


def test_most_advanced_pod_of_an_index_is_kept() -> None:
    """A pending one may be the older: it was made for a node that is gone, say."""
    job = make_job("j", parallelism=3, completions=2, completionMode="Indexed")
    own = pods(job, "Pending", "Running", "Running", "Running", "Pending")
    for each, index in zip(own, (1, 1, 0, 7, 1), strict=True):
        number(each, job, index)
    own[1].metadata.creationTimestamp.seconds = 50
    assert sorted(named(surplus(job, own, NOW))) == ["p0", "p3", "p4"]


@pytest.mark.parametrize("index", ["2", "x", ""])
@pytest.mark.parametrize("terminating", [False, True])
def test_a_pod_of_no_index_that_is_asked_for_is_no_failure_of_the_job(index: str, terminating: bool) -> None:
    """An Indexed job may be made smaller while it runs: what became of the indexes that it has no more is not its concern."""
    job = make_job("j", parallelism=2, completions=2, completionMode="Indexed", backoffLimit=0)
    odd = pod(job, "odd", "Running" if terminating else "Failed", terminating=terminating)
    if index:
        odd.metadata.annotations[INDEX] = index
    count = counted(job, [odd])
    assert (count.failed, count.release, count.whole) == (0, [odd], True)
    odd.metadata.annotations[INDEX] = "1"
    assert counted(job, [odd]).failed == 1
