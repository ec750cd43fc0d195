"""Strategies of replica sets, deployments and jobs, and the validation of their pod templates and selectors.

The default of replicas is 1. The default rolling update replaces 25% of the pods at a time.

A job's selector uses labels that the server generates from the uid of the job, so that no two jobs select the same pod. The
template and the completion mode of a job are immutable. A status update of a job cannot revert its conditions, and a finished
job has no active pods (validation/job_status.py):

    (runs) --> SuccessCriteriaMet --> Complete          A condition that is True stays True.
       '-----> FailureTarget -------> Failed

Unlike in Kubernetes, the number of successes of an Indexed job may decrease, because the job can shrink.

Source: pkg/apis/apps/validation, pkg/apis/batch/validation, pkg/apis/core/validation and pkg/registry/batch/job of Kubernetes
1.36.
"""

from collections.abc import Iterable

from google.protobuf.message import Message

from pinnace.api import names
from pinnace.api.apps_v1_pb2 import (
    DaemonSetSpec,
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdateDeployment,
    StatefulSetSpec,
)
from pinnace.api.batch_v1_pb2 import Job, JobSpec
from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.scalars import MAX_INT32, STRING, int_or_string
from pinnace.api.selectors import from_message
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategies.pods import set_template_defaults
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.fields import (
    FULL_PERCENT,
    IMMUTABLE,
    MAX_SHOWN,
    forbidden,
    invalid,
    is_zero_bound,
    not_negative,
    required,
    unsupported,
    validate_annotations,
    validate_bound,
    validate_labels,
    validate_pod_annotations,
    validate_selector,
)
from pinnace.apiserver.registry.validation.job_status import validate_job_status, validate_job_status_update
from pinnace.apiserver.registry.validation.jobs import INDEXED, validate_job_policies
from pinnace.apiserver.registry.validation.pods import name_warnings, spec_warnings, validate_spec

DEFAULT_REVISION_HISTORY = 10
DEFAULT_PROGRESS_SECONDS = 600
DEFAULT_ROLLING_UPDATE = IntOrString(type=STRING, strVal="25%")
_DEPLOYMENT_STRATEGIES = ("Recreate", "RollingUpdate")
_REPLICA_COUNTS = ("updatedReplicas", "readyReplicas", "availableReplicas")

CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
OLD_CONTROLLER_UID_LABEL = "controller-uid"
OLD_JOB_NAME_LABEL = "job-name"
DEFAULT_BACKOFF_LIMIT = 6
_COMPLETION_MODES = ("NonIndexed", INDEXED)
_JOB_SPEC_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
_MANY_COMPLETIONS, _HIGH_PARALLELISM = 100_000, 10_000
_MANY_INDEXES_WARNING = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be "
    "able to track completedIndexes when a big number of indexes fail"
)
_RESTART_POLICY_PATH = "spec.template.spec.restartPolicy"

_TEMPLATE_PATH = "spec.template"
_SELECTOR_PATH = "spec.selector"
ReplicatedSpec = DeploymentSpec | ReplicaSetSpec
SelectingSpec = ReplicatedSpec | StatefulSetSpec | DaemonSetSpec | JobSpec


