"""Violations of single fields with Kubernetes' messages, and the validation of types that many kinds use.

These types are numbers, percentages, labels, annotations, selectors, ObjectMeta, IP addresses, networks, ports, resource names
and resource lists. Thousands of pods have equal resource requirements, so the violations of a container's requirements are
cached by the bytes of the message.

Source: k8s.io/apimachinery/pkg/util/validation/field, pkg/apis/core/helper and pkg/apis/core/validation of Kubernetes 1.36.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

from google.protobuf.message import Message

from pinnace.api import names, quantity
from pinnace.api.core_v1_pb2 import PodSpec, ResourceRequirements
from pinnace.api.integers import parse_int32
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import LabelSelector, ObjectMeta, OwnerReference, Time
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import MAX_INT32, STRING
from pinnace.api.selectors import MAX_REQUIREMENTS
from pinnace.api.status import Violation
from pinnace.api.wellknown import COST_ANNOTATION, FOREGROUND_FINALIZER, NAMESPACE_FINALIZER, ORPHAN_FINALIZER
from pinnace.fit.requests import combine_containers, is_pod_level, pod_level_amounts

MAX_SHOWN = 128
"""Maximum number of characters of a value in a message. The violation may be the size of the value."""
NEGATIVE = "must be greater than or equal to 0"
NOT_POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"

Value = str | int | bool | Sequence[str] | Sequence[int] | Mapping[str, Any] | None
"""None is shown as null, as Go's lists and maps that a client omits."""

FULL_PERCENT = 100
"""In percent."""
_match_percent = re.compile(r"[0-9]+%").fullmatch
_MAX_DIGITS = len(str(MAX_INT32))
_PERCENT_FORMAT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%', or '93%', regex used for validation is '[0-9]+%')"
)

MAX_ANNOTATIONS = 256 << 10
"""Maximum total size of the keys and values in bytes."""
MAX_SELECTOR_VALUES = 1000
"""Maximum number of values in all requirements of a selector."""

STANDARD_FINALIZERS = (NAMESPACE_FINALIZER, ORPHAN_FINALIZER, FOREGROUND_FINALIZER)
"""Finalizers without a domain. Other finalizers need one, as in "example.com/mine"."""
MAX_OWNER_REFERENCES = 100
"""Maximum number of ownerReferences. The garbage collector requests each unknown owner from the API. Kubernetes has no such
limit."""
NameCheck = Callable[[str], tuple[str, ...]]

MAX_PORT = 65535
MAX_IP = 45
"""Length of the longest address in characters: IPv6 with an embedded IPv4 address."""
MAX_NETWORK = MAX_IP + len("/128")
_NETWORK_PATTERN = re.compile(r"[0-9A-Fa-f:.]+/[0-9]+")
"""Excludes formats that only the module ipaddress accepts: netmasks, addresses without a prefix length, and zones."""

_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))

_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_is_http_path = re.compile(_HTTP_PATH).fullmatch

