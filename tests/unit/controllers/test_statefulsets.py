"""Stateful sets: the pods and claims, the order of changes, and the status."""

from collections.abc import Iterable
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import StatefulSet
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from pinnace.api.scalars import STRING
from pinnace.controllers.pods import PodProperties, compute_pod_properties
from pinnace.controllers.statefulpods import (
    build_stateful_pod,
    claims_of_pod,
    is_claim_stale,
    ordinal_of,
    owned_claim_copy,
    parse_pod_name,
    set_names_of_claim,
)
from pinnace.controllers.statefulset import (
    StatefulSetController,
    StatefulSetPlan,
    StatefulSetPlanner,
    calculate_status,
)
from tests.killpoints import KillableCluster
from tests.workloads import deleting, make_stateful_set, named, pod_of, running

NOW = 1_000.0
OLD, NEW = "web-old", "web-new"


def member(
    stateful_set: StatefulSet, ordinal: int, state: str = "ready", revision: str = NEW, since: float = 1.0
) -> PodProperties:
    """A pod of the set: ready, pending, unready, failed, or terminating."""
    builder = pod_of(stateful_set, f"web-{ordinal}").uid(f"uid-web-{ordinal}")
    if state in ("ready", "terminating"):
        builder = running(builder, since=since)
    pod = builder.build()
    if state == "unready":
        pod.status.phase = "Running"
    if state == "failed":
        pod.status.phase = "Failed"
    if state == "terminating":
        deleting(pod)
    pod.metadata.labels.update(build_stateful_pod(stateful_set, stateful_set.spec.template, revision, ordinal).metadata.labels)
    return compute_pod_properties(pod)


def plan(
    stateful_set: StatefulSet, pods: Iterable[PodProperties], claims: Iterable[PersistentVolumeClaim] = (), now: float = NOW
) -> StatefulSetPlan:
    stored = {claim.metadata.name: claim for claim in claims}
    by_ordinal = {ordinal_of(pod.pod): pod for pod in pods}
    return StatefulSetPlanner(stateful_set, by_ordinal, NEW, stored.get, now).plan()


def states(stateful_set: StatefulSet, *words: str) -> list[PodProperties]:
    """The pods from ordinal 0 on. A word is a state, with "old" for an outdated pod; "-" for no pod."""
    return [
        member(stateful_set, ordinal, word.removeprefix("old "), OLD if word.startswith("old ") else NEW)
        for ordinal, word in enumerate(words)
        if word != "-"
    ]


# --- names, labels and volumes


def test_pod_has_stable_identity() -> None:
    stateful_set = make_stateful_set("web", claims=("data",), serviceName="svc")
    stateful_set.spec.template.spec.volumes.add(name="data").volumeSource.emptyDir.SetInParent()
    stateful_set.spec.template.spec.volumes.add(name="tmp").volumeSource.emptyDir.SetInParent()
    pod = build_stateful_pod(stateful_set, stateful_set.spec.template, NEW, 3)
    assert (pod.metadata.name, pod.spec.hostname, pod.spec.subdomain) == ("web-3", "web-3", "svc")
    assert dict(pod.metadata.labels) == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-3",
        "apps.kubernetes.io/pod-index": "3",
        "controller-revision-hash": NEW,
    }
    assert [(volume.name, volume.volumeSource.persistentVolumeClaim.claimName) for volume in pod.spec.volumes] == [
        ("data", "data-web-3"),
        ("tmp", ""),
    ]


def test_claim_has_labels_of_template_and_selector() -> None:
    stateful_set = make_stateful_set("web", claims=("data",))
    stateful_set.spec.volumeClaimTemplates[0].metadata.labels["tier"] = "fast"
    (claim,) = claims_of_pod(stateful_set, 0)
    assert claim.metadata.name == "data-web-0" and dict(claim.metadata.labels) == {"tier": "fast", "app": "web"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("a-b-12", ("a-b", 12)),
        ("web", ("", -1)),
        ("web-x", ("", -1)),
        ("web-01", ("", -1)),
        ("web-99999999999", ("", -1)),
    ],
)
def test_ordinal_is_parsed_from_pod_name(name: str, expected: tuple[str, int]) -> None:
    assert parse_pod_name(name) == expected


def test_sets_of_claim_name() -> None:
    assert list(set_names_of_claim("data-my-db-0")) == ["my-db", "db"]


# --- order


