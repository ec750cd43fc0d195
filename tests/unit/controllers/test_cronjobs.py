"""The cron job controller on objects in memory, with kills between its writes."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pinnace.api.batch_v1_pb2 import CronJob, Job
from pinnace.api.codec import from_dict
from pinnace.api.resources import CRON_JOBS, JOBS, store_key
from pinnace.api.scalars import to_seconds, to_time
from pinnace.controllers.cronjob import SCHEDULED_ANNOTATION, CronJobController, find_surplus_history
from tests.killpoints import KillableCluster

KEY = "n/tick"
MINUTE = 60.0
START = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC).timestamp()


class CronJobWorld(KillableCluster):
    """A world with one cron job. `spec` has fields of its spec."""

    def __init__(self, **spec: Any) -> None:
        template = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}}
        defaults = {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": template}
        limits = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
        super().__init__(CronJobController, now=START)
        metadata = {"name": "tick", "namespace": "n"}
        self.create(CRON_JOBS, from_dict(CRON_JOBS, {"metadata": metadata, "spec": defaults | limits | spec}))

    async def sync(self, after: float = 0.0) -> float | None:
        """Sync the changed objects, at once and after some seconds in which the controller did not run."""
        self.clock.stall(after)
        self.deliver()
        return await self.controller.sync(KEY)

    async def run_until(self, end: float) -> None:
        await self.settle(end - self.now)

    def finish(self, job: Job, condition: str = "Complete") -> None:
        def change(job: Job) -> None:
            job.status.conditions.add(type=condition, status="True")
            if condition == "Complete":
                job.status.completionTime.CopyFrom(to_time(self.now))

        self.change(JOBS, store_key(job), change)

    def edit(self, change: Callable[[CronJob], object]) -> None:
        self.change(CRON_JOBS, KEY, change)

    @property
    def jobs(self) -> dict[str, Job]:
        return {job.metadata.name: job for job in self.of(JOBS).values()}

    @property
    def status(self) -> Any:
        return self.of(CRON_JOBS)[KEY].status


def minutes(world: CronJobWorld) -> list[str]:
    return [job.metadata.annotations[SCHEDULED_ANNOTATION][11:16] for job in world.jobs.values()]


async def test_job_is_created_at_its_time_with_name_owner_and_annotation() -> None:
    world = CronJobWorld(timeZone="Europe/Berlin")
    assert await world.sync() == pytest.approx(30.1)
    assert not world.jobs
    await world.sync(after=30.1)
    world.deliver()
    (job,) = world.jobs.values()
    assert job.metadata.name == f"tick-{int(world.now) // 60}"
    assert job.metadata.annotations[SCHEDULED_ANNOTATION] == "2026-03-01T13:01:00+01:00"
    owner = job.metadata.ownerReferences[0]
    assert (owner.kind, owner.name, owner.controller) == ("CronJob", "tick", True)
    assert owner.uid == world.of(CRON_JOBS)[KEY].metadata.uid
    assert [reference.name for reference in world.status.active] == [job.metadata.name]
    assert to_seconds(world.status.lastScheduleTime) == world.now // 60 * 60
    assert world.events == [("SuccessfulCreate", f"Created job {job.metadata.name}")]


async def test_steady_state_writes_nothing() -> None:
    world = CronJobWorld(schedule="@hourly")
    await world.run_until(START + 3 * 3600)
    assert len(world.points) == 6
    again = await world.sync()
    assert len(world.points) == 6 and again is not None and again > 1700


async def test_deleted_cron_job_creates_nothing() -> None:
    world = CronJobWorld()
    world.edit(lambda cron_job: cron_job.metadata.deletionTimestamp.CopyFrom(to_time(START)))
    assert await world.sync(after=MINUTE) is None and not world.jobs


@pytest.mark.parametrize(
    ("deadline", "created", "reasons"),
    [
        (None, 1, ["TooManyMissedTimes", "SuccessfulCreate"]),
        (7200, 1, ["TooManyMissedTimes", "SuccessfulCreate"]),
        (60, 1, ["SuccessfulCreate"]),
        (5, 0, []),
    ],
)
async def test_jobs_after_150_missed_minutes(deadline: int | None, created: int, reasons: list[str]) -> None:
    """The recorded behavior of Kubernetes 1.36.2."""
    world = CronJobWorld(**({} if deadline is None else {"startingDeadlineSeconds": deadline}))
    again = await world.sync(after=150 * MINUTE)
    assert again == pytest.approx(30.1)
    assert (len(world.created), world.reasons) == (created, reasons)
    if created:
        assert minutes(world) == ["14:30"]


async def test_forbid_skips_times_while_a_job_runs() -> None:
    world = CronJobWorld(concurrencyPolicy="Forbid")
    await world.run_until(START + 3 * MINUTE)
    assert minutes(world) == ["12:01"] and "JobAlreadyActive" in world.reasons
    world.finish(next(iter(world.jobs.values())))
    await world.sync()
    assert world.reasons[-2:] == ["SawCompletedJob", "SuccessfulCreate"]
    assert minutes(world) == ["12:01", "12:03"]


async def test_replace_deletes_the_running_job() -> None:
    world = CronJobWorld(concurrencyPolicy="Replace")
    await world.run_until(START + 2 * MINUTE)
    assert minutes(world) == ["12:02"]
    assert world.reasons == ["SuccessfulCreate", "SuccessfulDelete", "SuccessfulCreate"]


async def test_suspended_cron_job_creates_no_jobs_and_resumes_with_the_last_time() -> None:
    world = CronJobWorld(suspend=True)
    assert await world.sync(after=5 * MINUTE) is None
    world.edit(lambda cron_job: setattr(cron_job.spec, "suspend", False))
    await world.sync()
    assert minutes(world) == ["12:05"]


async def test_new_schedule_counts_from_now() -> None:
    world = CronJobWorld(schedule="@yearly")
    await world.sync()
    world.clock.stall(5 * MINUTE)
    world.edit(lambda cron_job: setattr(cron_job.spec, "schedule", "* * * * *"))
    assert await world.sync() == pytest.approx(30.1)
    assert not world.jobs
    await world.sync(after=30.1)
    assert minutes(world) == ["12:06"]


async def test_finished_jobs_beyond_the_limits_are_deleted() -> None:
    world = CronJobWorld(successfulJobsHistoryLimit=2, failedJobsHistoryLimit=1)
    for number in range(6):
        await world.run_until(world.now + MINUTE)
        world.finish(list(world.jobs.values())[-1], "Failed" if number % 2 else "Complete")
        await world.sync()
    left = [(minute, job.status.conditions[0].type) for minute, job in zip(minutes(world), world.jobs.values(), strict=True)]
    assert left == [("12:03", "Complete"), ("12:05", "Complete"), ("12:06", "Failed")]
    assert to_seconds(world.status.lastSuccessfulTime) == START + 5 * MINUTE


async def test_missing_and_foreign_jobs_are_reported() -> None:
    world = CronJobWorld()
    await world.run_until(START + MINUTE)
    job = next(iter(world.jobs.values()))

    def rename(manual: Job) -> None:
        manual.metadata.name, manual.metadata.uid = "manual", "m"
        del manual.metadata.annotations[SCHEDULED_ANNOTATION]

    manual = Job()
    manual.CopyFrom(job)
    rename(manual)
    world.create(JOBS, manual)
    await world.sync()
    assert world.events[-1] == ("UnexpectedJob", "Saw a job that the controller did not create or forgot: manual")
    world.remove(JOBS, job)
    await world.sync()
    assert ("MissingJob", f"Active job went missing: {job.metadata.name}") in world.events
    assert not world.status.active


async def test_foreign_job_with_the_name_is_left_and_the_next_time_has_a_job() -> None:
    world = CronJobWorld()
    world.create(JOBS, from_dict(JOBS, {"metadata": {"name": f"tick-{int(START) // 60 + 1}", "namespace": "n"}}))
    await world.run_until(START + 2 * MINUTE)
    assert len(world.created) == 1 and len(world.jobs) == 2 and len(world.status.active) == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedule": "59 23 31 2 *"}, "InvalidSchedule"),
        ({"schedule": "61 * * * *"}, "UnparseableSchedule"),
        ({"timeZone": "Nowhere/City"}, "UnknownTimeZone"),
    ],
)
async def test_stored_invalid_schedule_is_reported(spec: dict[str, str], reason: str) -> None:
    world = CronJobWorld(**spec)
    assert await world.sync() is None
    assert world.reasons == [reason] and not world.jobs


def test_history_without_start_time_is_kept_longest() -> None:
    cron_job = CronJob()
    cron_job.spec.successfulJobsHistoryLimit = 1
    jobs = [Job() for _ in range(2)]
    for job, name in zip(jobs, ("b", "a"), strict=True):
        job.metadata.name = name
        job.status.conditions.add(type="Complete", status="True")
    jobs[0].status.startTime.CopyFrom(to_time(START))
    assert find_surplus_history(cron_job, jobs) == [jobs[0]]
