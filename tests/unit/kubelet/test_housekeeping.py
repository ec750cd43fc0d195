"""Nodes under resource pressure: their conditions, and the eviction of their pods."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

import pytest

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.wellknown import PRESSURE_ANNOTATION
from pinnace.fit import Requests, pod_requests
from pinnace.kubelet import eviction
from pinnace.kubelet.eviction import MONITORING_INTERVAL, PRESSURE_TRANSITION_PERIOD, EvictionManager, PressureKind
from pinnace.kubelet.lifecycle.container import MIN_GRACE
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi


class House:
    """A fleet of one node "n" with 8 GiB, and its eviction manager."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.changes: list[str] = []
        self.keeping = EvictionManager(api.nodes, api.fleet, on_change=self._changed, clock=api.clock)
        self.running = asyncio.create_task(self.keeping.run())

    def _changed(self, nodes: Collection[str]) -> None:
        self.changes.extend(nodes)

    def tell(self, pressure: str) -> None:
        """Set the pressure annotation of the node."""
        self.keeping.update_node(node(pressure))

    async def create(self, builder: PodBuilder) -> None:
        self.api.create(builder)
        await self.api.clock.advance(0.0)

    async def pass_(self, looks: int = 1) -> None:
        await self.api.clock.advance(MONITORING_INTERVAL * looks)

    @property
    def evicted(self) -> list[str]:
        return [name for name, reason in self.api.events if reason == "Evicted"]


def node(pressure: str = "") -> Node:
    built = make_node("n").capacity(cpu=8, memory="8Gi", pods=20, **{"ephemeral-storage": "8Gi"}).build()
    if pressure:
        built.metadata.annotations[PRESSURE_ANNOTATION] = pressure
    return built


@pytest.fixture
async def house() -> AsyncIterator[House]:
    api = FakeApi()
    await api.start_fleet(node())
    house = House(api)
    yield house
    house.running.cancel()
    with suppress(asyncio.CancelledError):
        await house.running
    await api.stop_fleet()


def sized(name: str, memory: str = "1Gi") -> PodBuilder:
    return make_pod(name).req(memory=memory)


async def test_pods_are_evicted_one_by_one_until_the_rest_fits(house: House) -> None:
    for name in "abcd":
        await house.create(sized(name).priority(ord(name)))
    house.tell("memory=6Gi")
    assert house.keeping.node_pressures("n") == [PressureKind.MEMORY]
    await house.pass_()
    assert house.evicted == ["a"]
    await house.pass_()
    assert house.evicted == ["a", "b"]
    await house.pass_(5)
    assert house.evicted == ["a", "b"], "the remaining pods fit"
    status = house.api.pod("a").status
    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert status.message == "The node was low on resource: memory. Threshold quantity: 100Mi, available: 0."
    target = next(condition for condition in status.conditions if condition.type == "DisruptionTarget")
    assert (target.status, target.reason, target.message) == ("True", "TerminationByKubelet", status.message)


async def test_pressure_condition_lasts_for_the_transition_period(house: House) -> None:
    await house.create(sized("a"))
    house.tell("memory=8Gi")
    await house.pass_()
    assert house.evicted == ["a"]
    await house.api.clock.advance(PRESSURE_TRANSITION_PERIOD - MONITORING_INTERVAL)
    assert house.keeping.node_pressures("n") == [PressureKind.MEMORY]
    await house.pass_(2)
    assert house.keeping.node_pressures("n") == []
    assert house.changes == ["n"]


async def test_node_without_pressure_admits_all_pods(house: House) -> None:
    house.tell("memory")
    await house.create(make_pod("early").req())
    assert house.api.pod("early").status.reason == "Evicted"
    assert house.api.pod("early").status.message == "Pod was rejected: The node had condition: [MemoryPressure]."
    house.tell("")
    await house.create(make_pod("late").req())
    await house.pass_(2)
    assert house.api.phases("late") == ["Running"]


async def test_usage_beyond_the_capacity_causes_pressure(house: House) -> None:
    await house.create(sized("good", "4Gi"))
    await house.create(sized("greedy").declare(memory_usage="6Gi"))
    await house.pass_(3)
    assert house.evicted == ["greedy"]
    assert house.keeping.node_pressures("n") == [PressureKind.MEMORY]
    assert "Container c0 was using 6Gi, request is 1Gi" in house.api.pod("greedy").status.message


async def test_pod_above_its_storage_limit_is_evicted_without_pressure(house: House) -> None:
    builder = make_pod("a").container(limits={"ephemeral-storage": "1Gi"}).declare(ephemeral_storage_usage="2Gi")
    await house.create(builder)
    await house.create(sized("b"))
    await house.pass_(2)
    assert house.evicted == ["a"]
    assert house.keeping.node_pressures("n") == []
    assert not conditions.find_condition(house.api.pod("a").status.conditions, "DisruptionTarget"), (
        "the pod itself exceeded its limit"
    )


async def test_terminating_pod_is_not_evicted(house: House) -> None:
    await house.create(sized("leaving").declare(stop_seconds="20"))
    house.api.delete("leaving")
    house.tell("memory")
    await house.pass_(2)
    assert house.evicted == []


async def test_evicted_pod_fails_once_its_containers_end(house: House) -> None:
    await house.create(sized("a").declare(stop_seconds="60"))
    house.tell("pid")
    await house.pass_()
    assert house.api.fleet.active_pods("n") == []
    await house.api.clock.advance(MIN_GRACE)
    assert house.api.phases("a") == ["Running", "Failed"]


async def test_evicted_container_can_exit_within_the_minimum_grace_period(house: House) -> None:
    await house.create(sized("a").declare(stop_seconds="1"))
    house.tell("pid")
    await house.pass_(2)
    assert house.api.pod("a").status.containerStatuses[0].state.terminated.exitCode == 0


async def test_requests_are_computed_only_for_an_eviction(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests are looked up by the serialized spec, which is too expensive for all pods every two seconds."""
    asked = list[Pod]()

    def requests(pod: Pod) -> Requests:
        asked.append(pod)
        return pod_requests(pod)

    monkeypatch.setattr(eviction, "pod_requests", requests)
    await house.create(make_pod("a").req(memory="1Gi").declare(memory_usage="6Gi"))
    await house.pass_(3)
    assert not asked
    house.tell("memory=4Gi")
    await house.pass_()
    assert house.evicted == ["a"] and asked
