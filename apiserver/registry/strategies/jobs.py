"""Jobs: find their pods by labels that the server makes up from the job's uid, so that no two jobs share a pod."""

from apiserver.registry.strategies.pod_defaults import set_template_defaults
from apiserver.registry.strategy import StatusStrategy, carry_over
from apiserver.registry.validation.jobs import (
    CONTROLLER_UID_LABEL,
    JOB_NAME_LABEL,
    OLD_CONTROLLER_UID_LABEL,
    OLD_JOB_NAME_LABEL,
    validate_job,
    validate_job_status,
    validate_job_update,
)
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.status import Violation

BACKOFF_LIMIT = 6


class JobStrategy(StatusStrategy[Job]):
    def prepare_create(self, obj: Job) -> None:
        _set_defaults(obj)
        obj.ClearField("status")

    def validate(self, obj: Job) -> list[Violation]:
        return validate_job(obj)

    def prepare_update(self, obj: Job, old: Job) -> None:
        """Who sends the manifest again need not repeat what the server made up; Kubernetes wants it."""
        _set_defaults(obj)
        carry_over(obj, old, "status")

    def validate_update(self, obj: Job, old: Job) -> list[Violation]:
        return validate_job_update(obj, old)

    def prepare_status_update(self, obj: Job, old: Job) -> None:
        carry_over(obj, old, "metadata", "spec")

    def validate_status_update(self, obj: Job, old: Job) -> list[Violation]:
        return validate_job_status(obj, old)


def _set_defaults(job: Job) -> None:
    """Source: pkg/apis/batch/v1/defaults.go of Kubernetes 1.36."""
    spec = job.spec
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
        _generate_selector(job)
    if not job.metadata.labels:
        job.metadata.labels.update(spec.template.metadata.labels)


def _generate_selector(job: Job) -> None:
    """What a client has set stays, for validation to refuse. Source: pkg/registry/batch/job/strategy.go."""
    labels, metadata = job.spec.template.metadata.labels, job.metadata
    for label, value in (
        (JOB_NAME_LABEL, metadata.name),
        (OLD_JOB_NAME_LABEL, metadata.name),
        (CONTROLLER_UID_LABEL, metadata.uid),
        (OLD_CONTROLLER_UID_LABEL, metadata.uid),
    ):
        if label not in labels:
            labels[label] = value
    if CONTROLLER_UID_LABEL not in job.spec.selector.matchLabels:
        job.spec.selector.matchLabels[CONTROLLER_UID_LABEL] = metadata.uid
