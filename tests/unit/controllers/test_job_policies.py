"""What failed pods mean for a job (podFailurePolicy, backoffLimitPerIndex), when it succeeds (successPolicy), and managedBy."""

import random
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS
from pinnace.api.scalars import to_time
from pinnace.controllers.job import JobController, JobPlan, plan_job_sync
from pinnace.controllers.job_indexes import FAILURE_COUNT, IGNORED_FAILURE_COUNT, index_of, parse_indexes, set_pod_index
from pinnace.controllers.job_policies import match_success_policy
from pinnace.controllers.job_status import find_true_condition, has_tracking_finalizer, without_tracking_finalizer
from tests.unit.controllers.jobs import NOW, pod
from tests.workloads import make_job, named

ON_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job_of(**spec: Any) -> Job:
    """An Indexed job with these fields of its spec, as in a manifest."""
    base = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "podReplacementPolicy": "TerminatingOrFailed"}
    job = make_job("j")
    job.spec.MergeFrom(from_dict(JOBS, {"metadata": {"name": "j"}, "spec": base | spec}).spec)
    if "backoffLimitPerIndex" in spec:
        job.spec.backoffLimit = 2**31 - 1
    return job


def failed_pod(job: Job, name: str, code: int = 1, *, index: int = 0, failures: int = 0, ended: float = NOW) -> Pod:
    made = pod(job, name, "Failed", ended=ended)
    made.status.containerStatuses[0].state.terminated.exitCode = code
    set_pod_index(made, job, index)
    made.metadata.annotations[FAILURE_COUNT] = str(failures)
    return made


def running_pod(job: Job, name: str, index: int) -> Pod:
    made = pod(job, name)
    set_pod_index(made, job, index)
    return made


def result_of(status: JobStatus) -> tuple[str, str, str]:
    condition = find_true_condition(status, "FailureTarget", "SuccessCriteriaMet")
    return (condition.type, condition.reason, condition.message) if condition is not None else ("", "", "")


# --- podFailurePolicy


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [41, 42]}},
            "Container c0 for pod default/a failed with exit code 42 matching FailJob rule at index 0",
        ),
        (
            {"action": "FailJob", "onExitCodes": {"containerName": "c0", "operator": "NotIn", "values": [1]}},
            "Container c0 for pod default/a failed with exit code 42 matching FailJob rule at index 0",
        ),
        (
            {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "True"}]},
            "Pod default/a has condition ConfigIssue matching FailJob rule at index 0",
        ),
        ({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}, ""),
        ({"action": "FailJob", "onExitCodes": {"containerName": "other", "operator": "In", "values": [42]}}, ""),
        ({"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "False"}]}, ""),
        ({"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}, ""),
    ],
)
def test_job_fails_by_a_rule_that_matches_a_failed_pod(rule: dict[str, Any], message: str) -> None:
    job = job_of(podFailurePolicy={"rules": [rule]}, podReplacementPolicy="Failed")
    bad = failed_pod(job, "a", 42)
    bad.status.conditions.add(type="ConfigIssue", status="True")
    expected = ("FailureTarget", "PodFailurePolicy", message) if message else ("", "", "")
    assert result_of(plan_job_sync(job, [bad], NOW).status) == expected


def test_first_matching_rule_applies_and_ignored_failures_do_not_count() -> None:
    rules = [ON_DISRUPTION, {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137]}}]
    job = job_of(podFailurePolicy={"rules": rules}, podReplacementPolicy="Failed", backoffLimit=0)
    evicted = failed_pod(job, "a", 137)
    evicted.status.conditions.add(type="DisruptionTarget", status="True")
    wanted = plan_job_sync(job, [evicted], NOW + 20)
    assert (result_of(wanted.status)[0], wanted.status.failed, len(wanted.create)) == ("", 0, 3)
    assert not wanted.status.uncountedTerminatedPods.failed and named(wanted.release) == ["a"]


