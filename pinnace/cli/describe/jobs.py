"""All about a job.

Source: kubectl, pkg/describe, JobDescriber.
"""

from pinnace.api.batch_v1_pb2 import Job
from pinnace.cli.describe.templates import head_of, template
from pinnace.cli.describe.text import Fields, instant
from pinnace.printers.workloads import duration


def describe(job: Job, now: float) -> Fields:
    spec, status = job.spec, job.status
    fields = head_of(job.metadata, spec.selector)
    fields["Parallelism"] = str(spec.parallelism)
    fields["Completions"] = str(spec.completions) if spec.HasField("completions") else "<unset>"
    fields["Completion Mode"] = spec.completionMode
    fields["Suspend"] = str(spec.suspend).lower()
    fields["Backoff Limit"] = str(spec.backoffLimit)
    if spec.HasField("ttlSecondsAfterFinished"):
        fields["TTL Seconds After Finished"] = str(spec.ttlSecondsAfterFinished)
    if spec.HasField("activeDeadlineSeconds"):
        fields["Active Deadline Seconds"] = f"{spec.activeDeadlineSeconds}s"
    times = (
        ("Start Time", instant(status.startTime)),
        ("Completed At", instant(status.completionTime)),
        ("Duration", duration(job, now)),
    )
    fields |= {label: text for label, text in times if text}
    active = f"{status.active} Active ({status.ready} Ready)"
    fields["Pods Statuses"] = f"{active} / {status.succeeded} Succeeded / {status.failed} Failed"
    if status.completedIndexes:
        fields["Completed Indexes"] = status.completedIndexes
    fields["Pod Template"] = template(spec.template)
    return fields