class ReplicaSetStrategy(StatusStrategy[ReplicaSet]):
    has_generation = True

    def set_defaults(self, obj: ReplicaSet) -> None:
        """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
        set_template_defaults(obj.spec.template.spec)
        if not obj.spec.HasField("replicas"):
            obj.spec.replicas = 1

    def check_fields(self, obj: ReplicaSet, out: list[Violation]) -> None:
        validate_replicated_spec(obj.spec, out)

    def warnings(self, obj: ReplicaSet) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: ReplicaSet, old: ReplicaSet, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)

    def check_status(self, obj: ReplicaSet, out: list[Violation]) -> None:
        validate_replica_counts(obj.status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), out)


class DeploymentStrategy(StatusStrategy[Deployment]):
    has_generation = True

    def is_new_generation(self, new: Deployment, old: Deployment) -> bool:
        """Return whether spec or annotations have changed: replica sets get the annotations of their deployment. As in
        Kubernetes (pkg/registry/apps/deployment)."""
        return bool(new.spec != old.spec or new.metadata.annotations != old.metadata.annotations)

    def set_defaults(self, obj: Deployment) -> None:
        """Source: pkg/apis/apps/v1/defaults.go of Kubernetes 1.36."""
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        if not spec.HasField("replicas"):
            spec.replicas = 1
        spec.strategy.type = spec.strategy.type or "RollingUpdate"
        if spec.strategy.type == "RollingUpdate":
            rolling = spec.strategy.rollingUpdate
            for field in ("maxUnavailable", "maxSurge"):
                if not rolling.HasField(field):
                    getattr(rolling, field).CopyFrom(DEFAULT_ROLLING_UPDATE)
        if not spec.HasField("revisionHistoryLimit"):
            spec.revisionHistoryLimit = DEFAULT_REVISION_HISTORY
        if not spec.HasField("progressDeadlineSeconds"):
            spec.progressDeadlineSeconds = DEFAULT_PROGRESS_SECONDS

    def check_fields(self, obj: Deployment, out: list[Violation]) -> None:
        spec = obj.spec
        validate_replicated_spec(spec, out)
        _validate_strategy(spec, out)
        not_negative(spec, "spec", ("revisionHistoryLimit", "progressDeadlineSeconds"), out)
        if spec.HasField("progressDeadlineSeconds") and spec.progressDeadlineSeconds <= spec.minReadySeconds:
            detail = "must be greater than minReadySeconds"
            out.append(invalid("spec.progressDeadlineSeconds", spec.progressDeadlineSeconds, detail))

    def warnings(self, obj: Deployment) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: Deployment, old: Deployment, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)

    def check_status(self, obj: Deployment, out: list[Violation]) -> None:
        validate_replica_counts(obj.status, _REPLICA_COUNTS, out)
        not_negative(obj.status, "status", ("unavailableReplicas", "collisionCount"), out)

    def check_status_change(self, new: Deployment, old: Deployment, out: list[Violation]) -> None:
        if new.status.collisionCount < old.status.collisionCount:
            out.append(invalid("status.collisionCount", new.status.collisionCount, "cannot be decremented"))


def _validate_strategy(spec: DeploymentSpec, out: list[Violation]) -> None:
    match spec.strategy.type:
        case "RollingUpdate":
            _validate_rolling(spec.strategy.rollingUpdate, "spec.strategy.rollingUpdate", out)
        case "Recreate":
            if spec.strategy.HasField("rollingUpdate"):
                detail = "may not be specified when strategy `type` is 'Recreate'"
                out.append(forbidden("spec.strategy.rollingUpdate", detail))
        case other:
            out.append(unsupported("spec.strategy.type", other, _DEPLOYMENT_STRATEGIES))


def _validate_rolling(rolling: RollingUpdateDeployment, path: str, out: list[Violation]) -> None:
    validate_bound(rolling.maxUnavailable, f"{path}.maxUnavailable", out, most=FULL_PERCENT)
    validate_bound(rolling.maxSurge, f"{path}.maxSurge", out)
    if is_zero_bound(rolling.maxUnavailable) and is_zero_bound(rolling.maxSurge):
        shown = int_or_string(rolling.maxUnavailable)
        out.append(invalid(f"{path}.maxUnavailable", shown, "may not be 0 when `maxSurge` is 0"))


class JobStrategy(StatusStrategy[Job]):
    has_generation = True

    def set_defaults(self, obj: Job) -> None:
        """Set defaults and generate the selector, so that a client can send the manifest again without the generated labels
        (Kubernetes refuses this). Source: pkg/apis/batch/v1/defaults.go of Kubernetes 1.36."""
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        if not spec.HasField("parallelism"):
            spec.parallelism = 1
            if not spec.HasField("completions"):
                spec.completions = 1
        if not spec.HasField("backoffLimit"):
            spec.backoffLimit = MAX_INT32 if spec.HasField("backoffLimitPerIndex") else DEFAULT_BACKOFF_LIMIT
        spec.completionMode = spec.completionMode or "NonIndexed"
        replacement = "Failed" if spec.HasField("podFailurePolicy") else "TerminatingOrFailed"
        spec.podReplacementPolicy = spec.podReplacementPolicy or replacement
        for rule in spec.podFailurePolicy.rules:
            for pattern in rule.onPodConditions:
                pattern.status = pattern.status or "True"
        for field in ("suspend", "manualSelector"):
            if not spec.HasField(field):
                setattr(spec, field, False)
        if not spec.manualSelector:
            _generate_selector(obj)
        if not obj.metadata.labels:
            obj.metadata.labels.update(spec.template.metadata.labels)

    def check_fields(self, obj: Job, out: list[Violation]) -> None:
        validate_job_spec(obj.spec, out)
        validate_selection(obj.spec, out, unusable=None)
        validate_job_template(obj.spec, out)

    def check_new(self, obj: Job, out: list[Violation]) -> None:
        self.check_fields(obj, out)
        _validate_hostnames(obj, out)
        if not obj.spec.manualSelector:
            _validate_generated(obj, out)

    def warnings(self, obj: Job) -> Iterable[str]:
        yield from workload_warnings(obj.metadata.name, obj.spec.template)
        if obj.spec.completionMode == INDEXED and (
            obj.spec.completions > _MANY_COMPLETIONS and obj.spec.parallelism > _HIGH_PARALLELISM
        ):
            yield _MANY_INDEXES_WARNING

    def check_change(self, new: Job, old: Job, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)
        _validate_completions(new.spec, old.spec, out)
        if new.spec.template != _template_with_new_scheduling(old, new.spec.template):
            out.append(forbidden("spec.template", IMMUTABLE))
        for field in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
            if new.spec.HasField(field) == old.spec.HasField(field) and getattr(new.spec, field) == getattr(old.spec, field):
                continue
            value = getattr(new.spec, field) if new.spec.HasField(field) else "null"
            shown = to_dict(value) if isinstance(value, Message) else value
            out.append(invalid(f"spec.{field}", shown, IMMUTABLE))

    def check_status(self, obj: Job, out: list[Violation]) -> None:
        validate_job_status(obj, out)

    def check_status_change(self, new: Job, old: Job, out: list[Violation]) -> None:
        validate_job_status_update(new, old, out)


def validate_job_spec(spec: JobSpec, out: list[Violation]) -> None:
    """Validate the fields of a job other than its selector and template. The template of a cron job's jobs has no defaults."""
    not_negative(spec, "spec", _JOB_SPEC_COUNTS, out)
    if spec.HasField("completionMode") and spec.completionMode not in _COMPLETION_MODES:
        out.append(unsupported("spec.completionMode", spec.completionMode, _COMPLETION_MODES))
    validate_job_policies(spec, out)


