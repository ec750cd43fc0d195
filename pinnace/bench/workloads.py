"""The workloads of row `backlog`: the nodes, the pods that exist before, the pods that are scheduled, and the churn meanwhile.

They are those of Kubernetes' own benchmark: the same nodes, labels, pods and numbers at 5,000 nodes. Differences:

* There, pods are created while they are scheduled; here they wait already. With 10,000 unschedulable pods beside them, the
leader
  has to try those as well, and first, because they have the higher priority. In Kubernetes' benchmark they arrive meanwhile,
  five per second.
* Gated pods wait beside 5,000 nodes like all others, not beside one large node.
* Churn is ten times as frequent, because ten times as many pods per second are the target: as many changes for each pod.

Outcomes are checked by what the witness has seen:

    overcommitted    nodes whose pods request more CPU than there is
    misplaced        pods whose constraint is violated
    wrongly bound    pods that were bound although they fit nowhere, or are held by a gate

Source: https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf (affinity, misc, topology_spreading
and volumes, each with its performance-config.yaml; and templates). The comment at each row names the test case there.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from pinnace.api.core_v1_pb2 import Node, PersistentVolume, PersistentVolumeClaim, Pod, Service
from pinnace.api.resources import SERVICES
from pinnace.api.storage_v1_pb2 import CSINode
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION, FLEET_LABEL
from pinnace.bench import BenchError, load
from pinnace.bench.load import NODE_CPU, PODS_PER_NODE, Load, Shape, like, pod
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.client.resource import delete_request

DRIVER = "ebs.csi.aws.com"
VOLUMES_PER_NODE = 39
SIZE, MODE = "1Gi", "ReadOnlyMany"


def pod_with_volume(name: str) -> Pod:
    """It uses the claim of its own name."""
    made = load.pod(name)
    made.spec.volumes.add(name="data").volumeSource.persistentVolumeClaim.claimName = name
    return made


def volume(name: str, namespace: str) -> PersistentVolume:
    made = PersistentVolume()
    made.metadata.name = f"{namespace}-{name}"
    spec = made.spec
    spec.accessModes.append(MODE)
    spec.capacity["storage"].string = SIZE
    spec.persistentVolumeSource.csi.driver = DRIVER
    spec.persistentVolumeSource.csi.volumeHandle = made.metadata.name
    spec.claimRef.kind, spec.claimRef.apiVersion = "PersistentVolumeClaim", "v1"
    spec.claimRef.namespace, spec.claimRef.name = namespace, name
    return made


def claim(name: str, namespace: str) -> PersistentVolumeClaim:
    made = PersistentVolumeClaim()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.metadata.annotations[BIND_COMPLETED_ANNOTATION] = "true"
    made.spec.accessModes.append(MODE)
    made.spec.resources.requests["storage"].string = SIZE
    made.spec.volumeName = f"{namespace}-{name}"
    return made


def csi_node(name: str) -> CSINode:
    """The driver on a node, and how many of its volumes it attaches there."""
    made = CSINode()
    made.metadata.name = name
    made.spec.drivers.add(name=DRIVER, nodeID=name).allocatable.count = VOLUMES_PER_NODE
    return made


Check = Callable[[Sequence[str], Mapping[str, str]], int]
"""(the node of each pod that has the constraint, the zone of each node) -> how many pods are where they must not be."""


def anywhere(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    return 0


def at_most(number: int) -> Check:
    """Each beyond so many on its node."""
    return lambda nodes, zones: sum(max(0, pods - number) for pods in Counter(nodes).values())


def same_zone(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    """Each that is not in the zone where most are."""
    return len(nodes) - max(Counter(zones.get(node) for node in nodes).values(), default=0)


def within_zones(*allowed: str) -> Check:
    return lambda nodes, zones: sum(zones.get(node) not in allowed for node in nodes)


def even_zones(max_skew: int) -> Check:
    """Each that the fullest zone has beyond what the emptiest allows."""

    def check(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
        pods = Counter(zones.get(node, "") for node in nodes)
        counts = [pods[zone] for zone in set(zones.values()) | set(pods)]
        return max(0, max(counts) - min(counts) - max_skew)

    return check


def overcommitted(placed: Iterable[tuple[str, int]]) -> int:
    """How many nodes have pods that ask for more CPU than they have. Of each pod: its node, and millicores."""
    taken = Counter[str]()
    for node, cpu in placed:
        taken[node] += cpu
    return sum(cpu > NODE_CPU for cpu in taken.values())


INTERVAL = 0.1
DELETED_AT_ONCE = 50
FLEET = "kubelet-0"
"""Plays the nodes that come."""
Churn = Callable[[Client, Load], Coroutine[Any, Any, None]]
"""Goes on until it is cancelled, or has nothing left to do. The load is that of the pods that were placed before."""


def recreating(shape: load.Shape) -> Churn:
    """A node, a pod and a service come, and go one interval later."""

    async def churn(client: Client, placed: Load) -> None:
        services = client.of(SERVICES)
        for number in count():
            name = f"churn-{number}"
            await asyncio.gather(
                client.nodes.create(node(name)), client.pods.create(shape(name)), services.create(service(name))
            )
            await asyncio.sleep(INTERVAL)
            await asyncio.gather(
                client.nodes.delete(name),
                client.pods.delete(name, load.NAMESPACE, grace=0),
                services.delete(name, load.NAMESPACE),
            )
            await asyncio.sleep(INTERVAL)

    return churn


async def deleting(client: Client, placed: Load) -> None:
    """Pods that were placed go, some in each interval."""
    names = list(placed.sent)
    for start in range(0, len(names), DELETED_AT_ONCE):
        some = names[start : start + DELETED_AT_ONCE]
        for item in await client.pods.delete_batch([delete_request(name, placed.namespace, grace=0) for name in some]):
            if item.HasField("error"):
                raise BenchError(f"pod {item.name} was not deleted: {from_status(item.error)}")
        await asyncio.sleep(INTERVAL)


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """It goes on beside the body, and ends with it. What it raises is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


