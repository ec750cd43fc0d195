"""Rolling updates: sizes of replica sets, and bounds that hold despite delays."""

import random

import pytest

from pinnace.api.apps_v1_pb2 import Deployment, DeploymentStrategy, ReplicaSet
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.rollouts import DESIRED_ANNOTATION, MAX_ANNOTATION
from pinnace.api.scalars import MAX_INT32, STRING
from pinnace.controllers.deployment import (
    is_deployment_complete,
    is_scaling_event,
    new_replica_set_size,
    plan_deployment_sync,
    plan_rollout_step,
    resolve_rolling_update_bounds,
    scale_proportionally,
)
from pinnace.controllers.runtime import scaled_value
from tests.workloads import make_deployment, make_replica_set


def bound(text: str) -> IntOrString:
    return IntOrString(type=STRING, strVal=text) if text.endswith("%") else IntOrString(intVal=int(text))


def rolling(replicas: int, surge: str, unavailable: str) -> Deployment:
    strategy = DeploymentStrategy(type="RollingUpdate")
    strategy.rollingUpdate.maxSurge.CopyFrom(bound(surge))
    strategy.rollingUpdate.maxUnavailable.CopyFrom(bound(unavailable))
    return make_deployment("d", replicas=replicas, strategy=strategy)


def a_set(name: str, size: int, available: int = 0, **of: float) -> ReplicaSet:
    made = make_replica_set(name, replicas=size, **of)
    made.status.replicas = made.status.availableReplicas = available
    made.status.observedGeneration = made.metadata.generation
    return made


def lagging(made: ReplicaSet) -> ReplicaSet:
    made.metadata.generation += 1
    return made


@pytest.mark.parametrize(
    ("text", "total", "up", "down"),
    [("25%", 10, 3, 2), ("25%", 4, 1, 1), ("1%", 3, 1, 0), ("100%", 7, 7, 7), ("5", 3, 5, 5), ("0%", 9, 0, 0)],
)
def test_surge_is_rounded_up_and_unavailable_down(text: str, total: int, up: int, down: int) -> None:
    assert (scaled_value(bound(text), total, up=True), scaled_value(bound(text), total, up=False)) == (up, down)


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (rolling(10, "25%", "25%"), (3, 2)),
        (rolling(3, "0", "1%"), (0, 1)),
        (rolling(2, "0", "5"), (0, 2)),
        (rolling(0, "25%", "25%"), (0, 0)),
        (make_deployment("d", replicas=4, strategy=DeploymentStrategy(type="Recreate")), (0, 0)),
    ],
    ids=["percentages", "at least one", "at most the replicas", "zero", "recreate"],
)
def test_bounds_of_a_rollout(deployment: Deployment, expected: tuple[int, int]) -> None:
    assert resolve_rolling_update_bounds(deployment) == expected


@pytest.mark.parametrize(
    ("size", "others", "expected"), [(0, 0, 10), (0, 10, 3), (3, 8, 5), (3, 10, 3), (12, 0, 10), (10, 3, 10)]
)
def test_new_replica_set_grows_within_the_surge(size: int, others: int, expected: int) -> None:
    assert new_replica_set_size(rolling(10, "3", "2"), size, [a_set("new", size), a_set("old", others)]) == expected