def validate_job_template(spec: JobSpec, out: list[Violation]) -> None:
    """Validate the template of a job's pods."""
    validate_template(spec.template, out)
    policy = spec.template.spec.restartPolicy
    if policy == "Always":
        out.append(required(_RESTART_POLICY_PATH, 'valid values: "OnFailure", "Never"'))
    elif spec.HasField("podFailurePolicy") and policy == "OnFailure":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        out.append(invalid(_RESTART_POLICY_PATH, policy, detail))


def _template_with_new_scheduling(old: Job, new: PodTemplateSpec) -> PodTemplateSpec:
    """Return the old template with the new placement of pods if the job may change it: while it is suspended and has no
    startTime. Source: validatePodTemplateUpdate of Kubernetes."""
    if not old.spec.suspend or old.status.HasField("startTime"):
        return old.spec.template
    template = PodTemplateSpec()
    template.CopyFrom(old.spec.template)
    for field in ("labels", "annotations"):
        getattr(template.metadata, field).clear()
        getattr(template.metadata, field).update(getattr(new.metadata, field))
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        template.spec.ClearField(field)
        getattr(template.spec, field).MergeFrom(getattr(new.spec, field))
    affinity = template.spec.affinity
    affinity.ClearField("nodeAffinity")
    if new.spec.affinity.HasField("nodeAffinity"):
        affinity.nodeAffinity.CopyFrom(new.spec.affinity.nodeAffinity)
    if not affinity.ListFields() and not new.spec.HasField("affinity"):
        template.spec.ClearField("affinity")
    return template


def _generated_labels(metadata: ObjectMeta) -> Iterable[tuple[str, str]]:
    """Return the labels that the server adds to the pods of a job without manualSelector."""
    return (
        (CONTROLLER_UID_LABEL, metadata.uid),
        (OLD_CONTROLLER_UID_LABEL, metadata.uid),
        (JOB_NAME_LABEL, metadata.name),
        (OLD_JOB_NAME_LABEL, metadata.name),
    )


def _generate_selector(job: Job) -> None:
    """Add the generated labels and selector. Values that a client has set stay: `_validate_generated` refuses wrong ones.
    Source: pkg/registry/batch/job/strategy.go."""
    labels = job.spec.template.metadata.labels
    for label, value in _generated_labels(job.metadata):
        if label not in labels:
            labels[label] = value
    if CONTROLLER_UID_LABEL not in job.spec.selector.matchLabels:
        job.spec.selector.matchLabels[CONTROLLER_UID_LABEL] = job.metadata.uid


def _validate_hostnames(job: Job, out: list[Violation]) -> None:
    """Check that the longest host name of an Indexed job's pods, which is the name with the last index, is a DNS label."""
    name, completions = job.metadata.name, job.spec.completions
    longest = f"{name}-{completions - 1}"
    if job.spec.completionMode == INDEXED and completions > 0 and names.dns_label(longest):
        detail = f"will not able to create pod with invalid DNS label: {longest[:MAX_SHOWN]}"
        out.append(invalid("metadata.name", name, detail))


def _validate_generated(job: Job, out: list[Violation]) -> None:
    """Check that the generated labels have the generated values, and that the selector requires no other labels."""
    labels, generated = job.spec.template.metadata.labels, dict(_generated_labels(job.metadata))
    for label, expected in generated.items():
        if (value := labels.get(label, "")) != expected:
            out.append(invalid(f"spec.template.metadata.labels[{label}]", value, f"must be '{expected}'"))
    selector = from_message(job.spec.selector)
    if not selector.matches(generated):
        out.append(invalid("spec.selector", str(selector), "`selector` not auto-generated"))


