"""The cron job controller: creates jobs at the times of a schedule. The decisions are pure; times are Unix time.

    own jobs --> recovered jobs, finished jobs, surplus history --> the time that is due --> its job --> status

No time has two jobs, whenever the controller is killed:

* The name of a job contains its time in minutes, so that a second creation is refused.
* The status records the time. A job whose time it does not contain yet was created by a leader that was killed before it
  wrote the status. Its time is recorded before anything is deleted, because the name of a deleted job is free again.
  (Kubernetes deletes finished jobs first: with a history limit of 0, a time could have two jobs.)

Each sync returns the seconds until the next time. The controller's work queue keeps all of them in one heap with one timer.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/, and pkg/controller/cronjob of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple

from pinnace.api import cron
from pinnace.api.batch_v1_pb2 import CronJob, CronJobStatus, Job
from pinnace.api.core_v1_pb2 import ObjectReference
from pinnace.api.resources import CRON_JOBS, JOBS
from pinnace.api.scalars import to_seconds, to_time
from pinnace.client.errors import AlreadyExists, ApiError, Fenced, NotFound, Unavailable
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.job_status import COMPLETE, find_finished_condition
from pinnace.controllers.ownership import controller_key, new_controller_ref, owner_key
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object, keys_of_controller
from pinnace.controllers.writes import Expectations

SCHEDULED_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a job with the time for which it was created, in RFC 3339."""
DELTA = 0.1
"""Seconds after a scheduled time at which it is due."""
MANY_MISSED = 100
"""Number of missed times beyond which an event tells about it."""
_RFC_1123 = "%a, %d %b %Y %H:%M:%S +0000"


class MissedTimes(Enum):
    """How many times were missed."""

    NONE = "none"
    FEW = "few"
    MANY = "many"


class RecentTimes(NamedTuple):
    """`last` is the latest scheduled time until now that follows `earliest`, or None. Both are Unix time."""

    earliest: float
    last: int | None
    missed: MissedTimes


def find_recent_times(cron_job: CronJob, schedule: cron.Schedule, now: float, *, with_deadline: bool) -> RecentTimes:
    """Find the last scheduled time since the last job, or since the creation. Raise CronError if the schedule has no times.

    The number of missed times is an estimate from the distance of the first two, as in Kubernetes.
    """
    spec, status = cron_job.spec, cron_job.status
    earliest = to_seconds(
        status.lastScheduleTime if status.HasField("lastScheduleTime") else cron_job.metadata.creationTimestamp
    )
    if with_deadline and spec.HasField("startingDeadlineSeconds"):
        earliest = max(earliest, now - spec.startingDeadlineSeconds)
    first = schedule.next_after(earliest)
    second = schedule.next_after(first) if first is not None else None
    if first is not None and now < first:
        return RecentTimes(earliest, None, MissedTimes.NONE)
    if first is None or second is None:
        raise cron.CronError("time difference between two schedules is less than 1 second")
    if now < second:
        return RecentTimes(earliest, first, MissedTimes.NONE)
    count = int(now - first) // (second - first) + 1
    last = schedule.last_between(first + (count - 2) * (second - first), now)
    return RecentTimes(earliest, last, MissedTimes.MANY if count > MANY_MISSED else MissedTimes.FEW)


def seconds_until_next_time(cron_job: CronJob, schedule: cron.Schedule, now: float) -> float | None:
    """Return the seconds until the next time is due, or None if there is none."""
    try:
        earliest, last, missed = find_recent_times(cron_job, schedule, now, with_deadline=False)
    except cron.CronError:
        after = now
    else:
        after = last if last is not None else earliest if missed is MissedTimes.NONE else now
    following = schedule.next_after(after)
    return following + DELTA - now if following is not None else None


def job_name(cron_job: CronJob, time: float) -> str:
    """Return the name of the job for a scheduled time: it contains the minutes since 1970."""
    return f"{cron_job.metadata.name}-{int(time) // 60}"