def node(name: str) -> Node:
    """Ready from the start."""
    made = Node()
    made.metadata.name = name
    made.metadata.labels[FLEET_LABEL] = FLEET
    made.metadata.labels["kubernetes.io/hostname"] = name
    for resource, amount in (("cpu", "4"), ("memory", "32Gi"), ("pods", "110")):
        made.status.capacity[resource].string = amount
    made.status.conditions.add(type="Ready", status="True")
    return made


def service(name: str) -> Service:
    made = Service()
    made.metadata.name, made.metadata.namespace = name, load.NAMESPACE
    made.spec.selector["app"] = name
    made.spec.ports.add(name="http", port=80, protocol="TCP")
    return made


BEFORE, MEASURED = "sched-0", "sched-1"
"""The namespaces of the pods that are there before, and of those that are measured."""
PRIORITY_CLASS, PRIORITY = "high", 10


@dataclass(frozen=True, slots=True)
class Group:
    """So many pods of one shape."""

    count: int
    shape: Shape = pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Numbers are those at `nodes` nodes; what is not measured shrinks and grows with the nodes."""

    about: str
    nodes: int = 5000
    zones: Sequence[str] = ()
    """Labels that the nodes have in turn."""
    volumes: bool = False
    """Each pod has a claim, and it is bound."""
    placed: Group = Group(0)
    """Pods that run before."""
    waiting: Group = Group(0)
    """Pods that wait beside, and must not be bound."""
    measured: Group
    churn: Churn | None = None
    misplaced: Check = anywhere
    """Of the measured pods, and of those placed before that are like them."""
    per_node: int = PODS_PER_NODE
    """The most pods, placed and measured, that a node takes."""
    preempts: bool = False
    """The measured pods take the room of those that were placed before."""

    def scaled(self, count: int, nodes: int) -> int:
        return -(-count * nodes // self.nodes)

    def room(self, nodes: int) -> int:
        """How many pods can be measured on so many nodes."""
        return nodes * self.per_node - (0 if self.preempts else self.scaled(self.placed.count, nodes))

    def constrained(self, placed: set[str], measured: set[str]) -> set[str]:
        """Of these pods those that `misplaced` is about."""
        return measured | placed if self.placed.shape is self.measured.shape else measured


NODE_AFFINE = like("""
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: topology.kubernetes.io/zone, operator: In, values: [zone1, zone2]}
""")
ANTI_AFFINE = like("""
    metadata: {labels: {color: green}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchLabels: {color: green}}
            topologyKey: kubernetes.io/hostname
            namespaces: [sched-1, sched-0]
""")
AFFINE = like("""
    metadata: {labels: {color: blue}}
    spec:
      affinity:
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchLabels: {color: blue}}
            topologyKey: topology.kubernetes.io/zone
            namespaces: [sched-1, sched-0]
""")
PREFER_AFFINE = like("""
    metadata: {labels: {color: red}}
    spec:
      affinity:
        podAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 1
            podAffinityTerm:
              labelSelector: {matchLabels: {color: red}}
              topologyKey: kubernetes.io/hostname
              namespaces: [sched-1, sched-0]
""")
PREFER_ANTI_AFFINE = like("""
    metadata: {labels: {color: yellow}}
    spec:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 1
            podAffinityTerm:
              labelSelector: {matchLabels: {color: yellow}}
              topologyKey: kubernetes.io/hostname
              namespaces: [sched-1, sched-0]
