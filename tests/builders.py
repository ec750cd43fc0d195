"""Fluent builders of API objects.

    make_pod("a").req(cpu="500m", memory="1Gi").tolerate("gpu", "true").build()
    make_node("n").capacity(cpu=4, memory="32Gi", pods=110).label("zone", "a").taint("gpu", "true").build()

A built object looks as the API server would return it: it has a uid and a resourceVersion. Builders change themselves and
return themselves; `build` returns a copy, so that one builder can make several versions of an object.
"""

from collections.abc import Mapping, MutableSequence
from typing import Any, Self

from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerPort,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodCondition,
    Taint,
    Toleration,
)
from pinnace.api.meta_v1_pb2 import LabelSelector, OwnerReference
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.scalars import to_time
from pinnace.api.selectors import parse_labels

Amount = str | int


def quantities(amounts: Mapping[str, Amount]) -> dict[str, Quantity]:
    """Resource names are written as Python names: `ephemeral_storage` is ephemeral-storage."""
    return {name.replace("_", "-"): Quantity(string=str(amount)) for name, amount in amounts.items()}


def make_pod(name: str, namespace: str = "default") -> "PodBuilder":
    return PodBuilder(name, namespace)


def make_node(name: str) -> "NodeBuilder":
    return NodeBuilder(name)


