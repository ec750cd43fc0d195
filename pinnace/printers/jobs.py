"""Jobs in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printJob.
"""

from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.times import to_seconds
from pinnace.printers.ages import human_duration, is_set, since
from pinnace.printers.columns import Columns
from pinnace.printers.templates import WIDE, wide

_CONDITIONS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def row(job: Job, now: float) -> tuple[str, ...]:
    return (
        job.metadata.name,
        status(job),
        completions(job),
        duration(job, now),
        since(job.metadata.creationTimestamp, now),
        *wide(job.spec.template, job.spec.selector),
    )


COLUMNS = Columns(
    headers=("NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"),
    wide=WIDE,
    row=row,
)


def status(job: Job) -> str:
    """The word in the STATUS column."""
    said = {condition.type for condition in job.status.conditions if condition.status == "True"}
    for end in ("Complete", "Failed"):
        if end in said:
            return end
    if is_set(job.metadata.deletionTimestamp):
        return "Terminating"
    return next((condition for condition in _CONDITIONS if condition in said), "Running")


def completions(job: Job) -> str:
    """ "1/3"; "1/1 of 3" of three at once of which the first to succeed is enough."""
    done, spec = job.status.succeeded, job.spec
    if spec.HasField("completions"):
        return f"{done}/{spec.completions}"
    return f"{done}/1 of {spec.parallelism}" if spec.parallelism > 1 else f"{done}/1"


def duration(job: Job, now: float) -> str:
    """From start to end, or until now; empty when it has not started."""
    if not is_set(job.status.startTime):
        return ""
    end = to_seconds(job.status.completionTime) if is_set(job.status.completionTime) else now
    return human_duration(end - to_seconds(job.status.startTime))
