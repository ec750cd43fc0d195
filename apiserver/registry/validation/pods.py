"""Pods: what a new one may look like.

Source: pkg/apis/core/validation of Kubernetes 1.36. Left out are its deprecated annotations, Windows, and pod templates.
"""

from apiserver.registry.validation.addresses import validate_ip
from apiserver.registry.validation.affinity import validate_affinity
from apiserver.registry.validation.containers import PodContext, validate_containers, validate_init_containers
from apiserver.registry.validation.labels import validate_key, validate_labels
from apiserver.registry.validation.resources import validate_overhead, validate_pod_requirements
from apiserver.registry.validation.security import validate_pod_security
from apiserver.registry.validation.spreading import validate_gates, validate_spreading
from apiserver.registry.validation.taints import validate_tolerations
from apiserver.registry.validation.violations import NEGATIVE, between, forbidden, invalid, required, unsupported
from apiserver.registry.validation.volumes import validate_volumes
from pinnace.api import names
from pinnace.api.core_v1_pb2 import HostAlias, PodDNSConfig, PodSpec
from pinnace.api.status import Violation

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_SYSTEMS = ("linux", "windows")
_MAX_INT32 = 2**31 - 1
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_LENGTH = 3, 32, 2048


def validate_new_spec(spec: PodSpec) -> list[Violation]:
    """Everything that is wrong with the spec of a new pod, after defaults."""
    out: list[Violation] = []
    validate_spec(spec, out)
    if spec.ephemeralContainers:
        out.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.nodeName and spec.schedulingGates:
        out.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return out


def validate_spec(spec: PodSpec, out: list[Violation]) -> None:
    """The spec as it is, in a new pod or a changed one."""
    seconds = spec.terminationGracePeriodSeconds
    if seconds < 0:
        out.append(invalid("spec.terminationGracePeriodSeconds", seconds, NEGATIVE))
    volumes = spec.volumes
    mountable = validate_volumes(volumes, "spec.volumes", out) if volumes else {}
    context = PodContext(mountable, seconds, spec.hostNetwork)
    taken = validate_containers(spec.containers, context, out)
    if init_containers := spec.initContainers:
        validate_init_containers(init_containers, taken, context, out)
    _validate_choices(spec, out)
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


def _validate_choices(spec: PodSpec, out: list[Violation]) -> None:
    restart, dns = spec.restartPolicy, spec.dnsPolicy
    if restart not in RESTART_POLICIES:
        out.append(unsupported("spec.restartPolicy", restart, RESTART_POLICIES))
    if dns not in DNS_POLICIES:
        out.append(unsupported("spec.dnsPolicy", dns, DNS_POLICIES))
    if spec.HasField("preemptionPolicy") and spec.preemptionPolicy not in PREEMPTION_POLICIES:
        out.append(unsupported("spec.preemptionPolicy", spec.preemptionPolicy, PREEMPTION_POLICIES))
    if spec.HasField("activeDeadlineSeconds") and not 1 <= spec.activeDeadlineSeconds <= _MAX_INT32:
        out.append(invalid("spec.activeDeadlineSeconds", spec.activeDeadlineSeconds, between(1, _MAX_INT32)))
    if spec.HasField("os") and spec.os.name not in _SYSTEMS:
        out.append(unsupported("spec.os.name", spec.os.name, _SYSTEMS))
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