class PodBuilder:
    """A pending pod without containers, until `req`, `container` or `host_port` adds one."""

    def __init__(self, name: str, namespace: str) -> None:
        self._pod = Pod()
        meta = self._pod.metadata
        meta.name, meta.namespace, meta.uid, meta.resourceVersion = name, namespace, f"uid-{namespace}-{name}", "1"
        self._pod.spec.schedulerName = "default-scheduler"
        self._pod.status.phase = "Pending"

    def __repr__(self) -> str:
        return f"a pod like {{{self._pod}}}"

    def build(self) -> Pod:
        pod = Pod()
        pod.CopyFrom(self._pod)
        return pod

    def new(self) -> Pod:
        """As a client sends it to be created: without what the server sets."""
        pod = self.build()
        pod.metadata.uid = pod.metadata.resourceVersion = ""
        return pod

    def uid(self, uid: str) -> Self:
        self._pod.metadata.uid = uid
        return self

    def version(self, resource_version: int) -> Self:
        self._pod.metadata.resourceVersion = str(resource_version)
        return self

    def label(self, key: str, value: str) -> Self:
        self._pod.metadata.labels[key] = value
        return self

    def annotation(self, key: str, value: str) -> Self:
        self._pod.metadata.annotations[key] = value
        return self

    def owner(self, kind: str, name: str, uid: str = "") -> Self:
        self._pod.metadata.ownerReferences.append(OwnerReference(kind=kind, name=name, uid=uid, controller=True))
        return self

    def created(self, seconds: float) -> Self:
        """creationTimestamp, Unix time."""
        self._pod.metadata.creationTimestamp.CopyFrom(to_time(seconds))
        return self

    def terminating(self, seconds: float = 1.0) -> Self:
        """Sets deletionTimestamp: the instant, as Unix time."""
        self._pod.metadata.deletionTimestamp.CopyFrom(to_time(seconds))
        return self

    def req(self, **requests: Amount) -> Self:
        """Adds a container with these requests."""
        return self.container(requests=requests)

    def container(self, requests: Mapping[str, Amount] | None = None, limits: Mapping[str, Amount] | None = None) -> Self:
        number = len(self._pod.spec.containers)
        self._fill(self._pod.spec.containers.add(name=f"c{number}", image="app:1"), requests, limits)
        return self

    def pod_level(self, **requests: Amount) -> Self:
        """Sets the requests of the pod as a whole, spec.resources."""
        for resource, quantity in quantities(requests).items():
            self._pod.spec.resources.requests[resource].CopyFrom(quantity)
        return self

    def init(self, sidecar: bool = False, **requests: Amount) -> Self:
        """Adds an init container; a sidecar is one that keeps running (restartPolicy Always)."""
        number = len(self._pod.spec.initContainers)
        container = self._pod.spec.initContainers.add(name=f"i{number}", image="init:1")
        if sidecar:
            container.restartPolicy = "Always"
        self._fill(container, requests, None)
        return self

    def main_containers(self) -> MutableSequence[Container]:
        """For what has no word of its own here."""
        return self._pod.spec.containers

    def init_containers(self) -> MutableSequence[Container]:
        return self._pod.spec.initContainers

    def readiness_gate(self, condition: str) -> Self:
        self._pod.spec.readinessGates.add(conditionType=condition)
        return self

    def deadline(self, seconds: int) -> Self:
        self._pod.spec.activeDeadlineSeconds = seconds
        return self

    def claim(self, name: str) -> Self:
        """A volume from a PersistentVolumeClaim, called after it."""
        self._pod.spec.volumes.add(name=name).volumeSource.persistentVolumeClaim.claimName = name
        return self

    def empty_dir(self, name: str) -> Self:
        self._pod.spec.volumes.add(name=name).volumeSource.emptyDir.SetInParent()
        return self

    def declare(self, **annotations: str | float) -> Self:
        """What a container does in the fake runtime: `run_seconds=3`, or `run_seconds__c0=3` of one container."""
        for name, value in annotations.items():
            what, _, container = name.partition("__")
            key = "pinnace.io/" + what.replace("_", "-") + (f".{container}" if container else "")
            self._pod.metadata.annotations[key] = str(value)
        return self

    @staticmethod
    def _fill(container: Container, requests: Mapping[str, Amount] | None, limits: Mapping[str, Amount] | None) -> None:
        for target, amounts in ((container.resources.requests, requests), (container.resources.limits, limits)):
            for resource, quantity in quantities(amounts or {}).items():
                target[resource].CopyFrom(quantity)

    def overhead(self, **amounts: Amount) -> Self:
        for resource, quantity in quantities(amounts).items():
            self._pod.spec.overhead[resource].CopyFrom(quantity)
        return self

    def host_port(self, port: int, protocol: str = "TCP", ip: str = "") -> Self:
        """Adds a container that takes a port of its node."""
        number = len(self._pod.spec.containers)
        ports = [ContainerPort(containerPort=port, hostPort=port, protocol=protocol, hostIP=ip)]
        self._pod.spec.containers.add(name=f"c{number}", image="app:1", ports=ports)
        return self

    def node(self, name: str) -> Self:
        """Binds the pod."""
        self._pod.spec.nodeName = name
        return self

    def node_selector(self, key: str, value: str) -> Self:
        self._pod.spec.nodeSelector[key] = value
        return self

    def node_affinity(self, *requirements: tuple[str, str, list[str]]) -> Self:
        """Adds one required term of (label, operator, values); terms are ORed, the requirements of one are ANDed."""
        expressions = [NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in requirements]
        required = self._pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
        required.nodeSelectorTerms.append(NodeSelectorTerm(matchExpressions=expressions))
        return self

    def prefer_nodes(self, weight: int, *requirements: tuple[str, str, list[str]]) -> Self:
        """Adds a preferred term of (label, operator, values)."""
        expressions = [NodeSelectorRequirement(key=k, operator=o, values=v) for k, o, v in requirements]
        preferred = self._pod.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution
        preferred.add(weight=weight, preference=NodeSelectorTerm(matchExpressions=expressions))
        return self

    def image(self, name: str) -> Self:
        """Adds a container with this image."""
        self._pod.spec.containers.add(name=f"c{len(self._pod.spec.containers)}", image=name)
        return self

    def node_fields(self, operator: str, names: list[str]) -> Self:
        """Adds one required term about metadata.name."""
        required = self._pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
        field = NodeSelectorRequirement(key="metadata.name", operator=operator, values=names)
        required.nodeSelectorTerms.append(NodeSelectorTerm(matchFields=[field]))
        return self

    def affinity(self, labels: str, topology: str, *, weight: int = 0, **more: Any) -> Self:
        """Adds a term of affinity to the pods with these labels, written like app=web,!old; preferred when it has a weight.
        `more`: fields of PodAffinityTerm."""
        return self._add_term(self._pod.spec.affinity.podAffinity, _pod_term(labels, topology, **more), weight)

    def anti_affinity(self, labels: str, topology: str, *, weight: int = 0, **more: Any) -> Self:
        return self._add_term(self._pod.spec.affinity.podAntiAffinity, _pod_term(labels, topology, **more), weight)

    def _add_term(self, to: PodAffinity | PodAntiAffinity, term: PodAffinityTerm, weight: int) -> Self:
        if weight:
            to.preferredDuringSchedulingIgnoredDuringExecution.add(weight=weight, podAffinityTerm=term)
        else:
            to.requiredDuringSchedulingIgnoredDuringExecution.append(term)
        return self

    def spread(self, labels: str, topology: str, *, skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> Self:
        """Adds a topology spread constraint on the pods with these labels, written like app=web,!old."""
        self._pod.spec.topologySpreadConstraints.add(
            labelSelector=label_selector(labels), topologyKey=topology, maxSkew=skew, whenUnsatisfiable=when, **more
        )
        return self

    def tolerate(self, key: str = "", value: str = "", effect: str = "", operator: str = "Equal") -> Self:
        self._pod.spec.tolerations.append(Toleration(key=key, operator=operator, value=value, effect=effect))
        return self

    def priority(self, priority: int) -> Self:
        self._pod.spec.priority = priority
        return self

    def preemption_policy(self, policy: str) -> Self:
        self._pod.spec.preemptionPolicy = policy
        return self

    def priority_class(self, name: str) -> Self:
        self._pod.spec.priorityClassName = name
        return self

    def started(self, seconds: float) -> Self:
        """status.startTime, Unix time."""
        self._pod.status.startTime.CopyFrom(to_time(seconds))
        return self

    def nominated(self, node: str) -> Self:
        self._pod.status.nominatedNodeName = node
        return self

    def scheduler(self, name: str) -> Self:
        self._pod.spec.schedulerName = name
        return self

    def gate(self, name: str) -> Self:
        self._pod.spec.schedulingGates.add(name=name)
        return self

    def restart_policy(self, policy: str) -> Self:
        self._pod.spec.restartPolicy = policy
        return self

    def phase(self, phase: str) -> Self:
        self._pod.status.phase = phase
        return self

    def condition(self, type_: str, status: str, reason: str = "", message: str = "") -> Self:
        self._pod.status.conditions.append(PodCondition(type=type_, status=status, reason=reason, message=message))
        return self

    def ready_since(self, seconds: float) -> Self:
        """Makes it ready; Unix time."""
        self._pod.status.conditions.append(PodCondition(type="Ready", status="True", lastTransitionTime=to_time(seconds)))
        return self


def _pod_term(labels: str, topology: str, **more: Any) -> PodAffinityTerm:
    return PodAffinityTerm(labelSelector=label_selector(labels), topologyKey=topology, **more)


def label_selector(text: str) -> LabelSelector:
    """As objects hold it; written like app=web,tier in (a,b),!old."""
    operators = {(True, False): "Exists", (True, True): "DoesNotExist", (False, False): "In", (False, True): "NotIn"}
    selector = LabelSelector()
    for requirement in parse_labels(text).requirements:
        operator = operators[requirement.values is None, requirement.negated]
        selector.matchExpressions.add(key=requirement.key, operator=operator, values=sorted(requirement.values or ()))
    return selector


class NodeBuilder:
    """A node with 4 CPU, 32Gi of memory and room for 110 pods, until `capacity` says otherwise."""

    def __init__(self, name: str) -> None:
        self._node = Node()
        self._node.metadata.name, self._node.metadata.uid = name, f"uid-{name}"
        self._node.metadata.resourceVersion = "1"
        self._node.metadata.labels["kubernetes.io/hostname"] = name
        self.capacity(cpu=4, memory="32Gi", pods=110)

    def __repr__(self) -> str:
        return f"a node like {{{self._node}}}"

    def build(self) -> Node:
        node = Node()
        node.CopyFrom(self._node)
        return node

    def new(self) -> Node:
        """As a client sends it to be created: without what the server sets."""
        node = self.build()
        node.metadata.uid = node.metadata.resourceVersion = ""
        return node

    def uid(self, uid: str) -> Self:
        self._node.metadata.uid = uid
        return self

    def version(self, resource_version: int) -> Self:
        self._node.metadata.resourceVersion = str(resource_version)
        return self

    def capacity(self, **amounts: Amount) -> Self:
        """Replaces capacity, and allocatable with it. Extended resources: `.extended("example.com/gpu", 2)`."""
        self._node.status.capacity.clear()
        self._node.status.allocatable.clear()
        for resource, quantity in quantities(amounts).items():
            self.extended(resource, quantity.string)
        return self

    def extended(self, resource: str, amount: Amount) -> Self:
        """Sets one resource, by its real name."""
        for target in (self._node.status.capacity, self._node.status.allocatable):
            target[resource].string = str(amount)
        return self

    def allocatable(self, **amounts: Amount) -> Self:
        """What pods may use, where it is less than the capacity."""
        for resource, quantity in quantities(amounts).items():
            self._node.status.allocatable[resource].CopyFrom(quantity)
        return self

    def label(self, key: str, value: str) -> Self:
        self._node.metadata.labels[key] = value
        return self

    def annotation(self, key: str, value: str) -> Self:
        self._node.metadata.annotations[key] = value
        return self

    def image(self, size: int, *names: str) -> Self:
        """An image that the node has, in MiB."""
        self._node.status.images.add(names=names, sizeBytes=size << 20)
        return self

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        self._node.spec.taints.append(Taint(key=key, value=value, effect=effect))
        return self

    def unschedulable(self, flag: bool = True) -> Self:
        self._node.spec.unschedulable = flag
        return self

    def condition(self, type_: str, status: str, reason: str = "") -> Self:
        self._node.status.conditions.add(type=type_, status=status, reason=reason)
        return self