HUGE_PAGES = "hugepages-"
CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources of containers, except huge pages and extended resources."""
COUNTED_RESOURCES = frozenset({
    "pods", "services", "services.nodeports", "services.loadbalancers", "replicationcontrollers", "resourcequotas", "secrets",
    "configmaps", "persistentvolumeclaims",
})  # fmt: skip
"""Resources in whole numbers, except extended resources."""
_QUOTA_RESOURCES = (
    CONTAINER_RESOURCES
    | COUNTED_RESOURCES
    | {"requests.storage"}
    | {f"{prefix}.{name}" for prefix in ("requests", "limits") for name in CONTAINER_RESOURCES}
)
_STANDARD_RESOURCES = _QUOTA_RESOURCES | {"storage"}
_QUOTA_HUGE_PAGES = (HUGE_PAGES, f"requests.{HUGE_PAGES}")

MAX_CACHED_REQUIREMENTS = 512
"""Maximum size in bytes of a message in the cache."""

_POD_LEVEL_RESOURCES = ("cpu", "hugepages-*", "memory")


def required(field: str, detail: str = "") -> Violation:
    return Violation(field, f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: Value, detail: str = "") -> Violation:
    shown = f"Invalid value: {_format_value(value)}"
    return Violation(field, f"{shown}: {detail}" if detail else shown)


def invalid_object(field: str, detail: str) -> Violation:
    """Return the violation of a field whose value is not shown."""
    return Violation(field, f"Invalid value: {detail}")


def unsupported(field: str, value: Value, supported: Iterable[str]) -> Violation:
    return Violation(
        field, f"Unsupported value: {_format_value(value)}: supported values: {', '.join(map(_format_value, supported))}"
    )


def duplicate(field: str, value: Value, detail: str = "") -> Violation:
    return Violation(
        field, f"Duplicate value: {_format_value(value)}: {detail}" if detail else f"Duplicate value: {_format_value(value)}"
    )


def not_found(field: str, value: str) -> Violation:
    return Violation(field, f"Not found: {_format_value(value)}")


def forbidden(field: str, detail: str) -> Violation:
    return Violation(field, f"Forbidden: {detail}")


def too_long(field: str, limit: int) -> Violation:
    return Violation(field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, number: int, limit: int) -> Violation:
    return Violation(field, f"Too many: {number}: must have at most {limit} items")


def range_message(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def _format_value(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(_truncate(value), ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    plain: object
    if isinstance(value, Mapping):
        shortened = islice(value.items(), MAX_SHOWN)
        plain = {key[:MAX_SHOWN]: text[:MAX_SHOWN] if isinstance(text, str) else text for key, text in shortened}
    else:
        items = islice(value, MAX_SHOWN)  # a long list may have as many violations
        plain = [item[:MAX_SHOWN] if isinstance(item, str) else item for item in items]
    return _truncate(json.dumps(plain, ensure_ascii=False, separators=(",", ":")))


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def validate_no_null(text: str, path: str, out: list[Violation]) -> None:
    """Check for null characters, which end strings in system calls. In Kubernetes the container runtime refuses them."""
    if "\0" in text:
        out.append(invalid(path, text, "must not contain null characters"))


def not_negative(message: Message, path: str, fields: Iterable[str], out: list[Violation]) -> None:
    """Check that no field of the message is negative."""
    values = {field: getattr(message, field) for field in fields}
    out.extend(invalid(f"{path}.{field}", value, NEGATIVE) for field, value in values.items() if value < 0)


def validate_bound(bound: IntOrString, path: str, out: list[Violation], *, most: int = MAX_INT32) -> None:
    """Check a number or a percentage. `most`: maximum in percent. Kubernetes accepts percentages of any length if there is no
    maximum."""
    if bound.type != STRING:
        if bound.intVal < 0:
            out.append(invalid(path, bound.intVal, NEGATIVE))
    elif not _match_percent(bound.strVal):
        out.append(invalid(path, bound.strVal, _PERCENT_FORMAT))
    elif len(digits := bound.strVal[:-1].lstrip("0")) > _MAX_DIGITS or int(digits or "0") > most:
        out.append(invalid(path, bound.strVal, f"must not be greater than {most}%"))


def is_zero_bound(bound: IntOrString) -> bool:
    """Return whether the bound is 0 or 0%."""
    return not bound.strVal.strip("0%") if bound.type == STRING else not bound.intVal


def validate_labels(labels: Mapping[str, str], path: str, out: list[Violation]) -> None:
    for key, value in labels.items():
        if problems := names.label_key(key):
            out.extend(invalid(path, key, problem) for problem in problems)
        if problems := names.label_value(value):
            out.extend(invalid(path, value, problem) for problem in problems)


def validate_annotations(annotations: Mapping[str, str], path: str, out: list[Violation]) -> None:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + (len(value) if value.isascii() else len(value.encode()))
        if problems := names.label_key(key.lower()):
            out.extend(invalid(path, key, problem) for problem in problems)
    if size > MAX_ANNOTATIONS:
        out.append(too_long(path, MAX_ANNOTATIONS))


def validate_pod_annotations(annotations: Mapping[str, str], path: str, out: list[Violation]) -> None:
    """Validate the annotations that have a meaning on pods."""
    cost = annotations.get(COST_ANNOTATION)
    if cost is not None and parse_int32(cost) is None:
        out.append(invalid(f"{path}[{COST_ANNOTATION}]", cost, "must be a 32bit integer"))


def validate_selector(selector: LabelSelector, path: str, out: list[Violation]) -> None:
    requirements = len(selector.matchLabels) + len(selector.matchExpressions)
    number = sum(len(match_expression.values) for match_expression in selector.matchExpressions)
    if requirements > MAX_REQUIREMENTS:
        out.append(too_many(path, requirements, MAX_REQUIREMENTS))
    if number > MAX_SELECTOR_VALUES:
        out.append(too_many(f"{path}.matchExpressions.values", number, MAX_SELECTOR_VALUES))
    validate_labels(selector.matchLabels, f"{path}.matchLabels", out)
    for index, requirement in enumerate(selector.matchExpressions):
        where = f"{path}.matchExpressions[{index}]"
        values = requirement.values
        match requirement.operator:
            case "In" | "NotIn":
                if not values:
                    out.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            case "Exists" | "DoesNotExist":
                if values:
                    detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    out.append(forbidden(f"{where}.values", detail))
            case operator:
                out.append(invalid(f"{where}.operator", operator, "not a valid selector operator"))
        validate_key(requirement.key, f"{where}.key", out)
        validate_values(values, f"{where}.values", out)


def validate_key(key: str, path: str, out: list[Violation]) -> None:
    """Check that a key of a label or taint, or a condition type, is a qualified name."""
    out.extend(invalid(path, key, problem) for problem in names.label_key(key))


def validate_domain_prefixed_path(text: str, path: str, out: list[Violation]) -> None:
    """Check that the text is a domain and a path: "example.com/controller"."""
    if not text:
        out.append(required(path))
        return
    domain, _, http_path = text.partition("/")
    if not domain or not http_path:
        out.append(invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")'))
        return
    out.extend(invalid(path, domain, problem) for problem in names.dns_subdomain(domain))
    if not _is_http_path(http_path):
        out.append(invalid(path, http_path, f"Invalid path (regex used for validation is '{_HTTP_PATH}')"))


def validate_values(values: Sequence[str], path: str, out: list[Violation]) -> None:
    for index, value in enumerate(values):
        out.extend(invalid(f"{path}[{index}]", value, problem) for problem in names.label_value(value))


def validate_metadata(
    metadata: ObjectMeta,
    out: list[Violation],
    *,
    namespaced: bool,
    name_check: NameCheck = names.dns_subdomain,
    any_finalizer: bool = False,
) -> None:
    """`any_finalizer`: finalizers without a domain need not be standard ones, as for definitions and custom objects."""
    name, prefix, namespace = metadata.name, metadata.generateName, metadata.namespace
    if prefix:
        out.extend(
            invalid("metadata.generateName", prefix, problem) for problem in name_check(names.complete_generate_name(prefix))
        )
    if not name:
        out.append(required("metadata.name", "name or generateName is required"))
    elif problems := name_check(name):
        out.extend(invalid("metadata.name", name, problem) for problem in problems)
    if namespaced:
        if not namespace:
            out.append(required("metadata.namespace"))
        elif problems := names.dns_label(namespace):
            out.extend(invalid("metadata.namespace", namespace, problem) for problem in problems)
    elif namespace:
        out.append(forbidden("metadata.namespace", "not allowed on this type"))
    if labels := metadata.labels:
        validate_labels(labels, "metadata.labels", out)
    if annotations := metadata.annotations:
        validate_annotations(annotations, "metadata.annotations", out)
    if owners := metadata.ownerReferences:
        _validate_owners(owners, out)
    for finalizer in metadata.finalizers:
        (validate_key if any_finalizer else validate_finalizer)(finalizer, "metadata.finalizers", out)
    if ORPHAN_FINALIZER in metadata.finalizers and FOREGROUND_FINALIZER in metadata.finalizers:
        detail = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        out.append(invalid("metadata.finalizers", metadata.finalizers, detail))


def validate_finalizer(finalizer: str, path: str, out: list[Violation]) -> None:
    validate_key(finalizer, path, out)
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        out.append(invalid(path, finalizer, detail))


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta, out: list[Violation]) -> None:
    """Validate the change, but not the new metadata."""
    for field in ("name", "namespace", "uid"):
        value = getattr(new, field)
        if value != getattr(old, field):
            out.append(invalid(f"metadata.{field}", value, IMMUTABLE))
    for field in ("creationTimestamp", "deletionTimestamp"):
        instant: Time = getattr(new, field)
        if instant != getattr(old, field):
            out.append(invalid(f"metadata.{field}", instant.seconds, IMMUTABLE))
    if old.HasField("deletionTimestamp"):
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {', '.join(added)}"
            out.append(forbidden("metadata.finalizers", detail))


def _validate_owners(owners: Sequence[OwnerReference], out: list[Violation]) -> None:
    if (
        len(owners) > MAX_OWNER_REFERENCES
    ):  # the message omits the number, so that updates of an object with more owners can succeed
        out.append(Violation("metadata.ownerReferences", f"Too many: must have at most {MAX_OWNER_REFERENCES} items"))
    controller = ""
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        empty = [field for field in ("apiVersion", "kind", "name", "uid") if not getattr(owner, field)]
        out.extend(required(f"{path}.{field}", "must not be empty") for field in empty)
        if owner.apiVersion.count("/") > 1 or owner.apiVersion.endswith("/"):
            out.append(invalid(f"{path}.apiVersion", owner.apiVersion, "must be <group>/<version> or <version>"))
        if (owner.apiVersion, owner.kind) == ("v1", "Event"):
            out.append(invalid(path, owner.name, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.controller:
            this = f"{owner.kind}/{owner.name}"
            if controller:
                detail = "Only one reference can have Controller set to true. "
                detail += f'Found "true" in references for {controller} and {this}'
                out.append(invalid("metadata.ownerReferences", this, detail))
            controller = controller or this


def validate_ip(text: str, path: str, out: list[Violation]) -> None:
    if not is_ip(text):
        out.append(invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))


def is_ip(text: str) -> bool:
    return len(text) <= MAX_IP and _is_ip(text)


@lru_cache(maxsize=4096)
def _is_ip(text: str) -> bool:
    """Return whether the text is an IP address. Cached: most addresses occur several times."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, text)
            return True
    return False


