"""The load keeps its limits despite failing calls, and reports unhealthy pods."""

import random
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest
from pinnace.client.errors import ApiError, Conflict, NotFound, outcome_unknown, unavailable_error
from pinnace.client.resource import Listing
from pinnace.verification.chaos.load import PODS_PER_OWNER, find_unready_pods
from pinnace.verification.chaos.workers import BATCH, LOAD, NOBODY, PodOwner, build_pod, find_wrongly_succeeded

GONE = Refusal(Code.NOT_FOUND, "NotFound", "no such pod")


class FakePods:
    """Pods by name. Each call fails with probability `failing`; half of the failed calls are executed."""

    def __init__(self, failing: float, rng: random.Random) -> None:
        self.pods: dict[str, Pod] = {}
        self.calls = 0
        self._failing = failing
        self._random = rng

    async def create(self, wanted: Pod) -> Pod:
        self._call(lambda: self.pods.update({wanted.metadata.name: wanted}))
        return wanted

    async def create_batch(self, wanted: list[Pod]) -> list[BatchItem]:
        self._call(lambda: self.pods.update({item.metadata.name: item for item in wanted}))
        return [BatchItem() for _ in wanted]

    async def get(self, name: str, namespace: str) -> Pod:
        self._call(lambda: None)
        if name not in self.pods:
            raise NotFound(GONE)
        return self.pods[name]

    async def update(self, changed: Pod) -> Pod:
        self._call(lambda: None)
        raise Conflict(Refusal(Code.ABORTED, "Conflict", "stale"))

    async def delete(self, name: str, namespace: str, **_: Any) -> Pod:
        there = name in self.pods
        self._call(lambda: self.pods.pop(name, None))
        if not there:
            raise NotFound(GONE)
        return Pod()

    async def delete_batch(self, requests: list[DeleteRequest]) -> list[BatchItem]:
        there = [request.name in self.pods for request in requests]
        self._call(lambda: [self.pods.pop(request.name, None) for request in requests])
        return [BatchItem() if was else BatchItem(error=encode(GONE)) for was in there]

    async def list(self, namespace: str, **_: Any) -> Listing[Pod]:
        self._call(lambda: None)
        return Listing(list(self.pods.values()), 1)

    def _call(self, happens: Any) -> None:
        self.calls += 1
        fate = self._random.random()
        if fate < self._failing / 2:
            raise unavailable_error("not sent")
        happens()
        if fate < self._failing:
            raise outcome_unknown(unavailable_error("Socket closed"))


class FakeClient:
    def __init__(self, pods: FakePods) -> None:
        self.pods = pods


@pytest.mark.parametrize("room", [3 * BATCH, PODS_PER_OWNER, 40])
@pytest.mark.parametrize("failing", [0.0, 0.3])
async def test_owner_keeps_a_bounded_number_of_pods(failing: float, room: int) -> None:
    pods = FakePods(failing, random.Random(1))
    owner = PodOwner("o", FakeClient(pods), room, random.Random(2))
    alive = []
    for _ in range(3000):
        with suppress(ApiError):
            await owner.execute_step()
        alive.append(len(pods.pods))
    assert max(alive) <= room
    assert sum(alive[100:]) / len(alive[100:]) > room / 4
    assert pods.calls >= 3000


def test_owner_limit_allows_several_batches() -> None:
    assert PODS_PER_OWNER >= 3 * BATCH


def a_pod(phase: str, *, scheduler: str = "", deleting: bool = False) -> Pod:
    made = build_pod(LOAD, "a", scheduler=scheduler)
    made.status.phase = phase
    if deleting:
        made.metadata.deletionTimestamp.seconds = 1
    return made


def test_unwell_pods() -> None:
    assert not find_unready_pods([a_pod("Running"), a_pod("Pending", scheduler=NOBODY)])
    assert len(find_unready_pods([a_pod("Pending"), a_pod("Failed"), a_pod("Running", deleting=True)])) == 3
    assert len(find_unready_pods([a_pod("Pending", scheduler=NOBODY, deleting=True)])) == 1


def test_unscheduled_pods_request_no_resources() -> None:
    assert not build_pod(LOAD, "a", scheduler=NOBODY).spec.containers[0].resources.requests
    assert build_pod(LOAD, "a").spec.containers[0].resources.requests["cpu"].string == "100m"


def test_forbidden_attempts_that_succeeded_are_reported() -> None:
    assert not find_wrongly_succeeded({"fenced": 5, "bound_twice": 0, "kept": 2})
    assert len(find_wrongly_succeeded({"bound_by_another": 1, "bound_afterwards": 1, "borrowed": 1, "over": 4})) == 3
    assert find_wrongly_succeeded({"fenced": 5, "bound_twice": 2}) == ["2 forbidden attempts succeeded: bound_twice"]
