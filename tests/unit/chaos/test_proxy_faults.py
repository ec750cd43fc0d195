"""The fault kill-proxy: it kills the proxy while requests succeed, and measures the recovery."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.core_v1_pb2 import Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import SERVICES
from pinnace.cluster.spec import ClusterSpec
from pinnace.verification.chaos import run
from pinnace.verification.chaos.cluster_under_test import ClusterUnderTest, NotPossible
from pinnace.verification.chaos.faults import services
from pinnace.verification.chaos.faults.base import FaultArea, FaultRequirement
from pinnace.verification.chaos.faults.services import KillProxy
from pinnace.verification.chaos.faults.table import HARMLESS, KINDS, OBSERVING


class FakeWorld:
    """A proxy that forwards the only service while it runs. `returns`: whether it restarts."""

    def __init__(self, *, returns: bool = True) -> None:
        self.client: Any = SimpleNamespace(of=self._of)
        self.runs, self.returns = True, returns
        self.deleted: list[str] = []

    def _of(self, resource: object) -> Any:
        async def create(made: Any) -> Any:
            if isinstance(made, Service):
                made.spec.clusterIP = "127.254.3.9"
            else:
                assert isinstance(made, EndpointSlice) and made.ports[0].port
            return made

        async def delete(name: str, namespace: str) -> None:
            self.deleted.append("service" if resource is SERVICES else "slice")

        return SimpleNamespace(create=create, delete=delete)

    async def resolve_target(self, target: str) -> str:
        return target

    def end_process(self, name: str, number: int) -> None:
        self.runs = False

    async def restart_stopped_process(self, name: str) -> None:
        self.runs = self.returns


def fault(world: FakeWorld, monkeypatch: pytest.MonkeyPatch) -> KillProxy:
    async def request(page: services.TestService) -> bool:
        await asyncio.sleep(0)
        return world.runs

    monkeypatch.setattr(services.TestService, "_request", request)
    monkeypatch.setattr(services, "AFTER", 0.2)
    monkeypatch.setattr(services, "BEFORE", 0.2)
    return KillProxy(cast(ClusterUnderTest, world), "proxy-0", random.Random(1))


async def test_requests_that_succeed_again_are_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld()
    killed = fault(world, monkeypatch)
    await killed.inject()
    assert not world.runs and killed.details == "proxy-0"
    await killed.undo()
    await killed.undo()
    (reading,) = killed.readings
    assert reading.most is not None and reading.value < reading.most and set(world.deleted) == {"slice", "service"}


async def test_requests_that_keep_failing_exceed_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = fault(FakeWorld(returns=False), monkeypatch)
    await killed.inject()
    await killed.undo()
    (reading,) = killed.readings
    assert reading.most is not None and reading.value >= reading.most


async def test_proxy_without_successful_requests_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeWorld()
    world.runs = False
    killed = fault(world, monkeypatch)
    with pytest.raises(NotPossible, match=r"requests did not succeed within 0\.2 s before the fault"):
        await killed.inject()
    await killed.undo()
    assert killed.readings == []


def test_proxy_fault_needs_a_proxy() -> None:
    kind = KINDS["kill-proxy"]
    assert (
        run.find_missing_requirement(kind, ClusterSpec()) == FaultRequirement.PROXY
        and run.find_missing_requirement(kind, ClusterSpec(proxy=True)) == ""
    )
    assert (kind.targets(ClusterSpec(proxy=True)), kind.area) == (["proxy-0"], FaultArea.PROXY)
    assert kind.name in HARMLESS and kind.name in OBSERVING
