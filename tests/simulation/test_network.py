"""What the real Connection sees of the simulated network: the errors that it promises, and no others."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import OutcomeUnknown, Timeout, Unavailable
from tests.builders import make_pod
from tests.simulation.cluster import Cluster
from tests.simulation.determinism import sealed
from tests.simulation.etcd import SimEtcd
from tests.simulation.journal import MemoryJournal
from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import Process

SERVER = "apiserver-0"
Story = Callable[[Cluster, Client], Awaitable[Any]]


def tell(story: Story, servers: int = 1) -> Any:
    """Runs a story as a client process, of a cluster that is up."""
    loop = SimLoop(1)
    network = Network(loop, random.Random(1), lambda source, target, frame: None)

    async def main() -> Any:
        clock = loop.world.clock
        journal = MemoryJournal(clock)
        etcd = SimEtcd(clock, random.Random(1), on_changes=journal.changed)
        cluster = Cluster(loop, network, etcd, journal, random.Random(1), servers)
        cluster.start_servers()
        result: list[Any] = []

        async def run() -> None:
            await asyncio.sleep(1.0)
            result.append(await story(cluster, cluster.client()))

        await Process("client", loop).start(run)
        assert not loop.failures, loop.failures
        return result[0]

    with sealed(loop, network, 1):
        return loop.run(main())


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_messages_cross_as_bytes(level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(level)

    async def story(cluster: Cluster, client: Client) -> tuple[Pod, Pod, Pod]:
        sent = make_pod("a").req(cpu="100m").new()
        return sent, await client.pods.create(sent), await client.pods.get("a", "default")

    sent, made, result = tell(story)
    assert not sent.metadata.uid and made == result and made is not result


def test_server_that_is_not_there_is_unavailable_and_another_one_serves() -> None:
    async def story(cluster: Cluster, client: Client) -> int:
        cluster.members[SERVER].process.crash()
        for _ in range(5):
            await client.pods.list()
        with pytest.raises(Unavailable) as caught:
            await Client(Connection(["nobody:1"])).pods.list()
        assert not isinstance(caught.value, OutcomeUnknown)
        return 1

    assert tell(story, servers=2)


def test_outcome_of_a_create_is_unknown_when_the_answer_does_not_come() -> None:
    async def story(cluster: Cluster, client: Client) -> bool:
        await client.pods.list()
        cluster.network.block(SERVER, "client")
        with pytest.raises(OutcomeUnknown):
            await client.pods.create(make_pod("a").req(cpu="100m").new())
        cluster.network.unblock(SERVER, "client")
        return bool(await client.pods.get("a", "default"))

    assert tell(story)


def test_held_messages_arrive_after_a_partition() -> None:
    async def story(cluster: Cluster, client: Client) -> Pod:
        await client.pods.list()
        cluster.network.block("client", SERVER)
        creating = asyncio.create_task(client.pods.create(make_pod("a").req(cpu="100m").new()))
        await asyncio.sleep(0.3)
        cluster.network.unblock("client", SERVER)
        return await creating

    assert tell(story).metadata.uid


def test_read_is_sent_again_when_its_connection_breaks() -> None:
    async def story(cluster: Cluster, client: Client) -> int:
        await client.pods.list()
        listing = asyncio.create_task(client.pods.list())
        await asyncio.sleep(0)
        assert cluster.network.reset("client", SERVER)
        return (await listing).resource_version

    assert tell(story) > 0


def test_paused_server_is_found_by_keepalive() -> None:
    async def story(cluster: Cluster, client: Client) -> float:
        loop = asyncio.get_running_loop()
        watch = client.pods.watch()
        await anext(watch)
        process = cluster.members[SERVER].process
        process.pause()
        cluster.network.silenced(process)
        began = loop.time()
        with pytest.raises(Unavailable):
            while True:
                await anext(watch)
        with pytest.raises(Timeout):
            await client.connection.call("/pinnace.v1.Pods/Get", make_pod("a").req(cpu="100m").new(), Pod, timeout=0.5)
        return loop.time() - began

    assert 1.0 <= tell(story) <= 4.0


def test_connections_of_a_dead_client_are_closed() -> None:
    async def story(cluster: Cluster, client: Client) -> str:
        async def follow() -> None:
            async for _ in cluster.client().pods.watch():
                pass

        other = Process("other", cluster.loop)
        other.start(follow)
        await asyncio.sleep(0.5)
        other.crash()
        await asyncio.sleep(0.5)
        return "dead"

    assert tell(story) == "dead"
