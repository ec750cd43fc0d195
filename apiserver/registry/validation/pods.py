"""Validation of pod specs, which begins in `validate_spec`: affinity, topology spread constraints, scheduling gates, taints and
tolerations; and warnings about valid fields without the effect that they seem to have. Container fields are in `containers`,
volumes in `volumes`, and rules for updates in `pod_update`.

Deprecated annotations, Windows pods and stored pod templates are not validated.

Source: pkg/apis/core/validation, pkg/api/pod/warnings.go and the strategies of Kubernetes 1.36.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from pinnace.api import names
from pinnace.api.core_v1_pb2 import (
    Affinity,
    Container,
    EnvVar,
    HostAlias,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodDNSConfig,
    PodSchedulingGate,
    PodSpec,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.names import dns_label
from pinnace.api.pods import EFFECTS
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation
from pinnace.api.wellknown import OLD_REGION_LABEL, OLD_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from pinnace.apiserver.registry.validation.containers import (
    PodContext,
    validate_containers,
    validate_init_containers,
    validate_pod_security,
)
from pinnace.apiserver.registry.validation.fields import (
    NEGATIVE,
    NOT_POSITIVE,
    duplicate,
    forbidden,
    invalid,
    range_message,
    required,
    too_many,
    unsupported,
    validate_ip,
    validate_key,
    validate_labels,
    validate_overhead,
    validate_pod_requirements,
    validate_selector,
    validate_values,
)
from pinnace.apiserver.registry.validation.volumes import STORAGE_RESOURCE, validate_volumes

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_OPERATING_SYSTEMS = ("linux", "windows")
_MAX_INT32 = 2**31 - 1
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_LENGTH = 3, 32, 2048

_REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_OPERATOR = "not a valid selector operator"

_UNSATISFIABLE_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION_POLICIES = ("Honor", "Ignore")

_TOLERATION_OPERATORS = ("Equal", "Exists")
MAX_TAINTS = 100
"""Maximum number of taints per node. The scheduler compares each taint for each pod: 9,990 taints on one node added 8 ms to
each decision. Kubernetes has no such limit."""
_CONTROLLER_TAINTS = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "disk-pressure",
        "memory-pressure",
        "network-unavailable",
        "not-ready",
        "out-of-service",
        "pid-pressure",
        "unreachable",
        "unschedulable",
    )
)
"""Taints with these keys do not count, so that controllers can add them to any node."""

GA_LABELS = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    OLD_ZONE_LABEL: ZONE_LABEL,
    OLD_REGION_LABEL: REGION_LABEL,
}
"""The labels that replace deprecated ones."""
_BYTE_RESOURCES = ("memory", "ephemeral-storage", STORAGE_RESOURCE)


def validate_new_spec(spec: PodSpec) -> list[Violation]:
    """Return the violations of the spec of a new pod, after defaults."""
    out: list[Violation] = []
    validate_spec(spec, out)
    if spec.ephemeralContainers:
        out.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.nodeName and spec.schedulingGates:
        out.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return out


def validate_spec(spec: PodSpec, out: list[Violation]) -> None:
    """Validate the spec of a new or changed pod."""
    seconds = spec.terminationGracePeriodSeconds
    if seconds < 0:
        out.append(invalid("spec.terminationGracePeriodSeconds", seconds, NEGATIVE))
    volumes = spec.volumes
    mountable = validate_volumes(volumes, "spec.volumes", out) if volumes else {}
    context = PodContext(mountable, seconds, spec.hostNetwork)
    taken = validate_containers(spec.containers, context, out)
    if init_containers := spec.initContainers:
        validate_init_containers(init_containers, taken, context, out)
    _validate_policies(spec, out)
    _validate_names(spec, out)
    _validate_placement(spec, out)
    _validate_network(spec, out)
    if spec.HasField("securityContext"):
        validate_pod_security(spec.securityContext, "spec.securityContext", out)
    if spec.HasField("resources"):
        validate_pod_requirements(spec, out)
    if overhead := spec.overhead:
        validate_overhead(overhead, "spec.overhead", out)
    for index, gate in enumerate(spec.readinessGates):
        validate_key(gate.conditionType, f"spec.readinessGates[{index}].conditionType", out)


def _validate_policies(spec: PodSpec, out: list[Violation]) -> None:
    restart, dns = spec.restartPolicy, spec.dnsPolicy
    if restart not in RESTART_POLICIES:
        out.append(unsupported("spec.restartPolicy", restart, RESTART_POLICIES))
    if dns not in DNS_POLICIES:
        out.append(unsupported("spec.dnsPolicy", dns, DNS_POLICIES))
    if spec.HasField("preemptionPolicy") and spec.preemptionPolicy not in PREEMPTION_POLICIES:
        out.append(unsupported("spec.preemptionPolicy", spec.preemptionPolicy, PREEMPTION_POLICIES))
    if spec.HasField("activeDeadlineSeconds") and not 1 <= spec.activeDeadlineSeconds <= _MAX_INT32:
        out.append(invalid("spec.activeDeadlineSeconds", spec.activeDeadlineSeconds, range_message(1, _MAX_INT32)))
    if spec.HasField("os") and spec.os.name not in _OPERATING_SYSTEMS:
        out.append(unsupported("spec.os.name", spec.os.name, _OPERATING_SYSTEMS))
    if spec.hostPID and spec.shareProcessNamespace:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        out.append(invalid("spec.shareProcessNamespace", True, detail))
    if spec.HasField("hostUsers") and not spec.hostUsers:
        shared = [field for field in ("hostNetwork", "hostPID", "hostIPC") if getattr(spec, field)]
        out.extend(forbidden(f"spec.{field}", "when `hostUsers` is false") for field in shared)


def _validate_names(spec: PodSpec, out: list[Violation]) -> None:
    for field, value in (
        ("serviceAccountName", spec.serviceAccountName),
        ("nodeName", spec.nodeName),
        ("priorityClassName", spec.priorityClassName),
        ("runtimeClassName", spec.runtimeClassName),
    ):
        if value:
            out.extend(invalid(f"spec.{field}", value, problem) for problem in names.dns_subdomain(value))
    for field, value in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        if value:
            out.extend(invalid(f"spec.{field}", value, problem) for problem in names.dns_label(value))


def _validate_placement(spec: PodSpec, out: list[Violation]) -> None:
    if selector := spec.nodeSelector:
        validate_labels(selector, "spec.nodeSelector", out)
    if spec.HasField("affinity"):
        validate_affinity(spec.affinity, "spec.affinity", out)
    if tolerations := spec.tolerations:
        validate_tolerations(tolerations, "spec.tolerations", out)
    if constraints := spec.topologySpreadConstraints:
        validate_spreading(constraints, "spec.topologySpreadConstraints", out)
    if gates := spec.schedulingGates:
        validate_gates(gates, "spec.schedulingGates", out)


def _validate_network(spec: PodSpec, out: list[Violation]) -> None:
    for index, alias in enumerate(spec.hostAliases):
        _validate_alias(alias, f"spec.hostAliases[{index}]", out)
    if spec.HasField("dnsConfig"):
        _validate_dns(spec.dnsConfig, "spec.dnsConfig", out)
    if spec.dnsPolicy == "None" and not spec.dnsConfig.nameservers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        out.append(required("spec.dnsConfig.nameservers", detail))


def _validate_alias(alias: HostAlias, path: str, out: list[Violation]) -> None:
    validate_ip(alias.ip, f"{path}.ip", out)
    for index, hostname in enumerate(alias.hostnames):
        out.extend(invalid(f"{path}.hostnames[{index}]", hostname, problem) for problem in names.dns_subdomain(hostname))


def _validate_dns(config: PodDNSConfig, path: str, out: list[Violation]) -> None:
    count = len(config.nameservers)
    if count > _MAX_NAMESERVERS:
        out.append(invalid(f"{path}.nameservers", count, f"must not have more than {_MAX_NAMESERVERS} nameservers"))
    for index, nameserver in enumerate(config.nameservers):
        validate_ip(nameserver, f"{path}.nameservers[{index}]", out)
    count, length = len(config.searches), len(" ".join(config.searches))
    if count > _MAX_SEARCHES:
        out.append(invalid(f"{path}.searches", count, f"must not have more than {_MAX_SEARCHES} search paths"))
    if length > _MAX_SEARCH_LENGTH:
        detail = f"must not have more than {_MAX_SEARCH_LENGTH} characters (including spaces) in the search list"
        out.append(invalid(f"{path}.searches", length, detail))
    for index, search in enumerate(config.searches[:_MAX_SEARCHES]):
        out.extend(invalid(f"{path}.searches[{index}]", search, problem) for problem in names.search_domain(search))
    for index, option in enumerate(config.options):
        if not option.name:
            out.append(required(f"{path}.options[{index}]", "must not be empty"))


def validate_affinity(affinity: Affinity, path: str, out: list[Violation]) -> None:
    if affinity.HasField("nodeAffinity"):
        _validate_node_affinity(affinity.nodeAffinity, f"{path}.nodeAffinity", out)
    if affinity.HasField("podAffinity"):
        _validate_pod_affinity(affinity.podAffinity, f"{path}.podAffinity", out)
    if affinity.HasField("podAntiAffinity"):
        _validate_pod_affinity(affinity.podAntiAffinity, f"{path}.podAntiAffinity", out)


def _validate_node_affinity(affinity: NodeAffinity, path: str, out: list[Violation]) -> None:
    if affinity.HasField(_REQUIRED_TERMS):
        validate_node_selector(affinity.requiredDuringSchedulingIgnoredDuringExecution, f"{path}.{_REQUIRED_TERMS}", out)
    for index, preferred in enumerate(affinity.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{path}.{_PREFERRED_TERMS}[{index}]"
        _validate_weight(preferred.weight, where, out)
        _validate_node_term(preferred.preference, f"{where}.preference", out)


def validate_node_selector(selector: NodeSelector, path: str, out: list[Violation]) -> None:
    """Validate a node selector of a pod or of a persistent volume. One of its terms must match."""
    where = f"{path}.nodeSelectorTerms"
    if not selector.nodeSelectorTerms:
        out.append(required(where, "must have at least one node selector term"))
    for index, term in enumerate(selector.nodeSelectorTerms):
        _validate_node_term(term, f"{where}[{index}]", out)


def _validate_node_term(term: NodeSelectorTerm, path: str, out: list[Violation]) -> None:
    for index, requirement in enumerate(term.matchExpressions):
        _validate_expression(requirement, f"{path}.matchExpressions[{index}]", out)
    for index, requirement in enumerate(term.matchFields):
        _validate_field(requirement, f"{path}.matchFields[{index}]", out)


def _validate_expression(requirement: NodeSelectorRequirement, path: str, out: list[Violation]) -> None:
    operator, values = requirement.operator, requirement.values
    match operator:
        case "In" | "NotIn":
            if not values:
                out.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                out.append(forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        case "Gt" | "Lt":
            if len(values) != 1:
                out.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        case _:
            out.append(invalid(f"{path}.operator", operator, _NO_OPERATOR))
    validate_key(requirement.key, f"{path}.key", out)
    validate_values(values, f"{path}.values", out)


def _validate_field(requirement: NodeSelectorRequirement, path: str, out: list[Violation]) -> None:
    if requirement.operator not in ("In", "NotIn"):
        out.append(invalid(f"{path}.operator", requirement.operator, _NO_OPERATOR))
    elif len(requirement.values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        out.append(required(f"{path}.values", detail))
    if requirement.key != "metadata.name":
        out.append(invalid(f"{path}.key", requirement.key, "not a valid field selector key"))
        return
    for index, value in enumerate(requirement.values):
        out.extend(invalid(f"{path}.values[{index}]", value, problem) for problem in names.dns_subdomain(value))


def _validate_pod_affinity(affinity: PodAffinity | PodAntiAffinity, path: str, out: list[Violation]) -> None:
    for index, term in enumerate(affinity.requiredDuringSchedulingIgnoredDuringExecution):
        _validate_pod_term(term, f"{path}.{_REQUIRED_TERMS}[{index}]", out)
    for index, weighted in enumerate(affinity.preferredDuringSchedulingIgnoredDuringExecution):
        where = f"{path}.{_PREFERRED_TERMS}[{index}]"
        _validate_weight(weighted.weight, where, out)
        _validate_pod_term(weighted.podAffinityTerm, f"{where}.podAffinityTerm", out)


def _validate_pod_term(term: PodAffinityTerm, path: str, out: list[Violation]) -> None:
    validate_selector(term.labelSelector, f"{path}.labelSelector", out)
    validate_selector(term.namespaceSelector, f"{path}.namespaceSelector", out)
    for index, namespace in enumerate(term.namespaces):
        out.extend(invalid(f"{path}.namespaces[{index}]", namespace, problem) for problem in names.dns_label(namespace))
    has_selector = term.HasField("labelSelector")
    validate_label_keys(term.matchLabelKeys, has_selector, f"{path}.matchLabelKeys", out)
    validate_label_keys(term.mismatchLabelKeys, has_selector, f"{path}.mismatchLabelKeys", out)
    validate_merged_keys(term.matchLabelKeys, term.labelSelector, path, out)
    mismatched = set(term.mismatchLabelKeys)
    for index, key in enumerate(term.matchLabelKeys):
        if key in mismatched:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            out.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))
    if not term.topologyKey:
        out.append(required(f"{path}.topologyKey", "can not be empty"))
    else:
        validate_key(term.topologyKey, f"{path}.topologyKey", out)


def validate_label_keys(keys: Sequence[str], has_selector: bool, path: str, out: list[Violation]) -> None:
    """Validate matchLabelKeys or mismatchLabelKeys, whose values come from the labels of the pod."""
    if keys and not has_selector:
        out.append(forbidden(path, "must not be specified when labelSelector is not set"))
    for index, key in enumerate(keys):
        validate_key(key, f"{path}[{index}]", out)


def validate_merged_keys(keys: Sequence[str], selector: LabelSelector, path: str, out: list[Violation]) -> None:
    """Check that a selector contains no key of matchLabelKeys besides the requirement that was merged into it.

    `path`: that of the term; Kubernetes puts the index of the key behind it (validateMatchLabelKeysAndMismatchLabelKeys).
    """
    if not keys:
        return
    indices = {key: index for index, key in enumerate(keys)}
    selected = set(selector.matchLabels)
    for requirement in selector.matchExpressions:
        key = requirement.key
        if key in indices and key in selected:
            out.append(invalid(f"{path}[{indices[key]}]", key, "exists in both matchLabelKeys and labelSelector"))
        selected.add(key)


def _validate_weight(weight: int, path: str, out: list[Violation]) -> None:
    if not 1 <= weight <= 100:
        out.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def validate_spreading(constraints: Sequence[TopologySpreadConstraint], path: str, out: list[Violation]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        _validate_constraint(constraint, where, out)
        pair = (constraint.topologyKey, constraint.whenUnsatisfiable)
        if pair in seen:
            out.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)


def _validate_constraint(constraint: TopologySpreadConstraint, path: str, out: list[Violation]) -> None:
    action = constraint.whenUnsatisfiable
    if constraint.maxSkew <= 0:
        out.append(invalid(f"{path}.maxSkew", constraint.maxSkew, NOT_POSITIVE))
    if not constraint.topologyKey:
        out.append(required(f"{path}.topologyKey", "can not be empty"))
    if action not in _UNSATISFIABLE_ACTIONS:
        out.append(unsupported(f"{path}.whenUnsatisfiable", action, _UNSATISFIABLE_ACTIONS))
    if constraint.HasField("minDomains"):
        if constraint.minDomains <= 0:
            out.append(invalid(f"{path}.minDomains", constraint.minDomains, NOT_POSITIVE))
        if action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            out.append(invalid(f"{path}.minDomains", constraint.minDomains, detail))
    if constraint.HasField("nodeAffinityPolicy") and constraint.nodeAffinityPolicy not in _INCLUSION_POLICIES:
        out.append(unsupported(f"{path}.nodeAffinityPolicy", constraint.nodeAffinityPolicy, _INCLUSION_POLICIES))
    if constraint.HasField("nodeTaintsPolicy") and constraint.nodeTaintsPolicy not in _INCLUSION_POLICIES:
        out.append(unsupported(f"{path}.nodeTaintsPolicy", constraint.nodeTaintsPolicy, _INCLUSION_POLICIES))
    selector = constraint.labelSelector
    validate_label_keys(constraint.matchLabelKeys, constraint.HasField("labelSelector"), f"{path}.matchLabelKeys", out)
    validate_merged_keys(constraint.matchLabelKeys, selector, path, out)
    validate_selector(selector, f"{path}.labelSelector", out)


def validate_gates(gates: Sequence[PodSchedulingGate], path: str, out: list[Violation]) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        validate_key(gate.name, f"{path}[{index}]", out)
        if gate.name in seen:
            out.append(duplicate(f"{path}[{index}]", gate.name))
        seen.add(gate.name)


def validate_number(taints: Sequence[Taint], before: Sequence[Taint], path: str, out: list[Violation]) -> None:
    """Limit the number of taints to MAX_TAINTS, or to the number in `before` if it is larger."""
    number, had = (sum(taint.key not in _CONTROLLER_TAINTS for taint in item) for item in (taints, before))
    if number > max(MAX_TAINTS, had):
        out.append(too_many(path, number, MAX_TAINTS))


def validate_taints(taints: Sequence[Taint], path: str, out: list[Violation]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where = f"{path}[{index}]"
        key, value, effect = taint.key, taint.value, taint.effect
        validate_key(key, f"{where}.key", out)
        if problems := names.label_value(value):
            out.append(invalid(f"{where}.value", value, ";".join(problems)))
        if not effect:
            out.append(required(f"{where}.effect"))
        elif effect not in EFFECTS:
            out.append(unsupported(f"{where}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            out.append(duplicate(where, f"{key}:{effect}", "taints must be unique by key and effect pair"))
        seen.add((key, effect))


def validate_tolerations(tolerations: Sequence[Toleration], path: str, out: list[Violation]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
        if operator == "Exists":
            if value:
                out.append(invalid(f"{path}[{index}].operator", value, "value must be empty when `operator` is 'Exists'"))
        elif operator not in ("Equal", ""):
            out.append(unsupported(f"{path}[{index}].operator", operator, _TOLERATION_OPERATORS))
        elif problems := names.label_value(value):
            out.append(invalid(f"{path}[{index}].operator", value, ";".join(problems)))
        if key:
            if problems := names.label_key(key):
                out.extend(invalid(f"{path}[{index}].key", key, problem) for problem in problems)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            out.append(invalid(f"{path}[{index}].operator", operator, detail))
        if effect and effect not in EFFECTS:
            out.append(unsupported(f"{path}[{index}].effect", effect, EFFECTS))
        if effect != "NoExecute" and toleration.HasField("tolerationSeconds"):
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            out.append(invalid(f"{path}[{index}].effect", effect, detail))


def spec_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    """Yield the warnings about a spec. `path`: the path of the spec in its object."""
    for index, container in enumerate(spec.initContainers):
        yield from _container_warnings(container, f"{path}.initContainers[{index}]")
    for index, container in enumerate(spec.containers):
        yield from _container_warnings(container, f"{path}.containers[{index}]")
    for index, volume in enumerate(spec.volumes):
        yield from _volume_warnings(volume, f"{path}.volumes[{index}]")
    for key in spec.nodeSelector:
        yield from _label_warnings(key, f"{path}.nodeSelector[{key}]")
    for index, constraint in enumerate(spec.topologySpreadConstraints):
        where = f"{path}.topologySpreadConstraints[{index}]"
        yield from _label_warnings(constraint.topologyKey, f"{where}.topologyKey")
        if not constraint.HasField("labelSelector"):
            yield f"{where}: a constraint without labelSelector counts no pods and has no effect"
    yield from amount_warnings(spec.overhead, f"{path}.overhead")
    if spec.affinity.HasField("nodeAffinity"):
        yield from _affinity_warnings(spec.affinity.nodeAffinity, f"{path}.affinity.nodeAffinity")


def name_warnings(name: str, use: str) -> Iterator[str]:
    """Yield warnings about a valid name that is not a DNS label. `use`: another use of the name."""
    if problems := dns_label(name):
        recommended = f"a DNS label is recommended: [{' '.join(problems)}]"
        yield f"metadata.name: this is used in {use}, which can result in surprising behavior; {recommended}"


def amount_warnings(quantities: Mapping[str, Quantity], path: str) -> Iterator[str]:
    """Yield warnings about the requests of a pod or a claim."""
    for resource in _BYTE_RESOURCES:
        if resource in quantities and (told := quantities[resource].string).endswith("m"):
            yield f'{path}[{resource}]: "{told}" is in thousandths of a byte; did you mean "{told[:-1]}M"?'


def _container_warnings(container: Container, path: str) -> Iterator[str]:
    seen = set()
    for index, variable in enumerate(container.env):
        if variable.name in seen and not _extends_previous_value(variable):
            yield f'{path}.env[{index}]: hides the previous definition of "{variable.name}"'
        seen.add(variable.name)
    if container.HasField("resources"):
        yield from amount_warnings(container.resources.limits, f"{path}.resources.limits")
        yield from amount_warnings(container.resources.requests, f"{path}.resources.requests")


def _extends_previous_value(variable: EnvVar) -> bool:
    """Return whether the variable extends its previous value, as in PATH=$(PATH):/bin."""
    before = f"$({variable.name})"
    return before in variable.value and variable.value != before


def _volume_warnings(volume: Volume, path: str) -> Iterator[str]:
    source = volume.volumeSource
    if source.HasField("ephemeral"):
        requests = source.ephemeral.volumeClaimTemplate.spec.resources.requests
        yield from amount_warnings(requests, f"{path}.ephemeral.volumeClaimTemplate.spec.resources.requests")


def _affinity_warnings(affinity: NodeAffinity, path: str) -> Iterator[str]:
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
    preferred = affinity.preferredDuringSchedulingIgnoredDuringExecution
    terms = chain(
        ((f"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{i}]", term) for i, term in enumerate(required)),
        (
            (f"preferredDuringSchedulingIgnoredDuringExecution[{i}].preference", each.preference)
            for i, each in enumerate(preferred)
        ),
    )
    for where, term in terms:
        for index, requirement in enumerate(term.matchExpressions):
            yield from _label_warnings(requirement.key, f"{path}.{where}.matchExpressions[{index}].key")


def _label_warnings(key: str, path: str) -> Iterator[str]:
    if key in GA_LABELS:
        yield f'{path}: "{key}" is deprecated; use "{GA_LABELS[key]}"'
