"""Templates of pods, and the selectors that find the pods made from them.

Source: pkg/apis/core/validation and pkg/apis/apps/validation of Kubernetes 1.36.
"""

from collections.abc import Iterable

from apiserver.registry.validation.labels import (
    validate_annotations,
    validate_labels,
    validate_pod_annotations,
    validate_selector,
)
from apiserver.registry.validation.numbers import not_negative
from apiserver.registry.validation.pod_warnings import name_warnings, spec_warnings
from apiserver.registry.validation.pods import validate_spec
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, required, unsupported
from pinnace.api.apps_v1_pb2 import DeploymentSpec, DeploymentStatus, ReplicaSetSpec, ReplicaSetStatus
from pinnace.api.batch_v1_pb2 import JobSpec
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.api.selectors import from_message
from pinnace.api.status import Violation

_PATH = "spec.template"
_SELECTOR = "spec.selector"
Replicated = DeploymentSpec | ReplicaSetSpec


def validate_template(template: PodTemplateSpec, out: list[Violation]) -> None:
    """The template as it is, at spec.template."""
    validate_labels(template.metadata.labels, f"{_PATH}.metadata.labels", out)
    validate_annotations(template.metadata.annotations, f"{_PATH}.metadata.annotations", out)
    validate_pod_annotations(template.metadata.annotations, f"{_PATH}.metadata.annotations", out)
    found: list[Violation] = []
    validate_spec(template.spec, found)
    out.extend(Violation(f"{_PATH}.{each.field}", each.message) for each in found)
    if template.spec.ephemeralContainers:
        out.append(forbidden(f"{_PATH}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))


def workload_warnings(name: str, template: PodTemplateSpec) -> Iterable[str]:
    """What of a workload of this name, and of its template, does not do what it seems to."""
    yield from name_warnings(name, "Pod names and hostnames")
    yield from spec_warnings(template.spec, f"{_PATH}.spec")


def validate_selection(spec: Replicated | JobSpec, out: list[Violation]) -> None:
    """There is a selector, and it finds the pods that are made from the template."""
    if not spec.HasField("selector"):
        out.append(required(_SELECTOR))
        return
    found: list[Violation] = []
    validate_selector(spec.selector, _SELECTOR, found)
    out.extend(found)
    labels = spec.template.metadata.labels
    if not found and not from_message(spec.selector).matches(labels):
        out.append(invalid(f"{_PATH}.metadata.labels", labels, "`selector` does not match template `labels`"))


def validate_selector_update(new: Replicated | JobSpec, old: Replicated | JobSpec, out: list[Violation]) -> None:
    """Whose pods are whose does not change."""
    if new.selector != old.selector:
        out.append(invalid(_SELECTOR, str(from_message(new.selector)), IMMUTABLE))


def validate_replicated(spec: Replicated, out: list[Violation]) -> None:
    """What deployments and replica sets have in common: pods that run for ever."""
    not_negative(spec, "spec", ("replicas", "minReadySeconds"), out)
    if spec.HasField("selector") and not (spec.selector.matchLabels or spec.selector.matchExpressions):
        out.append(invalid(_SELECTOR, "{}", "empty selector is invalid for deployment"))
    validate_selection(spec, out)
    validate_template(spec.template, out)
    if spec.template.spec.restartPolicy != "Always":
        out.append(unsupported(f"{_PATH}.spec.restartPolicy", spec.template.spec.restartPolicy, ("Always",)))
    if spec.template.spec.HasField("activeDeadlineSeconds"):
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        out.append(forbidden(f"{_PATH}.spec.activeDeadlineSeconds", detail))


def validate_parts(status: DeploymentStatus | ReplicaSetStatus, fields: tuple[str, ...], out: list[Violation]) -> None:
    """Counts of some of the pods: not negative, nor more than all of them. Who is available is ready."""
    not_negative(status, "status", ("observedGeneration", "replicas", "terminatingReplicas", *fields), out)
    counts = {field: getattr(status, field) for field in fields}
    detail = "cannot be greater than status.replicas"
    out.extend(invalid(f"status.{field}", count, detail) for field, count in counts.items() if count > status.replicas)
    if status.availableReplicas > status.readyReplicas:
        out.append(invalid("status.availableReplicas", status.availableReplicas, "cannot be greater than readyReplicas"))
