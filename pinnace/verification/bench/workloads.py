"""The workloads of row `backlog`: nodes, existing pods, measured pods, and churn.

They equal the workloads of Kubernetes' scheduler_perf: the same nodes, labels, pods and numbers at 5,000 nodes. Differences:

* scheduler_perf creates pods while they are scheduled; here they are already waiting. The leader therefore tries the 10,000
  unschedulable pods first, because they have the higher priority. In scheduler_perf they arrive at a rate of five per second.
* Gated pods wait in a cluster of 5,000 nodes like all others, not of one large node.
* Churn is ten times as frequent, because the target rate of pods is ten times as high: the same number of changes per pod.

The results are checked with the observations of the witness:

    overcommitted    nodes whose pods request more CPU than available
    misplaced        pods whose constraint is violated
    wrongly bound    bound pods that fit on no node or are gated

Source: https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf (affinity, misc, topology_spreading
and volumes, each with its performance-config.yaml; and templates). The comment at each row names the test case.
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
from pinnace.client.client import Client
from pinnace.client.errors import from_status
from pinnace.client.resource import delete_request
from pinnace.verification.bench import BenchError, load
from pinnace.verification.bench.load import NODE_CPU, PODS_PER_NODE, CreatedPods, Shape, build_pod, shape_with_cpu

DRIVER = "ebs.csi.aws.com"
VOLUMES_PER_NODE = 39
SIZE, MODE = "1Gi", "ReadOnlyMany"
INTERVAL = 0.1
DELETED_AT_ONCE = 50
FLEET = "kubelet-0"
"""The fleet of the nodes that churn creates."""
BEFORE, MEASURED = "sched-0", "sched-1"
"""The namespaces of the existing and the measured pods."""
PRIORITY_CLASS, PRIORITY = "high", 10
NODE_AFFINE = shape_with_cpu("""
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: topology.kubernetes.io/zone, operator: In, values: [zone1, zone2]}
""")
ANTI_AFFINE = shape_with_cpu("""
    metadata: {labels: {color: green}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchLabels: {color: green}}
            topologyKey: kubernetes.io/hostname
            namespaces: [sched-1, sched-0]
""")
AFFINE = shape_with_cpu("""
    metadata: {labels: {color: blue}}
    spec:
      affinity:
        podAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchLabels: {color: blue}}
            topologyKey: topology.kubernetes.io/zone
            namespaces: [sched-1, sched-0]
