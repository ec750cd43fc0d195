"""Jobs: pods that end, found by labels of the job's own; what has begun does not change.

Source: pkg/apis/batch/validation of Kubernetes 1.36. Left out are the placement of suspended jobs, which Kubernetes lets others
change, and policies about failure and success.
"""

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.numbers import not_negative
from apiserver.registry.validation.pod_templates import validate_selection, validate_selector_update, validate_template
from apiserver.registry.validation.violations import IMMUTABLE, MAX_SHOWN, forbidden, invalid, required, unsupported
from pinnace.api import names
from pinnace.api.batch_v1_pb2 import Job, JobSpec
from pinnace.api.naturals import natural
from pinnace.api.status import Violation

CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID_LABEL = "controller-uid"
OLD_JOB_NAME_LABEL = "job-name"
INDEXED = "Indexed"
_MODES = ("NonIndexed", INDEXED)
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_PODS = ("active", "succeeded", "failed", "ready", "terminating")
_MAX_INDEXED = 100_000
_INDEXES = "status.completedIndexes"
_RESTART = "spec.template.spec.restartPolicy"


def validate_job(obj: Job) -> list[Violation]:
    """Everything that is wrong with a new job, after defaults."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=True)
    _validate_spec(obj.spec, out)
    _validate_hostnames(obj, out)
    if not obj.spec.manualSelector:
        _validate_generated(obj, out)
    return out


def validate_job_update(new: Job, old: Job) -> list[Violation]:
    """Everything that is wrong with the change, and with the job as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=True)
    _validate_spec(new.spec, out)
    validate_selector_update(new.spec, old.spec, out)
    _validate_completions(new.spec, old.spec, out)
    if new.spec.template != old.spec.template:
        out.append(forbidden("spec.template", IMMUTABLE))
    if new.spec.completionMode != old.spec.completionMode:
        out.append(invalid("spec.completionMode", new.spec.completionMode, IMMUTABLE))
    return out


def validate_job_status(obj: Job, old: Job) -> list[Violation]:
    """Everything that is wrong with a new status. Indexes that stay need not be right: a job that shrinks keeps what it had."""
    out: list[Violation] = []
    not_negative(obj.status, "status", _PODS, out)
    if (indexes := obj.status.completedIndexes) != old.status.completedIndexes and indexes:
        if obj.spec.completionMode != INDEXED:
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            out.append(invalid(_INDEXES, indexes, detail))
        elif problem := _indexes_problem(indexes, obj.spec.completions):
            out.append(invalid(_INDEXES, indexes, f"error parsing completedIndexes: {problem}"))
    said = {condition.type for condition in obj.status.conditions if condition.status == "True"}
    if said >= {"Complete", "Failed"}:
        out.append(forbidden("status.conditions", "cannot set Complete=True and Failed=true conditions"))
    if obj.status.HasField("completionTime") and "Complete" not in said:
        out.append(forbidden("status.completionTime", "cannot set completionTime when there is no Complete=True condition"))
    return out


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


def _validate_spec(spec: JobSpec, out: list[Violation]) -> None:
    not_negative(spec, "spec", _COUNTS, out)
    if spec.completionMode not in _MODES:
        out.append(unsupported("spec.completionMode", spec.completionMode, _MODES))
    if spec.podReplacementPolicy not in _REPLACEMENTS:
        out.append(unsupported("spec.podReplacementPolicy", spec.podReplacementPolicy, _REPLACEMENTS))
    if spec.completionMode == INDEXED:
        if not spec.HasField("completions"):
            out.append(required("spec.completions", f"when completion mode is {INDEXED}"))
        if spec.parallelism > _MAX_INDEXED:
            detail = f"must be less than or equal to {_MAX_INDEXED} when completion mode is {INDEXED}"
            out.append(invalid("spec.parallelism", spec.parallelism, detail))
    validate_selection(spec, out)
    validate_template(spec.template, out)
    if spec.template.spec.restartPolicy == "Always":
        out.append(required(_RESTART, 'valid values: "OnFailure", "Never"'))


def _validate_hostnames(job: Job, out: list[Violation]) -> None:
    """A pod of an indexed job has its index behind the job's name for a host name; the last one's is the longest."""
    name, completions = job.metadata.name, job.spec.completions
    longest = f"{name}-{completions - 1}"
    if job.spec.completionMode == INDEXED and completions > 0 and names.dns_label(longest):
        detail = f"will not able to create pod with invalid DNS label: {longest[:MAX_SHOWN]}"
        out.append(invalid("metadata.name", name, detail))


def _validate_generated(job: Job, out: list[Violation]) -> None:
    """Labels that are the server's to set say what they would have said."""
    labels, metadata = job.spec.template.metadata.labels, job.metadata
    for label, expected in (
        (CONTROLLER_UID_LABEL, metadata.uid),
        (OLD_CONTROLLER_UID_LABEL, metadata.uid),
        (JOB_NAME_LABEL, metadata.name),
        (OLD_JOB_NAME_LABEL, metadata.name),
    ):
        if (found := labels.get(label, "")) != expected:
            out.append(invalid(f"spec.template.metadata.labels[{label}]", found, f"must be '{expected}'"))


def _validate_completions(new: JobSpec, old: JobSpec, out: list[Violation]) -> None:
    """An indexed job can grow and shrink, when as many pods may run as must succeed."""
    if new.HasField("completions") == old.HasField("completions") and new.completions == old.completions:
        return
    if new.completionMode != INDEXED:
        out.append(invalid("spec.completions", new.completions, IMMUTABLE))
    elif new.completions != new.parallelism:
        detail = "can only be modified in tandem with spec.parallelism"
        out.append(invalid("spec.completions", new.completions, detail))