def build_job(cron_job: CronJob, time: int) -> Job:
    """Return the job for a scheduled time."""
    template, zone = cron_job.spec.jobTemplate, cron.load_zone(cron_job.spec.timeZone)
    job = Job(spec=template.spec)
    metadata = job.metadata
    metadata.name, metadata.namespace = job_name(cron_job, time), cron_job.metadata.namespace
    metadata.labels.update(template.metadata.labels)
    metadata.annotations.update(template.metadata.annotations)
    metadata.annotations[SCHEDULED_ANNOTATION] = datetime.fromtimestamp(time, zone).isoformat().replace("+00:00", "Z")
    metadata.ownerReferences.append(new_controller_ref(CRON_JOBS, cron_job))
    return job


def scheduled_time(cron_job: CronJob, job: Job) -> int | None:
    """Return the time for which the controller created the job, or None for a job that a client created."""
    try:
        time = int(datetime.fromisoformat(job.metadata.annotations.get(SCHEDULED_ANNOTATION, "")).timestamp())
    except (ValueError, OverflowError):
        return None
    return time if job.metadata.name == job_name(cron_job, time) else None


def find_recovered_jobs(cron_job: CronJob, jobs: Iterable[Job]) -> list[tuple[int, Job]]:
    """Return the jobs that the controller created but did not record, with their times, oldest first."""
    recorded = to_seconds(cron_job.status.lastScheduleTime)
    times = ((time, job) for job in jobs if (time := scheduled_time(cron_job, job)) is not None and time > recorded)
    return sorted(times, key=lambda pair: pair[0])


def find_surplus_history(cron_job: CronJob, jobs: Iterable[Job]) -> list[Job]:
    """Return the finished jobs beyond the history limits: the earliest started ones."""
    spec, complete, failed = cron_job.spec, list[Job](), list[Job]()
    for job in jobs:
        if (end := find_finished_condition(job)) is not None:
            (complete if end.type == COMPLETE else failed).append(job)
    surplus = list[Job]()
    for finished, has_limit, limit in (
        (complete, spec.HasField("successfulJobsHistoryLimit"), spec.successfulJobsHistoryLimit),
        (failed, spec.HasField("failedJobsHistoryLimit"), spec.failedJobsHistoryLimit),
    ):
        if has_limit and len(finished) > limit:
            surplus += sorted(finished, key=_start_order)[: len(finished) - limit]
    return surplus


def _start_order(job: Job) -> tuple[bool, float, str]:
    started = job.status.HasField("startTime")
    return not started, to_seconds(job.status.startTime), job.metadata.name


def _job_reference(job: Job) -> ObjectReference:
    metadata = job.metadata
    return ObjectReference(
        kind=JOBS.kind,
        apiVersion=JOBS.api_version,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resourceVersion=metadata.resourceVersion,
    )


def _remove_active_job(status: CronJobStatus, uid: str) -> bool:
    """Remove a job from the active ones. Return whether it was among them."""
    kept = [reference for reference in status.active if reference.uid != uid]
    found = len(kept) < len(status.active)
    if found:
        del status.active[:]
        status.active.extend(kept)
    return found


@dataclass(slots=True)
class _CronJobSync:
    """One sync of a cron job. `cron_job` is a copy, whose status is changed. `jobs` are its own. `now` is Unix time."""

    key: str
    cron_job: CronJob
    jobs: Sequence[Job]
    now: float


