"""Half-open connections: packets are lost, and neither end receives an error."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import StorageUnavailable
from pinnace.client.client import Client
from pinnace.client.informer import Informer
from pinnace.cluster.links import Mode, Proxy
from tests.builders import make_pod
from tests.conftest import EtcdServer
from tests.regression.servers import serving
from tests.unit.client.fakeserver import connect

FOUND_WITHIN = 5.5
"""Seconds: 5 s to detect the dead connection and 0.5 s to recover."""


@asynccontextmanager
async def swallowed(proxy: Proxy) -> AsyncIterator[None]:
    """Existing connections through the proxy are dead. New connections to the same address work."""
    proxy.set(Mode.LOSE)
    proxy.refuse()
    async with Proxy(proxy.target, proxy.endpoint):
        yield


async def test_client_go_374_informer_recovers_from_a_dead_connection(etcd_storage: EtcdStorage) -> None:
    """A watch on a half-open connection returned no events until the kernel closed the connection after 15 minutes:
    https://github.com/kubernetes/client-go/issues/374 (72187 in Kubernetes)

    Here: a scheduler or fleet receives no events. Guard: the client sends HTTP/2 pings every second with a timeout of two
    seconds (`pinnace.client.channel`) and switches to another server."""
    async with serving(etcd_storage) as far, serving(etcd_storage) as near, Proxy(far) as proxy:
        client = Client(connect(proxy.endpoint, near))
        informer = Informer(client.pods)
        following = asyncio.ensure_future(informer.run())
        await informer.wait_synced(FOUND_WITHIN)
        assert client.connection.endpoint == proxy.endpoint
        proxy.set(Mode.LOSE)
        direct = Client(connect(near))
        created = await direct.pods.create(make_pod("a").req().new())
        await informer.wait_for(int(created.metadata.resourceVersion), FOUND_WITHIN)
        assert "default/a" in informer.store
        following.cancel()
        await asyncio.wait((following,))
        for item in (client, direct):
            await item.connection.close()


async def test_kubernetes_87615_client_replaces_a_dead_connection(etcd_storage: EtcdStorage) -> None:
    """After a short network failure, a kubelet sent all calls on the dead connection. Every call failed until the kubelet was
    restarted: https://github.com/kubernetes/kubernetes/issues/87615

    Here: a client with one server. Guard: as above. The client closes a dead connection, and the next call opens a new one."""
    async with serving(etcd_storage) as server, Proxy(server) as proxy:
        client = Client(connect(proxy.endpoint))
        await client.namespaces.get("default")
        proxy.set(Mode.LOSE)
        async with swallowed(proxy), asyncio.timeout(FOUND_WITHIN):
            assert (await client.namespaces.get("default")).metadata.name == "default"
        await client.connection.close()


async def test_kubernetes_72187_server_switches_etcd_members_when_its_connection_is_dead(
    etcd: EtcdServer, etcd_storage: EtcdStorage
) -> None:
    """As client-go#374, between the API server and its store: https://github.com/kubernetes/kubernetes/issues/72187

    Here: the cache receives no changes, and its watchers receive only bookmarks. Guard: the server sends a progress request
    every second and limits the wait for the response (`pinnace.apiserver.storage.etcd.storage`)."""
    async with Proxy(etcd.endpoint) as proxy:
        storage = EtcdStorage([proxy.endpoint, etcd.endpoint])
        async with serving(storage) as behind, serving(etcd_storage) as near:
            client, direct = Client(connect(behind)), Client(connect(near))
            informer = Informer(client.pods)
            following = asyncio.ensure_future(informer.run())
            await informer.wait_synced(FOUND_WITHIN)
            proxy.set(Mode.LOSE)
            created = await direct.pods.create(make_pod("a").req().new())
            await informer.wait_for(int(created.metadata.resourceVersion), FOUND_WITHIN)
            following.cancel()
            await asyncio.wait((following,))
            for item in (client, direct):
                await item.connection.close()
        await storage.close()


async def test_kubernetes_72187_server_replaces_its_only_connection_to_etcd(etcd: EtcdServer) -> None:
    """As above, with one etcd member: calls wait until the connection is closed. Guard: HTTP/2 pings after six seconds without
    data, with a timeout of two seconds. etcd closes connections that send a ping more than once per five seconds. Without
    pings, the recovery takes a minute."""
    async with Proxy(etcd.endpoint) as proxy:
        storage = EtcdStorage([proxy.endpoint])
        await storage.current_revision()
        async with swallowed(proxy), asyncio.timeout(10.0):
            with suppress(StorageUnavailable):
                await storage.current_revision()
            await storage.current_revision()
        await storage.close()
