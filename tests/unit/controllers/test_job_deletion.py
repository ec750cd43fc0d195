"""The status of a terminating job, and the deletion of a finished job after its TTL."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS
from pinnace.api.scalars import to_time
from pinnace.client.informer import Index
from pinnace.controllers.job import (
    JobController,
    JobPlan,
    plan_job_sync,
)
from pinnace.controllers.job_status import (
    COMPLETE,
    ConditionReason,
    find_true_condition,
    set_condition,
    without_tracking_finalizer,
)
from tests.unit.controllers.jobs import NOW, pod, pods
from tests.workloads import deleting, make_job, named


def going(**spec: Any) -> Job:
    job = make_job("j", **spec)
    job.status.startTime.CopyFrom(to_time(NOW - 100))
    deleting(job)
    return job


def look(job: Job, own: list[Pod]) -> JobPlan:
    """Plan the changes of the job and store its status, as the controller does."""
    wanted = plan_job_sync(job, own, NOW)
    job.status.CopyFrom(wanted.status)
    return wanted


@pytest.mark.parametrize(
    ("spec", "phase", "end", "reason"),
    [
        ({"backoffLimit": 0}, "Failed", "Failed", "BackoffLimitExceeded"),
        ({"activeDeadlineSeconds": 60}, "Running", "Failed", "DeadlineExceeded"),
        ({}, "Succeeded", "Complete", "CompletionsReached"),
    ],
)
def test_terminating_job_gets_its_final_condition(spec: dict[str, int], phase: str, end: str, reason: str) -> None:
    job = going(**spec)
    own = pods(job, phase)
    first = look(job, own)
    assert named(first.release) == ["p0"]
    assert named(first.delete) == (["p0"] if phase == "Running" else [])
    look(job, [without_tracking_finalizer(item) for item in own if phase != "Running"])
    said = find_true_condition(job.status, end)
    assert said is not None and said.reason == reason


def test_running_pods_of_a_deleted_job_are_released() -> None:
    job = going(parallelism=2, completions=4)
    wanted = look(job, pods(job, "Running", "Running"))
    assert (named(wanted.release), wanted.delete, wanted.create) == (["p0", "p1"], [], [])
    assert not job.status.conditions


def test_pods_deleted_with_their_job_are_not_failures() -> None:
    """The garbage collector may delete pods before their finalizers are removed."""
    job = going(backoffLimit=0)
    wanted = look(job, [pod(job, "a", terminating=True)])
    assert named(wanted.release) == ["a"] and not job.status.conditions
    assert not job.status.uncountedTerminatedPods.failed


def test_suspended_job_does_not_exceed_its_deadline() -> None:
    job = going(activeDeadlineSeconds=60, suspend=True)
    look(job, pods(job, "Running"))
    assert not job.status.conditions


async def expired(job: Job) -> tuple[float | None, AsyncMock]:
    """The delay until the next sync, and the mock of the deletion."""
    informers = SimpleNamespace(
        store=lambda resource: {"default/j": job} if resource is JOBS else {},
        index=lambda resource, by: Index(by, []),
        labelled=lambda resource, only: None,
    )
    jobs = SimpleNamespace(delete=AsyncMock())
    client, clock = SimpleNamespace(pods=None, of=lambda resource: jobs), SimpleNamespace(time=lambda: NOW)
    shared: Any = SimpleNamespace(informers=informers, client=client, clock=clock, events=None)
    return await JobController(shared).sync("default/j"), jobs.delete


async def test_job_is_deleted_after_its_ttl_unless_it_changed() -> None:
    """The watch may not have shown a changed TTL yet."""
    job = make_job("j", ttlSecondsAfterFinished=60)
    set_condition(job.status, COMPLETE, "True", ConditionReason("CompletionsReached", ""), NOW - 59)
    again, deleted = await expired(job)
    assert (again, deleted.await_count) == (1.0, 0)
    job.spec.ttlSecondsAfterFinished = 59
    again, deleted = await expired(job)
    assert again is None
    deleted.assert_awaited_once_with("j", "default", uid="uid-j", resource_version="1", propagation="Foreground")
