"""The whole scheduler agrees with a plain reference on random small clusters: namespaces, priorities, PreemptionPolicy,
disruption budgets and volumes. PINNACE_PAIRS sets how many pairs of pod and node are compared."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Namespace, Node, Pod
from pinnace.api.resources import NAMESPACES, POD_DISRUPTION_BUDGETS, Resource
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework.profile import Enabled, create_plugin, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from pinnace.scheduler.scheduling_cycle import Placed, Unschedulable, schedule_one
from tests.builders import PodBuilder, label_selector, make_node, make_pod
from tests.unit.scheduler import reference, volumes_reference
from tests.unit.scheduler.pairs import PAIRS, TIMEOUT
from tests.unit.scheduler.pods_reference import Affinity
from tests.unit.scheduler.preempting import Bench, budget
from tests.unit.scheduler.test_preemption_reference import plain_rank
from tests.unit.scheduler.volume_objects import Stores, claim, csi_node, storage_class, volume

pytestmark = pytest.mark.slow

ZONE = "topology.kubernetes.io/zone"
SEEDS = min(max(PAIRS // 50, 200), 20_000)
NAMESPACE_LABELS: Mapping[str, Mapping[str, str]] = {"ns": {"team": "a"}, "other": {"team": "b"}}


class World(Bench):
    """A random cluster, its stores and one pod to schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.stores = Stores(storage_class("hand"))
        super().__init__(Cache())
        self.nodes: list[Node] = []
        for number in range(rng.randint(1, 4)):
            node = make_node(f"n{number}").capacity(cpu=rng.randint(1, 4), memory=4, pods=4).label(ZONE, rng.choice("ab"))
            self.nodes.append(node.build())
            self.cache.set_node(self.nodes[-1])
            self.stores.put(csi_node(f"n{number}", d=rng.randint(0, 2)))
        for number in range(4):
            spec: dict[str, Any] = {"csi": {"driver": "d", "volumeHandle": str(number)}}
            near = [(ZONE, "In", [rng.choice("ab")])]
            self.stores.put(volume(f"v{number}", storage_class="hand", near=near, **spec))
            modes = [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))]
            bound = f"v{number}" if rng.random() < 0.7 else ""
            self.stores.put(claim(f"c{number}", volume=bound, storage_class="hand", modes=modes))
        self.placed: list[tuple[Pod, Node]] = []
        for number in range(rng.randint(0, 8)):
            node = rng.choice(self.nodes)
            pod = self._pod(f"p{number}").node(node.metadata.name).build()
            self.placed.append((pod, node))
            self.cache.add_pod(PodInfo(pod), node.metadata.name)
        self.budgets = {}
        for namespace in NAMESPACE_LABELS:
            made = budget(namespace, "app=x", rng.randint(0, 1))
            made.metadata.namespace = namespace
            self.budgets[namespace] = made
        new = self._pod("new").priority(rng.randint(0, 4))
        self.new = (new.preemption_policy("Never") if rng.random() < 0.1 else new).build()
        plugins = [Enabled(create_plugin(plugin, name, {}, self), weight) for name, (plugin, weight) in DEFAULT_PLUGINS.items()]
        self.framework = Framework("default-scheduler", profile_of(plugins))

    def _pod(self, name: str) -> PodBuilder:
        rng = self.rng
        pod = make_pod(name, rng.choice(tuple(NAMESPACE_LABELS))).uid(name).req(cpu=rng.randint(0, 3), memory=rng.randint(0, 2))
        pod.priority(rng.randint(0, 3)).started(rng.randint(1, 9)).label("app", rng.choice("xy"))
        if rng.random() < 0.2:
            more: dict[str, Any] = rng.choice(({}, {"namespaces": ["ns"]}, {"namespaceSelector": label_selector("team=b")}))
            (pod.anti_affinity if rng.random() < 0.7 else pod.affinity)(f"app={rng.choice('xy')}", ZONE, **more)
        if pod.build().metadata.namespace == "ns" and rng.random() < 0.4:
            pod.claim(f"c{rng.randrange(4)}")
        return pod

    def objects(self, resource: Resource[Any]) -> dict[str, Any]:
        if resource == POD_DISRUPTION_BUDGETS:
            return dict(self.budgets)
        if resource == NAMESPACES:
            result = {name: Namespace() for name in NAMESPACE_LABELS}
            for name, labels in NAMESPACE_LABELS.items():
                result[name].metadata.name = name
                result[name].metadata.labels.update(labels)
            return result
        return dict(self.stores.objects(resource))

    def refused(self, node: Node, placed: Sequence[tuple[Pod, Node]]) -> tuple[bool, bool]:
        """Whether the node refuses the pod, and whether no preemption can change that."""
        new, name = self.new, node.metadata.name
        here = [pod for pod, at in placed if at.metadata.name == name]
        affinity = Affinity(new, placed, NAMESPACE_LABELS).reason(node)
        lasting = (
            any(volumes_reference.binding(new, node, self.stores))
            or volumes_reference.zone(new, node, self.stores)
            or affinity == "node(s) didn't match pod affinity rules"
        )
        passing = (
            reference.reasons(new, node, here)
            or affinity
            or volumes_reference.restrictions(new, here, [pod for pod, _ in placed], self.stores)
            or volumes_reference.limits(new, name, here, self.stores)
        )
        return bool(lasting or passing), bool(lasting)

    def victims(self, node: Node) -> tuple[list[Pod], int]:
        """Of the node, and how many of them a budget protects; none: preemption does not help."""
        lower = [
            p for p, at in self.placed if at.metadata.name == node.metadata.name and p.spec.priority < self.new.spec.priority
        ]
        lower.sort(key=lambda p: (-p.spec.priority, p.status.startTime.seconds, p.metadata.uid))
        names = {p.metadata.name for p in lower}
        staying = [item for item in self.placed if item[0].metadata.name not in names]
        if self.refused(node, self.placed)[1] or self.refused(node, staying)[0]:
            return [], 0
        left = {name: each.status.disruptionsAllowed for name, each in self.budgets.items()}
        protected = []
        for pod in lower:
            if pod.metadata.labels["app"] == "x":
                left[pod.metadata.namespace] -= 1
                if left[pod.metadata.namespace] < 0:
                    protected.append(pod)
        victims = []
        for pod in [*protected, *(pod for pod in lower if pod not in protected)]:
            if self.refused(node, [*staying, (pod, node)])[0]:
                victims.append(pod)
            else:
                staying.append((pod, node))
        return victims, sum(pod in protected for pod in victims)


@pytest.mark.timeout(TIMEOUT)
def test_clusters_agree_on_feasible_nodes_and_on_victims() -> None:
    preempted = 0
    for seed in range(SEEDS):
        world = World(seed)
        feasible = {node.metadata.name for node in world.nodes if not world.refused(node, world.placed)[0]}
        outcome = schedule_one(PodInfo(world.new), NodeSelector(world.cache, world.framework, seed=0))
        if feasible:
            assert isinstance(outcome, Placed) and outcome.node in feasible, seed
            continue
        assert isinstance(outcome, Unschedulable), seed
        result = [(node.metadata.name, *world.victims(node)) for node in world.nodes]
        ranks = {name: plain_rank(victims, violations) for name, victims, violations in result if victims}
        if not ranks or world.new.spec.preemptionPolicy == "Never":
            assert not outcome.nominated and not world.evicted, seed
            continue
        best = {name for name, rank in ranks.items() if rank == min(ranks.values())}
        assert outcome.nominated in best, seed
        expected = next(victims for name, victims, _ in result if name == outcome.nominated)
        assert {name.rpartition("/")[2] for name in world.evicted} == {pod.metadata.name for pod in expected}, seed
        preempted += 1
    assert preempted > SEEDS // 20
