"""Descriptions of deployments, replica sets, jobs, disruption budgets, services and endpoint slices.

Source: kubectl, pkg/describe: DeploymentDescriber, ReplicaSetDescriber, JobDescriber, PodDisruptionBudgetDescriber,
DescribePodTemplate, ServiceDescriber, EndpointSliceDescriber. Ports are shown as tables.
"""

from collections.abc import Iterable, Sequence

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.batch_v1_pb2 import Job
from pinnace.api.core_v1_pb2 import PodTemplateSpec, Service, ServicePort
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.meta_v1_pb2 import LabelSelector, ObjectMeta
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.quantities import equal
from pinnace.api.rollouts import bare, by_revision
from pinnace.api.scalars import int_or_string
from pinnace.api.selectors import from_message
from pinnace.cli.describe.pods import containers, volumes
from pinnace.cli.describe.text import (
    NONE,
    Fields,
    NotShown,
    Rows,
    Value,
    annotations,
    controlled_by,
    head,
    instant,
    joined,
    pairs,
)
from pinnace.printers.storage import UNSET, some
from pinnace.printers.workloads import duration


def describe_deployment(deployment: Deployment, sets: Iterable[ReplicaSet] | NotShown) -> Fields:
    """Describe a deployment. `sets` are the replica sets of its namespace."""
    spec, status = deployment.spec, deployment.status
    fields = head_of(deployment.metadata, spec.selector)
    fields["Replicas"] = (
        f"{spec.replicas} desired | {status.updatedReplicas} updated | {status.replicas} total | "
        f"{status.availableReplicas} available | {status.unavailableReplicas} unavailable"
    )
    fields["StrategyType"] = spec.strategy.type
    fields["MinReadySeconds"] = str(spec.minReadySeconds)
    if spec.strategy.HasField("rollingUpdate"):
        rolling = spec.strategy.rollingUpdate
        missing, surplus = int_or_string(rolling.maxUnavailable), int_or_string(rolling.maxSurge)
        fields["RollingUpdateStrategy"] = f"{missing} max unavailable, {surplus} max surge"
    fields["Pod Template"] = template(spec.template)
    conditions = [(condition.type, condition.status, condition.reason) for condition in status.conditions]
    fields["Conditions"] = Rows(("Type", "Status", "Reason"), conditions)
    return {**fields, **_replica_sets(deployment, sets)}


def _replica_sets(deployment: Deployment, sets: Iterable[ReplicaSet] | NotShown) -> Fields:
    if isinstance(sets, NotShown):
        return {"OldReplicaSets": sets, "NewReplicaSet": sets}
    own, template_now = by_revision(deployment, sets).values(), bare(deployment.spec.template)
    new = [each for each in own if equal(bare(each.spec.template), template_now)]
    return {"OldReplicaSets": _created([each for each in own if each not in new]), "NewReplicaSet": _created(new)}


def _created(sets: Sequence[ReplicaSet]) -> str:
    told = (f"{each.metadata.name} ({each.status.replicas}/{each.spec.replicas} replicas created)" for each in sets)
    return ", ".join(told) or NONE


def describe_replica_set(replica_set: ReplicaSet) -> Fields:
    spec, status = replica_set.spec, replica_set.status
    fields = head_of(replica_set.metadata, spec.selector)
    fields["Replicas"] = f"{status.replicas} current / {spec.replicas} desired"
    fields["Pods Status"] = f"{status.readyReplicas} ready / {status.availableReplicas} available"
    fields["Pod Template"] = template(spec.template)
    if status.conditions:
        conditions = [(condition.type, condition.status, condition.reason) for condition in status.conditions]
        fields["Conditions"] = Rows(("Type", "Status", "Reason"), conditions)
    return fields


def describe_job(job: Job, now: float) -> Fields:
    spec, status = job.spec, job.status
    fields = head_of(job.metadata, spec.selector)
    fields["Parallelism"] = str(spec.parallelism)
    fields["Completions"] = str(spec.completions) if spec.HasField("completions") else "<unset>"
    fields["Completion Mode"] = spec.completionMode
    fields["Suspend"] = str(spec.suspend).lower()
    fields["Backoff Limit"] = str(spec.backoffLimit)
    if spec.HasField("ttlSecondsAfterFinished"):
        fields["TTL Seconds After Finished"] = str(spec.ttlSecondsAfterFinished)
    if spec.HasField("activeDeadlineSeconds"):
        fields["Active Deadline Seconds"] = f"{spec.activeDeadlineSeconds}s"
    times = (
        ("Start Time", instant(status.startTime)),
        ("Completed At", instant(status.completionTime)),
        ("Duration", duration(job, now)),
    )
    fields |= {label: text for label, text in times if text}
    active = f"{status.active} Active ({status.ready} Ready)"
    fields["Pods Statuses"] = f"{active} / {status.succeeded} Succeeded / {status.failed} Failed"
    if status.completedIndexes:
        fields["Completed Indexes"] = status.completedIndexes
    fields["Pod Template"] = template(spec.template)
    return fields


def describe_disruption_budget(budget: PodDisruptionBudget) -> Fields:
    spec, status = budget.spec, budget.status
    fields = head_of(budget.metadata, spec.selector)
    if spec.HasField("minAvailable"):
        fields["Min available"] = str(int_or_string(spec.minAvailable))
    elif spec.HasField("maxUnavailable"):
        fields["Max unavailable"] = str(int_or_string(spec.maxUnavailable))
    fields["Status"] = {
        "Allowed disruptions": str(status.disruptionsAllowed),
        "Current": str(status.currentHealthy),
        "Desired": str(status.desiredHealthy),
        "Total": str(status.expectedPods),
    }
    return fields


