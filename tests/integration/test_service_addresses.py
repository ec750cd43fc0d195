"""Cluster IPs and node ports of services, over two API servers on a real etcd."""

import asyncio
from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.networking_v1_pb2 import IPAddress
from pinnace.api.resources import IP_ADDRESSES, NODE_PORTS_PREFIX, SERVICES
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from tests.conftest import EtcdServer, wipe
from tests.integration.conftest import Start

COUNT = 200
DEADLINE = 60.0


def service(number: int) -> Any:
    spec = {"type": "NodePort" if number % 4 == 0 else "ClusterIP", "ports": [{"port": 80}]}
    return from_dict(SERVICES, {"metadata": {"name": f"s{number}", "namespace": "default"}, "spec": spec})


async def keys(storage: EtcdStorage, prefix: str) -> dict[str, bytes]:
    page = await storage.page(prefix, limit=2 * COUNT)
    return {item.key.rpartition("/")[2]: item.value for item in page.items}


async def test_server_is_killed_while_services_are_created_and_deleted(etcd: EtcdServer, start: Start) -> None:
    await wipe(etcd.endpoint)
    options = ("--etcd", etcd.endpoint, "--service-cluster-ip-range", "10.7.0.0/24", "--service-node-port-range", "30000-30063")
    servers = [start("apiserver", f"apiserver-{i}", *options) for i in range(2)]
    await asyncio.gather(*(server.ready() for server in servers))
    connections = [Connection([server.address]) for server in servers]
    clients = [Client(connection).of(SERVICES) for connection in connections]
    storage = EtcdStorage([etcd.endpoint])

    async def create(number: int) -> None:
        try:
            await clients[number % 2].create(service(number))
        except ApiError:
            if number % 2:  # of the killed server: the service may exist or not
                return
            raise

    async def kill(revision: int) -> None:
        async for changes in storage.watch(revision):
            if any(change.key.startswith(SERVICES.prefix) for change in changes.changes):
                break
        servers[1].kill()

    async def delete(number: int) -> None:
        try:
            await clients[0].delete(f"s{number}", "default")
        except ApiError as error:
            assert error.reason == "NotFound"

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(kill(await storage.current_revision() + 1), *(create(number) for number in range(COUNT)))
        stored = (await storage.page(SERVICES.prefix, limit=2 * COUNT)).items
        specs = {item.key.rpartition("/")[2]: SERVICES.message.FromString(item.value).spec for item in stored}
        owners = {
            key: IPAddress.FromString(value).spec.parentRef.name
            for key, value in (await keys(storage, IP_ADDRESSES.prefix)).items()
        }
        assert owners == {spec.clusterIP: name for name, spec in specs.items()}
        assert len(owners) == len(specs) >= COUNT // 2
        ports = {key: value.decode() for key, value in (await keys(storage, NODE_PORTS_PREFIX)).items()}
        numbers = {
            str(port.nodePort): f"default/{name}" for name, spec in specs.items() for port in spec.ports if port.nodePort
        }
        assert ports == numbers and len(ports) >= COUNT // 8
        await asyncio.gather(*(delete(number) for number in range(COUNT)))
        assert await keys(storage, IP_ADDRESSES.prefix) == {}
        assert await keys(storage, NODE_PORTS_PREFIX) == {}
    await storage.close()
    for connection in connections:
        await connection.close()
