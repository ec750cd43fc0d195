"""The daemon set controller on objects in memory; the test is the scheduler and the kubelets."""

import random
from collections import Counter
from itertools import chain
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import DaemonSet, DaemonSetStatus
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.core_v1_pb2 import Node, Pod, PodSpec, Toleration
from pinnace.api.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, store_key
from pinnace.api.scalars import to_time
from pinnace.controllers.daemonnodes import DaemonPlacement, add_daemon_tolerations, target_node
from pinnace.controllers.daemonset import DaemonSetController, FailedPodBackoff
from pinnace.controllers.revisions import REVISION_LABEL
from tests.killpoints import KillableCluster

KEY, START = "n/agent", 1000.0
LABELS = {"app": "agent"}


class DaemonWorld(KillableCluster):
    """A world with nodes and one daemon set. `strategy` is its updateStrategy; `spec` has other fields of its spec."""

    def __init__(self, nodes: int = 3, strategy: dict[str, Any] | None = None, **spec: Any) -> None:
        super().__init__(DaemonSetController, now=START)
        self.between.append(self.end_pods)
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
        defaults = {"selector": {"matchLabels": LABELS}, "template": template, "revisionHistoryLimit": 10}
        metadata = {"name": "agent", "namespace": "n", "generation": 1}
        body = {"metadata": metadata, "spec": defaults | {"updateStrategy": strategy or rolling} | spec}
        for number in range(nodes):
            self.create(NODES, from_dict(NODES, {"metadata": {"name": f"node-{number}"}}))
        self.create(DAEMON_SETS, from_dict(DAEMON_SETS, body))

    async def advance(self, seconds: float = 0.0) -> float | None:
        """Sync what changes in this time. Return the seconds until the next sync that the controller has asked for."""
        return await self.settle(seconds)

    def set_image(self, image: str) -> None:
        set_image(self, image)

    def taint(self, node: str, *effects: str) -> None:
        def change(node: Node) -> None:
            del node.spec.taints[:]
            for effect in effects:
                node.spec.taints.add(key="t", effect=effect)

        self.change(NODES, node, change)

    def run(self, pod: Pod, phase: str = "Running") -> None:
        """Bind the pod and report its phase. A running pod is ready."""

        def change(pod: Pod) -> None:
            pod.spec.nodeName, pod.status.phase = target_node(pod), phase
            if phase == "Running":
                ready = pod.status.conditions.add(type="Ready", status="True")
                ready.lastTransitionTime.CopyFrom(to_time(self.now))

        self.change(PODS, store_key(pod), change)

    def run_all(self) -> None:
        for pod in self.pods:
            if not pod.spec.nodeName:
                self.run(pod)

    async def roll_out(self) -> None:
        """Run pods until nothing changes any more."""
        await self.advance()
        while any(not pod.spec.nodeName for pod in self.pods):
            self.run_all()
            await self.advance()

    @property
    def pods(self) -> list[Pod]:
        return list(self.of(PODS).values())

    @property
    def status(self) -> DaemonSetStatus:
        return self.of(DAEMON_SETS)[KEY].status

    def images(self) -> dict[str, list[str]]:
        """The images of the pods by node."""
        found: dict[str, list[str]] = {}
        for pod in self.pods:
            found.setdefault(target_node(pod), []).append(pod.spec.containers[0].image)
        return found


def set_image(cluster: KillableCluster, image: str) -> None:
    def change(daemon_set: DaemonSet) -> None:
        daemon_set.spec.template.spec.containers[0].image = image

    cluster.change(DAEMON_SETS, KEY, change)


async def test_each_node_gets_a_pod_with_affinity_tolerations_and_labels() -> None:
    world = DaemonWorld(nodes=2)
    await world.advance()
    assert sorted(map(target_node, world.pods)) == ["node-0", "node-1"]
    pod = world.pods[0]
    assert to_dict(pod.spec.affinity) == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [target_node(pod)]}]}
                ]
            }
        }
    }
    assert {toleration.key.rpartition("/")[2]: toleration.effect for toleration in pod.spec.tolerations} == {
        "not-ready": "NoExecute",
        "unreachable": "NoExecute",
        "disk-pressure": "NoSchedule",
        "memory-pressure": "NoSchedule",
        "pid-pressure": "NoSchedule",
        "unschedulable": "NoSchedule",
    }
    (revision,) = world.of(CONTROLLER_REVISIONS).values()
    assert pod.metadata.labels[REVISION_LABEL] == revision.metadata.labels[REVISION_LABEL]
    assert revision.metadata.name == f"agent-{revision.metadata.labels[REVISION_LABEL]}"
    await world.roll_out()
    counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled")
    assert [getattr(world.status, count) for count in counts] == [2] * 5 and world.status.numberUnavailable == 0


