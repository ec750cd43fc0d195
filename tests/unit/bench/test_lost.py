"""Benchmarks of creates count the stored pods, not the acknowledged ones."""

import asyncio
from types import SimpleNamespace
from typing import Any, Self

import grpc
import grpc.aio
import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.resource import Listing
from pinnace.verification.bench import throughput
from pinnace.verification.bench.calibration import BenchCluster, Calibration
from pinnace.verification.bench.flood import FloodResult, LeaderProbe, _find_violations
from pinnace.verification.bench.flooder import CreateFlood
from tests.builders import make_pod


class FakePods:
    """Acknowledges each create. With `forgets`, it does not store pods whose names end in 7."""

    def __init__(self, forgets: bool) -> None:
        self._forgets = forgets
        self.there: list[Pod] = []

    async def create(self, pod: Pod) -> Pod:
        if not self._forgets or not pod.metadata.name.endswith("7"):
            self.there.append(pod)
        return pod

    async def create_batch(self, pods: list[Pod]) -> list[BatchItem]:
        return [BatchItem(name=(await self.create(pod)).metadata.name) for pod in pods]

    async def list(self, namespace: str) -> Listing[Pod]:
        return Listing([pod for pod in self.there if pod.metadata.namespace == namespace], 1)


class FakeMeter:
    def __init__(self, state: object) -> None: ...

    def read_usage(self) -> dict[str, Any]:
        return {}


class FakeStages:
    @classmethod
    async def start_stage_meter(cls, state: object) -> Self:
        return cls()

    async def read_stage_cpu(self) -> dict[str, Any]:
        return {}


def client(forgets: bool) -> Any:
    return SimpleNamespace(pods=FakePods(forgets))


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize(("forgets", "lost"), [(True, 3), (False, 0)])
async def test_create_reports_lost_pods(monkeypatch: pytest.MonkeyPatch, batch: int, forgets: bool, lost: int) -> None:
    monkeypatch.setattr(throughput, "ProcessMeter", FakeMeter)
    monkeypatch.setattr(throughput, "StageMeter", FakeStages)
    cluster: Any = SimpleNamespace(state=None)
    run = await throughput.measure_creates(BenchCluster(cluster, Calibration(1000.0, 1), [client(forgets)]), 30, batch)
    assert run.violations == {"lost": lost}


@pytest.mark.parametrize(("forgets", "lost"), [(True, 1), (False, 0)])
async def test_flood_reports_lost_pods(forgets: bool, lost: int) -> None:
    server = client(forgets)
    made = FloodResult(created=["flood-0-000006", "flood-1-000007"])
    for name in made.created:
        await server.pods.create(make_pod(name).build())
    assert await _find_violations(server, made, LeaderProbe(server)) == {"lost": lost, "leaders_lost": 0}


async def test_leader_deposed_by_a_flood_is_a_violation() -> None:
    server = client(forgets=False)
    probe = LeaderProbe(server)
    probe.lost = 1
    assert (await _find_violations(server, FloodResult(), probe))["leaders_lost"] == 1


async def test_heartbeats_after_the_flood_are_not_counted() -> None:
    probe = LeaderProbe(client(forgets=False))
    measured = await probe.measure_calls(0.0)
    probe._beats.append(1.0)
    assert measured["heartbeat"] == []


async def test_flood_records_acknowledged_pods() -> None:
    """Refused and cancelled calls have an unknown outcome."""

    async def answer(request: bytes, timeout: float) -> bytes:
        name = CreatePodRequest.FromString(request).object.metadata.name
        if name.endswith("2"):
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing)
        if name.endswith("3"):
            full.set()
            await asyncio.Event().wait()
        return b""

    full = asyncio.Event()
    channel: Any = SimpleNamespace(unary_unary=lambda method: answer)
    flood = CreateFlood(channel, "f-")
    running = asyncio.create_task(flood.send_creates(rate=100_000))
    async with asyncio.timeout(10):
        await full.wait()
    running.cancel()
    await asyncio.wait((running,))
    assert flood.created[0] == "f-000001"
    assert not {"f-000002", "f-000003"} & set(flood.created)
    assert len(flood.created) == flood.outcomes["OK"]
