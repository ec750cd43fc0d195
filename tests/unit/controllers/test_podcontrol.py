"""Pods created and deleted for an owner, with a fake API server."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS, REPLICA_SETS
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest
from pinnace.apiserver.server import MAX_REQUEST
from pinnace.client.errors import Fenced, OutcomeUnknown, Timeout, from_refusal, outcome_unknown, unavailable_error
from pinnace.client.resource import Listing
from pinnace.controllers.podcontrol import MAX_EVENTS, PodControl, build_pod_from_template
from pinnace.controllers.writes import BATCH, Expectations
from tests.builders import make_pod
from tests.workloads import make_replica_set

WEB = make_replica_set("web")
KEY = "default/web"


class Server:
    """Accepts pods up to its quota. `revision` grows with each call."""

    resource = PODS

    def __init__(self) -> None:
        self.quota = 10_000
        self.calls: list[int] = []
        self.revision = 100
        self.lose_answers = False
        self.code, self.reason, self.message = Code.PERMISSION_DENIED, "Forbidden", "exceeded quota"

    async def create_batch(self, pods: Sequence[Pod]) -> list[BatchItem]:
        if sum(pod.ByteSize() for pod in pods) > MAX_REQUEST:
            raise from_refusal(Refusal(Code.RESOURCE_EXHAUSTED, "", "Received message larger than max"))
        self.calls.append(len(pods))
        self.revision += 1
        if self.lose_answers:
            raise outcome_unknown(unavailable_error("gone"))
        return [self._create() for _ in pods]

    def _create(self) -> BatchItem:
        if not self.quota:
            return BatchItem(error=encode(Refusal(self.code, self.reason, self.message)))
        self.quota -= 1
        return BatchItem(name=f"web-{self.quota}", resourceVersion=str(self.revision))

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        missing = BatchItem(error=encode(Refusal(Code.NOT_FOUND, "NotFound", "not there")))
        return [missing if request.name == "gone" else BatchItem(resourceVersion="200") for request in requests]

    async def list(self, fields: str) -> Listing[Pod]:
        return Listing([], self.revision)


class Informers:
    """Informers at a fixed revision."""

    def __init__(self, revision: int) -> None:
        self.revision = revision

    async def wait_for(self, revision: int, timeout: float, among: Iterable[Any]) -> None:
        assert list(among) == [PODS]
        if self.revision < revision:
            raise TimeoutError(f"not at {revision}")


class Bench:
    def __init__(self) -> None:
        self.server, self.informers, self.told = Server(), Informers(100), list[tuple[str, str]]()
        events = SimpleNamespace(event=lambda obj, type_, reason, message: self.told.append((reason, message)))
        shared: Any = SimpleNamespace(client=SimpleNamespace(pods=self.server), events=events)
        informers: Any = self.informers
        self.expectations = Expectations(informers)
        self.control = PodControl(shared, self.expectations)

    async def create(self, count: int) -> str | None:
        error = await self.control.create(KEY, WEB, [Pod()] * count)
        return None if error is None else error.message


async def test_sync_waits_for_its_own_writes() -> None:
    bench = Bench()
    await bench.expectations.wait_until_met(KEY)
    await bench.create(2)
    with pytest.raises(Timeout, match="not at 101"):
        await bench.expectations.wait_until_met(KEY)
    await bench.expectations.wait_until_met("default/other")
    bench.informers.revision = 101
    await bench.expectations.wait_until_met(KEY)


async def test_sync_waits_for_deletions_and_a_missing_pod_is_no_error() -> None:
    bench = Bench()
    assert await bench.control.delete(KEY, WEB, [make_pod("a").build(), make_pod("gone").build()]) is None
    assert bench.told == [("SuccessfulDelete", "Deleted pod: a")]
    with pytest.raises(Timeout, match="not at 200"):
        await bench.expectations.wait_until_met(KEY)


async def test_write_with_an_unknown_outcome_is_awaited() -> None:
    bench = Bench()
    bench.server.lose_answers = True
    with pytest.raises(OutcomeUnknown):
        await bench.create(2)
    with pytest.raises(Timeout, match="not at 101"):
        await bench.expectations.wait_until_met(KEY)


async def test_rejected_creation_stops_the_batch_and_limits_the_next_attempt_to_one_pod() -> None:
    bench = Bench()
    bench.server.quota = 3
    assert await bench.create(2 * BATCH) == "exceeded quota"
    assert bench.server.calls == [BATCH]
    assert bench.told[-1] == ("FailedCreate", "Error creating: exceeded quota")
    assert await bench.create(10) == "exceeded quota"
    assert bench.server.calls == [BATCH, 1]
    bench.server.quota = 2000
    assert await bench.create(10) is None
    assert bench.server.calls[2:] == [1, 9]
    assert await bench.create(10) is None
    assert bench.server.calls[4:] == [10]


async def test_rejections_of_generated_names_are_one_event() -> None:
    """This holds for owners with long names. Other quoted names in the message are kept."""
    bench, web = Bench(), make_replica_set("web" * 20)
    bench.server.quota = 0
    pod = build_pod_from_template(web.spec.template, REPLICA_SETS, web)
    for name in ("bcdfg", "xz245"):
        bench.server.message = f'pods "{web.metadata.name[:58]}{name}" is forbidden by "{web.metadata.name[:58]}bcdfg"'
        await bench.control.create(KEY, web, [pod])
    assert len(bench.told) == 2 and len(set(bench.told)) == 1
    assert bench.told[0][1].endswith(f'pods "{web.metadata.name}-" is forbidden by "{web.metadata.name[:58]}bcdfg"')


async def test_pods_of_a_large_template_are_created_in_several_calls() -> None:
    bench = Bench()
    template = make_replica_set("web").spec.template
    template.metadata.annotations["about"] = "x" * (9 << 10)
    pods = [build_pod_from_template(template, REPLICA_SETS, WEB) for _ in range(BATCH)]
    assert await bench.control.create(KEY, WEB, pods) is None
    assert sum(bench.server.calls) == BATCH and len(bench.server.calls) > 1


async def test_creation_in_a_terminating_namespace_is_no_failure() -> None:
    bench = Bench()
    bench.server.quota, bench.server.reason = 0, "NamespaceTerminating"
    assert await bench.create(3) is None
    assert bench.told == []


async def test_fenced_write_records_no_event() -> None:
    """It does not limit the next attempt to one pod either."""
    bench = Bench()
    bench.server.quota, bench.server.code, bench.server.reason = 2, Code.FAILED_PRECONDITION, "Fenced"
    with pytest.raises(Fenced):
        await bench.create(3)
    assert bench.told == []
    with pytest.raises(Timeout, match="not at 101"):  # two pods were created
        await bench.expectations.wait_until_met(KEY)
    bench.server.quota = 10
    await bench.create(3)
    assert bench.server.calls == [3, 3]


async def test_events_of_many_pods_are_limited() -> None:
    bench = Bench()
    await bench.create(BATCH)
    assert len(bench.told) == MAX_EVENTS


def test_pod_has_the_template_and_the_owner_reference() -> None:
    web = make_replica_set("web")
    web.spec.template.metadata.annotations["why"] = "not"
    pod = build_pod_from_template(web.spec.template, REPLICA_SETS, web)
    assert (pod.metadata.generateName, pod.metadata.namespace) == ("web-", "default")
    assert (dict(pod.metadata.labels), dict(pod.metadata.annotations)) == ({"app": "web"}, {"why": "not"})
    assert pod.spec == web.spec.template.spec
    assert [
        (owner_reference.kind, owner_reference.apiVersion, owner_reference.uid, owner_reference.controller)
        for owner_reference in pod.metadata.ownerReferences
    ] == [("ReplicaSet", "apps/v1", "uid-web", True)]