async def test_steady_state_writes_nothing() -> None:
    world = DaemonWorld()
    await world.roll_out()
    world.points.clear()
    world.change(DAEMON_SETS, KEY, lambda daemon_set: daemon_set.metadata.labels.update(touched="yes"))
    assert await world.advance() is None and not world.points


def test_tolerations_of_the_template_are_kept() -> None:
    spec = PodSpec(hostNetwork=True)
    spec.tolerations.append(
        Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", tolerationSeconds=5)
    )
    add_daemon_tolerations(spec)
    assert len(spec.tolerations) == 7 and not spec.tolerations[0].HasField("tolerationSeconds")
    assert spec.tolerations[-1].key.endswith("network-unavailable")


async def test_taints_decide_where_pods_are_created_and_stay() -> None:
    world = DaemonWorld(nodes=2)
    await world.roll_out()
    world.taint("node-0", "NoSchedule")
    await world.advance()
    assert sorted(world.images()) == ["node-0", "node-1"]
    assert (world.status.desiredNumberScheduled, world.status.numberMisscheduled) == (1, 1)
    world.taint("node-0", "NoExecute")
    await world.advance()
    assert sorted(world.images()) == ["node-1"] and world.status.numberMisscheduled == 0
    world.taint("node-0", "PreferNoSchedule")
    await world.advance()
    assert sorted(world.images()) == ["node-0", "node-1"]


async def test_node_selector_selects_nodes_and_follows_labels() -> None:
    world = DaemonWorld(nodes=2)
    world.change(DAEMON_SETS, KEY, lambda daemon_set: daemon_set.spec.template.spec.nodeSelector.update(disk="ssd"))
    await world.advance()
    assert not world.pods
    world.change(NODES, "node-1", lambda node: node.metadata.labels.update(disk="ssd"))
    await world.roll_out()
    assert sorted(world.images()) == ["node-1"] and world.status.desiredNumberScheduled == 1


async def test_unscheduled_pod_of_a_deleted_node_stays_until_the_next_sync() -> None:
    """Recorded on Kubernetes 1.36.2."""
    world = DaemonWorld(nodes=2)
    await world.advance()
    world.remove(NODES, world.of(NODES)["node-0"])
    assert not world.deliver()
    await world.advance()
    assert sorted(world.images()) == ["node-0", "node-1"]
    world.change(DAEMON_SETS, KEY, lambda daemon_set: daemon_set.metadata.labels.update(touched="yes"))
    await world.advance()
    assert sorted(world.images()) == ["node-1"] and world.status.desiredNumberScheduled == 1


@pytest.mark.parametrize(("bound", "most"), [(1, 1), ("40%", 4)])
async def test_rolling_update_keeps_within_max_unavailable(bound: int | str, most: int) -> None:
    world = DaemonWorld(10, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": bound, "maxSurge": 0}})
    await world.roll_out()
    world.set_image("i:2")
    await world.advance()
    chance, reached = random.Random(1), 0
    while waiting := [pod for pod in world.pods if not pod.spec.nodeName]:
        unavailable = 10 - sum(bool(pod.spec.nodeName) for pod in world.pods)
        reached = max(reached, unavailable)
        assert unavailable <= most
        world.run(chance.choice(waiting))
        await world.advance()
    assert reached == most and world.images() == {f"node-{number}": ["i:2"] for number in range(10)}
    assert world.status.updatedNumberScheduled == 10


async def test_unavailable_old_pods_are_replaced_first_and_count() -> None:
    world = DaemonWorld(4, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}})
    await world.advance()
    unavailable, *others = world.pods
    for pod in others:
        world.run(pod)
    world.set_image("i:2")
    await world.advance()
    assert sum(images == ["i:2"] for images in world.images().values()) == 2
    assert world.images()[target_node(unavailable)] == ["i:2"]


