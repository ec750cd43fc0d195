"""Validation of the status of a job, by itself and as a change: results are final, and a finished job has no active pods.

Source: pkg/apis/batch/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable

from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.scalars import format_rfc3339, to_seconds
from pinnace.api.status import Violation
from pinnace.apiserver.registry.validation.fields import duplicate, invalid, invalid_object, not_negative, required
from pinnace.apiserver.registry.validation.jobs import INDEXED, first_common_index, parse_index_runs

_COMPLETE, _FAILED = "Complete", "Failed"
_TERMINAL_CONDITIONS = (_FAILED, _COMPLETE, "FailureTarget", "SuccessCriteriaMet")
_EXCLUSIVE_CONDITIONS = (
    (_COMPLETE, _FAILED),
    (_COMPLETE, "FailureTarget"),
    ("SuccessCriteriaMet", _FAILED),
    ("SuccessCriteriaMet", "FailureTarget"),
)
_JOB_STATUS_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_CONDITIONS_PATH, _START_TIME_PATH, _COMPLETION_TIME_PATH = "status.conditions", "status.startTime", "status.completionTime"
_COMPLETED_INDEXES_PATH, _UNCOUNTED_PODS_PATH = "status.completedIndexes", "status.uncountedTerminatedPods"


def validate_job_status(job: Job, out: list[Violation]) -> None:
    """Validate the status by itself."""
    status, true_conditions = job.status, _true_conditions(job.status)
    not_negative(status, "status", _JOB_STATUS_COUNTS, out)
    if status.HasField("ready") and status.ready > status.active:
        out.append(invalid("status.ready", status.ready, "cannot set more ready pods than active"))
    for one, other in _EXCLUSIVE_CONDITIONS:
        if true_conditions >= {one, other}:
            out.append(invalid_object(_CONDITIONS_PATH, f"cannot set {one}=True and {other}=true conditions"))
    if status.HasField("completionTime") and _COMPLETE not in true_conditions:
        detail = "cannot set completionTime when there is no Complete=True condition"
        out.append(invalid(_COMPLETION_TIME_PATH, format_rfc3339(status.completionTime), detail))
    elif _COMPLETE in true_conditions and not status.HasField("completionTime"):
        out.append(required(_COMPLETION_TIME_PATH, "completionTime is required for Complete jobs"))
    waiting = status.uncountedTerminatedPods
    _validate_uncounted((("succeeded", waiting.succeeded), ("failed", waiting.failed)), out)
    if true_conditions & {_COMPLETE, _FAILED}:
        _validate_ended(job, out)


def validate_job_status_update(new: Job, old: Job, out: list[Violation]) -> None:
    """Validate the change of the status."""
    status, before = new.status, old.status
    gone = _true_conditions(before) - _true_conditions(status)
    out.extend(
        invalid_object(_CONDITIONS_PATH, f"cannot disable the terminal {item}=True condition")
        for item in _TERMINAL_CONDITIONS
        if item in gone
    )
    _validate_times(new, before, out)
    if status.failed < before.failed:
        out.append(invalid("status.failed", status.failed, "cannot decrease the failed counter"))
    if status.succeeded < before.succeeded and new.spec.completionMode != INDEXED:
        out.append(invalid("status.succeeded", status.succeeded, "cannot decrease the succeeded counter"))
    if status.completedIndexes and status.completedIndexes != before.completedIndexes:
        _validate_indexes(new, out)
    if status.HasField("failedIndexes") and status.failedIndexes != before.failedIndexes:
        _validate_failed_indexes(new, out)


def _true_conditions(status: JobStatus) -> set[str]:
    return {condition.type for condition in status.conditions if condition.status == "True"}


def _validate_uncounted(uids: Iterable[tuple[str, Iterable[str]]], out: list[Violation]) -> None:
    seen = set[str]()
    for field, result in uids:
        for index, uid in enumerate(result):
            if not uid:
                out.append(invalid(f"{_UNCOUNTED_PODS_PATH}.{field}[{index}]", uid, "must not be empty"))
            elif uid in seen:
                out.append(duplicate(f"{_UNCOUNTED_PODS_PATH}.{field}[{index}]", uid))
            seen.add(uid)


def _validate_ended(job: Job, out: list[Violation]) -> None:
    """Validate the status of a finished job. A suspended job may have no startTime."""
    status = job.status
    if not status.HasField("startTime") and not job.spec.suspend:
        out.append(required(_START_TIME_PATH, "startTime is required for finished job"))
    for field, number in (("active", status.active), ("terminating", status.terminating)):
        if number > 0:
            out.append(invalid(f"status.{field}", number, f"{field}>0 is invalid for finished job"))
    if uids := [*status.uncountedTerminatedPods.succeeded, *status.uncountedTerminatedPods.failed]:
        out.append(invalid(_UNCOUNTED_PODS_PATH, uids, "uncountedTerminatedPods needs to be empty for finished job"))


def _validate_times(new: Job, before: JobStatus, out: list[Violation]) -> None:
    status = new.status
    if (
        status.HasField("completionTime")
        and before.HasField("completionTime")
        and status.completionTime != before.completionTime
    ):
        out.append(invalid(_COMPLETION_TIME_PATH, format_rfc3339(status.completionTime), "completionTime cannot be mutated"))
    if (status.startTime, status.completionTime) != (before.startTime, before.completionTime) and _completes_before_start(
        status
    ):
        out.append(
            invalid(
                _COMPLETION_TIME_PATH, format_rfc3339(status.completionTime), "completionTime cannot be set before startTime"
            )
        )
    if new.spec.suspend or not before.HasField("startTime"):
        return
    if not status.HasField("startTime"):
        out.append(required(_START_TIME_PATH, "startTime cannot be removed for unsuspended job"))
    elif status.startTime != before.startTime:
        out.append(
            invalid(_START_TIME_PATH, format_rfc3339(status.startTime), "startTime cannot be changed for unsuspended job")
        )


def _completes_before_start(status: JobStatus) -> bool:
    if not (status.HasField("startTime") and status.HasField("completionTime")):
        return False
    return to_seconds(status.completionTime) < to_seconds(status.startTime)


def _validate_indexes(job: Job, out: list[Violation]) -> None:
    """Validate changed indexes. Unchanged ones may exceed the completions, because a job can shrink."""
    indexes = job.status.completedIndexes
    if job.spec.completionMode != INDEXED:
        out.append(
            invalid(_COMPLETED_INDEXES_PATH, indexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
        )
    elif problem := parse_index_runs(indexes, job.spec.completions)[1]:
        out.append(invalid(_COMPLETED_INDEXES_PATH, indexes, f"error parsing completedIndexes: {problem}"))


def _validate_failed_indexes(job: Job, out: list[Violation]) -> None:
    indexes, path = job.status.failedIndexes, "status.failedIndexes"
    if not job.spec.HasField("backoffLimitPerIndex"):
        out.append(invalid(path, indexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
        return
    failed, problem = parse_index_runs(indexes, job.spec.completions)
    if problem:
        out.append(invalid(path, indexes, f"error parsing failedIndexes: {problem}"))
        return
    completed, _ = parse_index_runs(job.status.completedIndexes, job.spec.completions)
    if (both := first_common_index(completed, failed)) is not None:
        out.append(invalid(path, indexes, f"failedIndexes and completedIndexes overlap at index: {both}"))