@pytest.mark.parametrize(
    ("words", "create", "remove"),
    [
        (["-", "-", "-"], [0], []),
        (["ready", "-", "-"], [1], []),
        (["pending", "-", "-"], [], []),
        (["unready", "-", "-"], [], []),
        (["terminating", "-", "-"], [], []),
        (["ready", "-", "ready"], [1], []),
        (["ready", "ready", "ready", "ready", "ready"], [], ["web-4"]),
        (["ready", "ready", "ready", "ready", "terminating"], [], []),
        (["ready", "ready", "ready", "unready", "ready"], [], ["web-4"]),
        (["ready", "ready", "ready", "unready", "unready"], [], []),
        (["ready", "ready", "unready", "ready", "ready"], [], []),
    ],
)
def test_ordered_set_changes_one_pod_at_a_time(words: list[str], create: list[int], remove: list[str]) -> None:
    stateful_set = make_stateful_set("web", replicas=3)
    result = plan(stateful_set, states(stateful_set, *words))
    assert (result.create, named(result.remove), result.replace) == (create, remove, [])


def test_parallel_set_changes_all_pods_at_once() -> None:
    stateful_set = make_stateful_set("web", replicas=3, podManagementPolicy="Parallel")
    assert plan(stateful_set, states(stateful_set, "pending", "-", "-")).create == [1, 2]
    result = plan(stateful_set, states(stateful_set, "unready", "ready", "ready", "pending", "ready"))
    assert named(result.remove) == ["web-4", "web-3"]


def test_ordinals_begin_at_start() -> None:
    stateful_set = make_stateful_set("web", replicas=2, podManagementPolicy="Parallel")
    stateful_set.spec.ordinals.start = 5
    result = plan(stateful_set, states(stateful_set, "ready"))
    assert (result.create, named(result.remove)) == ([5, 6], ["web-0"])


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_finished_pod_is_deleted_and_not_replaced_before_it_is_gone(policy: str) -> None:
    stateful_set = make_stateful_set("web", replicas=1, podManagementPolicy=policy)
    result = plan(stateful_set, states(stateful_set, "failed"))
    assert (named(result.restart), result.create, result.replace) == (["web-0"], [], [])


def test_pod_counts_as_available_after_min_ready_seconds() -> None:
    stateful_set = make_stateful_set("web", replicas=2, minReadySeconds=10)
    pods = [member(stateful_set, 0, since=NOW - 4)]
    early = plan(stateful_set, pods)
    assert (early.create, early.wait) == ([], 6.0)
    assert plan(stateful_set, pods, now=NOW + 6).create == [1]


def test_terminating_set_changes_nothing() -> None:
    stateful_set = make_stateful_set("web", replicas=2)
    deleting(stateful_set)
    assert plan(stateful_set, states(stateful_set, "failed")) == StatefulSetPlan()


def test_pending_pod_gets_missing_claims() -> None:
    stateful_set = make_stateful_set("web", claims=("data", "logs"))
    (data, _) = claims_of_pod(stateful_set, 0)
    assert named(plan(stateful_set, states(stateful_set, "pending"), [data]).claims) == ["logs-web-0"]


def test_pod_without_labels_of_its_ordinal_is_corrected() -> None:
    stateful_set = make_stateful_set("web")
    pod = member(stateful_set, 0)
    pod.pod.metadata.labels.pop("apps.kubernetes.io/pod-index")
    (changed,) = plan(stateful_set, [pod]).identify
    assert changed.metadata.labels["apps.kubernetes.io/pod-index"] == "0"


# --- updates


@pytest.mark.parametrize(
    ("words", "partition", "replaced"),
    [
        (["old ready", "old ready", "old ready"], 0, ["web-2"]),
        (["old ready", "old ready", "ready"], 0, ["web-1"]),
        (["old ready", "old ready", "ready"], 2, []),
        (["ready", "ready", "ready"], 0, []),
    ],
)
def test_rolling_update_replaces_highest_outdated_pod(words: list[str], partition: int, replaced: list[str]) -> None:
    stateful_set = make_stateful_set("web", replicas=3)
    stateful_set.spec.updateStrategy.rollingUpdate.partition = partition
    assert named(plan(stateful_set, states(stateful_set, *words)).replace) == replaced


@pytest.mark.parametrize(
    ("words", "replaced"),
    [
        (["old ready", "old ready", "unready"], []),
        (["old ready", "old unready", "ready"], ["web-1"]),
        (["old unready", "old ready", "ready"], ["web-1"]),
    ],
)
def test_parallel_update_waits_for_updated_pods_only(words: list[str], replaced: list[str]) -> None:
    stateful_set = make_stateful_set("web", replicas=3, podManagementPolicy="Parallel")
    assert named(plan(stateful_set, states(stateful_set, *words)).replace) == replaced


