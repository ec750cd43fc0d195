"""Cluster IPs and node ports, over two API servers with one storage."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Network, ip_network
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Service, ServiceSpec
from pinnace.api.networking_v1_pb2 import IPAddress
from pinnace.api.resources import IP_ADDRESSES, NODE_PORTS_PREFIX, SERVICES
from pinnace.api.verbs_pb2 import BatchResponse, DeleteCollectionRequest, DeleteRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.allocation import ServiceRanges, free_address, parse_networks, parse_node_ports, set_ip_families
from pinnace.apiserver.storage.interface import Write
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

SMALL = ServiceRanges(parse_networks("10.0.0.0/28"), range(30000, 30004))
"""14 addresses and 4 node ports."""


class Servers:
    def __init__(self, storage: MemoryStorage, assemblies: list[Assembly]) -> None:
        self.storage = storage
        self.assemblies = assemblies

    async def call(self, verb: str, request: Any, server: int = 0, kind: str = "Services") -> Any:
        method = self.assemblies[server].methods[f"/pinnace.v1.{kind}/{verb}"]
        message = method.parse(request.SerializeToString())
        return await method.call(message, Caller(PEOPLE["admin"]))

    def request(self, verb: str, service: Service, *, dry_run: bool = False) -> Any:
        request: Any = self.assemblies[0].methods[f"/pinnace.v1.Services/{verb}"].parse(b"")
        request.object.CopyFrom(service)
        request.options.dryRun[:] = ["All"] * dry_run
        return request

    async def create(self, service: Service, server: int = 0, *, dry_run: bool = False) -> Service:
        return Service.FromString(await self.call("Create", self.request("Create", service, dry_run=dry_run), server))

    async def update(self, service: Service) -> Service:
        return Service.FromString(await self.call("Update", self.request("Update", service)))

    async def delete(self, name: str, server: int = 0) -> None:
        await self.call("Delete", DeleteRequest(namespace="default", name=name), server)

    async def addresses(self) -> dict[str, str]:
        """The name of the service of each address in the storage."""
        page = await self.storage.page(IP_ADDRESSES.prefix)
        return {item.key.rpartition("/")[2]: IPAddress.FromString(item.value).spec.parentRef.name for item in page.items}

    async def ports(self) -> dict[int, str]:
        page = await self.storage.page(NODE_PORTS_PREFIX)
        return {int(item.key.rpartition("/")[2]): item.value.decode() for item in page.items}


@asynccontextmanager
async def running(ranges: ServiceRanges) -> AsyncIterator[Servers]:
    storage = MemoryStorage()
    assemblies = [Assembly(storage, ServerSettings(services=ranges)) for _ in range(2)]
    tasks = [asyncio.ensure_future(assembly.run()) for assembly in assemblies]
    try:
        async with asyncio.timeout(20):
            for assembly in assemblies:
                await assembly.opening.bootstrapped.wait()
        yield Servers(storage, assemblies)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with running(SMALL) as result:
        yield result


def service(name: str, **spec: Any) -> Service:
    spec = {"ports": [{"port": 80}], **spec}
    return from_dict(SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def refusal(call: Any) -> str:
    with pytest.raises(Rejected) as caught:
        await call
    return caught.value.refusal.message


async def test_address_lives_as_long_as_its_service(servers: Servers) -> None:
    made = await servers.create(service("a"))
    assert list(made.spec.clusterIPs) == [made.spec.clusterIP]
    assert (made.spec.ipFamilyPolicy, list(made.spec.ipFamilies)) == ("SingleStack", ["IPv4"])
    assert await servers.addresses() == {made.spec.clusterIP: "a"}
    key = await servers.storage.get(IP_ADDRESSES.key("", made.spec.clusterIP))
    stored = await servers.storage.get(SERVICES.key_of(made))
    assert key is not None and stored is not None and key.mod_revision == stored.mod_revision
    await servers.delete("a", 1)
    assert await servers.addresses() == {}


async def test_concurrent_creates_fill_the_range_without_duplicates(servers: Servers) -> None:
    made = await asyncio.gather(*(servers.create(service(f"s{i}"), i % 2) for i in range(20)), return_exceptions=True)
    done = [item for item in made if isinstance(item, Service)]
    full = {item.refusal.message for item in made if isinstance(item, Rejected)}
    assert full == {"Internal error occurred: failed to allocate a serviceIP: range is full (10.0.0.0/28)"}
    assert {item.spec.clusterIP: item.metadata.name for item in done} == await servers.addresses()
    assert len(done) == 14
    await asyncio.gather(*(servers.delete(each.metadata.name, i % 2) for i, each in enumerate(done)))
    assert await servers.addresses() == {}


async def test_requested_address(servers: Servers) -> None:
    await servers.create(service("a", clusterIP="10.0.0.3"))
    taken = 'spec.clusterIPs: Invalid value: ["10.0.0.3"]: failed to allocate IP 10.0.0.3: provided IP is already allocated'
    assert taken in await refusal(servers.create(service("b", clusterIP="10.0.0.3"), 1))
    assert taken in await refusal(servers.create(service("b", clusterIP="10.0.0.3"), 1, dry_run=True))
    outside = "the provided IP (10.9.9.9) is not in the valid range. The range of valid IPs is 10.0.0.0/28"
    assert outside in await refusal(servers.create(service("b", clusterIP="10.9.9.9")))
    assert await servers.addresses() == {"10.0.0.3": "a"}


async def test_two_servers_create_one_requested_address(servers: Servers) -> None:
    made = await asyncio.gather(
        *(servers.create(service(f"s{i}", clusterIP="10.0.0.5"), i % 2) for i in range(6)), return_exceptions=True
    )
    assert Counter(map(type, made)) == {Service: 1, Rejected: 5}
    assert len(await servers.addresses()) == 1


async def test_dry_run_allocates_nothing(servers: Servers) -> None:
    made = await servers.create(service("a", type="NodePort"), dry_run=True)
    assert made.spec.clusterIP and made.spec.ports[0].nodePort
    assert (await servers.addresses(), await servers.ports()) == ({}, {})


@pytest.mark.parametrize("spec", [{"clusterIP": "None"}, {"type": "ExternalName", "externalName": "example.com"}])
async def test_services_without_address(servers: Servers, spec: Any) -> None:
    made = await servers.create(service("a", **spec))
    assert made.spec.clusterIP == spec.get("clusterIP", "")
    assert await servers.addresses() == {}


async def test_node_ports(servers: Servers) -> None:
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}, {"name": "web", "port": 80}]
    made = await servers.create(service("a", type="NodePort", ports=ports))
    dns, tcp, web = (port.nodePort for port in made.spec.ports)
    assert dns == tcp != web, "one number for a port in two protocols"
    assert await servers.ports() == {dns: "default/a", web: "default/a"}
    wanted = service("b", type="NodePort", ports=[{"port": 80, "nodePort": web}])
    message = f"spec.ports[0].nodePort: Invalid value: {web}: provided port is already allocated"
    assert message in await refusal(servers.create(wanted, 1))
    wanted.spec.ports[0].nodePort = 31000
    message = "provided port is not in the valid range. The range of valid ports is 30000-30003"
    assert message in await refusal(servers.create(wanted, 1))
    many = service("b", type="NodePort", ports=[{"name": f"p{i}", "port": i} for i in range(1, 4)])
    assert "failed to allocate a nodePort: range is full (30000-30003)" in await refusal(servers.create(many))
    await servers.delete("a")
    await servers.create(many, 1)
    assert len(await servers.ports()) == 3


DNS = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]


async def test_update_allocates_a_node_port_for_each_protocol_of_a_port(servers: Servers) -> None:
    """A create shares one number between the protocols; an update does not, as in Kubernetes (updateNodePorts)."""
    made = await servers.create(service("a", ports=DNS))
    made.spec.type = "NodePort"
    made = await servers.update(made)
    dns, tcp = (port.nodePort for port in made.spec.ports)
    assert dns != tcp
    assert await servers.ports() == {dns: "default/a", tcp: "default/a"}
    made.spec.ports.add(name="sctp", port=53, protocol="SCTP")
    made = await servers.update(made)
    assert len({port.nodePort for port in made.spec.ports}) == len(await servers.ports()) == 3


async def test_create_shares_the_first_requested_node_port_of_a_port(servers: Servers) -> None:
    requested = [{**DNS[0]}, {**DNS[1], "nodePort": 30001}, {**DNS[1], "name": "sctp", "protocol": "SCTP", "nodePort": 30002}]
    made = await servers.create(service("a", type="NodePort", ports=requested))
    assert [port.nodePort for port in made.spec.ports] == [30001, 30001, 30002]


async def test_type_changes_release_and_allocate(servers: Servers) -> None:
    made = await servers.create(service("a", type="NodePort"))
    address = made.spec.clusterIP
    made.spec.type = "ClusterIP"
    made = await servers.update(made)
    assert (made.spec.clusterIP, await servers.ports()) == (address, {})
    made.spec.type, made.spec.externalName = "ExternalName", "example.com"
    made = await servers.update(made)
    assert (made.spec.clusterIP, await servers.addresses()) == ("", {})
    made.spec.type, made.spec.externalName = "NodePort", ""
    made = await servers.update(made)
    assert await servers.addresses() == {made.spec.clusterIP: "a"}
    assert await servers.ports() == {made.spec.ports[0].nodePort: "default/a"}


async def test_finalizer_keeps_the_address_until_the_removal(servers: Servers) -> None:
    wanted = service("a")
    wanted.metadata.finalizers.append("example.com/hold")
    made = await servers.create(wanted)
    await servers.delete("a")
    assert await servers.addresses() == {made.spec.clusterIP: "a"}
    present = Service.FromString(await servers.call("Get", DeleteRequest(namespace="default", name="a")))
    del present.metadata.finalizers[:]
    await servers.update(present)
    assert await servers.addresses() == {}


async def test_service_of_an_older_version_gets_an_address_at_its_next_write(servers: Servers) -> None:
    old = service("a")
    old.metadata.uid = "u"
    old.spec.type = "ClusterIP"
    await servers.storage.transact([Write(SERVICES.key_of(old), old.SerializeToString(), 0)])
    old.metadata.labels["changed"] = "yes"
    made = await servers.update(old)
    assert await servers.addresses() == {made.spec.clusterIP: "a"}


async def test_address_in_use_cannot_be_deleted(servers: Servers) -> None:
    made = await servers.create(service("a"))
    call = servers.call("Delete", DeleteRequest(name=made.spec.clusterIP), kind="IPAddresses")
    assert "uses the address; delete the service instead" in await refusal(call)
    assert await servers.addresses() == {made.spec.clusterIP: "a"}


async def test_service_is_read_from_etcd_before_its_address_is_deleted(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await servers.create(service("a"))
    monkeypatch.setattr(servers.assemblies[1].cacher.cache_of(SERVICES), "get", lambda key: None)  # a late cache
    call = servers.call("Delete", DeleteRequest(name=made.spec.clusterIP), 1, kind="IPAddresses")
    assert "uses the address; delete the service instead" in await refusal(call)
    every = servers.call("DeleteCollection", DeleteCollectionRequest(), 1, kind="IPAddresses")
    outcome = BatchResponse.FromString(await every)
    assert "uses the address" in outcome.items[0].error.message
    assert await servers.addresses() == {made.spec.clusterIP: "a"}


async def test_address_that_no_service_uses_can_be_deleted(servers: Servers) -> None:
    made = await servers.create(service("a"))
    await servers.storage.transact([Write(SERVICES.key_of(made), None, int(made.metadata.resourceVersion))])
    await servers.call("Delete", DeleteRequest(name=made.spec.clusterIP), kind="IPAddresses")
    assert await servers.addresses() == {}


async def test_server_side_apply_allocates_keeps_and_releases(servers: Servers) -> None:
    async def apply(manager: str = "alice", **spec: Any) -> Service:
        document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], **spec}}
        request = PatchRequest(namespace="default", name="a", type=PatchRequest.APPLY, patch=json.dumps(document).encode())
        request.options.fieldManager, request.options.force = manager, True
        return Service.FromString(await servers.call("Patch", request))

    made = await apply(type="NodePort")
    address, port = made.spec.clusterIP, made.spec.ports[0].nodePort
    assert (await servers.addresses(), await servers.ports()) == ({address: "a"}, {port: "default/a"})
    again = await apply(type="NodePort", selector={"app": "web"})
    assert (again.spec.clusterIP, again.spec.ports[0].nodePort) == (address, port)
    assert await servers.ports() == {port: "default/a"}
    inside = await apply(type="ClusterIP")
    assert (inside.spec.clusterIP, await servers.addresses(), await servers.ports()) == (address, {address: "a"}, {})
    alias = await apply(type="ExternalName", externalName="example.com")
    assert (alias.spec.clusterIP, await servers.addresses()) == ("", {})


async def test_delete_collection_releases_addresses_and_ports(servers: Servers) -> None:
    made = [await servers.create(service(f"s{i}", type="NodePort" if i < 3 else "ClusterIP")) for i in range(6)]
    kept = await servers.create(service("kept"))
    assert len(await servers.addresses()) == 7 and len(await servers.ports()) == 3
    request = DeleteCollectionRequest(namespace="default")
    request.options.fieldSelector = "metadata.name!=kept"
    outcome = BatchResponse.FromString(await servers.call("DeleteCollection", request, 1))
    assert len(outcome.items) == len(made) and not any(item.HasField("error") for item in outcome.items)
    assert (await servers.addresses(), await servers.ports()) == ({kept.spec.clusterIP: "kept"}, {})


async def test_change_that_keeps_the_addresses_reads_nothing(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await servers.create(service("a", type="NodePort"))
    read: list[str] = []
    get = servers.storage.get

    async def counted(key: str, **options: Any) -> Any:
        read.append(key)
        return await get(key, **options)

    monkeypatch.setattr(servers.storage, "get", counted)
    made.metadata.labels["changed"] = "yes"
    await servers.update(made)
    assert [key for key in read if "/ipaddresses/" in key or "/nodeports/" in key] == []
    address = IP_ADDRESSES.key("", made.spec.clusterIP)
    stored = await get(address)
    assert stored is not None
    await servers.storage.transact([Write(address, None, stored.mod_revision)])
    await servers.assemblies[0].cacher.wait_until_fresh(5)
    made.metadata.labels["changed"] = "again"
    made.metadata.resourceVersion = ""
    await servers.update(made)
    assert await servers.addresses() == {made.spec.clusterIP: "a"}, "a missing key was not created"


async def test_node_port_of_a_service_without_keys_is_not_allocated(servers: Servers) -> None:
    old = service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30001}])
    old.metadata.uid = "u"
    await servers.storage.transact([Write(SERVICES.key_of(old), old.SerializeToString(), 0)])
    await asyncio.gather(*(assembly.cacher.wait_until_fresh(5) for assembly in servers.assemblies))
    made = [await servers.create(service(f"s{i}", type="NodePort"), i % 2) for i in range(3)]
    assert {item.spec.ports[0].nodePort for item in made} == {30000, 30002, 30003}
    assert "range is full" in await refusal(servers.create(service("full", type="NodePort")))
    await servers.delete("a")
    last = await servers.create(service("last", type="NodePort"))
    assert last.spec.ports[0].nodePort == 30001


def test_first_addresses_are_allocated_last() -> None:
    network, taken, rng = IPv4Network("10.0.0.0/24"), set[str](), random.Random(1)
    while address := free_address(network, taken.__contains__, rng):
        taken.add(address)
        if len(taken) == 254 - 16:
            assert not any(str(network[number]) in taken for number in range(1, 17))
    assert len(taken) == 254


def test_families_of_a_cluster() -> None:
    spec = ServiceSpec(type="ClusterIP", ipFamilyPolicy="PreferDualStack")
    assert set_ip_families(spec, ["IPv4"]) == [] and list(spec.ipFamilies) == ["IPv4"]
    assert set_ip_families(spec, ["IPv4", "IPv6"]) == [] and list(spec.ipFamilies) == ["IPv4", "IPv6"]
    (problem,) = set_ip_families(ServiceSpec(ipFamilyPolicy="RequireDualStack"), ["IPv4"])
    assert problem.message.endswith("this cluster is not configured for dual-stack services")


@pytest.mark.parametrize("text", ["", "10.0.0.1/24", "10.0.0.0/16,10.1.0.0/16", "10.0.0.0/31", "x"])
def test_wrong_networks(text: str) -> None:
    with pytest.raises(ValueError):
        parse_networks(text)


def test_ranges_of_the_command_line() -> None:
    assert parse_networks("10.0.0.0/16, fd00::/108") == (ip_network("10.0.0.0/16"), ip_network("fd00::/108"))
    assert parse_node_ports("30000-32767") == range(30000, 32768)
    for text in ("", "30000", "3-1", "0-5", "1-70000", "a-b"):
        with pytest.raises(ValueError):
            parse_node_ports(text)
