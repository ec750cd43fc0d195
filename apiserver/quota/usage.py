"""The usage of an object (ObjectUsage), and the limits, scopes and status of a quota (QuotaLimits). This module does no I/O.

Amounts are integers in the units of pinnace.api.quantity: millicores for cpu, else bytes or a number of objects.

Sources: pkg/quota/v1 of Kubernetes 1.36; pkg/admission/plugin/resourcequota of k8s.io/apiserver, including the messages.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from pinnace.api.core_v1_pb2 import (
    PersistentVolumeClaim,
    Pod,
    PodAffinityTerm,
    PodSpec,
    ResourceQuota,
    ResourceRequirements,
    ScopedResourceSelectorRequirement,
    Service,
)
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.names import is_extended_resource
from pinnace.api.pods import class_of, ended, qos_class
from pinnace.api.quantity import MAX, QuantityError, amount, amounts, format_amount
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import ALL, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES, Object, Resource
from pinnace.apiserver.registry.validation.fields import CONTAINER_RESOURCES, HUGE_PAGES
from pinnace.fit.requests import MAX_SPEC, MAX_SPECS, combine_containers, counted_spec, pod_level_amounts, spec_limits

COUNTED: tuple[Resource[Any], ...] = tuple(resource for resource in ALL if resource.namespaced and resource is not EVENTS)
"""The resources that quotas count."""
GROWING = (PERSISTENT_VOLUME_CLAIMS, SERVICES)
"""The resources whose usage can increase with an update."""
_COUNTED_BY_PLURAL = (RESOURCE_QUOTAS, SERVICES, PERSISTENT_VOLUME_CLAIMS)
"""Resources that are counted as count/<plural> and as <plural>."""
_IN_SCOPE = frozenset({""})
"""The value of an object in a scope without values."""

Scopes: TypeAlias = tuple[tuple[str, frozenset[str]], ...]

_RESOURCE_OF_MESSAGE = {resource.message: resource for resource in COUNTED}

_REQUIRED_RESOURCES = frozenset(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""Requests and limits that every container must set if the quota limits them. Other missing requests count as 0."""
_BYTE_RESOURCES = ("memory", "ephemeral-storage", "storage")


@dataclass(frozen=True, slots=True)
class ObjectUsage:
    """The usage of an object. Objects with the same template have equal usages."""

    amounts: tuple[tuple[str, int], ...]
    scopes: Scopes = ()
    """The scopes that apply to the kind, each with the object's values. The object is in the scope if there are values."""

    def increase_over(self, before: "ObjectUsage") -> "ObjectUsage":
        """Return the increase over `before`. Decreases are omitted, because only a recount releases usage."""
        old = dict(before.amounts)
        more = ((name, amount - old.get(name, 0)) for name, amount in self.amounts)
        return ObjectUsage(tuple((name, amount) for name, amount in more if amount > 0), self.scopes)


def custom_object_usage(stored_name: str) -> ObjectUsage:
    """Return the usage of a custom object. `stored_name`: of its resource."""
    return ObjectUsage(((f"count/{stored_name}", 1),))


def compute_usage(obj: Object, now: float, stored_name: str = "") -> ObjectUsage:
    """Return the usage of an object of a resource in COUNTED, or of a custom object. `now` is in Unix seconds. `stored_name`:
    see `custom_object_usage`."""
    match obj:
        case CustomObject():
            return custom_object_usage(stored_name)
        case Pod():
            known = _spec_usage(obj)
            return known.spent if ended(obj) or grace_period_end(obj) < now else known.whole
        case PersistentVolumeClaim():
            return ObjectUsage(_count_names(PERSISTENT_VOLUME_CLAIMS) + _volume_claim_usage(obj), _volume_claim_scopes(obj))
        case Service():
            return ObjectUsage(_count_names(SERVICES) + _service_usage(obj))
    return _USAGE_OF_COUNTED[type(obj)]


