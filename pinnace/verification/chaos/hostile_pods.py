"""Valid pods with the maximum cost. Each kind fills an object with one feature up to the API's limits.

    HOSTILE["anti-affinity, keys that no node has"].pod("a")               # as many terms as allowed
    HOSTILE["anti-affinity, keys that no node has"].pod("a", items=1000)   # 1,000 terms

Any user with `create pods` in one namespace can create them. Other pods must still be scheduled, and heartbeats must not be
delayed. The cost tests of the scheduler (tests/unit/scheduler/test_cost.py) and the load of chaos runs use these pods.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm
from pinnace.api.wellknown import ZONE_LABEL

MAX_BYTES = 1_000_000
"""The maximum size of a pod in bytes. etcd accepts requests of 1.5 MiB; the rest is for defaults and the status."""
MAX_PARTS = 10_000
"""The maximum number of items of lists and maps at any depth that the API server accepts
(pinnace.apiserver.registry.strategy)."""
_SPARE = 100
"""The number of items reserved for admission and defaults."""
HOSTNAME = "kubernetes.io/hostname"
LABEL, VALUE = "app", "hostile"
"""A label of each pod, so that terms can select the pods themselves."""
_CHECK_EVERY = 128
"""The number of items between two checks of the pod's size."""
_MAX_PORT = 65535
_PROTOCOLS = ("TCP", "UDP", "SCTP")


@dataclass(frozen=True, slots=True)
class HostileKind:
    add: Callable[[Pod, int], None]
    """Adds item number n to a pod."""

    def create_pod(self, name: str, namespace: str = "default", items: int | None = None) -> Pod:
        """Return a pod as sent by a client. `items`: the maximum number of items, or None for as many as allowed."""
        made = Pod()
        made.metadata.name, made.metadata.namespace = name, namespace
        made.metadata.labels[LABEL] = VALUE
        made.spec.schedulerName = "default-scheduler"
        container = made.spec.containers.add(name="app", image="example.com/app:1")
        container.resources.requests["cpu"].string = "1m"
        for number in range(self.max_items if items is None else min(items, self.max_items)):
            self.add(made, number)
            if number % _CHECK_EVERY == 0 and made.ByteSize() > MAX_BYTES:
                break
        return made

    @property
    def max_items(self) -> int:
        """The maximum number of items of an object."""
        few, more = Pod(), Pod()
        for pod, items in ((few, 4), (more, 8)):
            pod.spec.containers.add()
            for number in range(items):
                self.add(pod, number)
        return (MAX_PARTS - _SPARE) * 4 // (_count_items(more) - _count_items(few))


def _count_items(message: Message) -> int:
    """Return the number of items of the message's lists and maps, at any depth."""
    number = 0
    for field, value in message.ListFields():
        number += len(value) if field.is_repeated else 0
        if field.message_type is not None:
            is_map = field.message_type.GetOptions().map_entry
            inner = (value.values() if is_map else value) if field.is_repeated else (value,)
            number += sum(_count_items(item) for item in inner if isinstance(item, Message))
    return number


def _label_key(number: int) -> str:
    """Return a label key that no node has."""
    return f"k{number:x}"


def _affinity_term(topology: str, value: str = VALUE) -> PodAffinityTerm:
    term = PodAffinityTerm(topologyKey=topology)
    term.labelSelector.matchLabels[LABEL] = value
    return term


def _anti_affinity_by_key(pod: Pod, number: int) -> None:
    pod.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(_affinity_term(_label_key(number)))


def _anti_affinity_by_pods(pod: Pod, number: int) -> None:
    pod.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(
        _affinity_term(HOSTNAME, f"v{number:x}")
    )


def _anti_affinity_to_everybody(pod: Pod, number: int) -> None:
    """Add a term for the pods of all namespaces, with a distinct selector that no label can index."""
    term = PodAffinityTerm(topologyKey=ZONE_LABEL if number % 2 else HOSTNAME)
    term.labelSelector.matchExpressions.add(key=_label_key(number), operator="DoesNotExist")
    term.labelSelector.matchExpressions.add(key="never", operator="Exists")
    term.namespaceSelector.SetInParent()
    pod.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(term)


def _anti_affinity_by_namespace_labels(pod: Pod, number: int) -> None:
    term = _affinity_term(HOSTNAME)
    term.namespaceSelector.matchLabels[_label_key(number)] = "a"
    pod.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(term)