""")
PREFER_AFFINE = shape_with_cpu("""
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
PREFER_ANTI_AFFINE = shape_with_cpu("""
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
SPREAD = shape_with_cpu("""
    metadata: {labels: {color: blue}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 5
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {color: blue}}
""")
PREFER_SPREAD = shape_with_cpu("""
    metadata: {labels: {color: blue}}
    spec:
      topologySpreadConstraints:
      - maxSkew: 5
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {color: blue}}
""")
TOO_LARGE = shape_with_cpu("spec: {priorityClassName: high}", cpu="9")
"""A pod that fits on no node."""
SMALL_AND_LOW = shape_with_cpu("spec: {terminationGracePeriodSeconds: 0}", cpu="900m")
"""Four of these pods fill a node."""
LARGE_AND_HIGH = shape_with_cpu("spec: {priorityClassName: high}", cpu="3")
"""A pod that needs the resources of three pods of SMALL_AND_LOW."""
GATED = shape_with_cpu("spec: {schedulingGates: [{name: example.com/hold}]}")
MOONS = ("moon-1", "moon-2", "moon-3")
Check = Callable[[Sequence[str], Mapping[str, str]], int]
"""A function from (the node of each constrained pod, the zone of each node) to the number of misplaced pods."""
Churn = Callable[[Client, CreatedPods], Coroutine[Any, Any, None]]
"""A coroutine that runs until it is cancelled or has nothing left to do. The load contains the existing pods."""


def build_pod_with_volume(name: str) -> Pod:
    """Return a pod that uses the claim of the same name."""
    made = load.build_pod(name)
    made.spec.volumes.add(name="data").volumeSource.persistentVolumeClaim.claimName = name
    return made


def build_volume(name: str, namespace: str) -> PersistentVolume:
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


def build_claim(name: str, namespace: str) -> PersistentVolumeClaim:
    made = PersistentVolumeClaim()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.metadata.annotations[BIND_COMPLETED_ANNOTATION] = "true"
    made.spec.accessModes.append(MODE)
    made.spec.resources.requests["storage"].string = SIZE
    made.spec.volumeName = f"{namespace}-{name}"
    return made


def build_csi_node(name: str) -> CSINode:
    """Return the CSINode of a node, with the driver and its volume limit."""
    made = CSINode()
    made.metadata.name = name
    made.spec.drivers.add(name=DRIVER, nodeID=name).allocatable.count = VOLUMES_PER_NODE
    return made


def allow_any_node(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    return 0


def limit_pods_per_node(number: int) -> Check:
    """Allow at most `number` pods per node."""
    return lambda nodes, zones: sum(max(0, pods - number) for pods in Counter(nodes).values())


def same_zone(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
    """Count pods outside the zone with the most pods."""
    return len(nodes) - max(Counter(zones.get(node) for node in nodes).values(), default=0)


def within_zones(*allowed: str) -> Check:
    return lambda nodes, zones: sum(zones.get(node) not in allowed for node in nodes)


def even_zones(max_skew: int) -> Check:
    """Allow at most `max_skew` more pods in a zone than in any other."""

    def check(nodes: Sequence[str], zones: Mapping[str, str]) -> int:
        pods = Counter(zones.get(node, "") for node in nodes)
        counts = [pods[zone] for zone in set(zones.values()) | set(pods)]
        return max(0, max(counts) - min(counts) - max_skew)

    return check


def count_overcommitted_nodes(placed: Iterable[tuple[str, int]]) -> int:
    """Return the number of nodes whose pods request more CPU than the node has. `placed`: the node and millicores of each
    pod."""
    taken = Counter[str]()
    for node, cpu in placed:
        taken[node] += cpu
    return sum(cpu > NODE_CPU for cpu in taken.values())


def recreate_objects(shape: load.Shape) -> Churn:
    """Create a node, a pod and a service, and delete them one interval later."""

    async def churn(client: Client, placed: CreatedPods) -> None:
        services = client.of(SERVICES)
        for number in count():
            name = f"churn-{number}"
            await asyncio.gather(
                client.nodes.create(build_node(name)), client.pods.create(shape(name)), services.create(build_service(name))
            )
            await asyncio.sleep(INTERVAL)
            await asyncio.gather(
                client.nodes.delete(name),
                client.pods.delete(name, load.NAMESPACE, grace=0),
                services.delete(name, load.NAMESPACE),
            )
            await asyncio.sleep(INTERVAL)

    return churn


async def delete_placed_pods(client: Client, placed: CreatedPods) -> None:
    """Delete existing pods, some in each interval."""
    names = list(placed.sent)
    for start in range(0, len(names), DELETED_AT_ONCE):
        some = names[start : start + DELETED_AT_ONCE]
        for item in await client.pods.delete_batch([delete_request(name, placed.namespace, grace=0) for name in some]):
            if item.HasField("error"):
                raise BenchError(f"pod {item.name} was not deleted: {from_status(item.error)}")
        await asyncio.sleep(INTERVAL)


@asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine during the body. Raises its errors at the end."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


def build_node(name: str) -> Node:
    """Return a node that is Ready."""
    made = Node()
    made.metadata.name = name
    made.metadata.labels[FLEET_LABEL] = FLEET
    made.metadata.labels["kubernetes.io/hostname"] = name
    for resource, amount in (("cpu", "4"), ("memory", "32Gi"), ("pods", "110")):
        made.status.capacity[resource].string = amount
    made.status.conditions.add(type="Ready", status="True")
    return made


def build_service(name: str) -> Service:
    made = Service()
    made.metadata.name, made.metadata.namespace = name, load.NAMESPACE
    made.spec.selector["app"] = name
    made.spec.ports.add(name="http", port=80, protocol="TCP")
    return made


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A number of pods of one shape."""

    count: int
    shape: Shape = build_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload. Numbers apply to `nodes` nodes. All numbers except that of measured pods are scaled with the actual nodes."""

    about: str
    nodes: int = 5000
    zones: Sequence[str] = ()
    """The zone labels, assigned to the nodes in turn."""
    volumes: bool = False
    """Whether each pod has a bound claim."""
    placed: PodGroup = PodGroup(0)
    """Pods that are running before the measurement."""
    waiting: PodGroup = PodGroup(0)
    """Pods that wait during the measurement and must not be bound."""
    measured: PodGroup
    churn: Churn | None = None
    misplaced: Check = allow_any_node
    """The check of the measured pods, and of existing pods with the same shape."""
    per_node: int = PODS_PER_NODE
    """The maximum number of pods per node, both existing and measured."""
    preempts: bool = False
    """Whether the measured pods preempt the existing pods."""

    def scaled(self, count: int, nodes: int) -> int:
        return -(-count * nodes // self.nodes)

    def max_measured_pods(self, nodes: int) -> int:
        """Return the number of pods that can be measured on this number of nodes."""
        return nodes * self.per_node - (0 if self.preempts else self.scaled(self.placed.count, nodes))

    def constrained_pods(self, placed: set[str], measured: set[str]) -> set[str]:
        """Return the pods that `misplaced` checks."""
        return measured | placed if self.placed.shape is self.measured.shape else measured


WORKLOADS = {
    "plain": Workload(
        about="default pods on 1,000 empty nodes",
        nodes=1000,
        measured=PodGroup(5000),
    ),
    "basic": Workload(  # SchedulingBasic/5000Nodes_10000Pods
        about="default pods with 1,000 running pods",
        placed=PodGroup(1000),
        measured=PodGroup(10000),
    ),
    "node-affinity": Workload(  # SchedulingNodeAffinity/5000Nodes_10000Pods
        about="pods with a node affinity for two zones",
        zones=("zone1",),
        placed=PodGroup(5000, NODE_AFFINE),
        measured=PodGroup(10000, NODE_AFFINE),
        misplaced=within_zones("zone1", "zone2"),
    ),
    "pod-anti-affinity": Workload(  # SchedulingPodAntiAffinity/5000Nodes_2000Pods
        about="pods with an anti-affinity to each other on a node",
        placed=PodGroup(1000, ANTI_AFFINE),
        measured=PodGroup(2000, ANTI_AFFINE),
        misplaced=limit_pods_per_node(1),
        per_node=1,
    ),
    "pod-affinity": Workload(  # SchedulingPodAffinity/5000Nodes_5000Pods
        about="pods with an affinity to each other in a zone",
        zones=("zone1",),
        placed=PodGroup(5000, AFFINE),
        measured=PodGroup(5000, AFFINE),
        misplaced=same_zone,
    ),
    "preferred-pod-affinity": Workload(  # SchedulingPreferredPodAffinity/5000Nodes_5000Pods
        about="pods that prefer to share a node",
        placed=PodGroup(5000, PREFER_AFFINE),
        measured=PodGroup(5000, PREFER_AFFINE),
    ),
    "preferred-pod-anti-affinity": Workload(  # SchedulingPreferredPodAntiAffinity/5000Nodes_5000Pods
        about="pods that prefer not to share a node",
        placed=PodGroup(5000, PREFER_ANTI_AFFINE),
        measured=PodGroup(5000, PREFER_ANTI_AFFINE),
    ),
    "topology-spread": Workload(  # TopologySpreading/5000Nodes_5000Pods
        about="pods that must spread evenly over three zones",
        zones=MOONS,
        placed=PodGroup(5000),
        measured=PodGroup(5000, SPREAD),
        misplaced=even_zones(max_skew=5),
    ),
    "preferred-topology-spread": Workload(  # PreferredTopologySpreading/5000Nodes_5000Pods
        about="pods that prefer to spread evenly over three zones",
        zones=MOONS,
        placed=PodGroup(5000),
        measured=PodGroup(5000, PREFER_SPREAD),
    ),
    "mixed-churn": Workload(  # SchedulingWithMixedChurn/5000Nodes_10000Pods
        about="default pods, while a node, a pod and a service are created and deleted",
        measured=PodGroup(10000),
        churn=recreate_objects(TOO_LARGE),
    ),
    "unschedulable": Workload(  # Unschedulable/5kNodes/100Init/10kPods
        about="default pods with 10,000 unschedulable pods",
        placed=PodGroup(100),
        waiting=PodGroup(10000, TOO_LARGE),
        measured=PodGroup(10000),
    ),
    "gated": Workload(  # SchedulingWhileGated/1Node_10000GatedPods
        about="default pods with 10,000 gated pods, while running pods are deleted",
        placed=PodGroup(20000),
        waiting=PodGroup(10000, GATED),
        measured=PodGroup(20000),
        churn=delete_placed_pods,
    ),
    "preemption": Workload(  # PreemptionBasic/5000Nodes
        about="pods that must preempt pods of lower priority on full nodes",
        placed=PodGroup(20000, SMALL_AND_LOW),
        measured=PodGroup(5000, LARGE_AND_HIGH),
        misplaced=limit_pods_per_node(1),
        per_node=1,
        preempts=True,
    ),
    "volumes": Workload(  # SchedulingCSIPVs/5000Nodes_5000Pods
        about="pods whose claims are bound to CSI volumes",
        volumes=True,
        placed=PodGroup(5000, build_pod_with_volume),
        measured=PodGroup(5000, build_pod_with_volume),
        misplaced=limit_pods_per_node(VOLUMES_PER_NODE),
        per_node=VOLUMES_PER_NODE,
    ),
}