def head_of(metadata: ObjectMeta, selector: LabelSelector) -> dict[str, Value]:
    """Return the first fields of objects that select pods."""
    fields = head(metadata)
    fields["Selector"] = str(from_message(selector)) or NONE
    return {**fields, **controlled_by(metadata)}


def template(template: PodTemplateSpec) -> Fields:
    spec = template.spec
    fields: dict[str, Value] = {"Labels": pairs(template.metadata.labels)}
    if told := annotations(template.metadata):
        fields["Annotations"] = told
    if spec.serviceAccountName:
        fields["Service Account"] = spec.serviceAccountName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers)
    fields["Containers"] = containers(spec.containers)
    fields["Volumes"] = volumes(spec.volumes)
    fields["Node-Selectors"] = pairs(spec.nodeSelector)
    return fields


def describe_service(service: Service, slices: Sequence[EndpointSlice] | NotShown) -> Fields:
    """Describe a service. `slices` are its endpoint slices."""
    spec = service.spec
    fields: dict[str, Value] = {**head(service.metadata), "Selector": joined(spec.selector), "Type": spec.type}
    balanced = [ingress.ip or ingress.hostname for ingress in service.status.loadBalancer.ingress]
    told = (
        ("IP Family Policy", spec.ipFamilyPolicy),
        ("IP Families", ",".join(spec.ipFamilies)),
        ("IP", spec.clusterIP or NONE),
        ("IPs", ",".join(spec.clusterIPs)),
        ("External IPs", ",".join(spec.externalIPs)),
        ("Desired LoadBalancer IP", spec.loadBalancerIP),
        ("LoadBalancer Ingress", ", ".join(balanced)),
        ("External Name", spec.externalName),
    )
    fields |= {label: text for label, text in told if text}
    fields["Ports"] = Rows(("Name", "Port", "TargetPort", "NodePort"), [_port(port) for port in spec.ports])
    fields["Endpoints"] = slices if isinstance(slices, NotShown) else _endpoints(spec.ports, slices, ready=True)
    if not isinstance(slices, NotShown) and any(not _ready(each) for part in slices for each in part.endpoints):
        fields["Not Ready Endpoints"] = _endpoints(spec.ports, slices, ready=False)
    policies = (
        ("Session Affinity", spec.sessionAffinity),
        ("External Traffic Policy", spec.externalTrafficPolicy),
        ("Internal Traffic Policy", spec.internalTrafficPolicy),
        ("Traffic Distribution", spec.trafficDistribution),
        ("LoadBalancer Source Ranges", ",".join(spec.loadBalancerSourceRanges)),
    )
    return fields | {label: text for label, text in policies if text}


def _port(port: ServicePort) -> tuple[str, ...]:
    target = int_or_string(port.targetPort) or port.port
    node = f"{port.nodePort}/{port.protocol}" if port.nodePort else NONE
    return port.name or UNSET, f"{port.port}/{port.protocol}", f"{target}/{port.protocol}", node


def _endpoints(ports: Iterable[ServicePort], slices: Sequence[EndpointSlice], *, ready: bool) -> Rows:
    return Rows(("Port", "Addresses"), [(port.name or UNSET, _addresses(port, slices, ready=ready)) for port in ports])


def _addresses(port: ServicePort, slices: Iterable[EndpointSlice], *, ready: bool) -> str:
    """Return the addresses of the endpoints whose condition `ready` has this value."""
    reached = [
        f"[{address}]:{each.port}" if ":" in address else f"{address}:{each.port}"
        for endpoint_slice in slices
        for each in endpoint_slice.ports
        if each.name == port.name
        for endpoint in endpoint_slice.endpoints
        if _ready(endpoint) is ready
        for address in endpoint.addresses
    ]
    return some(reached) if reached else NONE


def _ready(endpoint: Endpoint) -> bool:
    """An unknown condition means ready."""
    return endpoint.conditions.ready or not endpoint.conditions.HasField("ready")


def describe_endpoint_slice(endpoint_slice: EndpointSlice) -> Fields:
    return {
        **head(endpoint_slice.metadata),
        "AddressType": endpoint_slice.addressType,
        "Ports": Rows(("Name", "Port", "Protocol"), [_slice_port(port) for port in endpoint_slice.ports]),
        "Endpoints": {str(index): _endpoint(each) for index, each in enumerate(endpoint_slice.endpoints)},
    }


def _slice_port(port: EndpointPort) -> tuple[str, str, str]:
    return port.name or UNSET, str(port.port) if port.HasField("port") else UNSET, port.protocol


def _endpoint(endpoint: Endpoint) -> Fields:
    ready = str(endpoint.conditions.ready).lower() if endpoint.conditions.HasField("ready") else UNSET
    fields: dict[str, Value] = {"Addresses": ", ".join(endpoint.addresses), "Ready": ready}
    target = endpoint.targetRef
    told = (
        ("Hostname", endpoint.hostname),
        ("TargetRef", f"{target.kind}/{target.name}" if target.name else ""),
        ("NodeName", endpoint.nodeName),
        ("Zone", endpoint.zone),
    )
    return fields | {label: text for label, text in told if text}