def _affinity_by_key(pod: Pod, number: int) -> None:
    pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(_affinity_term(_label_key(number)))


def _affinity_by_selector(pod: Pod, number: int) -> None:
    term = PodAffinityTerm(topologyKey=HOSTNAME)
    term.labelSelector.matchExpressions.add(key=_label_key(number), operator="DoesNotExist")
    pod.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution.append(term)


def _preferred_by_key(pod: Pod, number: int) -> None:
    preferred = pod.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution
    preferred.add(weight=1 + number % 100, podAffinityTerm=_affinity_term(_label_key(number)))


def _preferred_by_pods(pod: Pod, number: int) -> None:
    preferred = pod.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution
    preferred.add(weight=1 + number % 100, podAffinityTerm=_affinity_term(HOSTNAME, f"v{number:x}"))


def _node_term(pod: Pod, *requirements: NodeSelectorRequirement) -> None:
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    required.nodeSelectorTerms.add(matchExpressions=requirements)


def _node_terms_by_key(pod: Pod, number: int) -> None:
    _node_term(pod, NodeSelectorRequirement(key=_label_key(number), operator="Exists"))


def _node_terms_by_value(pod: Pod, number: int) -> None:
    _node_term(pod, NodeSelectorRequirement(key=HOSTNAME, operator="NotIn" if number else "In", values=[f"n{number:x}"]))


def _add_node_term_with_gt(pod: Pod, number: int) -> None:
    _node_term(pod, NodeSelectorRequirement(key=HOSTNAME, operator="Gt", values=[str(number)]))


def _add_node_term_by_name(pod: Pod, number: int) -> None:
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    term = required.nodeSelectorTerms.add()
    term.matchFields.add(key="metadata.name", operator="NotIn" if number else "In", values=[f"n{number:x}"])


def _one_node_term(pod: Pod) -> NodeSelectorTerm:
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    return required.nodeSelectorTerms[0] if required.nodeSelectorTerms else required.nodeSelectorTerms.add()


def _node_requirements(pod: Pod, number: int) -> None:
    _one_node_term(pod).matchExpressions.add(key=_label_key(number), operator="DoesNotExist")


def _node_values(pod: Pod, number: int) -> None:
    """Add a value to a single requirement."""
    expressions = _one_node_term(pod).matchExpressions
    requirement = expressions[0] if expressions else expressions.add(key=HOSTNAME, operator="NotIn")
    requirement.values.append(f"n{number:x}")


def _node_preferences(pod: Pod, number: int) -> None:
    preferred = pod.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution
    term = preferred.add(weight=1 + number % 100).preference
    term.matchExpressions.add(key=HOSTNAME, operator="NotIn", values=[f"n{number:x}"])


def _node_selector(pod: Pod, number: int) -> None:
    pod.spec.nodeSelector[_label_key(number)] = "a"


def _add_spread_constraint(pod: Pod, number: int, when: str) -> None:
    """Add a constraint. Each pair of key and action is unique, because validation rejects duplicates."""
    key = (HOSTNAME, ZONE_LABEL)[number] if number < 2 else _label_key(number)
    constraint = pod.spec.topologySpreadConstraints.add(topologyKey=key, maxSkew=1, whenUnsatisfiable=when)
    constraint.labelSelector.matchLabels[LABEL] = VALUE
    constraint.nodeTaintsPolicy = "Honor"


def _spread_hard(pod: Pod, number: int) -> None:
    _add_spread_constraint(pod, number, "DoNotSchedule")


def _spread_soft(pod: Pod, number: int) -> None:
    _add_spread_constraint(pod, number, "ScheduleAnyway")


def _add_toleration(pod: Pod, number: int) -> None:
    pod.spec.tolerations.add(key=_label_key(number), operator="Exists")