async def test_surge_keeps_a_pod_available_on_each_node() -> None:
    world = DaemonWorld(5, {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}, minReadySeconds=10)
    await world.roll_out()
    await world.advance(10)
    assert world.status.numberAvailable == 5
    world.set_image("i:2")
    await world.advance()
    for _ in range(20):
        by_node = Counter(map(target_node, world.pods))
        assert sum(count == 2 for count in by_node.values()) <= 2 and max(by_node.values()) <= 2
        ready_nodes = {pod.spec.nodeName for pod in world.pods if pod.status.conditions}
        assert len(ready_nodes) == 5
        world.run_all()
        await world.advance()
        await world.advance(10)
    assert world.images() == {f"node-{number}": ["i:2"] for number in range(5)}


async def test_pod_becomes_available_after_min_ready_seconds() -> None:
    world = DaemonWorld(1, minReadySeconds=30)
    await world.advance()
    world.run_all()
    assert await world.advance() == pytest.approx(30)
    assert (world.status.numberReady, world.status.numberAvailable) == (1, 0)
    await world.advance(30)
    assert world.status.numberAvailable == 1


async def test_on_delete_replaces_pods_that_a_client_deletes() -> None:
    world = DaemonWorld(2, {"type": "OnDelete"})
    await world.roll_out()
    world.set_image("i:2")
    await world.roll_out()
    assert sorted(chain(*world.images().values())) == ["i:1", "i:1"] and world.status.updatedNumberScheduled == 0
    world.delete(PODS, world.pods[0])
    await world.roll_out()
    assert sorted(chain(*world.images().values())) == ["i:1", "i:2"] and world.status.updatedNumberScheduled == 1


async def test_rollback_raises_the_number_of_the_old_revision() -> None:
    world = DaemonWorld(1, revisionHistoryLimit=1)
    for image in ("i:1", "i:2", "i:3", "i:2"):
        world.set_image(image)
        await world.roll_out()
    revisions = sorted(revision.revision for revision in world.of(CONTROLLER_REVISIONS).values())
    assert revisions == [3, 4] and world.images() == {"node-0": ["i:2"]}


async def test_failed_pods_are_replaced_with_backoff() -> None:
    world = DaemonWorld(1)
    await world.advance()
    world.run(world.pods[0], "Failed")
    await world.advance()
    assert world.reasons[-3:-1] == ["FailedDaemonPod", "SuccessfulDelete"]
    world.run(world.pods[0], "Failed")
    assert await world.advance() == pytest.approx(1)
    assert world.pods[0].status.phase == "Failed"
    await world.advance(1)
    assert world.pods[0].status.phase == "Pending"
    world.run(world.pods[0], "Succeeded")
    await world.advance()
    assert "SucceededDaemonPod" in world.reasons and world.pods[0].status.phase == "Pending"


def test_failed_pod_backoff_doubles_and_is_forgotten_after_a_time_without_failures() -> None:
    backoff, now, waits = FailedPodBackoff(), 0.0, []
    for _ in range(4):
        assert backoff.seconds_until_deletion("a", now) == 0
        waits.append(backoff.seconds_until_deletion("a", now))
        now += waits[-1]
    assert waits == [1, 2, 4, 8]
    now += 2000
    backoff.seconds_until_deletion("a", now)
    assert backoff.seconds_until_deletion("a", now) == 1


async def test_orphaned_pod_is_adopted_and_surplus_pods_are_deleted() -> None:
    world = DaemonWorld(1)
    await world.advance()
    pod = world.pods[0]

    def orphan(pod: Pod) -> None:
        del pod.metadata.ownerReferences[:]
        pod.metadata.name, pod.metadata.uid, pod.spec.nodeName = "orphan", "o", "node-0"

    stored = type(pod)()
    stored.CopyFrom(pod)
    orphan(stored)
    world.create(PODS, stored)
    await world.advance()
    (left,) = world.pods
    assert left.metadata.name == "orphan" and left.metadata.ownerReferences[0].name == "agent"


async def test_change_of_one_pod_evaluates_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DaemonWorld(60)
    await world.roll_out()
    decided: list[str] = []
    decide = DaemonPlacement.decide
    monkeypatch.setattr(DaemonPlacement, "decide", lambda self, node: decided.append(node.metadata.name) or decide(self, node))
    world.run(world.pods[7], "Failed")
    await world.advance()
    assert set(decided) == {target_node(world.pods[-1])} and len(decided) <= 4
    decided.clear()
    world.change(NODES, "node-9", lambda node: node.status.conditions.add(type="Ready", status="True"))
    assert not world.deliver() and not decided