@pytest.mark.parametrize("old", [a_set("old", 8, 10), lagging(a_set("old", 8, 8))], ids=["surplus pods", "outdated status"])
def test_terminating_pods_count_for_the_surge(old: ReplicaSet) -> None:
    assert plan_rollout_step(rolling(10, "3", "2"), a_set("new", 3, 3), [old]).get("new", 3) == 3


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (a_set("new", 3), [a_set("old", 10, 10)], {"old": 8}),
        (a_set("new", 5, 0), [a_set("old", 8, 8)], {}),
        (a_set("new", 5, 2), [a_set("old", 8, 8)], {"old": 6}),
        (a_set("new", 5, 2), [a_set("old", 8, 10)], {"old": 6}),
        (a_set("new", 5, 0), [a_set("a", 4, 4, created=1), a_set("b", 4, 1, created=2)], {}),
        (a_set("new", 3, 0), [a_set("a", 6, 6, created=1), a_set("b", 4, 1, created=2)], {"b": 2}),
        (a_set("new", 3, 3), [lagging(a_set("old", 10, 10))], {}),
        (a_set("new", 10, 10), [a_set("a", 2, 2, created=2), a_set("b", 1, 1, created=1)], {"a": 0, "b": 0}),
        (a_set("new", 8, 8), [a_set("a", 2, 2, created=2), a_set("b", 3, 3, created=1)], {"a": 0, "b": 0}),
    ],
    ids=[
        "start",
        "at the limit",
        "new pods are available",
        "surplus does not count",
        "unhealthy pods may recover",
        "unhealthy pods first",
        "outdated status",
        "last pods",
        "new set within max unavailable",
    ],
)
def test_old_replica_sets_shrink_within_the_bounds(new: ReplicaSet, old: list[ReplicaSet], expected: dict[str, int]) -> None:
    assert plan_rollout_step(rolling(10, "3", "2"), new, old) == expected


# --- proportional scaling


def noted(made: ReplicaSet, desired: int, most: int) -> ReplicaSet:
    made.metadata.annotations[DESIRED_ANNOTATION], made.metadata.annotations[MAX_ANNOTATION] = str(desired), str(most)
    return made


def test_scale_up_during_a_rollout_is_proportional() -> None:
    """The example from Kubernetes' documentation: 10 replicas, maxSurge 3, maxUnavailable 2, then 15."""
    old, new = noted(a_set("old", 8, 8, created=1), 10, 13), noted(a_set("new", 5, 0, created=2), 10, 13)
    deployment = rolling(15, "3", "2")
    assert is_scaling_event(deployment, [old, new])
    assert scale_proportionally(deployment, new, [old]) == {"old": 11, "new": 7}


@pytest.mark.parametrize(("replicas", "expected"), [(5, {"old": 5, "new": 3}), (0, {"old": 0, "new": 0})])
def test_scale_down_is_proportional(replicas: int, expected: dict[str, int]) -> None:
    old, new = noted(a_set("old", 8, 8, created=1), 10, 13), noted(a_set("new", 5, 0, created=2), 10, 13)
    assert scale_proportionally(rolling(replicas, "3", "2"), new, [old]) == expected


def test_single_replica_set_gets_all_replicas_and_complete_rollout_empties_old_sets() -> None:
    assert scale_proportionally(rolling(7, "1", "0"), None, [a_set("old", 3, 3)]) == {"old": 7}
    assert scale_proportionally(rolling(7, "1", "0"), a_set("new", 0), [a_set("old", 0)]) == {"new": 7}
    arrived = noted(a_set("new", 7, 7), 7, 8)
    assert scale_proportionally(rolling(7, "1", "0"), arrived, [a_set("old", 3, 3)]) == {"old": 0}


@pytest.mark.parametrize("before", [4, MAX_INT32])
@pytest.mark.parametrize("after", [8, MAX_INT32])
@pytest.mark.parametrize(("big", "small"), [(4, 0), (4, 3), (MAX_INT32, 0), (MAX_INT32 - 3, 3), (MAX_INT32, MAX_INT32)])
def test_sizes_and_annotations_fit_in_an_int32(before: int, after: int, big: int, small: int) -> None:
    """The API accepts any surge, and any client may resize the replica sets and edit their annotations."""
    deployment = rolling(after, str(MAX_INT32), "0")
    for most in (1, MAX_INT32, before + MAX_INT32):
        sets = [noted(a_set("big", big, 4), before, most), noted(a_set("small", small, small), before, most)]
        for replica_set in sets:
            replica_set.spec.template.spec.containers[0].image = f"app:{replica_set.metadata.name}"
        wanted = plan_deployment_sync(deployment, sets, False, 0.0)
        changed = [each for _, each in wanted.update]
        assert all(0 <= item.spec.replicas <= MAX_INT32 for item in changed)
        assert all(int(item.metadata.annotations[MAX_ANNOTATION]) <= MAX_INT32 for item in changed)


