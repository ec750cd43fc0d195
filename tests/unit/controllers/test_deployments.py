"""The changes that a deployment makes to its replica sets, and its status."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import Deployment, DeploymentStatus, DeploymentStrategy, ReplicaSet
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from pinnace.api.rollouts import DESIRED_ANNOTATION, HASH_LABEL, HISTORY_ANNOTATION, MAX_ANNOTATION, REVISION_ANNOTATION
from pinnace.client.informer import Index
from pinnace.controllers.deployment import (
    MAX_HISTORY,
    DeploymentController,
    DeploymentPlan,
    build_replica_set,
    compute_template_hash,
    copy_deployment_metadata,
    find_condition,
    plan_deployment_sync,
    seconds_until_deadline,
)
from pinnace.controllers.informers import LabelIndex
from tests.workloads import deleting, make_deployment, pod_of, running

NOW = 1_000.0
RECREATE = DeploymentStrategy(type="Recreate")


def deployed(deployment: Deployment, *images: str, size: int = 0, status: int | None = None) -> list[ReplicaSet]:
    """Replica sets of these images in the order of their creation. The last has the size and this number of pods."""
    sets: list[ReplicaSet] = []
    present = deployment.spec.template.spec.containers[0].image
    for number, image in enumerate(images, 1):
        deployment.spec.template.spec.containers[0].image = image
        created = build_replica_set(deployment, size if image == images[-1] else 0, [])
        created.metadata.uid, created.metadata.creationTimestamp.seconds = f"uid-{number}", number
        created.metadata.annotations[REVISION_ANNOTATION] = str(number)
        pods = created.spec.replicas if status is None else status
        created.status.replicas = created.status.readyReplicas = created.status.availableReplicas = pods
        sets.append(created)
    deployment.spec.template.spec.containers[0].image = present
    return sets


def said(status: DeploymentStatus, type_: str) -> tuple[str, str]:
    result = find_condition(status, type_)
    return (result.status, result.reason) if result is not None else ("", "")


# --- the replica set of the template


def test_new_template_creates_a_replica_set() -> None:
    deployment = make_deployment("web", replicas=4)
    deployment.metadata.annotations["kubernetes.io/change-cause"] = "first"
    for applied in ("kubectl.kubernetes.io/last-applied-configuration", LAST_APPLIED):
        deployment.metadata.annotations[applied] = "{}"
    wanted = plan_deployment_sync(deployment, [], False, NOW)
    new = wanted.create
    assert new is not None
    hash_ = new.metadata.labels[HASH_LABEL]
    assert new.metadata.name == f"web-{hash_}"
    assert dict(new.spec.selector.matchLabels) == {"app": "web", HASH_LABEL: hash_} == dict(new.spec.template.metadata.labels)
    assert new.spec.replicas == 4
    assert dict(new.metadata.annotations) == {
        "kubernetes.io/change-cause": "first", REVISION_ANNOTATION: "1", DESIRED_ANNOTATION: "4", MAX_ANNOTATION: "5",
    }  # fmt: skip
    assert (wanted.revision, said(wanted.status, "Progressing")) == ("1", ("True", "NewReplicaSetCreated"))
    assert not deployment.spec.template.metadata.labels.get(HASH_LABEL)


def test_template_with_equal_quantities_keeps_its_replica_set() -> None:
    """Regression (argo-cd#21135, website#56075): `100m` instead of `0.1` made a new replica set, and all pods were
    replaced.
    """
    deployment = make_deployment("web")
    limits = deployment.spec.template.spec.containers[0].resources.limits
    limits["cpu"].string = "0.1"
    sets = deployed(deployment, "app:1", size=3)
    deployment.spec.template.spec.containers[0].image = "app:1"
    limits["cpu"].string = "100m"
    assert plan_deployment_sync(deployment, sets, False, NOW).create is None
    limits["cpu"].string = "101m"
    assert plan_deployment_sync(deployment, sets, False, NOW).create is not None


def test_template_hash_depends_on_the_template_and_the_collision_count() -> None:
    first, second = make_deployment("a", image="app:1"), make_deployment("b", image="app:1")
    assert compute_template_hash(first.spec.template, 0) == compute_template_hash(second.spec.template, 0)
    assert compute_template_hash(first.spec.template, 0) != compute_template_hash(first.spec.template, 1)
    second.spec.template.spec.containers[0].image = "app:2"
    assert compute_template_hash(first.spec.template, 0) != compute_template_hash(second.spec.template, 0)


def test_rollback_reuses_the_existing_replica_set() -> None:
    deployment = make_deployment("web", replicas=2, image="app:1")
    deployment.metadata.annotations[REVISION_ANNOTATION] = "2"
    sets = deployed(deployment, "app:1", "app:2", size=2)
    wanted = plan_deployment_sync(deployment, sets, False, NOW)
    assert wanted.create is None
    [(_, after)] = wanted.update
    assert after.metadata.uid == "uid-1"
    assert (after.metadata.annotations[REVISION_ANNOTATION], after.metadata.annotations[HISTORY_ANNOTATION]) == ("3", "1")
    assert (after.spec.replicas, wanted.revision) == (1, "3")


def test_oldest_revisions_are_dropped_from_a_long_history() -> None:
    deployment = make_deployment("web")
    one, other = deployed(deployment, "app:1", "app:2", size=1)
    for _ in range(1_000):
        copy_deployment_metadata(one, deployment, [other])
        copy_deployment_metadata(other, deployment, [one])
    revisions = other.metadata.annotations[HISTORY_ANNOTATION].split(",")
    assert (revisions[0], revisions[-1]) == ("1202", "2000") and other.metadata.annotations[REVISION_ANNOTATION] == "2002"
    assert len(",".join(revisions)) <= MAX_HISTORY < len(",".join(["1200", *revisions]))


def test_revision_of_thousands_of_digits_is_ignored() -> None:
    deployment = make_deployment("web", replicas=2, image="app:2")
    sets = deployed(deployment, "app:1", size=2)
    sets[0].metadata.annotations[REVISION_ANNOTATION] = "9" * 5000
    wanted = plan_deployment_sync(deployment, sets, False, NOW)
    assert wanted.revision == "1"


def test_replica_sets_beyond_the_history_limit_are_deleted_after_the_rollout() -> None:
    deployment = make_deployment("web", replicas=1, image="app:4", revisionHistoryLimit=1)
    sets = deployed(deployment, "app:1", "app:2", "app:3", "app:4", size=1)
    assert [item.metadata.uid for item in plan_deployment_sync(deployment, sets, False, NOW).delete] == ["uid-1", "uid-2"]
    sets[0].status.replicas = 1  # its status still counts the last pod
    sets[3].status.availableReplicas = 0
    assert plan_deployment_sync(deployment, sets, False, NOW).delete == []
    sets[3].status.availableReplicas, deployment.spec.paused = 1, True
    assert [item.metadata.uid for item in plan_deployment_sync(deployment, sets, False, NOW).delete] == ["uid-2"]


def test_terminating_deployment_changes_nothing() -> None:
    deployment = make_deployment("web", replicas=2)
    deleting(deployment)
    wanted = plan_deployment_sync(deployment, [], False, NOW)
    assert (wanted.create, wanted.update, wanted.delete) == (None, [], [])


# --- Recreate, pause


def recreate(lingering: bool, old_size: int = 0, old_pods: int = 0) -> DeploymentPlan:
    deployment = make_deployment("web", replicas=2, image="app:2", strategy=RECREATE)
    return plan_deployment_sync(deployment, deployed(deployment, "app:1", size=old_size, status=old_pods), lingering, NOW)


def test_recreate_waits_until_all_old_pods_are_gone() -> None:
    [(_, emptied)] = recreate(True, 2, 2).update
    assert emptied.spec.replicas == 0
    for waits in (recreate(True, 2, 2), recreate(True, 0, 1), recreate(False, 0, 1), recreate(True, 0, 0)):
        assert waits.create is None
    created = recreate(False).create
    assert created is not None and created.spec.replicas == 2


async def test_rollout_ignores_pods_of_other_namespaces() -> None:
    """This includes a replica set that names the deployment as its controller, and a pod that names its replica set."""
    deployment = make_deployment("web", replicas=2, image="app:2", strategy=RECREATE)
    [old] = deployed(deployment, "app:1", size=0)
    foreign, pod = ReplicaSet(), running(pod_of(old, "p")).build()
    foreign.CopyFrom(build_replica_set(deployment, 7, []))
    foreign.metadata.uid, foreign.metadata.namespace, pod.metadata.namespace = "uid-foreign", "other", "other"
    things: dict[Any, list[Any]] = {DEPLOYMENTS: [deployment], REPLICA_SETS: [old, foreign], PODS: [pod]}
    written: list[tuple[str, int]] = []

    async def create_or_update(obj: ReplicaSet) -> ReplicaSet:
        written.append((obj.metadata.namespace, obj.spec.replicas))
        return obj

    async def update(obj: Any) -> Any:
        return obj

    def of(resource: Any) -> Any:
        write = create_or_update if resource is REPLICA_SETS else update
        return SimpleNamespace(create=write, update=write, update_status=update)

    informers = SimpleNamespace(
        store=lambda resource: {f"{thing.metadata.namespace}/{thing.metadata.name}": thing for thing in things[resource]},
        index=lambda resource, by: Index(by, things[resource]),
        labelled=lambda resource, only: LabelIndex(only, things[resource]),
    )
    events = SimpleNamespace(event=lambda *_: None)
    shared: Any = SimpleNamespace(
        informers=informers, client=SimpleNamespace(of=of), clock=SimpleNamespace(time=lambda: NOW), events=events
    )
    await DeploymentController(shared).sync("default/web")
    assert written == [("default", 2)]


def test_paused_deployment_can_be_resized_without_a_rollout() -> None:
    deployment = make_deployment("web", replicas=5, image="app:2", paused=True, progressDeadlineSeconds=60)
    sets = deployed(deployment, "app:1", size=2)
    wanted = plan_deployment_sync(deployment, sets, False, NOW)
    assert wanted.create is None
    assert [after.spec.replicas for _, after in wanted.update] == [5]
    assert said(wanted.status, "Progressing") == ("Unknown", "DeploymentPaused")
    deployment.spec.paused = False
    deployment.status.CopyFrom(wanted.status)
    assert seconds_until_deadline(deployment, wanted.status, NOW + 600) is None
    resumed = plan_deployment_sync(deployment, [wanted.update[0][1]], False, NOW + 600)
    assert resumed.create is not None
    assert said(resumed.status, "Progressing") == ("True", "NewReplicaSetCreated")


# --- status


@pytest.mark.parametrize(
    ("available", "expected"), [(7, ("False", "MinimumReplicasUnavailable")), (8, ("True", "MinimumReplicasAvailable"))]
)
def test_deployment_is_available_within_max_unavailable(available: int, expected: tuple[str, str]) -> None:
    deployment = make_deployment("web", replicas=10)
    status = plan_deployment_sync(deployment, deployed(deployment, "app:1", size=10, status=available), False, NOW).status
    assert said(status, "Available") == expected
    assert (status.replicas, status.updatedReplicas, status.availableReplicas) == (available, available, available)
    assert (status.unavailableReplicas, status.observedGeneration) == (10 - available, 1)


def test_rollout_progresses_completes_or_exceeds_its_deadline() -> None:
    deployment = make_deployment("web", replicas=3, progressDeadlineSeconds=60)
    sets = deployed(deployment, "app:1", size=3, status=0)

    def look(pods: int, now: float) -> tuple[str, str]:
        sets[0].status.replicas = sets[0].status.readyReplicas = sets[0].status.availableReplicas = pods
        deployment.status.CopyFrom(plan_deployment_sync(deployment, sets, False, now).status)
        return said(deployment.status, "Progressing")

    assert look(0, NOW) == ("True", "FoundNewReplicaSet")
    assert seconds_until_deadline(deployment, deployment.status, NOW + 10) == 50.0
    assert look(1, NOW + 50) == ("True", "ReplicaSetUpdated")
    assert look(1, NOW + 110) == ("True", "ReplicaSetUpdated")
    assert look(1, NOW + 111) == ("False", "ProgressDeadlineExceeded")
    assert seconds_until_deadline(deployment, deployment.status, NOW + 112) is None
    assert look(2, NOW + 200) == ("True", "ReplicaSetUpdated")
    assert look(3, NOW + 210) == ("True", "NewReplicaSetAvailable")
    since = find_condition(deployment.status, "Progressing")
    assert since is not None and since.lastTransitionTime.seconds == NOW + 200
    assert look(2, NOW + 900) == ("True", "NewReplicaSetAvailable")  # the loss of a pod does not start a rollout


def test_deployment_reports_replica_set_failures() -> None:
    deployment = make_deployment("web", replicas=1)
    sets = deployed(deployment, "app:1", size=1, status=0)
    sets[0].status.conditions.add(type="ReplicaFailure", status="True", reason="FailedCreate", message="exceeded quota")
    deployment.status.CopyFrom(plan_deployment_sync(deployment, sets, False, NOW).status)
    assert said(deployment.status, "ReplicaFailure") == ("True", "FailedCreate")
    del sets[0].status.conditions[:]
    assert said(plan_deployment_sync(deployment, sets, False, NOW).status, "ReplicaFailure") == ("", "")


def test_failure_of_the_new_replica_set_is_reported_first() -> None:
    deployment = make_deployment("web", replicas=1)
    sets = deployed(deployment, "app:0", "app:1", size=1, status=0)
    for each, reason in zip(sets, ("FailedDelete", "FailedCreate"), strict=True):
        each.status.conditions.add(type="ReplicaFailure", status="True", reason=reason)
    assert said(plan_deployment_sync(deployment, sets, False, NOW).status, "ReplicaFailure") == ("True", "FailedCreate")
