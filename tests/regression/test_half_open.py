"""Connections that swallow packets: nothing is refused, nothing breaks, nothing arrives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.interface import Unavailable
from pinnace.client.client import Client
from pinnace.client.informer import Informer
from pinnace.cluster.links import Mode, Proxy
from tests.builders import make_pod
from tests.conftest import EtcdServer
from tests.regression.servers import serving
from tests.unit.client.fakeserver import connect

FOUND_WITHIN = 5.5
"""Seconds: five to find out, and half a second to do something about it."""


@asynccontextmanager
async def swallowed(proxy: Proxy) -> AsyncIterator[None]:
    """The connections through the proxy are dead; new ones to the same address work."""
    proxy.set(Mode.LOSE)
    proxy.refuse()
    async with Proxy(proxy.target, proxy.endpoint):
        yield


async def test_client_go_374_an_informer_behind_a_dead_connection(etcd_storage: EtcdStorage) -> None:
    """A watch on a connection that was dead, and that no packet closed, showed nothing until the kernel gave up after 15
    minutes: https://github.com/kubernetes/client-go/issues/374 (72187 in Kubernetes)

    Here: a scheduler or fleet that sees no news. Kept by: HTTP/2 pings each second, answered within two
    (`pinnace.client.channel`), and another server."""
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
        for each in (client, direct):
            await each.connection.close()


async def test_kubernetes_87615_every_call_on_a_dead_connection(etcd_storage: EtcdStorage) -> None:
    """A kubelet whose network had failed for a moment sent all its calls on the connection of before, and each of them failed,
    until somebody restarted it: https://github.com/kubernetes/kubernetes/issues/87615

    Here: a client with one server. Kept by: as above; a connection that is dead is closed, and the next call makes another."""
    async with serving(etcd_storage) as server, Proxy(server) as proxy:
        client = Client(connect(proxy.endpoint))
        await client.namespaces.get("default")
        proxy.set(Mode.LOSE)
        async with swallowed(proxy), asyncio.timeout(FOUND_WITHIN):
            assert (await client.namespaces.get("default")).metadata.name == "default"
        await client.connection.close()


async def test_kubernetes_72187_a_server_behind_a_dead_connection_to_etcd(etcd: EtcdServer, etcd_storage: EtcdStorage) -> None:
    """As client-go#374, between the API server and its store: https://github.com/kubernetes/kubernetes/issues/72187

    Here: a cache that stands still, and watchers that hear bookmarks and no news. Kept by: requests for progress each second,
    and the deadline for their answers (`apiserver.storage.etcd.storage`)."""
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
            for each in (client, direct):
                await each.connection.close()
        await storage.close()


async def test_kubernetes_72187_the_only_connection_to_etcd_is_dead(etcd: EtcdServer) -> None:
    """As above, with one member of etcd: calls wait until the connection is given up. Kept by: HTTP/2 pings after six seconds
    without a byte (etcd ends connections that are pinged more often than every five), answered within two; else it would be a
    minute."""
    async with Proxy(etcd.endpoint) as proxy:
        storage = EtcdStorage([proxy.endpoint])
        await storage.current_revision()
        async with swallowed(proxy), asyncio.timeout(10.0):
            with suppress(Unavailable):
                await storage.current_revision()
            await storage.current_revision()
        await storage.close()