@pytest.mark.parametrize(
    ("policy", "bound", "words", "replaced"),
    [
        ("OrderedReady", "2", ["old ready"] * 4, ["web-3", "web-2"]),
        ("OrderedReady", "60%", ["old ready"] * 4, ["web-3", "web-2"]),
        ("OrderedReady", "1%", ["old ready"] * 4, ["web-3"]),
        ("Parallel", "2", ["old ready", "old ready", "old ready", "terminating"], ["web-2"]),
        ("Parallel", "2", ["old ready", "old ready", "unready", "unready"], []),
        ("Parallel", "1", ["old unready", "old ready", "ready", "ready"], ["web-0"]),
        ("Parallel", "2", ["old unready", "old ready", "old ready", "ready"], ["web-0", "web-2"]),
    ],
)
def test_update_keeps_within_max_unavailable(policy: str, bound: str, words: list[str], replaced: list[str]) -> None:
    stateful_set = make_stateful_set("web", replicas=4, podManagementPolicy=policy)
    maximum = stateful_set.spec.updateStrategy.rollingUpdate.maxUnavailable
    if bound.endswith("%"):
        maximum.type, maximum.strVal = STRING, bound
    else:
        maximum.intVal = int(bound)
    assert named(plan(stateful_set, states(stateful_set, *words)).replace) == replaced


def test_on_delete_replaces_nothing() -> None:
    stateful_set = make_stateful_set("web", replicas=2)
    stateful_set.spec.updateStrategy.type = "OnDelete"
    stateful_set.spec.updateStrategy.ClearField("rollingUpdate")
    assert plan(stateful_set, states(stateful_set, "old ready", "old ready")) == StatefulSetPlan()


async def test_pods_below_the_partition_keep_the_current_revision() -> None:
    cluster = KillableCluster(StatefulSetController)
    cluster.between.append(cluster.run_pods)
    stateful_set = make_stateful_set("web", replicas=3)
    cluster.create(STATEFUL_SETS, stateful_set)
    await cluster.settle()

    def change(changed: StatefulSet) -> None:
        changed.spec.template.spec.containers[0].image = "app:2"
        changed.spec.updateStrategy.rollingUpdate.partition = 2

    cluster.change(STATEFUL_SETS, "default/web", change)
    await cluster.settle()
    for pod in list(cluster.of(PODS).values()):
        cluster.delete(PODS, pod)
    await cluster.settle()
    assert {pod.metadata.name: pod.spec.containers[0].image for pod in cluster.of(PODS).values()} == {
        "web-0": "app:1",
        "web-1": "app:1",
        "web-2": "app:2",
    }
    status = cluster.find(STATEFUL_SETS, "default/web").status
    assert (status.currentReplicas, status.updatedReplicas) == (2, 1) and status.currentRevision != status.updateRevision


# --- claims


@pytest.mark.parametrize(
    ("retention", "owner_in_set", "owner_beyond"),
    [
        (("Retain", "Retain"), None, None),
        (("Delete", "Retain"), "StatefulSet", "StatefulSet"),
        (("Retain", "Delete"), None, "Pod"),
        (("Delete", "Delete"), "StatefulSet", "Pod"),
    ],
)
def test_claim_has_the_owner_of_the_retention_policy(
    retention: tuple[str, str], owner_in_set: str | None, owner_beyond: str | None
) -> None:
    stateful_set = make_stateful_set("web", replicas=1, claims=("data",), retention=retention)
    for ordinal, owner in ((0, owner_in_set), (1, owner_beyond)):
        (claim,) = claims_of_pod(make_stateful_set("web", claims=("data",)), ordinal)
        pod = member(stateful_set, ordinal).pod
        changed = owned_claim_copy(claim, stateful_set, pod)
        kinds = [reference.kind for reference in changed.metadata.ownerReferences] if changed is not None else []
        assert kinds == ([owner] if owner else [])
        if changed is not None:
            assert owned_claim_copy(changed, stateful_set, pod) is None
            retained = make_stateful_set("web", replicas=1, claims=("data",))
            released = owned_claim_copy(changed, retained, pod)
            assert released is not None and not released.metadata.ownerReferences


