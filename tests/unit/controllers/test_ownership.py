"""Claims of owners: adoption and release of objects."""

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import JOBS, PODS, REPLICA_SETS
from pinnace.api.selectors import from_message
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import Forbidden, from_refusal
from pinnace.client.informer import Index
from pinnace.controllers.informers import LabelIndex, SelectorIndex
from pinnace.controllers.ownership import (
    ControllerRefManager,
    adopted_copy,
    controller_key,
    decide_claims,
    has_no_controller,
    owner_key,
    released_copy,
)
from pinnace.controllers.pods import PodPropertiesCache
from pinnace.controllers.replicaset import ReplicaSetController
from tests.builders import make_pod
from tests.workloads import deleting, make_job, make_replica_set, named, pod_of, running

WEB = make_replica_set("web")
SELECTOR = from_message(WEB.spec.selector)


def claimed(*, managed: list[Pod] | None = None, free: list[Pod] | None = None) -> tuple[list[str], list[str], list[str]]:
    result = decide_claims(WEB.metadata, SELECTOR, managed or [], free or [])
    return named(result.own), named(result.adopt), named(result.release)


def test_managed_pod_is_kept_while_selected_and_released_otherwise() -> None:
    pods = [pod_of(WEB, "a").build(), pod_of(WEB, "b", labels={}).build(), pod_of(WEB, "c").terminating().build()]
    assert claimed(managed=pods) == (["a", "c"], [], ["b"])


def test_selected_orphan_is_adopted_unless_terminating() -> None:
    free = [make_pod("a").label("app", "web").build(), make_pod("c").label("app", "web").terminating().build()]
    assert claimed(free=free) == ([], ["a"], [])


def test_terminating_owner_neither_adopts_nor_releases() -> None:
    owner = make_replica_set("web")
    deleting(owner)
    managed = [pod_of(WEB, "a").build(), pod_of(WEB, "b", labels={}).build()]
    result = decide_claims(owner.metadata, SELECTOR, managed, [make_pod("c").label("app", "web").build()])
    assert (named(result.own), result.adopt, result.release) == (["a"], [], [])


@pytest.mark.parametrize("others", [0, 1])
def test_release_undoes_an_adoption(others: int) -> None:
    builder = make_pod("a")
    for number in range(others):
        builder.owner("Other", f"o{number}", f"uid-o{number}")
    before = builder.build()
    for reference in before.metadata.ownerReferences:
        reference.controller = False
    assert has_no_controller(before)
    during = adopted_copy(before, REPLICA_SETS, WEB)
    assert controller_key(during) == owner_key(WEB)
    assert during.metadata.ownerReferences[-1].blockOwnerDeletion
    assert len(before.metadata.ownerReferences) == others  # the object of the informer is unchanged
    assert released_copy(during, WEB) == before


async def test_owner_reference_to_another_namespace_is_ignored() -> None:
    pods = [pod_of(WEB, "own").build(), pod_of(WEB, "selected").build(), pod_of(WEB, "other", labels={}).build()]
    for pod in pods[1:]:
        pod.metadata.namespace = "elsewhere"
    informers = SimpleNamespace(
        index=lambda resource, by: Index(by, pods), labelled=lambda resource, only: LabelIndex(only, pods)
    )
    shared: Any = SimpleNamespace(informers=informers, client=SimpleNamespace(of=lambda resource: None))
    expectations: Any = None  # the claim writes nothing
    claimer: ControllerRefManager[Pod] = ControllerRefManager(shared, REPLICA_SETS, PODS, expectations)
    assert named(await claimer.claim_objects("default/web", WEB, SELECTOR)) == ["own"]


class Cluster:
    """A fake API with one owner and its pods. It records writes, and does not apply them. `refused` has pods whose update
    is rejected.
    """

    resource = PODS

    def __init__(self, owner: Any, pods: list[Pod], refused: Collection[str] = ()) -> None:
        self.owner = owner
        self._refused = refused
        self.updated: list[Any] = []
        self.made = 0
        informers = SimpleNamespace(
            store=lambda resource: {f"default/{owner.metadata.name}": owner},
            index=lambda resource, by: Index(by, pods if resource is PODS else [owner]),
            selecting=lambda resource, selector_of: SelectorIndex(selector_of, [owner]),
            labelled=lambda resource, only: LabelIndex(only, pods),
            pod_properties=PodPropertiesCache(),
        )
        client = SimpleNamespace(of=lambda resource: self, pods=self)
        clock, events = SimpleNamespace(time=lambda: 100.0), SimpleNamespace(event=lambda *_: None)
        self.shared: Any = SimpleNamespace(informers=informers, client=client, clock=clock, events=events)

    async def get(self, name: str, namespace: str) -> Any:
        return self.owner

    async def update(self, changed: Any) -> Any:
        if changed.metadata.name in self._refused:
            raise from_refusal(Refusal(Code.PERMISSION_DENIED, "Forbidden", "denied by a webhook"))
        self.updated.append(changed)
        return changed

    async def update_status(self, changed: Any) -> Any:
        return changed

    async def create_batch(self, pods: list[Pod]) -> list[BatchItem]:
        self.made += len(pods)
        return [BatchItem(name="new") for _ in pods]


async def test_replica_set_ignores_terminated_and_foreign_failed_pods() -> None:
    over = [make_pod(f"run-{number}").label("app", "web").created(99.0).phase("Failed").build() for number in range(6)]
    lost = [pod_of(WEB, "lost", labels={}).phase("Succeeded").build(), pod_of(WEB, "going", labels={}).terminating().build()]
    cluster = Cluster(WEB, [*over, *lost])
    await ReplicaSetController(cluster.shared).sync("default/web")
    assert (cluster.updated, cluster.made) == ([], 1)


async def test_replica_set_adopts_and_releases_running_pods() -> None:
    pods = [running(make_pod("new").label("app", "web")).build(), running(pod_of(WEB, "old", labels={})).build()]
    cluster = Cluster(WEB, pods)
    await ReplicaSetController(cluster.shared).sync("default/web")
    assert {item.metadata.name: controller_key(item) for item in cluster.updated} == {"new": owner_key(WEB), "old": ""}


async def test_rejected_adoption_or_release_does_not_block_other_pods() -> None:
    """For example, a pod whose labels were changed for debugging would be deleted with its owner."""
    new = [running(make_pod(name).label("app", "web")).build() for name in ("held", "new")]
    old = [running(pod_of(WEB, name, labels={})).build() for name in ("stuck", "old")]
    cluster = Cluster(WEB, [*new, *old], refused=["held", "stuck"])
    with pytest.raises(Forbidden):
        await ReplicaSetController(cluster.shared).sync("default/web")
    assert ({item.metadata.name: controller_key(item) for item in cluster.updated}, cluster.made) == (
        {"new": owner_key(WEB), "old": ""}, 0,
    )  # fmt: skip


async def test_job_adopts_ended_pods() -> None:
    """The job counts the adopted pod."""
    job = make_job("web")
    cluster = Cluster(job, [make_pod("a").label("app", "web").phase("Succeeded").build()])
    expectations: Any = SimpleNamespace(expect_version=lambda *_: None)
    claimer: ControllerRefManager[Pod] = ControllerRefManager(cluster.shared, JOBS, PODS, expectations)
    assert named(await claimer.claim_objects("default/web", job, SELECTOR)) == ["a"]