def test_running_pods_whose_failure_is_ignored_are_deleted_with_a_failed_job() -> None:
    job = job_of(podFailurePolicy={"rules": [ON_DISRUPTION]}, podReplacementPolicy="Failed", backoffLimit=0)
    ignored = running_pod(job, "b", 1)
    ignored.status.conditions.add(type="DisruptionTarget", status="True")
    wanted = plan_job_sync(job, [failed_pod(job, "a"), ignored], NOW)
    assert named(wanted.delete) == ["b"] and len(wanted.status.uncountedTerminatedPods.failed) == 1


# --- backoffLimitPerIndex


def test_replacement_knows_the_failures_of_its_index_and_waits_for_its_backoff() -> None:
    job = job_of(backoffLimitPerIndex=3, parallelism=1)
    first = plan_job_sync(job, [], NOW)
    assert [(index_of(item), item.metadata.annotations[FAILURE_COUNT]) for item in first.create] == [(0, "0")]
    bad = failed_pod(job, "a", failures=1)
    early = plan_job_sync(job, [bad], NOW + 19)
    assert (early.create, early.again, early.release) == ([], 1.0, []), "the next index does not take its place"
    (replacement,) = plan_job_sync(job, [bad], NOW + 20).create
    assert (index_of(replacement), replacement.metadata.annotations[FAILURE_COUNT]) == (0, "2")
    replaced = plan_job_sync(job, [bad, running_pod(job, "b", 0)], NOW + 20)
    assert named(replaced.release) == ["a"] and len(replaced.status.uncountedTerminatedPods.failed) == 1


def test_ignored_failures_of_an_index_lengthen_its_backoff_alone() -> None:
    job = job_of(
        backoffLimitPerIndex=0, parallelism=1, podFailurePolicy={"rules": [ON_DISRUPTION]}, podReplacementPolicy="Failed"
    )
    evicted = failed_pod(job, "a")
    evicted.metadata.annotations[IGNORED_FAILURE_COUNT] = "1"
    evicted.status.conditions.add(type="DisruptionTarget", status="True")
    assert plan_job_sync(job, [evicted], NOW + 19).again == 1.0
    (replacement,) = plan_job_sync(job, [evicted], NOW + 20).create
    assert replacement.metadata.annotations[FAILURE_COUNT] == "0"
    assert replacement.metadata.annotations[IGNORED_FAILURE_COUNT] == "2"


@pytest.mark.parametrize(
    ("spec", "failures", "failed_indexes", "reason"),
    [
        ({"backoffLimitPerIndex": 1}, [1], "0", ""),
        ({"backoffLimitPerIndex": 1}, [0], "", ""),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 0}, [1], "0", "MaxFailedIndexesExceeded"),
        ({"backoffLimitPerIndex": 1}, [1, 1, 1], "0-2", "FailedIndexes"),
        ({"backoffLimitPerIndex": 1}, [1, 1], "0,1", ""),
        (
            {
                "backoffLimitPerIndex": 5,
                "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]},
                "podReplacementPolicy": "Failed",
            },
            [0],
            "0",
            "",
        ),
    ],
)  # fmt: skip
def test_indexes_fail_by_their_limit_or_a_policy(
    spec: dict[str, Any], failures: list[int], failed_indexes: str, reason: str
) -> None:
    job = job_of(**spec)
    bad = [failed_pod(job, f"p{index}", index=index, failures=count) for index, count in enumerate(failures)]
    wanted = plan_job_sync(job, bad, NOW + 1000)
    assert wanted.status.HasField("failedIndexes")
    assert (wanted.status.failedIndexes, result_of(wanted.status)[1]) == (failed_indexes, reason)
    assert not {str(index_of(item)) for item in wanted.create} & set(failed_indexes.split(","))


def test_status_has_no_failed_indexes_without_a_limit_per_index() -> None:
    job = job_of()
    assert not plan_job_sync(job, [failed_pod(job, "a")], NOW).status.HasField("failedIndexes")


