"""The job controller: runs pods until enough have succeeded or too many have failed. It also deletes expired jobs.

The decisions are pure; times are Unix time. job_status.py counts pods and determines the result, job_policies.py decides what a
failure means, and job_indexes.py has the indexes of Indexed jobs. A job whose managedBy names another controller is left to it,
except that it is deleted when it has expired.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/, and pkg/controller/job of Kubernetes 1.36.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api import conditions
from pinnace.api.batch_v1_pb2 import Job, JobCondition, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS, PODS, RESOURCE_QUOTAS
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.job_indexes import (
    FIRST_BACKOFF,
    LONGEST_BACKOFF,
    counts_for_job,
    find_surplus_pods,
    first_missing_indexes,
    has_limit_per_index,
    is_indexed,
    pod_end_time,
    replaces_only_terminated_pods,
    seconds_until_retry,
    set_index_failures,
    set_pod_index,
)
from pinnace.controllers.job_policies import is_failure_ignored
from pinnace.controllers.job_status import (
    COMPLETE,
    FAILED,
    FAILURE,
    FINALIZER,
    SUSPENDED,
    ConditionReason,
    PodCounts,
    count_active_as_failed,
    count_pods,
    determine_result,
    find_finished_condition,
    find_true_condition,
    has_tracking_finalizer,
    is_result_determined,
    may_delete_pod,
    seconds_until_deadline,
    set_condition,
    set_final_condition,
    without_tracking_finalizer,
)
from pinnace.controllers.ownership import ControllerRefManager, controller_key, owner_key
from pinnace.controllers.podcontrol import BURST, PodControl, build_pod_from_template, keys_lacking_quota, select_pods_to_delete
from pinnace.controllers.pods import compute_pod_properties, is_pod_active, object_namespace
from pinnace.controllers.runtime import (
    ControllerContext,
    PartialSyncError,
    WatchedResource,
    get_controller_of,
    key_of_object,
    keys_of_controller,
)
from pinnace.controllers.writes import Expectations
from pinnace.runtime.backoff import exponential_delay

MANAGER = "kubernetes.io/job-controller"
"""The value of managedBy that names this controller."""
AT_ONCE = 32
"""Maximum number of finalizers that are removed concurrently."""


@dataclass(slots=True)
class JobPlan:
    """The changes of one sync, in the order in which they are written."""

    status: JobStatus
    release: list[Pod] = field(default_factory=list)
    """Recorded pods that lose their finalizer."""
    delete: list[Pod] = field(default_factory=list)
    """Pods to delete, which also lose their finalizer. They may also be in `release`."""
    create: list[Pod] = field(default_factory=list)
    again: float | None = None
    """Seconds until the next sync is needed without any event."""


def plan_job_sync(job: Job, pods: Sequence[Pod], now: float) -> JobPlan:
    """Plan one sync of an unfinished job. `pods` are its own pods.

    If the job is being deleted, only its result is recorded, and its pods lose their finalizers.
    """
    count = count_pods(job, pods)
    status = count.status
    made = JobPlan(status, count.release)
    leaving = job.metadata.HasField("deletionTimestamp")
    if not leaving:
        _suspend_or_resume(job, status, now)
    determine_result(job, count, pods, now)
    running = [pod for pod in pods if is_pod_active(pod)]
    if find_true_condition(status, FAILURE) is not None:
        count = count_active_as_failed(job, count, pods)
        made.release = count.release
        running = [pod for pod in running if may_delete_pod(job, status, pod)]
    if leaving:
        made.release = [pod for pod in pods if has_tracking_finalizer(pod)]
        made.delete = running if find_true_condition(status, FAILURE) is not None else []
        set_final_condition(count, now)
        return made
    if is_result_determined(status) or job.spec.suspend:
        made.delete = running
        set_final_condition(count, now)
        return made
    wanted = _active_pods_needed(job, count)
    made.delete = _pods_to_delete(job, running, wanted, now)
    left = [seconds_until_deadline(job, status, now)]
    if missing := _pods_to_create(job, status, wanted):
        made.create, wait = _plan_creation(job, count, pods, missing, now)
        left.append(wait or None)
    made.again = min((item for item in left if item is not None), default=None)
    return made


def seconds_until_replacement(pods: Sequence[Pod], now: float) -> float:
    """Return the seconds until failed pods may be replaced, by the number of failures since the last success.

    Pods that are being deleted do not count, because the job itself may have deleted them when it was suspended or scaled down.
    After the finalizer is removed, they cannot be distinguished from pods that other clients delete, which count as failed.
    """
    succeeded = max((pod_end_time(pod) for pod in pods if pod.status.phase == "Succeeded"), default=0.0)
    ends = [end for pod in pods if _has_failed(pod) and (end := pod_end_time(pod)) > succeeded]
    if not ends:
        return 0.0
    delay = exponential_delay(FIRST_BACKOFF, LONGEST_BACKOFF, len(ends) - 1)
    return max(0.0, max(ends) + delay - now)


def _has_failed(pod: Pod) -> bool:
    """Return True if the pod failed without being deleted."""
    return pod.status.phase == "Failed" and not pod.metadata.HasField("deletionTimestamp")


def _suspend_or_resume(job: Job, status: JobStatus, now: float) -> None:
    """Update the condition Suspended. The time during which the job is suspended does not count against its deadline."""
    if job.spec.suspend:
        set_condition(status, SUSPENDED, "True", ConditionReason("JobSuspended", "Job suspended"), now)
        status.ClearField("startTime")
        return
    if conditions.find_condition(status.conditions, SUSPENDED) is not None:
        set_condition(status, SUSPENDED, "False", ConditionReason("JobResumed", "Job resumed"), now)
    if not status.HasField("startTime"):
        status.startTime.CopyFrom(to_time(now))


def _active_pods_needed(job: Job, count: PodCounts) -> int:
    """Return the number of pods that must be active now."""
    spec, done = job.spec, count.succeeded
    if spec.HasField("completions"):
        return max(0, min(spec.parallelism, spec.completions - done))
    return count.status.active if done else spec.parallelism


def _pods_to_delete(job: Job, running: Sequence[Pod], wanted: int, now: float) -> list[Pod]:
    """Return the pods to delete.

    Pods without the finalizer are always included. An earlier sync selected them but did not delete them. If they were
    kept, their result would not be counted.
    """
    lost = [pod for pod in running if not has_tracking_finalizer(pod)]
    kept = [pod for pod in running if has_tracking_finalizer(pod)]
    doubled = find_surplus_pods(job, kept, now) if is_indexed(job) else []
    left = [compute_pod_properties(pod) for pod in kept if pod not in doubled]
    return [*lost, *doubled, *select_pods_to_delete(left, max(0, len(left) - wanted), left, now)][:BURST]


def _pods_to_create(job: Job, status: JobStatus, wanted: int) -> int:
    there = status.active
    if replaces_only_terminated_pods(job):
        there += status.terminating
    return max(0, min(wanted - there, BURST))


def _plan_creation(job: Job, count: PodCounts, pods: Sequence[Pod], missing: int, now: float) -> tuple[list[Pod], float]:
    """Return the pods to create now, and the seconds until others are due, or 0.

    With backoffLimitPerIndex each index has its own backoff. An index that waits keeps its place: the next indexes do not
    take it.
    """
    shared = [] if has_limit_per_index(job) else [pod for pod in pods if counts_for_job(job, pod)]
    if wait := seconds_until_replacement(shared, now):
        return [], wait
    pod = build_pod_from_template(job.spec.template, JOBS, job)
    if FINALIZER not in pod.metadata.finalizers:
        pod.metadata.finalizers.append(FINALIZER)
    if not is_indexed(job):
        return [pod] * missing, 0.0
    made, waits = list[Pod](), list[float]()
    for index in first_missing_indexes(job, count.completed.union(count.failed_indexes), pods, missing):
        replaced = count.replaced.get(index)
        if wait := seconds_until_retry(replaced, now):
            waits.append(wait)
            continue
        numbered = Pod()
        numbered.CopyFrom(pod)
        set_pod_index(numbered, job, index)
        if has_limit_per_index(job):
            ignored = replaced is not None and is_failure_ignored(job, replaced)
            set_index_failures(numbered, replaced, ignored=ignored)
        made.append(numbered)
    return made, min(waits, default=0.0)


def is_managed_here(job: Job) -> bool:
    return job.spec.managedBy in ("", MANAGER)


def tracked_pod_key(pod: Pod) -> str:
    """Return the index key of a pod with the finalizer: "namespace/name" of its job, or "namespace/" without a job.

    Return an empty string for a pod without the finalizer.
    """
    if not has_tracking_finalizer(pod):
        return ""
    reference = get_controller_of(pod)
    if reference is None:
        return f"{pod.metadata.namespace}/"
    return f"{pod.metadata.namespace}/{reference.name}" if reference.kind == JOBS.kind else ""


class JobController:
    name = "job"
    workers = 16
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        informers = shared.informers
        self._client = shared.client.of(JOBS)
        self._pods_client = shared.client.pods
        self._events = shared.events
        self._clock = shared.clock
        self._jobs = informers.store(JOBS)
        self._neighbours = informers.index(JOBS, object_namespace)
        self._tracked = informers.index(PODS, tracked_pod_key)
        self._expectations = Expectations(informers)
        self._claimer = ControllerRefManager(shared, JOBS, PODS, self._expectations, finalizer=FINALIZER)
        self._control = PodControl(shared, self._expectations)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        refused = keys_lacking_quota(self._neighbours, lambda job: find_finished_condition(job) is None)
        return (
            WatchedResource(JOBS, key_of_object),
            WatchedResource(PODS, _keys_of_pod),
            WatchedResource(RESOURCE_QUOTAS, refused),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        job = self._jobs.get(key)
        if job is None or is_managed_here(job):
            await self._release_pods(key, job)
        if job is None:
            self._claimer.forget_owner(key)
            self._control.forget_owner(key)
            return None
        if (end := find_finished_condition(job)) is not None:
            return await self._delete_expired_job(job, end)
        if not is_managed_here(job):
            return None
        pods = await self._claimer.claim_objects(key, job, from_message(job.spec.selector))
        wanted = plan_job_sync(job, pods, self._clock.time())
        try:
            await self._write_status(key, job, wanted.status)
        except NotFound:
            return None
        try:
            await self._execute_plan(key, job, wanted)
        except ApiError as error:
            raise PartialSyncError(error, wanted.again) from error
        return wanted.again

    async def _execute_plan(self, key: str, job: Job, wanted: JobPlan) -> None:
        await self._remove_finalizers(key, {pod.metadata.uid: pod for pod in (*wanted.release, *wanted.delete)}.values())
        error = await self._control.delete(key, job, wanted.delete) or await self._control.create(key, job, wanted.create)
        if error is not None:
            raise error

    async def _release_pods(self, key: str, job: Job | None) -> None:
        """Remove the finalizers of pods whose job is gone or finished, or no longer controls them."""
        ends = job is None or find_finished_condition(job) is not None
        its = owner_key(job) if job is not None else ""
        pods = self._tracked.under(key).values()
        await self._remove_finalizers(key, [pod for pod in pods if ends or controller_key(pod) != its])

    async def _remove_finalizers(self, key: str, pods: Iterable[Pod]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def remove_finalizer(pod: Pod) -> None:
            async with limit:
                try:
                    stored = await self._pods_client.update(without_tracking_finalizer(pod))
                except NotFound:
                    return
                self._expectations.expect_version(key, PODS, stored.metadata.resourceVersion)

        outcomes = await asyncio.gather(
            *(remove_finalizer(pod) for pod in pods if has_tracking_finalizer(pod)), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _write_status(self, key: str, job: Job, status: JobStatus) -> None:
        if status == job.status:
            return
        changed = Job(metadata=job.metadata, spec=job.spec, status=status)
        stored = await self._client.update_status(changed)
        self._expectations.expect_version(key, JOBS, stored.metadata.resourceVersion)
        self._record_events(job, status)

    def _record_events(self, job: Job, status: JobStatus) -> None:
        """Record events for the changes of the status."""
        if find_true_condition(status, COMPLETE) is not None:
            if job.spec.HasField("completions") and status.succeeded > job.spec.completions:
                surplus = "Too many succeeded pods running after completion count reached"
                self._events.event(job, "Warning", "TooManySucceededPods", surplus)
            self._events.event(job, "Normal", "Completed", "Job completed")
        if (why := find_true_condition(status, FAILED)) is not None:
            self._events.event(job, "Warning", why.reason, why.message)
        was, is_ = (find_true_condition(job_status, SUSPENDED) is not None for job_status in (job.status, status))
        if was != is_:
            self._events.event(job, "Normal", "Suspended" if is_ else "Resumed", "Job suspended" if is_ else "Job resumed")

    async def _delete_expired_job(self, job: Job, end: JobCondition) -> float | None:
        """Delete an expired job. Only this version is deleted, because a later version may have a longer TTL."""
        metadata = job.metadata
        if not job.spec.HasField("ttlSecondsAfterFinished") or metadata.HasField("deletionTimestamp"):
            return None
        left = to_seconds(end.lastTransitionTime) + job.spec.ttlSecondsAfterFinished - self._clock.time()
        if left > 0:
            return left
        name, namespace, uid, version = metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion
        await self._client.delete(name, namespace, uid=uid, resource_version=version, propagation="Foreground")
        return None


def _keys_of_pod(delta: Delta[Pod]) -> Iterable[str]:
    """Return the pod's job, or the key of all pods in its namespace with a finalizer but without a job."""
    yield from keys_of_controller(JOBS)(delta)
    if delta.kind != DELETED and (key := tracked_pod_key(delta.obj)).endswith("/"):
        yield key
