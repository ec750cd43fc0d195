"""The status of a job: its pods, counted exactly once, and its conditions. Pure; times are Unix time.

    finalizer, running --ends--> finalizer, UID in uncountedTerminatedPods --> no finalizer, UID there --> counted, UID removed

A pod has the finalizer from its creation, so that it is not removed before its result is recorded. Each arrow is one write. The
write of the status compares the job's version, and the last arrow requires a cache that contains the previous write
(writes.py).

The status holds at most MAX_UNCOUNTED UIDs. Later syncs record the others, but decisions count them immediately. If a job
fails, its running pods count as failed too, and are recorded before they are deleted.

    (runs) --enough have succeeded, success policy----------> SuccessCriteriaMet --no pods remain--> Complete
       |--too many failed, failure policy, deadline--------> FailureTarget ------no pods remain--> Failed

Source: pkg/controller/job/job_controller.go of Kubernetes 1.36.
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import NamedTuple

from pinnace.api import conditions
from pinnace.api.batch_v1_pb2 import Job, JobCondition, JobStatus
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import ended
from pinnace.api.scalars import to_seconds, to_time
from pinnace.controllers.job_indexes import (
    CompletionIndexes,
    counts_for_job,
    find_pods_to_replace,
    has_limit_per_index,
    index_failures,
    index_of,
    is_indexed,
    parse_indexes,
    replaces_only_terminated_pods,
)
from pinnace.controllers.job_policies import (
    FAIL_INDEX,
    find_job_failure,
    is_failure_ignored,
    match_failure_policy,
    match_success_policy,
)
from pinnace.controllers.pods import is_pod_active, is_pod_ready, is_pod_terminating

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
    completed: CompletionIndexes
    failed_indexes: CompletionIndexes
    replaced: Mapping[int, Pod]
    """Failed pods that keep their finalizer until their index has a new pod. Only with backoffLimitPerIndex."""


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
    return is_pod_terminating(pod) and (not replaces_only_terminated_pods(job) or not pod.spec.nodeName)


def count_pods(job: Job, pods: Sequence[Pod]) -> PodCounts:
    status = JobStatus()
    status.CopyFrom(job.status)
    watched = {pod.metadata.uid: pod for pod in pods if has_tracking_finalizer(pod)}
    waiting = status.uncountedTerminatedPods
    status.succeeded += _remove_untracked_uids(waiting.succeeded, watched)
    status.failed += _remove_untracked_uids(waiting.failed, watched)
    completed, failed_indexes = _count_indexes(job, watched.values())
    replaced = _pods_to_replace(job, pods, completed.union(failed_indexes))
    held = {pod.metadata.uid for pod in replaced.values()}
    known = {*waiting.succeeded, *waiting.failed}
    release, good, bad, later = list[Pod](), list[Pod](), list[Pod](), 0
    for uid, pod in watched.items():
        if uid in known:
            release.append(pod)
        elif pod.status.phase == "Succeeded":
            (release if is_indexed(job) else good).append(pod)
        elif not counts_as_failed(job, pod):
            continue
        elif uid in held:
            later += not is_failure_ignored(job, pod)
        elif counts_for_job(job, pod) and not is_failure_ignored(job, pod):
            bad.append(pod)
        else:
            release.append(pod)
    room = max(0, MAX_UNCOUNTED - len(known))
    good_now, bad_now = good[:room], bad[: max(0, room - len(good))]
    waiting.succeeded.extend(pod.metadata.uid for pod in good_now)
    waiting.failed.extend(pod.metadata.uid for pod in bad_now)
    release += good_now + bad_now
    if is_indexed(job):
        status.completedIndexes, status.succeeded = str(completed), len(completed)
        if has_limit_per_index(job):
            status.failedIndexes = str(failed_indexes)
    status.active = sum(map(is_pod_active, pods))
    status.ready = sum(is_pod_active(pod) and is_pod_ready(pod) for pod in pods)
    status.terminating = sum(map(is_pod_terminating, pods))
    left_good, left_bad = len(good) - len(good_now), len(bad) - len(bad_now) + later
    return PodCounts(
        status,
        release,
        succeeded=status.succeeded + len(waiting.succeeded) + left_good,
        failed=status.failed + len(waiting.failed) + left_bad,
        whole=not left_good and not left_bad,
        completed=completed,
        failed_indexes=failed_indexes,
        replaced=replaced,
    )


def _count_indexes(job: Job, watched: Iterable[Pod]) -> tuple[CompletionIndexes, CompletionIndexes]:
    """Return the succeeded and the failed indexes. They include those in the status."""
    if not is_indexed(job):
        return CompletionIndexes(), CompletionIndexes()
    own = [(index, pod) for pod in watched if counts_for_job(job, pod) and (index := index_of(pod)) is not None]
    recorded = {*job.status.uncountedTerminatedPods.failed}
    succeeded = (index for index, pod in own if pod.status.phase == "Succeeded" and pod.metadata.uid not in recorded)
    completed = parse_indexes(job.status.completedIndexes, job.spec.completions).with_indexes(succeeded)
    if not has_limit_per_index(job):
        return completed, CompletionIndexes()
    failed = (index for index, pod in own if index not in completed and _fails_index(job, pod))
    return completed, parse_indexes(job.status.failedIndexes, job.spec.completions).with_indexes(failed)


def _fails_index(job: Job, pod: Pod) -> bool:
    """Return True if no pod replaces this one: by a policy, or because its index has failed too often."""
    if not counts_as_failed(job, pod):
        return False
    matched = match_failure_policy(job, pod)
    if matched is not None and matched.action == FAIL_INDEX:
        return True
    return not is_failure_ignored(job, pod) and index_failures(pod) >= job.spec.backoffLimitPerIndex


def _pods_to_replace(job: Job, pods: Sequence[Pod], finished: CompletionIndexes) -> Mapping[int, Pod]:
    if not has_limit_per_index(job) or is_result_determined(job.status) or job.metadata.HasField("deletionTimestamp"):
        return {}
    active = [index for pod in pods if is_pod_active(pod) and (index := index_of(pod)) is not None]
    failed = (pod for pod in pods if has_tracking_finalizer(pod) and counts_for_job(job, pod) and counts_as_failed(job, pod))
    return find_pods_to_replace(failed, finished.with_indexes(active))


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
        and not (ended(pod) or counts_as_failed(job, pod) or is_failure_ignored(job, pod))
    ]
    now = left[: max(0, MAX_UNCOUNTED - len(known))]
    waiting.failed.extend(pod.metadata.uid for pod in now)
    return count._replace(
        release=[*count.release, *now], failed=count.failed + len(left), whole=count.whole and len(now) == len(left)
    )


def may_delete_pod(job: Job, status: JobStatus, pod: Pod) -> bool:
    """Return True if a job that fails may delete the pod, which requires that it is recorded as failed."""
    return pod.metadata.uid in status.uncountedTerminatedPods.failed or not (
        has_tracking_finalizer(pod) and counts_for_job(job, pod) and not is_failure_ignored(job, pod)
    )


def _remove_untracked_uids(waiting: MutableSequence[str], watched: Mapping[str, Pod]) -> int:
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
    job_condition = conditions.find_condition(status.conditions, type_)
    if job_condition is None or job_condition.status != value:
        said = conditions.set_condition(status.conditions, type_, value, verdict.reason, verdict.message, now)
        said.lastProbeTime.CopyFrom(to_time(now))


def find_finished_condition(job: Job) -> JobCondition | None:
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
    elif (verdict := _success_reason(job, count)) is not None:
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


def _success_reason(job: Job, count: PodCounts) -> ConditionReason | None:
    if is_indexed(job) and (message := match_success_policy(job, count.completed)) is not None:
        return ConditionReason("SuccessPolicy", message)
    if job.spec.HasField("completions"):
        succeeded = count.succeeded >= job.spec.completions
    else:
        succeeded = count.succeeded > 0 and count.status.active == 0
    return ConditionReason("CompletionsReached", "Reached expected number of succeeded pods") if succeeded else None


def _failure_reason(job: Job, count: PodCounts, pods: Iterable[Pod], now: float) -> ConditionReason | None:
    spec, pods = job.spec, list(pods)
    if (message := find_job_failure(job, (pod for pod in pods if counts_as_failed(job, pod)))) is not None:
        return ConditionReason("PodFailurePolicy", message)
    if count.failed > spec.backoffLimit or _exceeds_restarts(job, pods):
        return ConditionReason("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = seconds_until_deadline(job, count.status, now)
    if left is not None and left <= 0:
        return ConditionReason("DeadlineExceeded", "Job was active longer than specified deadline")
    failed_indexes = len(count.failed_indexes)
    if spec.HasField("maxFailedIndexes") and failed_indexes > spec.maxFailedIndexes:
        return ConditionReason("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
    if failed_indexes and failed_indexes + len(count.completed) >= spec.completions:
        return ConditionReason("FailedIndexes", "Job has failed indexes")
    return None


def _exceeds_restarts(job: Job, pods: Iterable[Pod]) -> bool:
    """Return True if restarts exceed the backoff limit. With OnFailure, each restart of a container counts as a failure."""
    if job.spec.template.spec.restartPolicy != "OnFailure":
        return False
    result = sum(
        container_status.restartCount
        for pod in pods
        if not ended(pod)
        for container_status in (*pod.status.containerStatuses, *pod.status.initContainerStatuses)
    )
    return result > 0 and result >= job.spec.backoffLimit
