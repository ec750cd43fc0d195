"""What a status update may say of a job: how it ends is said once, and who has ended has no pods left.

    (runs) --> SuccessCriteriaMet --> Complete          What is True of these stays True.
       '-----> FailureTarget -------> Failed

Unlike in Kubernetes the successes of an Indexed job may always become fewer, as it can shrink.

Source: pkg/apis/batch/validation and pkg/registry/batch/job of Kubernetes 1.36.
"""

from collections.abc import Iterable

from apiserver.registry.validation.numbers import not_negative
from apiserver.registry.validation.violations import MAX_SHOWN, duplicate, forbidden, invalid, required
from pinnace.api.batch_v1_pb2 import Job, JobStatus
from pinnace.api.scalars import format_rfc3339, natural, to_seconds
from pinnace.api.status import Violation

INDEXED = "Indexed"
_COMPLETE, _FAILED = "Complete", "Failed"
_TERMINAL = (_FAILED, _COMPLETE, "FailureTarget", "SuccessCriteriaMet")
_EXCLUSIVE = (
    (_COMPLETE, _FAILED),
    (_COMPLETE, "FailureTarget"),
    ("SuccessCriteriaMet", _FAILED),
    ("SuccessCriteriaMet", "FailureTarget"),
)
_PODS = ("active", "succeeded", "failed", "ready", "terminating")
_CONDITIONS, _START, _COMPLETION = "status.conditions", "status.startTime", "status.completionTime"
_INDEXES, _UNCOUNTED = "status.completedIndexes", "status.uncountedTerminatedPods"


def validate_job_status(job: Job, out: list[Violation]) -> None:
    """The status as it is."""
    status, said = job.status, _said(job.status)
    not_negative(status, "status", _PODS, out)
    if status.HasField("ready") and status.ready > status.active:
        out.append(invalid("status.ready", status.ready, "cannot set more ready pods than active"))
    for one, other in _EXCLUSIVE:
        if said >= {one, other}:
            out.append(forbidden(_CONDITIONS, f"cannot set {one}=True and {other}=true conditions"))
    if status.HasField("completionTime") and _COMPLETE not in said:
        out.append(forbidden(_COMPLETION, "cannot set completionTime when there is no Complete=True condition"))
    elif _COMPLETE in said and not status.HasField("completionTime"):
        out.append(required(_COMPLETION, "completionTime is required for Complete jobs"))
    waiting = status.uncountedTerminatedPods
    _validate_uncounted((("succeeded", waiting.succeeded), ("failed", waiting.failed)), out)
    if said & {_COMPLETE, _FAILED}:
        _validate_ended(job, out)


def validate_job_status_update(new: Job, old: Job, out: list[Violation]) -> None:
    """The step to the new status alone."""
    status, before = new.status, old.status
    gone = _said(before) - _said(status)
    out.extend(
        forbidden(_CONDITIONS, f"cannot disable the terminal {each}=True condition") for each in _TERMINAL if each in gone
    )
    _validate_times(new, before, out)
    if status.failed < before.failed:
        out.append(invalid("status.failed", status.failed, "cannot decrease the failed counter"))
    if status.succeeded < before.succeeded and new.spec.completionMode != INDEXED:
        out.append(invalid("status.succeeded", status.succeeded, "cannot decrease the succeeded counter"))
    if status.completedIndexes and status.completedIndexes != before.completedIndexes:
        _validate_indexes(new, out)


def _said(status: JobStatus) -> set[str]:
    return {condition.type for condition in status.conditions if condition.status == "True"}


def _validate_uncounted(uids: Iterable[tuple[str, Iterable[str]]], out: list[Violation]) -> None:
    seen = set[str]()
    for field, found in uids:
        for index, uid in enumerate(found):
            if not uid:
                out.append(invalid(f"{_UNCOUNTED}.{field}[{index}]", uid, "must not be empty"))
            elif uid in seen:
                out.append(duplicate(f"{_UNCOUNTED}.{field}[{index}]", uid))
            seen.add(uid)


def _validate_ended(job: Job, out: list[Violation]) -> None:
    """A job that is suspended need not have begun."""
    status = job.status
    if not status.HasField("startTime") and not job.spec.suspend:
        out.append(required(_START, "startTime is required for finished job"))
    for field, number in (("active", status.active), ("terminating", status.terminating)):
        if number > 0:
            out.append(invalid(f"status.{field}", number, f"{field}>0 is invalid for finished job"))
    if uids := [*status.uncountedTerminatedPods.succeeded, *status.uncountedTerminatedPods.failed]:
        out.append(invalid(_UNCOUNTED, uids, "uncountedTerminatedPods needs to be empty for finished job"))


def _validate_times(new: Job, before: JobStatus, out: list[Violation]) -> None:
    status = new.status
    if (
        status.HasField("completionTime")
        and before.HasField("completionTime")
        and status.completionTime != before.completionTime
    ):
        out.append(invalid(_COMPLETION, format_rfc3339(status.completionTime), "completionTime cannot be mutated"))
    if (status.startTime, status.completionTime) != (before.startTime, before.completionTime) and _ends_early(status):
        out.append(invalid(_COMPLETION, format_rfc3339(status.completionTime), "completionTime cannot be set before startTime"))
    if new.spec.suspend or not before.HasField("startTime"):
        return
    if not status.HasField("startTime"):
        out.append(required(_START, "startTime cannot be removed for unsuspended job"))
    elif status.startTime != before.startTime:
        out.append(invalid(_START, format_rfc3339(status.startTime), "startTime cannot be changed for unsuspended job"))


def _ends_early(status: JobStatus) -> bool:
    if not (status.HasField("startTime") and status.HasField("completionTime")):
        return False
    return to_seconds(status.completionTime) < to_seconds(status.startTime)


def _validate_indexes(job: Job, out: list[Violation]) -> None:
    """Those that stay need not be right: a job that shrinks keeps what it had."""
    indexes = job.status.completedIndexes
    if job.spec.completionMode != INDEXED:
        out.append(invalid(_INDEXES, indexes, "cannot set non-empty completedIndexes when non-indexed completion mode"))
    elif problem := _indexes_problem(indexes, job.spec.completions):
        out.append(invalid(_INDEXES, indexes, f"error parsing completedIndexes: {problem}"))


def _indexes_problem(text: str, completions: int) -> str:
    """What is wrong with intervals such as "1,3-5,7"; empty: they increase, and stay below the completions."""
    before = -1
    for interval in text.split(","):
        ends = interval.split("-")
        if len(ends) > 2:
            return (
                f"the fragment {interval[:MAX_SHOWN]!r} violates the requirement that an index interval can have at most two "
                "parts separated by '-'"
            )
        for end in ends:
            index = natural(end)
            if index is None:
                return f'cannot convert string to integer for index: "{end[:MAX_SHOWN]}"'
            if index >= completions:
                return f'too large index: "{end}"'
            if index <= before:
                return f"non-increasing order, previous: {before}, current: {index}"
            before = index
    return ""