def counted_resource(obj: Object) -> Resource[Any]:
    """Return the resource of an object, one of COUNTED."""
    return _RESOURCE_OF_MESSAGE[type(obj)]


def grace_period_end(pod: Pod) -> float:
    """Return the end of a deleted pod's grace period in Unix seconds; infinity if it is not deleted. After that time the pod is
    not counted, even if it still exists because its node is lost."""
    metadata = pod.metadata
    if not metadata.HasField("deletionTimestamp") or not metadata.HasField("deletionGracePeriodSeconds"):
        return float("inf")
    return metadata.deletionTimestamp.seconds + metadata.deletionGracePeriodSeconds


def set_resource_names(pod: Pod) -> Mapping[str, frozenset[str]]:
    """Return the quota names of the requests and limits that are set, by container and init container."""
    return _spec_usage(pod).stated_names


def _count_names(resource: Resource[Any]) -> tuple[tuple[str, int], ...]:
    group = f".{resource.group}" if resource.group else ""
    aliases = ((resource.plural, 1),) if resource in _COUNTED_BY_PLURAL else ()
    return ((f"count/{resource.plural}{group}", 1), *aliases)


class _SpecUsage(NamedTuple):
    """The usage of pods with equal specs. `whole` is the usage of a running pod, and `spent` the usage of an ended one."""

    whole: ObjectUsage
    spent: ObjectUsage
    stated_names: Mapping[str, frozenset[str]]


def _spec_usage(pod: Pod) -> _SpecUsage:
    spec_bytes = counted_spec(pod).SerializeToString()
    return _cached_usage(spec_bytes) if len(spec_bytes) <= MAX_SPEC else _compute_spec_usage(spec_bytes)


@lru_cache(maxsize=MAX_SPECS)
def _cached_usage(spec_bytes: bytes) -> _SpecUsage:
    """Return the cached result, which all pods of a template share."""
    return _compute_spec_usage(spec_bytes)


def _compute_spec_usage(spec_bytes: bytes) -> _SpecUsage:
    spec = PodSpec.FromString(spec_bytes)
    requests = combine_containers(spec, lambda container: amounts(container.resources.requests))
    for name, requested in pod_level_amounts(spec.resources.requests).items():
        requests[name] = requested
    requests.update(amounts(spec.overhead))
    counts, scopes = _count_names(PODS), _pod_scopes(spec)
    whole = ObjectUsage(
        (*counts, (PODS.plural, 1), *sorted(_compute_resource_usage(requests, spec_limits(spec)).items())), scopes
    )
    of_pod = _set_resources(spec.resources)
    said = {
        container.name: _set_resources(container.resources) | of_pod for container in (*spec.containers, *spec.initContainers)
    }
    return _SpecUsage(whole, ObjectUsage(counts, scopes), said)


def _set_resources(resources: ResourceRequirements) -> frozenset[str]:
    return _REQUIRED_RESOURCES.intersection(_compute_resource_usage(amounts(resources.requests), amounts(resources.limits)))


