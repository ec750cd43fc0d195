"""The examples that read the API run, and print what happens."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.informer import inform
from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_pod
from tests.integration.cli.commands import PATIENCE, Server
from tests.storage.memory import MemoryStorage

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def running(name: str, server: str) -> AsyncIterator[asyncio.StreamReader]:
    """The example as a process; its stdout."""
    environment = os.environ | {"PINNACE_SERVER": server, "PYTHONPATH": str(ROOT), "KUBECONFIG": "/nonexistent"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, f"examples/{name}", cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), PATIENCE)


async def line(output: asyncio.StreamReader) -> str:
    return (await asyncio.wait_for(output.readline(), PATIENCE)).decode().strip()


async def test_informer_lists_and_then_watches(server: str, client: Client) -> None:
    await client.pods.create(make_pod("a").req(cpu="1").new())
    async with running("informer.py", server) as output:
        assert (await line(output)).endswith("LIST 1 pods")
        pod = await client.pods.create(make_pod("b").req(cpu="1").new())
        assert await line(output) == f"{pod.metadata.resourceVersion} ADDED default/b"
        await client.pods.delete("a", "default", grace=0)
        assert (await line(output)).endswith("DELETED default/a")


async def test_etcd_watch_decodes_pods(server: str, client: Client) -> None:
    async with running("etcd_watch.py", server) as output:
        first = asyncio.create_task(line(output))
        number = 0
        while not first.done():  # until the stream is open
            await client.pods.create(make_pod(f"a-{number}").req(cpu="1").new())
            await asyncio.wait([first], timeout=0.3)
            number += 1
        revision, key, operation, node, _ = (await first).split()
        assert revision.isdecimal() and key.startswith("/registry/pods/default/a-")
        assert (operation, node) == ("PUT", "node=-")


async def test_informer_lists_again_after_a_compaction(capsys: pytest.CaptureFixture[str]) -> None:
    """The store starts at a revision that is compacted, with a pod that no longer exists."""
    storage = MemoryStorage()
    server = Server(storage)
    await server.start()
    connection = Connection([server.address])
    client = Client(connection)
    try:
        old = await client.pods.create(make_pod("old").req(cpu="1").new())
        await client.pods.delete("old", "default", grace=0)
        last = await client.pods.create(make_pod("new").req(cpu="1").new())
        await storage.compact(int(last.metadata.resourceVersion))
        await server.stop()
        await server.start()
        store = {"default/old": Pod()}
        informer = asyncio.create_task(inform(client, store, int(old.metadata.resourceVersion)))
        async with asyncio.timeout(PATIENCE):
            while store.keys() != {"default/new"}:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.05)
        informer.cancel()
        printed = capsys.readouterr().out
        assert f"{old.metadata.resourceVersion} EXPIRED " in printed and "LIST 1 pods" in printed
    finally:
        await connection.close()
        await server.stop()
