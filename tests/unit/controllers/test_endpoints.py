"""The Endpoints of a service, which mirror its slices."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Endpoints, EndpointSubset, Pod, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import ENDPOINTS, PODS, SERVICES, store_key
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.controllers.endpoints import (
    CAPACITY,
    LARGE,
    MANAGED_BY_LABEL,
    OVER_CAPACITY,
    PAUSE,
    SKIP_MIRROR_LABEL,
    TRIGGER_TIME,
    EndpointsController,
    build_endpoints,
    mirrored_service_key,
    truncate_subsets,
)
from pinnace.controllers.endpointslice import group_endpoints, plan_slice_changes
from tests.builders import make_pod
from tests.clock import FakeClock


def make_service(*ports: int, **spec: Any) -> Service:
    service = Service(metadata=ObjectMeta(name="web", namespace="default", uid="uid-web", labels={"team": "a"}))
    service.spec.selector["app"] = "web"
    for port in ports:
        service.spec.ports.add(name=f"port-{port}" if len(ports) > 1 else "", protocol="TCP", port=port)
    for name, value in spec.items():
        setattr(service.spec, name, value)
    return service


def pod(number: int, *, ready: bool = True, deleted: bool = False) -> Pod:
    builder = make_pod(f"p{number}").label("app", "web").node("n").phase("Running").image("app:1")
    made = (builder.ready_since(1.0) if ready else builder).build()
    made.status.podIP = f"10.0.{number // 250}.{number % 250}"
    if deleted:
        made.metadata.deletionTimestamp.seconds = 1
    return made


def slices_of(service: Service, *pods: Pod) -> list[EndpointSlice]:
    """As the endpoint slice controller creates them."""
    changes = plan_slice_changes(service, group_endpoints(service, pods, lambda node: ""), ())
    for number, each in enumerate(changes.create):
        each.metadata.name = f"web-{number}"
    return changes.create


def mirrored(service: Service, *pods: Pod) -> dict[str, Any]:
    return to_dict(build_endpoints(service, slices_of(service, *pods)))


def test_addresses_are_ready_or_not() -> None:
    result = mirrored(make_service(80), pod(2), pod(10), pod(3, ready=False), pod(4, deleted=True))
    (subset,) = result["subsets"]
    assert [address["ip"] for address in subset["addresses"]] == ["10.0.0.2", "10.0.0.10"]  # by value, not as text
    assert [address["ip"] for address in subset["notReadyAddresses"]] == ["10.0.0.3"]
    assert subset["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert subset["addresses"][0] == {
        "ip": "10.0.0.2", "nodeName": "n",
        "targetRef": {"kind": "Pod", "name": "p2", "namespace": "default", "uid": pod(2).metadata.uid},
    }  # fmt: skip
    assert result["metadata"]["labels"] == {"team": "a", MANAGED_BY_LABEL: "endpoint-controller"}


def test_service_that_publishes_all_addresses_has_them_ready() -> None:
    (subset,) = mirrored(make_service(80, publishNotReadyAddresses=True), pod(1, ready=False), pod(2, deleted=True))["subsets"]
    assert [address["ip"] for address in subset["addresses"]] == ["10.0.0.1", "10.0.0.2"]


def test_several_slices_with_the_same_ports_are_one_subset() -> None:
    result = mirrored(make_service(80, 443), *map(pod, range(150)))
    (subset,) = result["subsets"]
    assert len(subset["addresses"]) == 150
    assert [(port["name"], port["port"]) for port in subset["ports"]] == [("port-80", 80), ("port-443", 443)]


def test_headless_service_is_marked_and_may_have_no_ports() -> None:
    result = mirrored(make_service(clusterIP="None"), pod(1))
    assert result["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
    assert list(result["subsets"][0]) == ["addresses"]


def test_service_without_pods_has_no_subsets() -> None:
    assert "subsets" not in mirrored(make_service(80))


def test_ready_addresses_fill_the_capacity_first() -> None:
    result = mirrored(make_service(80), *map(pod, range(CAPACITY)), pod(2000, ready=False))
    assert result["metadata"]["annotations"] == {OVER_CAPACITY: "truncated"}
    assert len(result["subsets"][0]["addresses"]) == CAPACITY
    assert "notReadyAddresses" not in result["subsets"][0]


@pytest.mark.parametrize(
    ("ready", "unready", "kept"),
    [([6, 6], [0, 0], [(5, 0), (5, 0)]), ([9, 3], [2, 0], [(8, 0), (2, 0)]), ([4, 2], [6, 2], [(4, 3), (2, 1)])],
)
def test_truncation_is_in_proportion(ready: list[int], unready: list[int], kept: list[tuple[int, int]]) -> None:
    subsets = [EndpointSubset(), EndpointSubset()]
    for subset, counts in zip(subsets, zip(ready, unready, strict=True), strict=True):
        for addresses, count in zip((subset.addresses, subset.notReadyAddresses), counts, strict=True):
            for number in range(count):
                addresses.add(ip=f"10.0.0.{number}")
    assert truncate_subsets(subsets, 10)
    assert [(len(subset.addresses), len(subset.notReadyAddresses)) for subset in subsets] == kept
    assert not truncate_subsets(subsets, 10)


def test_gateways_are_the_endpoints_of_the_service_kubernetes() -> None:
    service = Service(metadata=ObjectMeta(name="kubernetes", namespace="default"))
    service.spec.ports.add(name="https", port=443, protocol="TCP")
    each = EndpointSlice(addressType="IPv4")
    each.metadata.namespace, each.metadata.labels[SERVICE_LABEL] = "default", "kubernetes"
    each.ports.add(name="https", port=6443, protocol="TCP")
    each.endpoints.add(addresses=["192.0.2.1"]).conditions.ready = True
    assert mirrored_service_key(each) == "default/kubernetes"
    result = to_dict(build_endpoints(service, [each]))
    assert result["metadata"]["labels"] == {SKIP_MIRROR_LABEL: "true"}
    assert result["subsets"] == [
        {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}
    ]


class World:
    """The stores of the controller, and the API server that it writes to."""

    def __init__(self, service: Service) -> None:
        self.clock = FakeClock()
        self.services, self.endpoints, self.pods = {store_key(service): service}, dict[str, Endpoints](), dict[str, Pod]()
        self.slices: list[EndpointSlice] = []
        self.writes: list[str] = []
        stores: dict[str, Any] = {
            SERVICES.plural: self.services, ENDPOINTS.plural: self.endpoints, PODS.plural: self.pods,
        }  # fmt: skip
        informers = SimpleNamespace(
            store=lambda resource: stores[resource.plural],
            wait_for=self.wait_for,
            index=lambda resource, by: SimpleNamespace(under=lambda key: {each.metadata.name: each for each in self.slices}),
        )
        shared: Any = SimpleNamespace(clock=self.clock, informers=informers, client=SimpleNamespace(of=lambda resource: self))
        self.controller = EndpointsController(shared)

    def have(self, *pods: Pod) -> None:
        self.pods.clear()
        self.pods.update({store_key(each): each for each in pods})
        (service,) = self.services.values()
        self.slices = slices_of(service, *pods)

    async def wait_for(self, revision: int, timeout: float, among: object) -> None:
        """The stores have every write at once."""

    async def sync(self) -> float | None:
        return await self.controller.sync("default/web")

    async def create(self, obj: Endpoints) -> Endpoints:
        self.writes.append("create")
        self.endpoints[store_key(obj)] = obj
        return obj

    async def update(self, obj: Endpoints) -> Endpoints:
        self.writes.append("update")
        self.endpoints[store_key(obj)] = obj
        return obj

    async def delete(self, name: str, namespace: str, *, uid: str) -> Endpoints:
        self.writes.append("delete")
        return self.endpoints.pop(f"{namespace}/{name}")


async def test_endpoints_are_written_once_for_a_change_and_deleted_with_the_service() -> None:
    world = World(make_service(80))
    world.have(pod(1))
    await world.sync()
    assert world.endpoints["default/web"].metadata.annotations[TRIGGER_TIME] == "1970-01-01T00:00:01Z"
    await world.sync()
    world.endpoints["default/web"].metadata.annotations["mine"] = "kept"
    world.have(pod(1), pod(2))
    await world.sync()
    assert world.endpoints["default/web"].metadata.annotations["mine"] == "kept"
    world.have(pod(2))
    await world.sync()
    assert TRIGGER_TIME not in world.endpoints["default/web"].metadata.annotations  # nothing tells when the pod was lost
    world.services.clear()
    await world.sync()
    assert world.writes == ["create", "update", "update", "delete"]


async def test_endpoints_of_users_are_left_alone() -> None:
    service = make_service(80)
    service.spec.selector.clear()
    world = World(service)
    world.endpoints["default/web"] = Endpoints(metadata=ObjectMeta(name="web", namespace="default"))
    await world.sync()
    world.services.clear()
    await world.sync()
    assert world.writes == []


async def test_large_endpoints_are_written_at_most_once_in_a_pause() -> None:
    world = World(make_service(80))
    world.have(*map(pod, range(LARGE + 1)))
    assert await world.sync() is None
    world.have(*map(pod, range(LARGE + 2)))
    wait = await world.sync()
    assert wait == PAUSE and world.writes == ["create"]
    await world.clock.advance(PAUSE)
    assert await world.sync() is None
    assert world.writes == ["create", "update"]