def _validate_completions(new: JobSpec, old: JobSpec, out: list[Violation]) -> None:
    """Check a change of completions. Only an Indexed job can change them, and completions must then equal parallelism."""
    if new.HasField("completions") == old.HasField("completions") and new.completions == old.completions:
        return
    if new.completionMode != INDEXED:
        out.append(invalid("spec.completions", new.completions, IMMUTABLE))
    elif new.completions != new.parallelism:
        detail = "can only be modified in tandem with spec.parallelism"
        out.append(invalid("spec.completions", new.completions, detail))


def validate_template(template: PodTemplateSpec, out: list[Violation]) -> None:
    """Validate the template at spec.template. As in Kubernetes, the paths of labels and annotations omit `metadata`."""
    validate_labels(template.metadata.labels, f"{_TEMPLATE_PATH}.labels", out)
    validate_annotations(template.metadata.annotations, f"{_TEMPLATE_PATH}.annotations", out)
    validate_pod_annotations(template.metadata.annotations, f"{_TEMPLATE_PATH}.annotations", out)
    template_violations: list[Violation] = []
    validate_spec(template.spec, template_violations)
    out.extend(
        Violation(f"{_TEMPLATE_PATH}.{template_violation.field}", template_violation.message)
        for template_violation in template_violations
    )
    if template.spec.ephemeralContainers:
        out.append(forbidden(f"{_TEMPLATE_PATH}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))


def workload_warnings(name: str, template: PodTemplateSpec) -> Iterable[str]:
    """Yield warnings about a workload of this name and about its template."""
    yield from name_warnings(name, "Pod names and hostnames")
    yield from spec_warnings(template.spec, f"{_TEMPLATE_PATH}.spec")


def validate_selection(
    spec: SelectingSpec, out: list[Violation], *, missing: str | None = "", unusable: str | None = "invalid label selector"
) -> None:
    """Check that the selector is set and selects the pods of the template. No selector selects no pods. `missing` and
    `unusable`: the details for no selector and an invalid one; None: Kubernetes says no more for this kind."""
    problems: list[Violation] = []
    if spec.HasField("selector"):
        validate_selector(spec.selector, _SELECTOR_PATH, problems)
    elif missing is not None:
        out.append(required(_SELECTOR_PATH, missing))
    out.extend(problems)
    labels = spec.template.metadata.labels
    if problems and unusable is not None:
        out.append(invalid(_SELECTOR_PATH, to_dict(spec.selector), unusable))
    elif not problems and not (spec.HasField("selector") and from_message(spec.selector).matches(labels)):
        out.append(invalid(f"{_TEMPLATE_PATH}.metadata.labels", labels or None, "`selector` does not match template `labels`"))


def validate_selector_update(new: SelectingSpec, old: SelectingSpec, out: list[Violation]) -> None:
    """Check that the selector has not changed."""
    if new.selector != old.selector:
        out.append(invalid(_SELECTOR_PATH, to_dict(new.selector), IMMUTABLE))


def validate_replicated_spec(spec: ReplicatedSpec, out: list[Violation]) -> None:
    """Validate the fields that deployments and replica sets share."""
    not_negative(spec, "spec", ("replicas", "minReadySeconds"), out)
    if spec.HasField("selector") and not (spec.selector.matchLabels or spec.selector.matchExpressions):
        out.append(invalid(_SELECTOR_PATH, {}, "empty selector is invalid for deployment"))
    validate_selection(spec, out)
    validate_template(spec.template, out)
    if spec.template.spec.restartPolicy != "Always":
        out.append(unsupported(f"{_TEMPLATE_PATH}.spec.restartPolicy", spec.template.spec.restartPolicy, ("Always",)))
    if spec.template.spec.HasField("activeDeadlineSeconds"):
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        out.append(forbidden(f"{_TEMPLATE_PATH}.spec.activeDeadlineSeconds", detail))


def validate_replica_counts(status: DeploymentStatus | ReplicaSetStatus, fields: tuple[str, ...], out: list[Violation]) -> None:
    """Validate the replica counts of a status: none is negative or exceeds replicas, and all available replicas are ready."""
    not_negative(status, "status", ("observedGeneration", "replicas", "terminatingReplicas", *fields), out)
    counts = {field: getattr(status, field) for field in fields}
    detail = "cannot be greater than status.replicas"
    out.extend(invalid(f"status.{field}", count, detail) for field, count in counts.items() if count > status.replicas)
    if status.availableReplicas > status.readyReplicas:
        out.append(invalid("status.availableReplicas", status.availableReplicas, "cannot be greater than readyReplicas"))
