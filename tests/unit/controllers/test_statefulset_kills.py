"""The stateful set controller, killed between any two of its writes."""

from collections.abc import Callable
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import StatefulSet
from pinnace.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from pinnace.controllers.statefulpods import ordinal_of
from pinnace.controllers.statefulset import StatefulSetController, StatefulSetPlan
from tests.killpoints import KillableCluster, run_killed_everywhere
from tests.workloads import make_stateful_set

KEY = "default/web"


def check_pod_creation(cluster: KillableCluster, *, ordered: bool) -> Callable[[str, Any, Any], None]:
    """The claims of a pod exist before it. With OrderedReady, all pods before it are ready, and no ordinal is skipped."""

    def check(verb: str, resource: Any, obj: Any) -> None:
        if verb != "create" or resource is not PODS:
            return
        claims = {claim.metadata.name for claim in cluster.of(PERSISTENT_VOLUME_CLAIMS).values()}
        assert f"data-{obj.metadata.name}" in claims
        ready = {ordinal_of(pod) for pod in cluster.of(PODS).values() if pod.status.phase == "Running"}
        assert not ordered or ready >= set(range(ordinal_of(obj)))

    return check


def keep_claims(verb: str, resource: Any, obj: Any) -> None:
    assert verb != "delete" or resource is not PERSISTENT_VOLUME_CLAIMS


def pod_names(cluster: KillableCluster) -> list[str]:
    return sorted(pod.metadata.name for pod in cluster.of(PODS).values())


def claim_names(cluster: KillableCluster) -> list[str]:
    return sorted(claim.metadata.name for claim in cluster.of(PERSISTENT_VOLUME_CLAIMS).values())


def images(cluster: KillableCluster) -> set[str]:
    return {pod.spec.containers[0].image for pod in cluster.of(PODS).values()}


def set_image(image: str) -> Callable[[StatefulSet], None]:
    def change(stateful_set: StatefulSet) -> None:
        stateful_set.spec.template.spec.containers[0].image = image

    return change


def set_replicas(replicas: int) -> Callable[[StatefulSet], None]:
    return lambda stateful_set: setattr(stateful_set.spec, "replicas", replicas)


async def begin(cluster: KillableCluster, **spec: Any) -> None:
    cluster.between += [cluster.run_pods, cluster.collect_garbage]
    cluster.checks.append(check_pod_creation(cluster, ordered=spec.get("podManagementPolicy") != "Parallel"))
    cluster.create(STATEFUL_SETS, make_stateful_set("web", claims=("data",), **spec))
    await cluster.settle()


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_life_of_a_set_survives_kills_at_every_write(policy: str) -> None:
    async def scenario(cluster: KillableCluster) -> None:
        cluster.checks.append(keep_claims)
        await begin(cluster, replicas=2, podManagementPolicy=policy, revisionHistoryLimit=0)
        assert pod_names(cluster) == ["web-0", "web-1"]
        cluster.change(STATEFUL_SETS, KEY, set_image("app:2"))
        await cluster.settle()
        assert images(cluster) == {"app:2"}
        for replicas in (1, 2):
            cluster.change(STATEFUL_SETS, KEY, set_replicas(replicas))
            await cluster.settle()
            assert pod_names(cluster) == [f"web-{ordinal}" for ordinal in range(replicas)]
        assert claim_names(cluster) == ["data-web-0", "data-web-1"]
        status = cluster.find(STATEFUL_SETS, KEY).status
        (revision,) = cluster.of(CONTROLLER_REVISIONS).values()
        assert status.currentRevision == status.updateRevision == revision.metadata.name
        assert (status.replicas, status.currentReplicas, status.collisionCount) == (2, 2, 0)

    points = await run_killed_everywhere(scenario, StatefulSetController)
    assert (points["create pods web-0"], points["create pods web-1"]) == (4, 6)
    assert points["create persistentvolumeclaims data-web-0"] == 2
    assert {name.rpartition(" ")[0] for name in points} == {
        "create controllerrevisions",
        "create persistentvolumeclaims",
        "create pods",
        "delete controllerrevisions",
        "delete pods",
        "update status of statefulsets",
    }


async def delete_claims_with_pods(cluster: KillableCluster) -> None:
    await begin(cluster, replicas=2, retention=("Retain", "Delete"))
    for replicas in (1, 2, 0):
        cluster.change(STATEFUL_SETS, KEY, set_replicas(replicas))
        await cluster.settle()
        assert claim_names(cluster) == [f"data-web-{ordinal}" for ordinal in range(replicas)]


async def test_claims_of_removed_pods_are_deleted_despite_kills() -> None:
    points = await run_killed_everywhere(delete_claims_with_pods, StatefulSetController)
    assert points["update persistentvolumeclaims data-web-1"] >= 2


async def test_rollback_survives_kills_at_every_write() -> None:
    async def scenario(cluster: KillableCluster) -> None:
        await begin(cluster, replicas=1)
        for image in ("app:2", "app:1"):
            cluster.change(STATEFUL_SETS, KEY, set_image(image))
            await cluster.settle()
        numbers = sorted(revision.revision for revision in cluster.of(CONTROLLER_REVISIONS).values())
        assert numbers == [2, 3] and images(cluster) == {"app:1"}

    points = await run_killed_everywhere(scenario, StatefulSetController)
    assert any(name.startswith("update controllerrevisions") for name in points)


class PodsBeforeOwners(StatefulSetController):
    async def _execute_plan(self, key: str, stateful_set: StatefulSet, plan: StatefulSetPlan, *revisions: Any) -> Any:
        owned, plan.own = plan.own, []
        error = await super()._execute_plan(key, stateful_set, plan, *revisions)
        return error or await super()._execute_plan(key, stateful_set, StatefulSetPlan(own=owned), *revisions)


class PodsBeforeClaims(StatefulSetController):
    async def _create_pods(self, key: str, stateful_set: StatefulSet, *rest: Any) -> Any:
        claims, self._create_claim = self._create_claim, self._skip  # type: ignore[method-assign]
        error = await super()._create_pods(key, stateful_set, *rest)
        self._create_claim = claims  # type: ignore[method-assign]
        return error

    async def _skip(self, key: str, claim: Any) -> None:
        return None


@pytest.mark.parametrize("bug", [PodsBeforeOwners, PodsBeforeClaims])
async def test_kills_find_planted_bugs(bug: type[StatefulSetController]) -> None:
    with pytest.raises(AssertionError):
        await run_killed_everywhere(delete_claims_with_pods, bug)