@pytest.mark.parametrize("seed", range(12))
def test_failures_of_each_index_are_exact_after_any_crash(seed: int) -> None:
    """The controller crashes after any of its writes. Each pod fails; each index gets exactly its pods, numbered 0, 1, 2, and
    each failure counts once."""
    rng, indexes, limit = random.Random(seed), 4, 2
    job = job_of(completions=indexes, parallelism=indexes, backoffLimitPerIndex=limit)
    own: dict[str, Pod] = {}
    attempts = list[tuple[int | None, str]]()
    now = NOW
    for step in range(600):
        now += 50
        wanted = plan_job_sync(job, list(own.values()), now)
        if rng.random() < 0.2:
            continue
        job.status.CopyFrom(wanted.status)
        removed = {item.metadata.uid for item in (*wanted.release, *wanted.delete)}
        for uid in rng.sample(sorted(removed), rng.randint(0, len(removed))):
            own[uid] = without_tracking_finalizer(own[uid]) if has_tracking_finalizer(own[uid]) else own[uid]
        for new in rng.sample(wanted.create, rng.randint(0, len(wanted.create))):
            made = failed_pod(job, f"p{step}-{index_of(new)}", index=index_of(new) or 0, ended=now)
            made.metadata.annotations.update(new.metadata.annotations)
            attempts.append((index_of(new), new.metadata.annotations[FAILURE_COUNT]))
            own[made.metadata.uid] = made
        for uid, item in list(own.items()):
            if not has_tracking_finalizer(item) and rng.random() < 0.5:
                del own[uid]  # the pod garbage collector
        if find_true_condition(job.status, "Failed") is not None:
            break
    assert sorted(attempts) == [(index, str(count)) for index in range(indexes) for count in range(limit + 1)]
    assert (job.status.failed, job.status.failedIndexes) == (indexes * (limit + 1), "0-3")
    assert result_of(job.status) == ("FailureTarget", "FailedIndexes", "Job has failed indexes")


# --- successPolicy


@pytest.mark.parametrize(
    ("rules", "completed", "message"),
    [
        ([{"succeededIndexes": "0,2-3"}], "0,2,3", "Matched rules at index 0"),
        ([{"succeededIndexes": "0,2-3"}], "0-2", None),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], "0-2", "Matched rules at index 0"),
        ([{"succeededIndexes": "9"}, {"succeededCount": 2}], "4,6", "Matched rules at index 1"),
        ([{"succeededCount": 3}], "4,6", None),
        ([{"succeededCount": 0}], "", None),
    ],
)
def test_success_policy_matches_completed_indexes(rules: list[dict[str, Any]], completed: str, message: str | None) -> None:
    job = job_of(completions=10, successPolicy={"rules": rules})
    assert match_success_policy(job, parse_indexes(completed, 10)) == message


def test_job_succeeds_by_its_policy_and_its_other_pods_do_not_fail() -> None:
    job = job_of(successPolicy={"rules": [{"succeededIndexes": "1"}]})
    leader = pod(job, "leader", "Succeeded")
    set_pod_index(leader, job, 1)
    own = [leader, running_pod(job, "other", 0)]
    wanted = plan_job_sync(job, own, NOW)
    assert result_of(wanted.status) == ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0")
    assert named(wanted.delete) == ["other"]
    job.status.CopyFrom(wanted.status)
    done: JobPlan = plan_job_sync(job, [without_tracking_finalizer(leader)], NOW + 1)
    complete = find_true_condition(done.status, "Complete")
    assert complete is not None and (complete.reason, done.status.failed, done.status.completedIndexes) == (
        "SuccessPolicy",
        0,
        "1",
    )


# --- managedBy


async def test_job_of_another_controller_is_deleted_when_expired_and_otherwise_left_alone() -> None:
    controller = object.__new__(JobController)
    controller._expectations = AsyncMock()
    controller._client, controller._clock = AsyncMock(), Mock(time=lambda: NOW)
    controller._release_pods = plan = AsyncMock()  # type: ignore[method-assign]
    job = make_job("j", managedBy="example.com/queue", ttlSecondsAfterFinished=5)
    controller._jobs = {"default/j": job}
    assert await controller.sync("default/j") is None
    job.status.conditions.add(type="Complete", status="True").lastTransitionTime.CopyFrom(to_time(NOW - 3))
    assert await controller.sync("default/j") == 2.0
    assert not plan.called and not controller._client.method_calls
