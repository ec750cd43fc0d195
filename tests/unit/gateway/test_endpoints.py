"""The endpoints of the service kubernetes: the addresses of running gateways."""

import asyncio
from typing import Any

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import ENDPOINT_SLICES, LEASES, SERVICES
from pinnace.gateway.endpoints import (
    ADDRESS_ANNOTATION,
    LEASE_SECONDS,
    RENEW_INTERVAL,
    EndpointReconciler,
    GatewayAddress,
    advertised_host,
    build_slices,
    plan_changes,
    valid_addresses,
)
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.accounts import with_accounts
from tests.clock import FakeClock
from tests.unit.gateway.serving import Gateway, gateway

A, B = GatewayAddress("10.0.0.1", 6443), GatewayAddress("10.0.0.2", 6443)


def lease(address: str, renewed: float, seconds: int = 30) -> Lease:
    result = Lease()
    result.metadata.annotations[ADDRESS_ANNOTATION] = address
    result.spec.renewTime.seconds, result.spec.leaseDurationSeconds = int(renewed), seconds
    return result


def shape(slices: Any) -> dict[str, tuple[list[str], list[int]]]:
    return {
        item.metadata.name: (
            [address for endpoint in item.endpoints for address in endpoint.addresses],
            [port.port for port in item.ports],
        )
        for item in slices
    }


def test_addresses_are_those_of_valid_leases() -> None:
    leases = [lease(text, 100) for text in ("10.0.0.1:6443", "10.0.0.1:6443", "[fd00::1]:6443")]
    leases.append(lease("10.0.0.2:6443", 90))
    assert valid_addresses(leases, 125) == {A, GatewayAddress("fd00::1", 6443)}


@pytest.mark.parametrize("text", ["", "gateway:6443", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:70000"])
def test_malformed_address_is_ignored(text: str) -> None:
    assert not valid_addresses([lease(text, 100)], 100)


def test_each_port_and_family_has_a_slice() -> None:
    slices = build_slices([B, A, GatewayAddress("10.0.0.1", 7443), GatewayAddress("fd00::1", 6443)])
    assert shape(slices.values()) == {
        "kubernetes": (["10.0.0.1", "10.0.0.2"], [6443]),
        "kubernetes-ipv6-6443": (["fd00::1"], [6443]),
        "kubernetes-ipv4-7443": (["10.0.0.1"], [7443]),
    }
    assert {item.metadata.labels["kubernetes.io/service-name"] for item in slices.values()} == {"kubernetes"}


def test_equal_slices_are_not_written() -> None:
    present = build_slices([A, B]).values()
    assert plan_changes(present, build_slices([B, A])) == ([], [], [])


def test_slices_follow_the_addresses() -> None:
    other = EndpointSlice()
    other.metadata.name = "kubernetes-ipv4-9999"
    changes = plan_changes([*build_slices([A]).values(), other], build_slices([A, B, GatewayAddress("10.0.0.3", 7443)]))
    assert [item.metadata.name for item in changes.create] == ["kubernetes-ipv4-7443"]
    assert shape(changes.update) == {"kubernetes": (["10.0.0.1", "10.0.0.2"], [6443])}
    assert changes.delete == [other]


def test_slice_of_another_family_is_replaced() -> None:
    changes = plan_changes(build_slices([GatewayAddress("fd00::1", 6443)]).values(), build_slices([A]))
    assert len(changes.create) == len(changes.delete) == 1 and not changes.update


def test_gateway_on_all_addresses_advertises_one_of_the_machine() -> None:
    assert advertised_host("127.0.0.1") == "127.0.0.1"
    assert advertised_host("0.0.0.0") not in ("", "0.0.0.0")


async def _slices(served: Gateway) -> dict[str, tuple[list[str], list[int]]]:
    return shape((await served.client.of(ENDPOINT_SLICES).list("default")).items)


async def test_gateways_add_and_remove_their_addresses() -> None:
    async with gateway(with_accounts()) as served:
        clock = FakeClock()
        first, second = (EndpointReconciler(served.client, name, at, clock) for name, at in (("a", A), ("B", B)))
        for reconciler in (first, second):
            await reconciler.renew_and_reconcile()
        assert await _slices(served) == {"kubernetes": (["10.0.0.1", "10.0.0.2"], [6443])}
        await first.remove_address()
        assert await _slices(served) == {"kubernetes": (["10.0.0.2"], [6443])}
        await first.renew_and_reconcile()
        for _ in range(LEASE_SECONDS // int(RENEW_INTERVAL) + 1):
            await clock.advance(RENEW_INTERVAL)
            await first.renew_and_reconcile()
        assert await _slices(served) == {"kubernetes": (["10.0.0.1"], [6443])}, "the second one was killed"
        leases = await served.client.of(LEASES).list("kube-system", labels="pinnace.io/gateway=true")
        assert [item.metadata.name for item in leases.items] == ["gateway-a"]


async def test_service_kubernetes_exists() -> None:
    async with gateway(with_accounts()) as served:
        async with asyncio.timeout(10):
            while not (services := (await served.client.of(SERVICES).list("default")).items):
                await SYSTEM_CLOCK.sleep(0.02)
        (service,) = services
        assert (
            service.metadata.name == "kubernetes"
            and service.spec.clusterIP == "10.96.0.1"
            and [port.port for port in service.spec.ports] == [443]
        )
