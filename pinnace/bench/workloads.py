"""The workloads of row `backlog`: what the nodes are like, what is there before, what is scheduled, what comes and goes.

They are those of Kubernetes' own benchmark: the same nodes, labels, pods and numbers at 5,000 nodes. What is different:

* Its pods are created while they are scheduled; here they wait already. With 10,000 unschedulable pods beside them, the leader
  has those to try as well, and first: they have the higher priority. In Kubernetes they came in meanwhile, five a second.
* Gated pods wait beside 5,000 nodes like all others, not beside one large node.
* What comes and goes does so ten times as often (churn.py).

Source: https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf (affinity, misc, topology_spreading
and volumes, each with its performance-config.yaml; and templates). The comment at each row names the test case there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.bench import outcome, volumes
from pinnace.bench.churn import Churn, deleting, recreating
from pinnace.bench.workload import PODS_PER_NODE, Shape, like, pod

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
    misplaced: outcome.Check = outcome.anywhere
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
        misplaced=outcome.within_zones("zone1", "zone2"),
    ),
    "pod-anti-affinity": Workload(  # SchedulingPodAntiAffinity/5000Nodes_2000Pods
        about="pods of which a node must have one only",
        placed=Group(1000, ANTI_AFFINE),
        measured=Group(2000, ANTI_AFFINE),
        misplaced=outcome.at_most(1),
        per_node=1,
    ),
    "pod-affinity": Workload(  # SchedulingPodAffinity/5000Nodes_5000Pods
        about="pods that must be in one zone",
        zones=("zone1",),
        placed=Group(5000, AFFINE),
        measured=Group(5000, AFFINE),
        misplaced=outcome.same_zone,
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
        misplaced=outcome.even_zones(max_skew=5),
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
        misplaced=outcome.at_most(1),
        per_node=1,
        preempts=True,
    ),
    "volumes": Workload(  # SchedulingCSIPVs/5000Nodes_5000Pods
        about="pods whose claims are bound to volumes of CSI",
        volumes=True,
        placed=Group(5000, volumes.pod),
        measured=Group(5000, volumes.pod),
        misplaced=outcome.at_most(volumes.VOLUMES_PER_NODE),
        per_node=volumes.VOLUMES_PER_NODE,
    ),
}
