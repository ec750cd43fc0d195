"""What one object uses, in the words of quotas. Pure.

Amounts are integers, in the units of pinnace.api.quantity: thousandths for cpu, else bytes or a count.

Source: pkg/quota/v1/evaluator/core of Kubernetes 1.36.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from apiserver.registry.validation.resource_names import CONTAINER, HUGE_PAGES
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod, PodAffinityTerm, PodSpec, ResourceRequirements, Service
from pinnace.api.names import is_extended_resource
from pinnace.api.pods import class_of, ended, qos_class
from pinnace.api.quantity import QuantityError, amount, amounts
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import ALL, EVENTS, PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES, Object, Resource
from pinnace.fit.requests import MAX_SPEC, MAX_SPECS, combine, counted_spec, pod_level, spec_limits

COUNTED: tuple[Resource[Any], ...] = tuple(each for each in ALL if each.namespaced and each is not EVENTS)
"""The resources whose objects count."""
GROWING = (PERSISTENT_VOLUME_CLAIMS, SERVICES)
"""Those whose objects may use more after an update."""
_ALIASED = (RESOURCE_QUOTAS, SERVICES, PERSISTENT_VOLUME_CLAIMS)
"""What is also counted under its plural alone."""
_IN = frozenset({""})
"""The value of a scope that an object is in, where it comes without one."""

Scopes: TypeAlias = tuple[tuple[str, frozenset[str]], ...]


@dataclass(frozen=True, slots=True)
class Use:
    """Objects of one template have equal ones."""

    amounts: tuple[tuple[str, int], ...]
    scopes: Scopes = ()
    """The scopes that are about objects of this kind, each with the values with which this one is in it; none: it is not."""

    def beyond(self, before: "Use") -> "Use":
        """What this is more than another; what is less is left out, as it is released by a count only."""
        old = dict(before.amounts)
        more = ((name, amount - old.get(name, 0)) for name, amount in self.amounts)
        return Use(tuple((name, amount) for name, amount in more if amount > 0), self.scopes)


def use_of(obj: Object, now: float) -> Use:
    """Of an object of one of COUNTED; `now`: Unix seconds."""
    match obj:
        case Pod():
            known = _of(obj)
            return known.spent if ended(obj) or spent_at(obj) < now else known.whole
        case PersistentVolumeClaim():
            return Use(_counts(PERSISTENT_VOLUME_CLAIMS) + _claim(obj), _claim_scopes(obj))
        case Service():
            return Use(_counts(SERVICES) + _service(obj))
    return _PLAIN[type(obj)]


def kind_of(obj: Object) -> Resource[Any]:
    """Which of COUNTED."""
    return _KINDS[type(obj)]


def spent_at(pod: Pod) -> float:
    """When a pod that was deleted and does not go, because its node is lost, counts no more; Unix seconds, or infinity."""
    metadata = pod.metadata
    if not metadata.HasField("deletionTimestamp") or not metadata.HasField("deletionGracePeriodSeconds"):
        return float("inf")
    return metadata.deletionTimestamp.seconds + metadata.deletionGracePeriodSeconds


def stated(pod: Pod) -> Mapping[str, frozenset[str]]:
    """By container, init containers too: what it says of itself, by the names that quotas have for that."""
    return _of(pod).stated


def _counts(resource: Resource[Any]) -> tuple[tuple[str, int], ...]:
    group = f".{resource.group}" if resource.group else ""
    aliases = ((resource.plural, 1),) if resource in _ALIASED else ()
    return ((f"count/{resource.plural}{group}", 1), *aliases)


class _Known(NamedTuple):
    """Of pods with one spec. `spent`: of those that have ended."""

    whole: Use
    spent: Use
    stated: Mapping[str, frozenset[str]]


def _of(pod: Pod) -> _Known:
    spec_bytes = counted_spec(pod).SerializeToString()
    return _remembered(spec_bytes) if len(spec_bytes) <= MAX_SPEC else _of_spec(spec_bytes)


@lru_cache(maxsize=MAX_SPECS)
def _remembered(spec_bytes: bytes) -> _Known:
    """Pods of one template cost one computation."""
    return _of_spec(spec_bytes)


def _of_spec(spec_bytes: bytes) -> _Known:
    spec = PodSpec.FromString(spec_bytes)
    requests = combine(spec, lambda container: amounts(container.resources.requests))
    for name, requested in pod_level(spec.resources.requests).items():
        requests[name] = requested
    requests.update(amounts(spec.overhead))
    counts, scopes = _counts(PODS), _pod_scopes(spec)
    whole = Use((*counts, (PODS.plural, 1), *sorted(_computed(requests, spec_limits(spec)).items())), scopes)
    of_pod = _said(spec.resources)
    said = {each.name: _said(each.resources) | of_pod for each in (*spec.containers, *spec.initContainers)}
    return _Known(whole, Use(counts, scopes), said)


def _said(resources: ResourceRequirements) -> frozenset[str]:
    return frozenset(_computed(amounts(resources.requests), amounts(resources.limits)))


def _computed(requests: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    found = {f"limits.{name}": limits[name] for name in limits if name in CONTAINER}
    for name, requested in requests.items():
        if name in CONTAINER or name.startswith(HUGE_PAGES):
            found[name] = found[f"requests.{name}"] = requested
        elif is_extended_resource(name):
            found[f"requests.{name}"] = requested
    return found


def _pod_scopes(spec: PodSpec) -> Scopes:
    terminating, best_effort = spec.HasField("activeDeadlineSeconds"), qos_class(spec) == "BestEffort"
    scopes = {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "CrossNamespacePodAffinity": any(term.namespaces or term.HasField("namespaceSelector") for term in _terms(spec)),
    }
    classes = frozenset(filter(None, (spec.priorityClassName,)))
    return (*((name, _IN if inside else frozenset[str]()) for name, inside in scopes.items()), ("PriorityClass", classes))


def _terms(spec: PodSpec) -> list[PodAffinityTerm]:
    sides = (spec.affinity.podAffinity, spec.affinity.podAntiAffinity)
    required = [term for side in sides for term in side.requiredDuringSchedulingIgnoredDuringExecution]
    return required + [each.podAffinityTerm for side in sides for each in side.preferredDuringSchedulingIgnoredDuringExecution]


def _claim(claim: PersistentVolumeClaim) -> tuple[tuple[str, int], ...]:
    """Beside that it is there: its size, and both again for its class. One that asks for less than it was given, because it
    could not grow, still has that."""
    storage_class = class_of(claim)
    size = max(_storage(claim.spec.resources.requests), _storage(claim.status.allocatedResources))
    found = [("requests.storage", size)]
    if storage_class:
        of_class = f"{storage_class}.storageclass.storage.k8s.io"
        found += [(f"{of_class}/{PERSISTENT_VOLUME_CLAIMS.plural}", 1), (f"{of_class}/requests.storage", size)]
    return tuple(found)


def _storage(quantities: Mapping[str, Quantity]) -> int:
    """0 if it is not said, or is no quantity: once there was no rule about what claims were given."""
    with suppress(QuantityError):
        return amount("storage", quantities["storage"].string) if "storage" in quantities else 0
    return 0


def _claim_scopes(claim: PersistentVolumeClaim) -> Scopes:
    status = claim.status
    named = (
        claim.spec.volumeAttributesClassName,
        status.currentVolumeAttributesClassName,
        status.modifyVolumeStatus.targetVolumeAttributesClassName,
    )
    return (("VolumeAttributesClass", frozenset(filter(None, named))),)


def _service(service: Service) -> tuple[tuple[str, int], ...]:
    spec = service.spec
    match spec.type:
        case "NodePort":
            return (("services.nodeports", len(spec.ports)),)
        case "LoadBalancer":
            allocates = not spec.HasField("allocateLoadBalancerNodePorts") or spec.allocateLoadBalancerNodePorts
            ports = len(spec.ports) if allocates else sum(bool(port.nodePort) for port in spec.ports)
            return (("services.loadbalancers", 1), ("services.nodeports", ports))
    return ()


_KINDS = {resource.message: resource for resource in COUNTED}
_PLAIN = {resource.message: Use(_counts(resource)) for resource in COUNTED}
"""By type, of objects that use nothing but a place."""