""")
SPREAD = like("""
    metadata: {labels: {color: blue}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 5
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {color: blue}}
""")
PREFER_SPREAD = like("""
    metadata: {labels: {color: blue}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 5
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {color: blue}}
""")
TOO_LARGE = like("spec: {priorityClassName: high}", cpu="9")
"""Fits on no node."""
SMALL_AND_LOW = like("spec: {terminationGracePeriodSeconds: 0}", cpu="900m")
"""Four fill a node."""
LARGE_AND_HIGH = like("spec: {priorityClassName: high}", cpu="3")
"""Needs the room of three of those."""
GATED = like("spec: {schedulingGates: [{name: example.com/hold}]}")

MOONS = ("moon-1", "moon-2", "moon-3")

WORKLOADS = {
    "plain": Workload(
        about="default pods on 1,000 empty nodes",
        nodes=1000,
        measured=Group(5000),
    ),
    "basic": Workload(  # SchedulingBasic/5000Nodes_10000Pods
        about="default pods beside 1,000 that run",
        placed=Group(1000),
        measured=Group(10000),
    ),
    "node-affinity": Workload(  # SchedulingNodeAffinity/5000Nodes_10000Pods
        about="pods that want one of two zones",
        zones=("zone1",),
        placed=Group(5000, NODE_AFFINE),
        measured=Group(10000, NODE_AFFINE),
        misplaced=within_zones("zone1", "zone2"),
    ),
    "pod-anti-affinity": Workload(  # SchedulingPodAntiAffinity/5000Nodes_2000Pods
        about="pods of which a node must have one only",
        placed=Group(1000, ANTI_AFFINE),
        measured=Group(2000, ANTI_AFFINE),
        misplaced=at_most(1),
        per_node=1,
    ),
    "pod-affinity": Workload(  # SchedulingPodAffinity/5000Nodes_5000Pods
        about="pods that must be in one zone",
        zones=("zone1",),
        placed=Group(5000, AFFINE),
        measured=Group(5000, AFFINE),
        misplaced=same_zone,
    ),
    "preferred-pod-affinity": Workload(  # SchedulingPreferredPodAffinity/5000Nodes_5000Pods
        about="pods that would rather share a node",
        placed=Group(5000, PREFER_AFFINE),
        measured=Group(5000, PREFER_AFFINE),
    ),
    "preferred-pod-anti-affinity": Workload(  # SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods
        about="pods that would rather not share a node",
        placed=Group(5000, PREFER_ANTI_AFFINE),
        measured=Group(5000, PREFER_ANTI_AFFINE),
    ),
    "topology-spread": Workload(  # TopologySpreading/5000Nodes_5000Pods
        about="pods that must be even over three zones",
        zones=MOONS,
        placed=Group(5000),
        measured=Group(5000, SPREAD),
        misplaced=even_zones(max_skew=5),
    ),
    "preferred-topology-spread": Workload(  # PreferredTopologySpreading/5000Nodes_5000Pods
        about="pods that would rather be even over three zones",
        zones=MOONS,
        placed=Group(5000),
        measured=Group(5000, PREFER_SPREAD),
    ),
    "mixed-churn": Workload(  # SchedulingWithMixedChurn/5000Nodes_10000Pods
        about="default pods, while a node, a pod and a service come and go",
        measured=Group(10000),
        churn=recreating(TOO_LARGE),
    ),
    "unschedulable": Workload(  # Unschedulable/5kNodes/100Init/10kPods
        about="default pods beside 10,000 that fit nowhere",
        placed=Group(100),
        waiting=Group(10000, TOO_LARGE),
        measured=Group(10000),
    ),
    "gated": Workload(  # SchedulingWhileGated/1Node_10000GatedPods
        about="default pods beside 10,000 gated ones, while pods that ran go",
        placed=Group(20000),
        waiting=Group(10000, GATED),
        measured=Group(20000),
        churn=deleting,
    ),
    "preemption": Workload(  # PreemptionBasic/5000Nodes
        about="pods that need the room of pods of a lower priority, on nodes that are full",
        placed=Group(20000, SMALL_AND_LOW),
        measured=Group(5000, LARGE_AND_HIGH),
        misplaced=at_most(1),
        per_node=1,
        preempts=True,
    ),
    "volumes": Workload(  # SchedulingCSIPVs/5000Nodes_5000Pods
        about="pods whose claims are bound to volumes of CSI",
        volumes=True,
        placed=Group(5000, pod_with_volume),
        measured=Group(5000, pod_with_volume),
        misplaced=at_most(VOLUMES_PER_NODE),
        per_node=VOLUMES_PER_NODE,
    ),
}