class CronJobController:
    name = "cronjob"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(CRON_JOBS)
        self._jobs_client = shared.client.of(JOBS)
        self._events = shared.events
        self._clock = shared.clock
        self._cron_jobs = informers.store(CRON_JOBS)
        self._jobs = informers.index(JOBS, controller_key)
        self._expectations = Expectations(informers)
        self._schedules: dict[str, tuple[str, str]] = {}
        """The schedule and the time zone at the last sync, by key."""

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (WatchedResource(CRON_JOBS, key_of_object), WatchedResource(JOBS, keys_of_controller(CRON_JOBS)))

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        stored = self._cron_jobs.get(key)
        if stored is None:
            self._schedules.pop(key, None)
            return None
        cron_job = CronJob()
        cron_job.CopyFrom(stored)
        work = _CronJobSync(key, cron_job, list(self._jobs.under(owner_key(stored)).values()), self._clock.time())
        if recovered := find_recovered_jobs(cron_job, work.jobs):
            for time, job in recovered:
                _record_job(cron_job.status, job, time)
            return await self._write_status(work, stored, 0.0)
        try:
            await self._delete_surplus(work)
            await self._update_active_jobs(work)
            again = await self._start_due_job(work, may_start=not self._has_new_schedule(work))
        except (Fenced, Unavailable):
            raise
        except ApiError:
            await self._write_status(work, stored, None)
            raise
        return await self._write_status(work, stored, again)

    def _has_new_schedule(self, work: _CronJobSync) -> bool:
        """Return whether the schedule has changed since the last sync. Its times until now were none of the cron job's."""
        current = (work.cron_job.spec.schedule, work.cron_job.spec.timeZone)
        before, self._schedules[work.key] = self._schedules.get(work.key, current), current
        return before != current

    async def _write_status(self, work: _CronJobSync, stored: CronJob, again: float | None) -> float | None:
        """Write a changed status. Return `again`."""
        if work.cron_job.status != stored.status:
            try:
                written = await self._client.update_status(work.cron_job)
            except NotFound:
                return None
            self._expectations.expect_version(work.key, CRON_JOBS, written.metadata.resourceVersion)
        return again

    async def _delete_surplus(self, work: _CronJobSync) -> None:
        for job in find_surplus_history(work.cron_job, work.jobs):
            if not job.metadata.HasField("deletionTimestamp"):
                await self._delete_job(work, job)

    async def _delete_job(self, work: _CronJobSync, job: Job) -> None:
        """Delete a job. Raise ApiError."""
        metadata = job.metadata
        try:
            await self._jobs_client.delete(metadata.name, metadata.namespace, uid=metadata.uid, propagation="Background")
        except NotFound:
            pass
        except (Fenced, Unavailable):
            raise
        except ApiError as error:
            self._events.event(work.cron_job, "Warning", "FailedDelete", f"Deleted job: {error.message}")
            raise
        _remove_active_job(work.cron_job.status, metadata.uid)
        self._events.event(work.cron_job, "Normal", "SuccessfulDelete", f"Deleted job {metadata.name}")

    async def _update_active_jobs(self, work: _CronJobSync) -> None:
        """Remove finished and missing jobs from the active ones, and record the last success."""
        cron_job, status = work.cron_job, work.cron_job.status
        active = {reference.uid for reference in status.active}
        for job in work.jobs:
            end = find_finished_condition(job)
            if end is None:
                if job.metadata.uid not in active:
                    message = f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
                    self._events.event(cron_job, "Warning", "UnexpectedJob", message)
                continue
            if _remove_active_job(status, job.metadata.uid):
                message = f"Saw completed job: {job.metadata.name}, condition: {end.type}"
                self._events.event(cron_job, "Normal", "SawCompletedJob", message)
            if end.type == COMPLETE and to_seconds(job.status.completionTime) > to_seconds(status.lastSuccessfulTime):
                status.lastSuccessfulTime.CopyFrom(job.status.completionTime)
        known = {job.metadata.uid for job in work.jobs}
        for reference in [reference for reference in status.active if reference.uid not in known]:
            try:
                await self._jobs_client.get(reference.name, reference.namespace)
            except NotFound:
                self._events.event(cron_job, "Normal", "MissingJob", f"Active job went missing: {reference.name}")
                _remove_active_job(status, reference.uid)

    async def _start_due_job(self, work: _CronJobSync, *, may_start: bool) -> float | None:
        """Create the job that is due, if one may start. Return the seconds until the next time."""
        cron_job, now = work.cron_job, work.now
        if cron_job.metadata.HasField("deletionTimestamp"):
            return None
        schedule = self._parse_schedule(cron_job)
        if schedule is None:
            return None
        if not may_start:
            return seconds_until_next_time(cron_job, schedule, now)
        try:
            _, time, missed = find_recent_times(cron_job, schedule, now, with_deadline=True)
        except cron.CronError as error:
            message = f"invalid schedule: {cron_job.spec.schedule} : {error}"
            self._events.event(cron_job, "Warning", "InvalidSchedule", message)
            return None
        if time is not None and missed is MissedTimes.MANY:
            message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self._events.event(cron_job, "Warning", "TooManyMissedTimes", message)
        if time is not None and self._may_start_job(cron_job, time, now):
            if cron_job.spec.concurrencyPolicy == "Replace":
                await self._delete_active_jobs(work)
            await self._create_job(work, time)
        return seconds_until_next_time(cron_job, schedule, now)

    def _parse_schedule(self, cron_job: CronJob) -> cron.Schedule | None:
        """Return the schedule, or None if it is suspended or invalid. A stored schedule can be invalid if it is older than a
        rule, or if a zone is no longer known."""
        spec = cron_job.spec
        try:
            cron.load_zone(spec.timeZone)
        except cron.CronError as error:
            message = f'invalid timeZone: "{spec.timeZone}": {error}'
            self._events.event(cron_job, "Warning", "UnknownTimeZone", message)
            return None
        if spec.suspend:
            return None
        if "TZ" in spec.schedule:
            message = (
                f'CRON_TZ or TZ used in schedule "{spec.schedule}" is not officially supported, see '
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            self._events.event(cron_job, "Warning", "UnsupportedSchedule", message)
        try:
            return cron.parse(spec.schedule, spec.timeZone)
        except cron.CronError as error:
            message = f'unparseable schedule: "{spec.schedule}" : {error}'
            self._events.event(cron_job, "Warning", "UnparseableSchedule", message)
            return None

    def _may_start_job(self, cron_job: CronJob, time: int, now: float) -> bool:
        """Return whether a job may start for a time: it is not too late, has no job, and the policy allows one."""
        spec, status = cron_job.spec, cron_job.status
        if spec.HasField("startingDeadlineSeconds") and time + spec.startingDeadlineSeconds < now:
            text = datetime.fromtimestamp(time, UTC).strftime(_RFC_1123)
            self._events.event(cron_job, "Warning", "MissSchedule", f"Missed scheduled time to start a job: {text}")
            return False
        name = job_name(cron_job, time)
        if to_seconds(status.lastScheduleTime) == time or any(reference.name == name for reference in status.active):
            return False
        if spec.concurrencyPolicy == "Forbid" and status.active:
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._events.event(cron_job, "Normal", "JobAlreadyActive", message)
            return False
        return True

    async def _delete_active_jobs(self, work: _CronJobSync) -> None:
        for reference in list(work.cron_job.status.active):
            try:
                job = await self._jobs_client.get(reference.name, reference.namespace)
            except (Fenced, Unavailable):
                raise
            except ApiError as error:
                self._events.event(work.cron_job, "Warning", "FailedGet", f"Get job: {error.message}")
                raise
            await self._delete_job(work, job)

    async def _create_job(self, work: _CronJobSync, time: int) -> None:
        """Create the job for a time and record it, unless the name belongs to a foreign job. Raise ApiError."""
        cron_job = work.cron_job
        wanted = build_job(cron_job, time)
        try:
            job = await self._jobs_client.create(wanted)
        except AlreadyExists:
            job = await self._jobs_client.get(wanted.metadata.name, wanted.metadata.namespace)
            if controller_key(job) != owner_key(cron_job):
                return
        except (Fenced, Unavailable):
            raise
        except ApiError as error:
            if error.reason != "NamespaceTerminating":
                self._events.event(cron_job, "Warning", "FailedCreate", f"Error creating job: {error.message}")
            raise
        else:
            self._events.event(cron_job, "Normal", "SuccessfulCreate", f"Created job {job.metadata.name}")
        self._expectations.expect_version(work.key, JOBS, job.metadata.resourceVersion)
        _record_job(cron_job.status, job, time)


def _record_job(status: CronJobStatus, job: Job, time: int) -> None:
    """Record the job of a time, and as active unless it is finished."""
    if find_finished_condition(job) is None and all(reference.uid != job.metadata.uid for reference in status.active):
        status.active.append(_job_reference(job))
    status.lastScheduleTime.CopyFrom(to_time(time))
