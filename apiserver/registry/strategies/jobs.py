"""Jobs: pods that end, found by labels that the server makes up from the job's uid, so that no two jobs share a pod; what has
begun does not change.

Source: pkg/apis/batch/validation of Kubernetes 1.36. Left out are the placement of suspended jobs, which Kubernetes lets others
change, and policies about failure and success.
"""

from collections.abc import Iterable

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy
from apiserver.registry.validation.job_status import INDEXED, validate_job_status, validate_job_status_update
from apiserver.registry.validation.numbers import not_negative
from apiserver.registry.validation.pod_templates import (
    validate_selection,
    validate_selector_update,
    validate_template,
    workload_warnings,
)
from apiserver.registry.validation.violations import IMMUTABLE, MAX_SHOWN, forbidden, invalid, required, unsupported
from pinnace.api import names
from pinnace.api.batch_v1_pb2 import Job, JobSpec
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.selectors import from_message
from pinnace.api.status import Violation

CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID_LABEL = "controller-uid"
OLD_JOB_NAME_LABEL = "job-name"
BACKOFF_LIMIT = 6
_MODES = ("NonIndexed", INDEXED)
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_MAX_INDEXED = 100_000
_RESTART = "spec.template.spec.restartPolicy"


class JobStrategy(StatusStrategy[Job]):
    def set_defaults(self, obj: Job) -> None:
        """Who sends the manifest again need not repeat the labels that the server made up; Kubernetes wants it.
        Source: pkg/apis/batch/v1/defaults.go of Kubernetes 1.36."""
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        if not spec.HasField("parallelism"):
            spec.parallelism = 1
            if not spec.HasField("completions"):
                spec.completions = 1
        if not spec.HasField("backoffLimit"):
            spec.backoffLimit = BACKOFF_LIMIT
        spec.completionMode = spec.completionMode or "NonIndexed"
        spec.podReplacementPolicy = spec.podReplacementPolicy or "TerminatingOrFailed"
        for field in ("suspend", "manualSelector"):
            if not spec.HasField(field):
                setattr(spec, field, False)
        if not spec.manualSelector:
            _generate_selector(obj)
        if not obj.metadata.labels:
            obj.metadata.labels.update(spec.template.metadata.labels)

    def check(self, obj: Job, out: list[Violation]) -> None:
        spec = obj.spec
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

    def check_new(self, obj: Job, out: list[Violation]) -> None:
        self.check(obj, out)
        _validate_hostnames(obj, out)
        if not obj.spec.manualSelector:
            _validate_generated(obj, out)

    def warnings(self, obj: Job) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: Job, old: Job, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)
        _validate_completions(new.spec, old.spec, out)
        if new.spec.template != old.spec.template:
            out.append(forbidden("spec.template", IMMUTABLE))
        if new.spec.completionMode != old.spec.completionMode:
            out.append(invalid("spec.completionMode", new.spec.completionMode, IMMUTABLE))

    def check_status(self, obj: Job, out: list[Violation]) -> None:
        validate_job_status(obj, out)

    def check_status_change(self, new: Job, old: Job, out: list[Violation]) -> None:
        validate_job_status_update(new, old, out)


def _generated(metadata: ObjectMeta) -> Iterable[tuple[str, str]]:
    """The labels that a job's pods have from the server, unless the job selects them by labels of its own."""
    return (
        (CONTROLLER_UID_LABEL, metadata.uid),
        (OLD_CONTROLLER_UID_LABEL, metadata.uid),
        (JOB_NAME_LABEL, metadata.name),
        (OLD_JOB_NAME_LABEL, metadata.name),
    )


def _generate_selector(job: Job) -> None:
    """What a client has set stays, for the check to refuse. Source: pkg/registry/batch/job/strategy.go."""
    labels = job.spec.template.metadata.labels
    for label, value in _generated(job.metadata):
        if label not in labels:
            labels[label] = value
    if CONTROLLER_UID_LABEL not in job.spec.selector.matchLabels:
        job.spec.selector.matchLabels[CONTROLLER_UID_LABEL] = job.metadata.uid


def _validate_hostnames(job: Job, out: list[Violation]) -> None:
    """A pod of an indexed job has its index behind the job's name for a host name; the last one's is the longest."""
    name, completions = job.metadata.name, job.spec.completions
    longest = f"{name}-{completions - 1}"
    if job.spec.completionMode == INDEXED and completions > 0 and names.dns_label(longest):
        detail = f"will not able to create pod with invalid DNS label: {longest[:MAX_SHOWN]}"
        out.append(invalid("metadata.name", name, detail))


def _validate_generated(job: Job, out: list[Violation]) -> None:
    """Labels that are the server's to set say what they would have said, and the selector asks for no others."""
    labels, generated = job.spec.template.metadata.labels, dict(_generated(job.metadata))
    for label, expected in generated.items():
        if (found := labels.get(label, "")) != expected:
            out.append(invalid(f"spec.template.metadata.labels[{label}]", found, f"must be '{expected}'"))
    selector = from_message(job.spec.selector)
    if not selector.matches(generated):
        out.append(invalid("spec.selector", str(selector), "`selector` not auto-generated"))


def _validate_completions(new: JobSpec, old: JobSpec, out: list[Violation]) -> None:
    """An indexed job can grow and shrink, when as many pods may run as must succeed."""
    if new.HasField("completions") == old.HasField("completions") and new.completions == old.completions:
        return
    if new.completionMode != INDEXED:
        out.append(invalid("spec.completions", new.completions, IMMUTABLE))
    elif new.completions != new.parallelism:
        detail = "can only be modified in tandem with spec.parallelism"
        out.append(invalid("spec.completions", new.completions, detail))
