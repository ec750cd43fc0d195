"""The job controller: runs pods until enough have succeeded or too many have failed. It also deletes expired jobs.

The decisions are pure; times are Unix time. Each pod is counted exactly once:

    finalizer, running --ends--> finalizer, UID in uncountedTerminatedPods --> no finalizer, UID there --> counted, UID removed

A pod has the finalizer from its creation, so that it is not removed before its result is recorded. Each arrow is one write. The
write of the status compares the job's version, and the last arrow requires a cache that contains the previous write
(writes.py).

The status holds at most MAX_UNCOUNTED UIDs. Later syncs record the others, but decisions count them immediately. If a job
fails, its running pods count as failed too, and are recorded before they are deleted.

    (runs) --enough have succeeded--> SuccessCriteriaMet --no pods remain--> Complete
       |--too many failed, deadline--> FailureTarget ------no pods remain--> Failed

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/, and pkg/controller/job of Kubernetes. Not supported:
backoffLimitPerIndex, podFailurePolicy, successPolicy, managedBy.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from pinnace.api import conditions, names
from pinnace.api.batch_v1_pb2 import Job, JobCondition, JobStatus
from pinnace.api.core_v1_pb2 import Container, Pod
from pinnace.api.integers import parse_natural
from pinnace.api.pods import ended
from pinnace.api.resources import JOBS, PODS, RESOURCE_QUOTAS
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.selectors import from_message
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.ownership import ControllerRefManager, controller_key, owner_key
from pinnace.controllers.podcontrol import BURST, PodControl, build_pod_from_template, keys_lacking_quota, select_pods_to_delete
from pinnace.controllers.pods import compute_pod_properties, is_pod_active, is_pod_ready, is_pod_terminating, object_namespace
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

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the index of a pod."""
_VARIABLE = "JOB_COMPLETION_INDEX"


def is_indexed(job: Job) -> bool:
    return job.spec.completionMode == "Indexed"


def only_ended_are_replaced(job: Job) -> bool:
    """Return True if pods are replaced only after they terminate. Otherwise they are replaced when their deletion starts."""
    return job.spec.podReplacementPolicy == "Failed"


def index_of(pod: Pod) -> int | None:
    """Return the completion index of the pod, or None."""
    return parse_natural(pod.metadata.annotations.get(INDEX, ""))


def counts_for_job(job: Job, pod: Pod) -> bool:
    """Return True if the pod counts for the job.

    In an Indexed job, only pods with an index below spec.completions count, because completions can be reduced.
    """
    return not is_indexed(job) or ((index := index_of(pod)) is not None and index < job.spec.completions)


class CompletionIndexes:
    """A set of indexes as ranges, as in the status: "0-1999999999" is one range instead of two billion numbers."""

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """`runs` has the first and last index of each range, sorted and without adjacent ranges."""
        self._runs = list(runs)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self._runs)

    def __str__(self) -> str:
        """Format the indexes as in "1,3-5,7,8". Two indexes do not form a range."""
        return ",".join(_format_range(first, last) for first, last in self._runs)

    def with_(self, more: Iterable[int]) -> "CompletionIndexes":
        return CompletionIndexes(_merge_ranges([*self._runs, *((index, index) for index in more)]))

    def others(self, end: int) -> Iterator[int]:
        """Yield the indexes below `end` that are not in the set."""
        begin = 0
        for first, last in self._runs:
            yield from range(begin, min(first, end))
            begin = last + 1
        yield from range(begin, end)


def _format_range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def parse_indexes(text: str, completions: int) -> CompletionIndexes:
    """Parse text such as "1,3-5,7". Indexes from `completions` on and invalid parts are ignored.

    Invalid parts can exist, because the status may have been written before it was validated.
    """
    runs = list[tuple[int, int]]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = parse_natural(first), parse_natural(last or first)
        if begin is not None and end is not None and begin <= (end := min(end, completions - 1)):
            runs.append((begin, end))
    return CompletionIndexes(_merge_ranges(runs))