def _compute_resource_usage(requests: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    computed = {f"limits.{name}": limits[name] for name in limits if name in CONTAINER_RESOURCES}
    for name, requested in requests.items():
        if name in CONTAINER_RESOURCES or name.startswith(HUGE_PAGES):
            computed[name] = computed[f"requests.{name}"] = requested
        elif is_extended_resource(name):
            computed[f"requests.{name}"] = requested
    return computed


def _pod_scopes(spec: PodSpec) -> Scopes:
    terminating, best_effort = spec.HasField("activeDeadlineSeconds"), qos_class(spec) == "BestEffort"
    scopes = {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "CrossNamespacePodAffinity": any(
            term.namespaces or term.HasField("namespaceSelector") for term in _affinity_terms(spec)
        ),
    }
    classes = frozenset(filter(None, (spec.priorityClassName,)))
    return (*((name, _IN_SCOPE if inside else frozenset[str]()) for name, inside in scopes.items()), ("PriorityClass", classes))


def _affinity_terms(spec: PodSpec) -> list[PodAffinityTerm]:
    sides = (spec.affinity.podAffinity, spec.affinity.podAntiAffinity)
    required = [term for side in sides for term in side.requiredDuringSchedulingIgnoredDuringExecution]
    return required + [term.podAffinityTerm for side in sides for term in side.preferredDuringSchedulingIgnoredDuringExecution]


def _volume_claim_usage(claim: PersistentVolumeClaim) -> tuple[tuple[str, int], ...]:
    """Return the size of a claim, and its size and count for its storage class. The size is at least the allocated one: a claim
    can request less after a failed expansion."""
    storage_class = class_of(claim)
    size = max(_storage_usage(claim.spec.resources.requests), _storage_usage(claim.status.allocatedResources))
    usage_items = [("requests.storage", size)]
    if storage_class:
        of_class = f"{storage_class}.storageclass.storage.k8s.io"
        usage_items += [(f"{of_class}/{PERSISTENT_VOLUME_CLAIMS.plural}", 1), (f"{of_class}/requests.storage", size)]
    return tuple(usage_items)


def _storage_usage(quantities: Mapping[str, Quantity]) -> int:
    """Return the storage amount; 0 if it is missing or invalid. Claims that an earlier version stored can be invalid."""
    with suppress(QuantityError):
        return amount("storage", quantities["storage"].string) if "storage" in quantities else 0
    return 0


def _volume_claim_scopes(claim: PersistentVolumeClaim) -> Scopes:
    status = claim.status
    named = (
        claim.spec.volumeAttributesClassName,
        status.currentVolumeAttributesClassName,
        status.modifyVolumeStatus.targetVolumeAttributesClassName,
    )
    return (("VolumeAttributesClass", frozenset(filter(None, named))),)


def _service_usage(service: Service) -> tuple[tuple[str, int], ...]:
    spec = service.spec
    match spec.type:
        case "NodePort":
            return (("services.nodeports", len(spec.ports)),)
        case "LoadBalancer":
            allocates = not spec.HasField("allocateLoadBalancerNodePorts") or spec.allocateLoadBalancerNodePorts
            ports = len(spec.ports) if allocates else sum(bool(port.nodePort) for port in spec.ports)
            return (("services.loadbalancers", 1), ("services.nodeports", ports))
    return ()


_USAGE_OF_COUNTED = {resource.message: ObjectUsage(_count_names(resource)) for resource in COUNTED}
"""The usage by type of objects that are only counted."""


class QuotaLimits:
    """One version of a quota. `hard` contains the limits by name."""

    def __init__(self, quota: ResourceQuota) -> None:
        self.hard = _parse_amounts(quota.spec.hard)
        self._quota = quota
        self._requirements = _scope_requirements(quota)
        used = _parse_amounts(quota.status.used)
        self.used: Mapping[str, int] | None = used if used.keys() >= self.hard.keys() else None
        """The usage in the status; None if it is incomplete, because no server has counted yet."""

    def usage_in_quota(self, use: ObjectUsage) -> dict[str, int]:
        """Return the usage of an object in this quota by name; {} if the quota does not apply."""
        share = {name: value for name, value in use.amounts if value and name in self.hard}
        return share if share and self._in_all_scopes(use) else {}

    def usage_increase(self, use: ObjectUsage, before: ObjectUsage | None) -> dict[str, int]:
        """Return the increase of an object's usage in this quota. The full usage is returned for a new object (`before` is
        None), and for an object that enters the scopes."""
        return self.usage_in_quota(use if before is None or not self._in_all_scopes(before) else use.increase_over(before))

    def charged_usage(self, uses: Mapping[ObjectUsage, int]) -> dict[str, int]:
        """Return the total usage in this quota. `uses` contains the number of objects by usage."""
        total = dict.fromkeys(self.hard, 0)
        for use, number in uses.items():
            for name, each in self.usage_in_quota(use).items():
                total[name] += number * each
        return total

    def missing_requirements(self, pod: Pod, use: ObjectUsage) -> str:
        """Return a message about required requests and limits that are not set; "" if all are set."""
        required = _REQUIRED_RESOURCES & self.hard.keys()
        if not required or not self._in_all_scopes(use):
            return ""
        missing: dict[str, set[str]] = {}
        for container, said in set_resource_names(pod).items():
            for name in required - said:
                missing.setdefault(name, set()).add(container)
        if not missing:
            return ""
        result = "; ".join(f"{name} for: {','.join(sorted(containers))}" for name, containers in sorted(missing.items()))
        return f"failed quota: {self._quota.metadata.name}: must specify {result}"

    def exceeded_message(self, used: Mapping[str, int], share: Mapping[str, int]) -> str:
        """Return a message if `used` plus `share` exceeds the quota; "" otherwise."""
        over = sorted(name for name, value in share.items() if used[name] + value > self.hard[name])
        if not over:
            return ""
        hard = self._quota.spec.hard
        requested = ",".join(f"{name}={_format_amount(name, share[name])}" for name in over)
        taken = ",".join(f"{name}={_format_amount(name, used[name])}" for name in over)
        limited = ",".join(f"{name}={hard[name].string}" for name in over)
        return f"exceeded quota: {self._quota.metadata.name}, requested: {requested}, used: {taken}, limited: {limited}"

    def matches_status(self, used: Mapping[str, int]) -> bool:
        """Report whether the status contains this usage. Amounts above the largest quantity are compared as the largest one, as
        they are stored. Otherwise the status would be rewritten in every round."""
        sayable = {name: _cap_amount(name, value) for name, value in used.items()}
        return self.used == sayable and dict(self._quota.status.hard) == dict(self._quota.spec.hard)

    def quota_with_used(self, used: Mapping[str, int]) -> ResourceQuota:
        """Return the quota to store, with this usage in its status."""
        quota = ResourceQuota()
        quota.CopyFrom(self._quota)
        quota.metadata.resourceVersion = ""
        quota.ClearField("status")
        for name, value in used.items():
            quota.status.hard[name].CopyFrom(quota.spec.hard[name])
            quota.status.used[name].string = _format_amount(name, value)
        return quota

    def _in_all_scopes(self, use: ObjectUsage) -> bool:
        """Report whether an object is in all scopes of the quota. An object is not in scopes that do not apply to its kind."""
        if not self._requirements:
            return True
        scopes = dict(use.scopes)
        return all(_is_in_scope(scopes.get(requirement.scopeName), requirement) for requirement in self._requirements)


def _scope_requirements(quota: ResourceQuota) -> list[ScopedResourceSelectorRequirement]:
    scopes = (ScopedResourceSelectorRequirement(scopeName=scope, operator="Exists") for scope in quota.spec.scopes)
    return [*scopes, *quota.spec.scopeSelector.matchExpressions]


def _is_in_scope(values: frozenset[str] | None, requirement: ScopedResourceSelectorRequirement) -> bool:
    if values is None:
        return False
    match requirement.operator:
        case "In":
            return not values.isdisjoint(requirement.values)
        case "NotIn":
            return values.isdisjoint(requirement.values)
        case "DoesNotExist":
            return not values
    return bool(values)


def _parse_amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount(_unit_resource(name), quantity.string) for name, quantity in quantities.items()}


def _cap_amount(name: str, value: int) -> int:
    """Limit an amount to the largest quantity. No limit can be higher, so further writes are still denied."""
    return min(value, amount(_unit_resource(name), str(MAX)))


def _format_amount(name: str, value: int) -> str:
    unit = _unit_resource(name)
    return format_amount("memory" if unit in _BYTE_RESOURCES or unit.startswith(HUGE_PAGES) else unit, _cap_amount(name, value))


def _unit_resource(name: str) -> str:
    """Return the resource that defines the unit of a quota name."""
    if name.endswith("/requests.storage"):
        return "storage"
    return name.removeprefix("requests.").removeprefix("limits.")