def _host_ports(pod: Pod, number: int) -> None:
    protocol, port = _PROTOCOLS[number // _MAX_PORT], 1 + number % _MAX_PORT
    pod.spec.containers[0].ports.add(containerPort=port, hostPort=port, protocol=protocol)


def _add_container(pod: Pod, number: int) -> None:
    """Add a container with a distinct image and a request."""
    container = pod.spec.containers.add(name=f"c{number:x}", image=f"i{number:x}:1")
    container.resources.requests["cpu"].string = "0"


def _init_containers(pod: Pod, number: int) -> None:
    sidecar = pod.spec.initContainers.add(name=f"i{number:x}", image=f"i{number:x}:1", restartPolicy="Always")
    sidecar.resources.requests["cpu"].string = "0"


def _init_sequence(pod: Pod, number: int) -> None:
    """Add a sidecar with an extended resource of its own, and an init container, which runs beside all sidecars before it."""
    sidecar = pod.spec.initContainers.add(name=f"s{number:x}", image="s:1", restartPolicy="Always")
    for amounts in (sidecar.resources.requests, sidecar.resources.limits):
        amounts[f"e.io/s{number:x}"].string = "1"
    pod.spec.initContainers.add(name=f"i{number:x}", image="i:1").resources.requests["cpu"].string = "0"


def _add_unknown_resource(pod: Pod, number: int) -> None:
    """Add an extended resource that no node has. Validation requires equal limits and requests."""
    for amounts in (pod.spec.containers[0].resources.requests, pod.spec.containers[0].resources.limits):
        amounts[f"e.io/r{number:x}"].string = "1"


def _add_claim(pod: Pod, number: int) -> None:
    volume = pod.spec.volumes.add(name=f"v{number:x}")
    volume.volumeSource.persistentVolumeClaim.claimName = f"c{number:x}"


def _ephemeral_volumes(pod: Pod, number: int) -> None:
    claim = pod.spec.volumes.add(name=f"v{number:x}").volumeSource.ephemeral.volumeClaimTemplate
    claim.spec.accessModes.append("ReadWriteOnce")
    claim.spec.resources.requests["storage"].string = "1"


def _add_disk(pod: Pod, number: int) -> None:
    pod.spec.volumes.add(name=f"v{number:x}").volumeSource.gcePersistentDisk.pdName = f"d{number:x}"


def _add_monitor(pod: Pod, number: int) -> None:
    """Add a monitor to a single disk. For each monitor, the disk counts as a different disk."""
    volume = pod.spec.volumes[0] if pod.spec.volumes else pod.spec.volumes.add(name="v")
    volume.volumeSource.rbd.image = "image"
    volume.volumeSource.rbd.monitors.append(f"m{number:x}")


def _scheduling_gates(pod: Pod, number: int) -> None:
    pod.spec.schedulingGates.add(name=_label_key(number))


def _add_label(pod: Pod, number: int) -> None:
    pod.metadata.labels[_label_key(number)] = "a"


HOSTILE: Mapping[str, HostileKind] = {
    "anti-affinity, keys that no node has": HostileKind(_anti_affinity_by_key),
    "anti-affinity, selectors": HostileKind(_anti_affinity_by_pods),
    "anti-affinity, to pods of all namespaces": HostileKind(_anti_affinity_to_everybody),
    "anti-affinity, namespace selectors": HostileKind(_anti_affinity_by_namespace_labels),
    "affinity, keys that no node has": HostileKind(_affinity_by_key),
    "affinity, selectors": HostileKind(_affinity_by_selector),
    "preferred affinity, keys that no node has": HostileKind(_preferred_by_key),
    "preferred anti-affinity, selectors": HostileKind(_preferred_by_pods),
    "node terms, keys that no node has": HostileKind(_node_terms_by_key),
    "node terms, values": HostileKind(_node_terms_by_value),
    "node terms, compared": HostileKind(_add_node_term_with_gt),
    "node terms, names": HostileKind(_add_node_term_by_name),
    "node requirements": HostileKind(_node_requirements),
    "node values": HostileKind(_node_values),
    "node preferences": HostileKind(_node_preferences),
    "node selector": HostileKind(_node_selector),
    "spread constraints, DoNotSchedule": HostileKind(_spread_hard),
    "spread constraints, ScheduleAnyway": HostileKind(_spread_soft),
    "tolerations": HostileKind(_add_toleration),
    "host ports": HostileKind(_host_ports),
    "containers": HostileKind(_add_container),
    "init containers": HostileKind(_init_containers),
    "init containers between sidecars": HostileKind(_init_sequence),
    "extended resources": HostileKind(_add_unknown_resource),
    "claims": HostileKind(_add_claim),
    "ephemeral volumes": HostileKind(_ephemeral_volumes),
    "disks": HostileKind(_add_disk),
    "monitors of a disk": HostileKind(_add_monitor),
    "scheduling gates": HostileKind(_scheduling_gates),
    "labels": HostileKind(_add_label),
}
"""The kinds by name."""