def test_claim_of_another_controller_or_an_earlier_pod_is_not_changed() -> None:
    stateful_set = make_stateful_set("web", replicas=1, claims=("data",), retention=("Delete", "Delete"))
    (foreign,) = claims_of_pod(make_stateful_set("web", claims=("data",)), 0)
    foreign.metadata.ownerReferences.add(kind="Backup", name="b", uid="u", controller=True)
    pod = member(stateful_set, 0).pod
    assert owned_claim_copy(foreign, stateful_set, pod) is None
    (stale,) = claims_of_pod(make_stateful_set("web", claims=("data",)), 0)
    stale.metadata.ownerReferences.add(apiVersion="v1", kind="Pod", name="web-0", uid="earlier", controller=True)
    assert owned_claim_copy(stale, stateful_set, pod) is None and is_claim_stale(stale, pod)
    assert plan(stateful_set, [], [stale]).create == []


# --- status


def status_of(stateful_set: StatefulSet, pods: list[PodProperties], replaced: int = 0) -> Any:
    return calculate_status(stateful_set, pods, OLD, NEW, 0, replaced, NOW)


def test_status_counts_pods_by_state_and_revision() -> None:
    stateful_set = make_stateful_set("web", replicas=4, minReadySeconds=0)
    status = status_of(stateful_set, states(stateful_set, "old ready", "old unready", "ready", "terminating"), replaced=1)
    counts = (status.replicas, status.readyReplicas, status.availableReplicas, status.currentReplicas, status.updatedReplicas)
    assert counts == (4, 3, 3, 1, 1)
    assert (status.currentRevision, status.updateRevision, status.observedGeneration) == (OLD, NEW, 1)


def test_complete_update_makes_update_revision_the_current_one() -> None:
    stateful_set = make_stateful_set("web", replicas=2)
    status = status_of(stateful_set, states(stateful_set, "ready", "ready"))
    assert (status.currentRevision, status.currentReplicas) == (NEW, 2)
    assert status_of(stateful_set, states(stateful_set, "ready", "unready")).currentRevision == OLD


# --- events and steady state


async def test_events_have_the_text_of_kubernetes() -> None:
    cluster = KillableCluster(StatefulSetController)
    cluster.between.append(cluster.run_pods)
    cluster.create(STATEFUL_SETS, make_stateful_set("web", replicas=1, claims=("data",)))
    await cluster.settle()
    cluster.change(STATEFUL_SETS, "default/web", lambda stateful_set: setattr(stateful_set.spec, "replicas", 0))
    await cluster.settle()
    assert [message for _, message in cluster.events] == [
        "create Claim data-web-0 Pod web-0 in StatefulSet web success",
        "create Pod web-0 in StatefulSet web successful",
        "delete Pod web-0 in StatefulSet web successful",
    ]


async def test_sync_of_a_complete_set_writes_nothing() -> None:
    cluster = KillableCluster(StatefulSetController)
    cluster.between.append(cluster.run_pods)
    cluster.create(STATEFUL_SETS, make_stateful_set("web", replicas=3, claims=("data",), retention=("Delete", "Delete")))
    await cluster.settle()
    cluster.points.clear()
    cluster.change(STATEFUL_SETS, "default/web", lambda stateful_set: stateful_set.metadata.labels.update(a="b"))
    await cluster.settle()
    assert cluster.points == []


async def test_orphan_with_the_name_of_a_member_is_adopted_and_others_are_not() -> None:
    cluster = KillableCluster(StatefulSetController)
    cluster.between.append(cluster.run_pods)
    stateful_set = make_stateful_set("web", replicas=1)
    for name in ("web-0", "web-x"):
        orphan = build_stateful_pod(stateful_set, stateful_set.spec.template, NEW, 0)
        orphan.metadata.name = name
        orphan.metadata.ClearField("ownerReferences")
        cluster.create(PODS, orphan)
    cluster.create(STATEFUL_SETS, stateful_set)
    await cluster.settle()
    owners = {pod.metadata.name: len(pod.metadata.ownerReferences) for pod in cluster.of(PODS).values()}
    assert owners == {"web-0": 1, "web-x": 0}


async def test_claim_that_is_being_deleted_delays_the_pod() -> None:
    cluster = KillableCluster(StatefulSetController)
    stateful_set = make_stateful_set("web", replicas=1, claims=("data",))
    (claim,) = claims_of_pod(stateful_set, 0)
    deleting(claim)
    stored = cluster.create(PERSISTENT_VOLUME_CLAIMS, claim)
    cluster.create(STATEFUL_SETS, stateful_set)
    with pytest.raises(AssertionError, match="does not come to rest"):
        await cluster.settle()
    assert cluster.events[0][1] == "create Pod web-0 in StatefulSet web failed error: pvc data-web-0 is being deleted"
    cluster.remove(PERSISTENT_VOLUME_CLAIMS, stored)
    await cluster.settle()
    assert named(cluster.of(PODS).values()) == ["web-0"]