def test_total_size_is_capped_at_the_maximum_of_an_int32() -> None:
    old, new = noted(a_set("old", 4, 4, created=1), 4, MAX_INT32), noted(a_set("new", 4, 4, created=2), 4, MAX_INT32)
    sizes = scale_proportionally(rolling(8, str(MAX_INT32), "0"), new, [old])
    assert sum(sizes.values()) == MAX_INT32 and min(sizes.values()) >= 4


# --- bounds under delays


class World:
    """Replica sets that are scaled with delays and in any order. Pods become available, and none fails."""

    def __init__(self, deployment: Deployment, rng: random.Random) -> None:
        self.deployment, self.rng = deployment, rng
        self.sets: dict[str, ReplicaSet] = {}
        self.pods: dict[str, list[bool]] = {}
        self.now = 0.0

    @property
    def available(self) -> int:
        return sum(map(sum, self.pods.values()))

    def plan(self) -> None:
        self.now += 1
        wanted = plan_deployment_sync(self.deployment, list(self.sets.values()), False, self.now)
        if (created := wanted.create) is not None:
            created.metadata.uid, created.metadata.creationTimestamp.seconds = created.metadata.name, int(self.now)
            created.metadata.generation = 1
            self.sets[created.metadata.name], self.pods[created.metadata.name] = created, []
        for _, after in wanted.update:
            after.metadata.generation += 1
            self.sets[after.metadata.name] = after
        for item in wanted.delete:
            assert not self.pods.pop(item.metadata.name)
            del self.sets[item.metadata.name]
        self.deployment.status.CopyFrom(wanted.status)
        if wanted.revision:
            self.deployment.metadata.annotations["deployment.kubernetes.io/revision"] = wanted.revision

    def make_or_delete(self, name: str) -> None:
        size, pods = self.sets[name].spec.replicas, sorted(self.pods[name], reverse=True)
        self.pods[name] = pods[:size] + [False] * (size - len(pods))

    def tell(self, name: str) -> None:
        status, pods = self.sets[name].status, self.pods[name]
        status.replicas, status.readyReplicas, status.availableReplicas = len(pods), sum(pods), sum(pods)
        status.observedGeneration = self.sets[name].metadata.generation

    def become_available(self, name: str) -> None:
        if False in self.pods[name]:
            self.pods[name][self.pods[name].index(False)] = True

    def act(self) -> None:
        if not self.sets or self.rng.random() < 0.3:
            self.plan()
        else:
            self.rng.choice((self.make_or_delete, self.tell, self.become_available))(self.rng.choice(list(self.sets)))

    def settle(self) -> None:
        for _ in range(400):
            self.plan()
            for act in (self.make_or_delete, self.become_available, self.tell):
                for name in list(self.sets):
                    act(name)
            if is_deployment_complete(self.deployment, self.deployment.status):
                return
        raise AssertionError(f"the rollout does not end: {self.pods}, {self.deployment.status}")


@pytest.mark.parametrize("seed", range(12))
def test_rollout_with_delays_stays_within_its_bounds_and_ends(seed: int) -> None:
    rng = random.Random(seed)
    surge, unavailable = rng.choice([("25%", "25%"), ("1", "0"), ("0", "1"), ("3", "2"), ("100%", "0"), ("0", "50%")])
    deployment = rolling(rng.randrange(1, 12), surge, unavailable)
    deployment.spec.revisionHistoryLimit = 2
    most, least = (
        deployment.spec.replicas + resolve_rolling_update_bounds(deployment)[0],
        deployment.spec.replicas - resolve_rolling_update_bounds(deployment)[1],
    )
    world = World(deployment, rng)
    world.settle()
    for version in range(5):
        deployment.spec.template.spec.containers[0].image = f"app:{rng.choice([version, 'stable'])}"
        deployment.metadata.generation += 1
        for _ in range(rng.randrange(120)):
            world.act()
            assert world.available >= least
            assert sum(map(len, world.pods.values())) <= most
    world.settle()
    world.plan()
    assert len(world.sets) <= 3
