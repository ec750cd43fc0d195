"""Timed syncs stay due after a rejected write or an unavailable server. Back-off does not delay them."""

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, Object, Resource
from pinnace.api.scalars import to_time
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, from_refusal, unavailable_error
from pinnace.client.informer import Index
from pinnace.controllers.deployment import PROGRESSING, DeploymentController, find_condition, plan_deployment_sync
from pinnace.controllers.informers import LabelIndex, SelectorIndex
from pinnace.controllers.job import JobController
from pinnace.controllers.pods import PodPropertiesCache
from pinnace.controllers.replicaset import ReplicaSetController
from pinnace.controllers.runtime import Controller, PartialSyncError
from tests.workloads import make_deployment, make_job, make_replica_set, pod_of, running

NOW = 10_000.0
QUOTA = Refusal(Code.PERMISSION_DENIED, "Forbidden", "exceeded quota")


class Cluster:
    """A fake API that rejects creations and updates, and accepts status updates."""

    def __init__(self, things: dict[Resource[Any], Sequence[Object]], call_fails: ApiError | None = None) -> None:
        self.things = things
        self.call_fails = call_fails
        self.updated: list[Any] = []
        self.asked: list[int] = []
        """The number of pods in each call."""
        informers = SimpleNamespace(
            store=lambda resource: {f"default/{thing.metadata.name}": thing for thing in self.things.get(resource, ())},
            index=lambda resource, by: Index(by, self.things.get(resource, ())),
            selecting=lambda resource, selector_of: SelectorIndex(selector_of, self.things.get(resource, ())),
            labelled=lambda resource, only: LabelIndex(only, self.things.get(resource, ())),
            pod_properties=PodPropertiesCache(),
            wait_for=self._know,
        )
        client = SimpleNamespace(of=lambda resource: self, pods=self)
        clock, events = SimpleNamespace(time=lambda: NOW), SimpleNamespace(event=lambda *_: None)
        self.shared: Any = SimpleNamespace(informers=informers, client=client, clock=clock, events=events)

    async def _know(self, *_: object) -> None:
        pass

    async def update_status(self, obj: Any) -> Any:
        self.updated.append(obj)
        return obj

    async def update(self, obj: Object) -> None:
        raise from_refusal(QUOTA)

    async def create_batch(self, pods: Sequence[Object]) -> list[BatchItem]:
        self.asked.append(len(pods))
        if self.call_fails is not None:
            raise self.call_fails
        return [BatchItem(error=encode(QUOTA)) for _ in pods]


async def due(controller: Controller) -> float | None:
    with pytest.raises(PartialSyncError) as caught:
        await controller.sync("default/web")
    return caught.value.again


@pytest.mark.parametrize("call_fails", [None, unavailable_error("no server")])
async def test_job_deadline_stays_due_after_a_rejection(call_fails: ApiError | None) -> None:
    job = make_job("web", activeDeadlineSeconds=100)
    job.status.startTime.CopyFrom(to_time(NOW - 40))
    assert await due(JobController(Cluster({JOBS: [job]}, call_fails).shared)) == 60.0


@pytest.mark.parametrize("call_fails", [None, unavailable_error("no server")])
async def test_pod_availability_stays_due_after_a_rejection(call_fails: ApiError | None) -> None:
    web = make_replica_set("web", replicas=2, minReadySeconds=30)
    ready = running(pod_of(web, "a"), since=NOW - 10).build()
    assert await due(ReplicaSetController(Cluster({REPLICA_SETS: [web], PODS: [ready]}, call_fails).shared)) == 20.0


async def test_rejected_rollout_exceeds_its_deadline() -> None:
    deployment = make_deployment("web", replicas=2)
    new = plan_deployment_sync(deployment, [], False, NOW).create
    assert new is not None
    new.spec.replicas = 1
    new.metadata.ownerReferences[0].uid = deployment.metadata.uid
    cluster = Cluster({DEPLOYMENTS: [deployment], REPLICA_SETS: [new]})
    again = await due(DeploymentController(cluster.shared))
    assert again is not None and 600.0 < again < 602.0
    progressing = find_condition(cluster.updated[-1].status, PROGRESSING)
    assert progressing is not None
    progressing.lastUpdateTime.CopyFrom(to_time(NOW - 601))
    cluster.things[DEPLOYMENTS] = cluster.updated
    assert await due(DeploymentController(cluster.shared)) is None
    assert [item.reason for item in cluster.updated[-1].status.conditions if item.type == PROGRESSING] == [
        "ProgressDeadlineExceeded"
    ]


@pytest.mark.parametrize(
    ("make", "owners", "owner"),
    [
        (ReplicaSetController, REPLICA_SETS, make_replica_set("web", replicas=3)),
        (JobController, JOBS, make_job("web", parallelism=3)),
    ],
    ids=["replica set", "job"],
)
async def test_rejections_are_forgotten_with_the_owner(make: Any, owners: Resource[Any], owner: Object) -> None:
    """After a rejection, the next attempt creates one pod. The memory of rejections must not grow with each owner name."""
    cluster, store = Cluster({}), dict[str, Object]()
    cluster.shared.informers.store = lambda resource: store if resource is owners else {}
    controller = make(cluster.shared)
    for there in (True, True, False, True):
        store.clear()
        store.update({"default/web": owner} if there else {})
        with suppress(PartialSyncError):
            await controller.sync("default/web")
    assert cluster.asked == [3, 1, 3]