def _merge_ranges(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort the ranges and merge adjacent ranges."""
    joined = list[tuple[int, int]]()
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def first_missing_indexes(job: Job, done: CompletionIndexes, pods: Sequence[Pod], number: int) -> list[int]:
    """Return the first indexes without an active or succeeded pod.

    If pods are replaced only after they terminate, a terminating pod keeps its index.
    """
    keeps = only_ended_are_replaced(job)
    having = (pod for pod in pods if is_pod_active(pod) or (keeps and is_pod_terminating(pod)))
    taken = {index for pod in having if (index := index_of(pod)) is not None}
    return list(islice((index for index in done.others(job.spec.completions) if index not in taken), number))


def find_surplus_pods(job: Job, pods: Iterable[Pod], now: float) -> list[Pod]:
    """Return active pods with an index that is not required or that another pod has.

    Of pods with the same index, the pod that a replica set would delete last is kept. `now` is Unix time.
    """
    result, of_index = list[Pod](), dict[int, list[Pod]]()
    for pod in filter(is_pod_active, pods):
        if (index := index_of(pod)) is None or not counts_for_job(job, pod):
            result.append(pod)
        else:
            of_index.setdefault(index, []).append(pod)
    for like in of_index.values():
        if len(like) > 1:
            facts = [compute_pod_properties(pod) for pod in like]
            result += select_pods_to_delete(facts, len(facts) - 1, facts, now)
    return result


def set_pod_index(pod: Pod, job: Job, index: int) -> None:
    """Set the index of a new pod in its name, host name, label, annotation, and the environment of each container."""
    metadata, name = pod.metadata, f"{job.metadata.name}-{index}"
    metadata.generateName = f"{name}-"
    metadata.annotations[INDEX] = metadata.labels[INDEX] = str(index)
    is_label = not names.dns_label(name)  # validated for new jobs, but completions can grow, and older jobs exist
    if is_label and not pod.spec.hostname:
        pod.spec.hostname = name
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        _add_index_variable(container)


def _add_index_variable(container: Container) -> None:
    if not any(env_var.name == _VARIABLE for env_var in container.env):
        variable = container.env.add(name=_VARIABLE)
        variable.valueFrom.fieldRef.fieldPath = f"metadata.annotations['{INDEX}']"


FINALIZER = "batch.kubernetes.io/job-tracking"
MAX_UNCOUNTED = 500
"""Maximum number of UIDs in uncountedTerminatedPods, as in Kubernetes."""


class PodCounts(NamedTuple):
    status: JobStatus
    """The status with as many new UIDs as fit."""
    release: list[Pod]
    """Pods that may lose their finalizer after the status is stored."""
    succeeded: int
    failed: int
    """The total number of failed pods, including pods that the status does not contain yet. `succeeded` is the same."""
    whole: bool
    """True if the status contains all terminated pods."""


def has_tracking_finalizer(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers


def without_tracking_finalizer(pod: Pod) -> Pod:
    """Return a copy of the pod without the finalizer."""
    changed = Pod()
    changed.CopyFrom(pod)
    changed.metadata.finalizers.remove(FINALIZER)
    return changed


def counts_as_failed(job: Job, pod: Pod) -> bool:
    """Return True if the pod counts as failed.

    A pod that is being deleted counts as failed immediately, unless the job waits for its termination. A pod without a
    node never terminates, so the job does not wait for it. If the job itself is being deleted, the deletion of its pods
    is not a failure.
    """
    if pod.status.phase == "Failed":
        return True
    if job.metadata.HasField("deletionTimestamp"):
        return False
    return is_pod_terminating(pod) and (not only_ended_are_replaced(job) or not pod.spec.nodeName)


def count_pods(job: Job, pods: Sequence[Pod]) -> PodCounts:
    status = JobStatus()
    status.CopyFrom(job.status)
    watched = {pod.metadata.uid: pod for pod in pods if has_tracking_finalizer(pod)}
    waiting = status.uncountedTerminatedPods
    status.succeeded += _drop_untracked(waiting.succeeded, watched)
    status.failed += _drop_untracked(waiting.failed, watched)
    known = {*waiting.succeeded, *waiting.failed}
    release, good, bad, indexes = list[Pod](), list[Pod](), list[Pod](), list[int]()
    for uid, pod in watched.items():
        if uid in known:
            release.append(pod)
        elif pod.status.phase == "Succeeded" and is_indexed(job):
            if (index := index_of(pod)) is not None and counts_for_job(job, pod):
                indexes.append(index)
            release.append(pod)
        elif pod.status.phase == "Succeeded":
            good.append(pod)
        elif counts_as_failed(job, pod):
            (bad if counts_for_job(job, pod) else release).append(pod)
    room = max(0, MAX_UNCOUNTED - len(known))
    good_now, bad_now = good[:room], bad[: max(0, room - len(good))]
    waiting.succeeded.extend(pod.metadata.uid for pod in good_now)
    waiting.failed.extend(pod.metadata.uid for pod in bad_now)
    release += good_now + bad_now
    if is_indexed(job):
        done = parse_indexes(status.completedIndexes, job.spec.completions).with_(indexes)
        status.completedIndexes, status.succeeded = str(done), len(done)
    status.active = sum(map(is_pod_active, pods))
    status.ready = sum(is_pod_active(pod) and is_pod_ready(pod) for pod in pods)
    status.terminating = sum(map(is_pod_terminating, pods))
    left_good, left_bad = len(good) - len(good_now), len(bad) - len(bad_now)
    return PodCounts(
        status,
        release,
        succeeded=status.succeeded + len(waiting.succeeded) + left_good,
        failed=status.failed + len(waiting.failed) + left_bad,
        whole=not left_good and not left_bad,
    )


def count_active_as_failed(job: Job, count: PodCounts, pods: Iterable[Pod]) -> PodCounts:
    """Return the count of a job that fails: pods that have not terminated also count as failed."""
    waiting = count.status.uncountedTerminatedPods
    known = {*waiting.succeeded, *waiting.failed}
    left = [
        pod
        for pod in pods
        if has_tracking_finalizer(pod)
        and pod.metadata.uid not in known
        and counts_for_job(job, pod)
        and not (ended(pod) or counts_as_failed(job, pod))
    ]
    now = left[: max(0, MAX_UNCOUNTED - len(known))]
    waiting.failed.extend(pod.metadata.uid for pod in now)
    return count._replace(
        release=[*count.release, *now], failed=count.failed + len(left), whole=count.whole and len(now) == len(left)
    )


def may_delete_pod(job: Job, status: JobStatus, pod: Pod) -> bool:
    """Return True if a job that fails may delete the pod, which requires that it is recorded as failed."""
    return pod.metadata.uid in status.uncountedTerminatedPods.failed or not (
        has_tracking_finalizer(pod) and counts_for_job(job, pod)
    )


def _drop_untracked(waiting: MutableSequence[str], watched: Mapping[str, Pod]) -> int:
    """Remove the UIDs of pods without the finalizer and of deleted pods. Return their number."""
    kept = [uid for uid in waiting if uid in watched]
    gone = len(waiting) - len(kept)
    waiting[:] = kept
    return gone


COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
SUCCESS, FAILURE = "SuccessCriteriaMet", "FailureTarget"
"""The conditions that precede Complete and Failed."""
_ENDS = {SUCCESS: COMPLETE, FAILURE: FAILED}


class ConditionReason(NamedTuple):
    reason: str
    message: str


def find_true_condition(status: JobStatus, *types: str) -> JobCondition | None:
    """Return the first condition of these types that is True, or None."""
    return next(
        (
            job_condition
            for job_condition in status.conditions
            if job_condition.type in types and job_condition.status == "True"
        ),
        None,
    )


def set_condition(status: JobStatus, type_: str, value: str, verdict: ConditionReason, now: float) -> None:
    """Set a condition. A condition with the same status is unchanged."""
    job_condition = conditions.find(status.conditions, type_)
    if job_condition is None or job_condition.status != value:
        said = conditions.say(status.conditions, type_, value, verdict.reason, verdict.message, now)
        said.lastProbeTime.CopyFrom(to_time(now))


def finish_condition(job: Job) -> JobCondition | None:
    return find_true_condition(job.status, COMPLETE, FAILED)


def is_result_determined(status: JobStatus) -> bool:
    """Return True if the result of the job is determined."""
    return find_true_condition(status, SUCCESS, FAILURE) is not None


def determine_result(job: Job, count: PodCounts, pods: Iterable[Pod], now: float) -> None:
    """Set the condition for the job's result when it is determined. It does not change afterwards."""
    status = count.status
    if is_result_determined(status):
        return
    if (verdict := _failure_reason(job, count, pods, now)) is not None:
        set_condition(status, FAILURE, "True", verdict, now)
    elif _has_succeeded(job, count):
        verdict = ConditionReason("CompletionsReached", "Reached expected number of succeeded pods")
        set_condition(status, SUCCESS, "True", verdict, now)


def set_final_condition(count: PodCounts, now: float) -> bool:
    """Set the final condition after all pods have terminated and are counted. Return True if it was set."""
    status = count.status
    sentence = find_true_condition(status, SUCCESS, FAILURE)
    waiting = status.uncountedTerminatedPods
    uncounted = waiting.succeeded or waiting.failed or not count.whole
    if sentence is None or status.active or status.terminating or uncounted:
        return False
    end = _ENDS[sentence.type]
    set_condition(status, end, "True", ConditionReason(sentence.reason, sentence.message), now)
    if end == COMPLETE:  # not before the start time, because another controller's clock may have been ahead
        status.completionTime.CopyFrom(to_time(max(now, to_seconds(status.startTime))))
    return True


def seconds_until_deadline(job: Job, status: JobStatus, now: float) -> float | None:
    """Return the seconds until the job's deadline, or None without a deadline or while it is suspended."""
    if not job.spec.HasField("activeDeadlineSeconds") or not status.HasField("startTime") or job.spec.suspend:
        return None
    return to_seconds(status.startTime) + job.spec.activeDeadlineSeconds - now


def _has_succeeded(job: Job, count: PodCounts) -> bool:
    if job.spec.HasField("completions"):
        return count.succeeded >= job.spec.completions
    return count.succeeded > 0 and count.status.active == 0


def _failure_reason(job: Job, count: PodCounts, pods: Iterable[Pod], now: float) -> ConditionReason | None:
    spec = job.spec
    if count.failed > spec.backoffLimit or _exceeds_restarts(job, pods):
        return ConditionReason("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_until_deadline(job, count.status, now)
    if left is not None and left <= 0:
        return ConditionReason("DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _exceeds_restarts(job: Job, pods: Iterable[Pod]) -> bool:
    """Return True if restarts exceed the backoff limit. With OnFailure, each restart of a container counts as a failure."""
    if job.spec.template.spec.restartPolicy != "OnFailure":
        return False
    running = (pod.status for pod in pods if is_pod_active(pod))
    result = sum(
        container_status.restartCount
        for status in running
        for container_status in (*status.containerStatuses, *status.initContainerStatuses)
    )
    return result > 0 and result >= job.spec.backoffLimit


FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds from the end of a failed pod until its replacement. The delay doubles with each further failure."""


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
    if missing := _pods_to_create(job, status, pods, wanted):
        wait = seconds_until_replacement([pod for pod in pods if counts_for_job(job, pod)], now)
        left.append(wait or None)
        made.create = _new_pods(job, status, pods, missing) if not wait else []
    made.again = min((item for item in left if item is not None), default=None)
    return made


def seconds_until_replacement(pods: Sequence[Pod], now: float) -> float:
    """Return the seconds until failed pods may be replaced, by the number of failures since the last success.

    Pods that are being deleted do not count, because the job itself may have deleted them when it was suspended or scaled down.
    After the finalizer is removed, they cannot be distinguished from pods that other clients delete, which count as failed.
    """
    succeeded = max((_pod_end_time(pod) for pod in pods if pod.status.phase == "Succeeded"), default=0.0)
    ends = [end for pod in pods if _has_failed(pod) and (end := _pod_end_time(pod)) > succeeded]
    if not ends:
        return 0.0
    delay = exponential_delay(FIRST_BACKOFF, LONGEST_BACKOFF, len(ends) - 1)
    return max(0.0, max(ends) + delay - now)


def _has_failed(pod: Pod) -> bool:
    """Return True if the pod failed without being deleted."""
    return pod.status.phase == "Failed" and not pod.metadata.HasField("deletionTimestamp")


def _pod_end_time(pod: Pod) -> float:
    """Return the end of the pod: the last end of a container, including sidecars, or the last change of a condition.

    For a pod that its node rejected, neither may be reported. Its creation time is used instead.
    """
    status = pod.status
    ends = [
        container_status.state.terminated.finishedAt
        for container_status in (*status.initContainerStatuses, *status.containerStatuses)
    ]
    changes = [pod_condition.lastTransitionTime for pod_condition in status.conditions]
    return max(map(to_seconds, (pod.metadata.creationTimestamp, *ends, *changes)))


def _suspend_or_resume(job: Job, status: JobStatus, now: float) -> None:
    """Update the condition Suspended. The time during which the job is suspended does not count against its deadline."""
    if job.spec.suspend:
        set_condition(status, SUSPENDED, "True", ConditionReason("JobSuspended", "Job suspended"), now)
        status.ClearField("startTime")
        return
    if conditions.find(status.conditions, SUSPENDED) is not None:
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


def _pods_to_create(job: Job, status: JobStatus, pods: Sequence[Pod], wanted: int) -> int:
    there = status.active
    if only_ended_are_replaced(job):
        there += status.terminating
    return max(0, min(wanted - there, BURST))


def _new_pods(job: Job, status: JobStatus, pods: Sequence[Pod], missing: int) -> list[Pod]:
    pod = build_pod_from_template(job.spec.template, JOBS, job)
    pod.metadata.finalizers.append(FINALIZER)
    if not is_indexed(job):
        return [pod] * missing
    made = []
    for index in first_missing_indexes(job, parse_indexes(status.completedIndexes, job.spec.completions), pods, missing):
        numbered = Pod()
        numbered.CopyFrom(pod)
        set_pod_index(numbered, job, index)
        made.append(numbered)
    return made


AT_ONCE = 32
"""Maximum number of finalizers that are removed concurrently."""


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
        refused = keys_lacking_quota(self._neighbours, lambda job: finish_condition(job) is None)
        return (
            WatchedResource(JOBS, key_of_object),
            WatchedResource(PODS, _keys_of_pod),
            WatchedResource(RESOURCE_QUOTAS, refused),
        )

    async def sync(self, key: str) -> float | None:
        await self._expectations.met(key)
        job = self._jobs.get(key)
        await self._release_pods(key, job)
        if job is None:
            self._claimer.forget(key)
            self._control.forget(key)
            return None
        if (end := finish_condition(job)) is not None:
            return await self._delete_expired_job(job, end)
        pods = await self._claimer.claim(key, job, from_message(job.spec.selector))
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
        ends = job is None or finish_condition(job) is not None
        its = owner_key(job) if job is not None else ""
        pods = self._tracked.under(key).values()
        await self._remove_finalizers(key, [pod for pod in pods if ends or controller_key(pod) != its])

    async def _remove_finalizers(self, key: str, pods: Iterable[Pod]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(pod: Pod) -> None:
            async with limit:
                try:
                    stored = await self._pods_client.update(without_tracking_finalizer(pod))
                except NotFound:
                    return
                self._expectations.wrote(key, PODS, stored.metadata.resourceVersion)

        outcomes = await asyncio.gather(*(one(pod) for pod in pods if has_tracking_finalizer(pod)), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _write_status(self, key: str, job: Job, status: JobStatus) -> None:
        if status == job.status:
            return
        changed = Job(metadata=job.metadata, spec=job.spec, status=status)
        stored = await self._client.update_status(changed)
        self._expectations.wrote(key, JOBS, stored.metadata.resourceVersion)
        self._record_events(job, status)

    def _record_events(self, job: Job, status: JobStatus) -> None:
        """Record events for the changes of the status."""
        if find_true_condition(status, COMPLETE) is not None:
            self._events.event(job, "Normal", "Completed", "Job completed")
        if (why := find_true_condition(status, FAILURE)) is not None and find_true_condition(job.status, FAILURE) is None:
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
