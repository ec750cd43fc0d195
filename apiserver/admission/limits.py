"""Admission plugins that limit resources.

LimitRanger sets the default requests and limits of the namespace's LimitRanges in containers, and refuses pods and claims
outside the allowed range. It checks pods when they are created or resized, and claims when they are created or their resources
change.

Source: https://kubernetes.io/docs/concepts/policy/limit-range/; plugin/pkg/admission/limitranger of Kubernetes 1.36, including
the messages.

ResourceQuota refuses objects that exceed a quota of the namespace, and pods without the requests or limits that the quota
requires. This check uses the cache, and serves dry runs and early refusals. The exact check is made when the object is stored
(apiserver.quota).

Source: https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from pinnace.api.core_v1_pb2 import Container, LimitRange, LimitRangeItem, PersistentVolumeClaim, Pod, PodSpec
from pinnace.api.ownership import exclude_added
from pinnace.api.quantity import QuantityError, amount, amounts, format_amount, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import CUSTOM_OBJECTS, LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS, Object
from pinnace.api.wellknown import LIMITS_ANNOTATION
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.quota.ledger import QuotaStates, UsageTally
from pinnace.apiserver.quota.usage import COUNTED, compute_usage, counted_resource
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.fit.requests import combine_containers, pod_level_amounts
from pinnace.runtime.clock import Clock

"""Lists the defaults that the plugin has set."""


class Amount(NamedTuple):
    """A parsed quantity. `value` is in the unit of pinnace.api.quantity; `text` is the form for messages."""

    value: int
    text: str


Amounts: TypeAlias = Mapping[str, Amount]
"""By resource name."""


def _containers_of(pod: Pod) -> Pod:
    """Return a pod with only the containers of another one."""
    return Pod(spec=PodSpec(containers=pod.spec.containers, initContainers=pod.spec.initContainers))


class LimitRanger:
    resources = (PODS,)
    validated_operations = (
        (AdmissionOperation.CREATE, PODS),
        (AdmissionOperation.RESIZE, PODS),
        (AdmissionOperation.CREATE, PERSISTENT_VOLUME_CLAIMS),
        (AdmissionOperation.UPDATE, PERSISTENT_VOLUME_CLAIMS),
    )

    def __init__(self, ranges: ResourceCache[LimitRange]) -> None:
        self._ranges = ranges
        self._everything = SelectionPredicate.parse(LIMIT_RANGES, "", "", "")
        self._limits_cache: tuple[int, Mapping[str, Sequence[LimitRangeItem]]] = (-1, {})
        """The version of the LimitRange cache, and the limits by namespace at that version."""

    def admit(self, request: WriteRequest, obj: Pod) -> None:
        said = list[str]()
        limits = self._find_limits(obj.metadata.namespace)
        before = _containers_of(obj) if limits else None
        for item in limits:
            if item.type == "Container":
                said += [
                    text for container in obj.spec.containers for text in _set_container_defaults(container, "container", item)
                ]
                said += [
                    text
                    for container in obj.spec.initContainers
                    for text in _set_container_defaults(container, "init container", item)
                ]
        if said and before is not None:
            ownership = obj.metadata.ownership
            obj.metadata.ownership = exclude_added(PODS, ownership, before, _containers_of(obj))
            obj.metadata.annotations[LIMITS_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(said)}"

    def validate(
        self,
        request: WriteRequest,
        operation: AdmissionOperation,
        obj: Pod | PersistentVolumeClaim,
        old: PersistentVolumeClaim | None,
    ) -> None:
        if isinstance(obj, PersistentVolumeClaim) and old is not None and old.spec.resources == obj.spec.resources:
            return
        problems = [problem for item in self._find_limits(obj.metadata.namespace) for problem in _item_violations(item, obj)]
        if problems:
            said = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            plural = (PODS if isinstance(obj, Pod) else PERSISTENT_VOLUME_CLAIMS).plural
            raise Rejected(errors.forbidden(f'{plural} "{obj.metadata.name}" is forbidden: {said}'))

    def _find_limits(self, namespace: str) -> Sequence[LimitRangeItem]:
        version, limits = self._limits_cache
        if version != self._ranges.version:
            items_by_type: dict[str, list[LimitRangeItem]] = {}
            for entry in self._ranges.select(self._everything):
                items_by_type.setdefault(entry.obj.metadata.namespace, []).extend(entry.obj.spec.limits)
            limits = items_by_type
            self._limits_cache = self._ranges.version, limits
        return limits.get(namespace, ())


def _set_container_defaults(container: Container, what: str, item: LimitRangeItem) -> Iterator[str]:
    """Set missing requests and limits, and yield a description of each change. If a limit is set, the request is not missing,
    because it defaults to the limit."""
    requests, limits = container.resources.requests, container.resources.limits
    for word, target, defaults, given in (
        ("request", requests, item.defaultRequest, requests.keys() | limits.keys()),
        ("limit", limits, item.default, limits.keys()),
    ):
        if missing := sorted(defaults.keys() - given):
            for name in missing:
                target[name].CopyFrom(defaults[name])
            yield f"{', '.join(missing)} {word} for {what} {container.name}"


def _item_violations(item: LimitRangeItem, obj: Pod | PersistentVolumeClaim) -> Iterator[str]:
    """Yield the violations of one item of a LimitRange."""
    match item.type, obj:
        case "Container", Pod():
            for container in _all_containers(obj.spec):
                requests, limits = _parse_amounts(container.resources.requests), _parse_amounts(container.resources.limits)
                yield from _minimum_violations(item, requests, limits)
                yield from _maximum_violations(item, requests, limits)
                yield from _ratio_violations(item, requests, limits)
        case "Pod", Pod():
            whole = obj.spec.resources
            requests = {
                **_total_of_containers(obj.spec, lambda container: amounts(container.resources.requests)),
                **_pod_level_amounts(whole.requests),
            }
            limits = {
                **_total_of_containers(obj.spec, lambda container: amounts(container.resources.limits)),
                **_pod_level_amounts(whole.limits),
            }
            yield from _minimum_violations(item, requests, limits)
            yield from _maximum_violations(item, requests, limits)
            yield from _ratio_violations(item, requests, limits)
        case "PersistentVolumeClaim", PersistentVolumeClaim():
            requests = _parse_amounts(obj.spec.resources.requests)
            yield from _minimum_violations(item, requests, {})
            yield from _maximum_violations(item, requests, None)


def _minimum_violations(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in _sorted_amounts(item.min):
        said = f"minimum {name} usage per {item.type} is {least.text}"
        if name not in requests:
            yield f"{said}.  No request is specified"
        elif requests[name].value < least.value:
            yield f"{said}, but request is {requests[name].text}"
        elif name in limits and limits[name].value < least.value:
            yield f"{said}, but limit is {limits[name].text}"


def _maximum_violations(item: LimitRangeItem, requests: Amounts, limits: Amounts | None) -> Iterator[str]:
    """`limits` is None for objects without limits."""
    for name, most in _sorted_amounts(item.max):
        said = f"maximum {name} usage per {item.type} is {most.text}"
        if limits is not None and name not in limits:
            yield f"{said}.  No limit is specified"
        elif limits is not None and limits[name].value > most.value:
            yield f"{said}, but limit is {limits[name].text}"
        elif limits is None and name not in requests:
            yield f"{said}.  No request is specified"
        elif name in requests and requests[name].value > most.value:
            yield f"{said}, but request is {requests[name].text}"


def _ratio_violations(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, ratio in sorted(item.maxLimitRequestRatio.items()):
        said = f"{name} max limit to request ratio per {item.type} is {ratio.string}"
        if name not in requests or not requests[name].value:
            yield f"{said}, but no request is specified or request is 0"
        elif name not in limits or not limits[name].value:
            yield f"{said}, but no limit is specified or limit is 0"
        elif (amount := Decimal(limits[name].value) / requests[name].value) > parse(ratio.string):
            yield f"{said}, but provided ratio is {amount:.6f}"


def _sorted_amounts(quantities: Mapping[str, Quantity]) -> list[tuple[str, Amount]]:
    return sorted(_parse_amounts(quantities).items())


def _parse_amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    """Parse the quantities. Invalid ones are omitted: claims that an earlier version stored can contain them."""
    amounts = dict[str, Amount]()
    for name, quantity in quantities.items():
        with suppress(QuantityError):
            amounts[name] = Amount(amount(name, quantity.string), quantity.string)
    return amounts


def _total_of_containers(spec: PodSpec, of: Callable[[Container], Mapping[str, int]]) -> Amounts:
    """Return the total of all containers of a pod, without its overhead, as in Kubernetes."""
    total = combine_containers(spec, of)
    named = {name for container in _all_containers(spec) for name in of(container)}
    return {name: Amount(total[name], format_amount(name, total[name])) for name in named}


def _pod_level_amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: Amount(total, quantities[name].string) for name, total in pod_level_amounts(quantities).items()}


def _all_containers(spec: PodSpec) -> Iterable[Container]:
    return (*spec.containers, *spec.initContainers)


class ResourceQuota:
    validated_operations = tuple((AdmissionOperation.CREATE, resource) for resource in (*COUNTED, CUSTOM_OBJECTS))

    def __init__(self, states: QuotaStates, tally: UsageTally, clock: Clock) -> None:
        self._states = states
        self._tally = tally
        self._clock = clock

    def validate(self, request: WriteRequest, operation: AdmissionOperation, obj: Object, old: None) -> None:
        """Raise Rejected if a quota is exceeded. The stored usage can be too high, so it is recounted before an object is
        refused."""
        namespace = obj.metadata.namespace
        if namespace not in self._states.keys_by_namespace:
            return
        use = compute_usage(obj, self._clock.time(), request.qualified)
        for state in self._states.cached_states(namespace):
            bounds, share = state.bounds, state.bounds.usage_in_quota(use)
            problem = bounds.missing_requirements(obj, use) if isinstance(obj, Pod) else ""
            if not problem and share and (bounds.used is None or bounds.exceeded_message(bounds.used, share)):
                problem = bounds.exceeded_message(bounds.charged_usage(self._tally.usage_of(namespace)), share)
            if problem:
                raise Rejected(
                    errors.forbidden(
                        f'{request.qualified or counted_resource(obj).plural} "{obj.metadata.name}" is forbidden: {problem}'
                    )
                )