def validate_external_ip(text: str, path: str, out: list[Violation]) -> None:
    """Check an address for external clients: it must not be unspecified, loopback or link-local."""
    violations: list[Violation] = []
    validate_ip(text, path, violations)
    out.extend(violations)
    if violations:
        return
    address = ipaddress.ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        out.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        out.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        out.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if any(address in network for network in _LINK_LOCAL_MULTICAST):
        out.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))


def validate_network(text: str, path: str, out: list[Violation]) -> int:
    """Check a CIDR and return its IP version, or 0 if it is invalid."""
    try:
        if len(text) > MAX_NETWORK or not _NETWORK_PATTERN.fullmatch(text):
            raise ValueError
        return ipaddress.ip_network(text, strict=False).version
    except ValueError:
        out.append(invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
        return 0


def validate_port(port: int, path: str, out: list[Violation]) -> None:
    if not 1 <= port <= MAX_PORT:
        out.append(invalid(path, port, range_message(1, MAX_PORT)))


def validate_port_or_name(port: IntOrString, path: str, out: list[Violation]) -> None:
    if port.type == STRING:
        out.extend(invalid(path, port.strVal, problem) for problem in names.port_name(port.strVal))
    else:
        validate_port(port.intVal, path, out)


def resource_name_problems(name: str) -> tuple[str, ...]:
    """Return the errors in a resource name."""
    return names.label_key(name) or _check_unqualified_name(name)


def container_resource_problems(name: str) -> tuple[str, ...]:
    """Return the errors in the name of a container's resource."""
    if name in CONTAINER_RESOURCES:
        return names.OK
    if problems := names.label_key(name):
        return problems
    if "/" not in name:
        known = name.startswith(HUGE_PAGES)
        return names.OK if known else (*_check_unqualified_name(name), "must be a standard resource for containers")
    known = names.is_native_resource(name) or names.is_extended_resource(name)
    return names.OK if known else ("doesn't follow extended resource name standard",)


def quota_resource_problems(name: str) -> tuple[str, ...]:
    """Return the errors in the name of a quota's resource."""
    if problems := names.label_key(name):
        return problems
    return (
        names.OK
        if "/" in name or is_quota_resource(name)
        else (*_check_unqualified_name(name), "must be a standard resource for quota")
    )


def is_quota_resource(name: str) -> bool:
    """Return whether Kubernetes defines this resource for quotas."""
    return name in _QUOTA_RESOURCES or name.startswith(_QUOTA_HUGE_PAGES)


def can_overcommit(name: str) -> bool:
    """Return whether limits may exceed requests."""
    return names.is_native_resource(name) and not name.startswith(HUGE_PAGES)


def _check_unqualified_name(name: str) -> tuple[str, ...]:
    known = "/" in name or name in _STANDARD_RESOURCES or name.startswith(_QUOTA_HUGE_PAGES)
    return names.OK if known else ("must be a standard resource type or fully qualified",)


def validate_requirements(resources: ResourceRequirements, path: str, out: list[Violation]) -> None:
    """Validate the resource requirements of a container or pod."""
    encoded = resources.SerializeToString()
    judged = (
        _cached_requirement_violations(encoded) if len(encoded) <= MAX_CACHED_REQUIREMENTS else _requirement_violations(encoded)
    )
    if judged:
        out.extend(Violation(path + violation.field, violation.message) for violation in judged)


@lru_cache(maxsize=4096)
def _cached_requirement_violations(encoded: bytes) -> tuple[Violation, ...]:
    return _requirement_violations(encoded)


def _requirement_violations(encoded: bytes) -> tuple[Violation, ...]:
    """Return the violations of encoded ResourceRequirements. Their fields are relative to the message."""
    out: list[Violation] = []
    resources = ResourceRequirements.FromString(encoded)
    limits = _validate_amounts(resources.limits, ".limits", out)
    requests = _validate_amounts(resources.requests, ".requests", out)
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not can_overcommit(name) and name not in resources.limits:
                out.append(required(".limits", "Limit must be set for non overcommitable resources"))
        elif request != limit and not can_overcommit(name):
            detail = f"must be equal to {name} limit of {resources.limits[name].string}"
            out.append(invalid(".requests", resources.requests[name].string, detail))
        elif request > limit:
            detail = f"must be less than or equal to {name} limit of {resources.limits[name].string}"
            out.append(invalid(".requests", resources.requests[name].string, detail))
    asked = {*resources.limits, *resources.requests}
    if asked.isdisjoint(("cpu", "memory")) and any(name.startswith(HUGE_PAGES) for name in asked):
        out.append(forbidden("", "HugePages require cpu or memory"))
    return tuple(out)


def validate_pod_requirements(spec: PodSpec, out: list[Violation]) -> None:
    """Validate the resources of a pod by themselves, and against those of its containers."""
    path, resources = "spec.resources", spec.resources
    for field, quantities in (("limits", resources.limits), ("requests", resources.requests)):
        wrong = [name for name in sorted(quantities) if not is_pod_level(name)]
        out.extend(unsupported(f"{path}.{field}[{name[: names.MAX_KEY]}]", name, _POD_LEVEL_RESOURCES) for name in wrong)
    validate_requirements(resources, path, out)
    try:
        of_containers = combine_containers(spec, lambda container: quantity.amounts(container.resources.requests))
        limits, requests = pod_level_amounts(resources.limits), pod_level_amounts(resources.requests)
        of_each = [(index, quantity.amounts(each.resources.limits)) for index, each in enumerate(spec.containers)]
    except quantity.QuantityError:  # the check of the container reports it
        return
    for name, requested in requests.items():
        if requested < of_containers[name]:
            total = quantity.format_amount(name, of_containers[name])
            detail = f"must be greater than or equal to aggregate container requests of {total}"
            out.append(invalid(f"{path}.requests[{name}]", resources.requests[name].string, detail))
    for index, own in of_each:
        for name in sorted(own.keys() & limits.keys()):
            if own[name] > limits[name]:
                detail = f"must be less than or equal to pod limits of {resources.limits[name].string}"
                text = spec.containers[index].resources.limits[name].string
                out.append(invalid(f"spec.containers[{index}].resources.limits[{name}]", text, detail))


def validate_overhead(overhead: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    """Validate the overhead of a pod."""
    _validate_amounts(overhead, path, out)


def validate_capacity(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> None:
    """Validate the resources of a node, which may have any name."""
    for name, amount in amounts.items():
        validate_amount(name, amount.string, f"{path}[{name[: names.MAX_KEY]}]", out)


def _validate_amounts(amounts: Mapping[str, Quantity], path: str, out: list[Violation]) -> dict[str, Decimal]:
    """Validate container resources and return the valid values by name."""
    values = {}
    for name, amount in sorted(amounts.items()):
        where = f"{path}[{name[: names.MAX_KEY]}]"
        out.extend(invalid(where, name, problem) for problem in container_resource_problems(name))
        value = validate_amount(name, amount.string, where, out)
        if value is not None:
            values[name] = value
            if name.startswith(HUGE_PAGES) and not _is_multiple_of_page_size(name, amount.string):
                size = name.removeprefix(HUGE_PAGES)[: names.MAX_KEY]
                detail = f"must be a positive integer multiple of the page size {size}"
                out.append(invalid(where, amount.string, detail))
    return values


def _is_multiple_of_page_size(name: str, text: str) -> bool:
    """Return whether an amount of huge pages is a multiple of the page size in the name. False if the size is invalid."""
    try:
        size = quantity.parse(name.removeprefix(HUGE_PAGES))
    except quantity.QuantityError:
        return False
    return size > 0 and size == size.to_integral_value() and quantity.amount(name, text) % size == 0


def validate_amount(name: str, text: str, path: str, out: list[Violation]) -> Decimal | None:
    """Check the amount of a resource and return its value, or None if it is invalid."""
    try:
        value = quantity.parse(text)
    except quantity.QuantityError as error:
        out.append(invalid(path, text, str(error)))
        return None
    if value < 0:
        out.append(invalid(path, text, NEGATIVE))
    if (name in COUNTED_RESOURCES or names.is_extended_resource(name)) and value != value.to_integral_value():
        out.append(invalid(path, text, "must be an integer"))
    return value
