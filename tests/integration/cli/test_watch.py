"""`-w`: the present state, then every change; through the loss of a server, until interrupted. And what a terminal is shown."""

import asyncio
import os
import pty
from collections.abc import AsyncIterator

import pytest

from apiserver.storage.memory import MemoryStorage
from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import PATIENCE, Commands, Server, command
from tests.integration.cli.forkserver import ForkServer


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    """Two, before one storage."""
    storage = MemoryStorage()
    servers = [Server(storage), Server(storage)]
    for server in servers:
        await server.start()
    yield servers
    for server in servers:
        await server.stop()


@pytest.fixture
def pinnace(servers: list[Server], forkserver: ForkServer) -> Commands:
    return Commands([server.address for server in servers], forkserver)


@pytest.fixture
async def client(servers: list[Server]) -> AsyncIterator[Client]:
    """Keeps to the second server."""
    connection = Connection([servers[1].address])
    yield Client(connection)
    await connection.close()


def pod(name: str) -> Pod:
    return make_pod(name).req(cpu="1").new()


async def test_the_present_state_then_changes_until_interrupted(pinnace: Commands, client: Client) -> None:
    await client.pods.create(pod("a"))
    async with pinnace.start("get", "pods", "-w") as watch:
        assert (await watch.line()).split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert (await watch.line()).split()[:3] == ["a", "0/1", "Pending"]
        await client.pods.create(pod("b"))
        assert (await watch.line()).split()[0] == "b"
        await client.pods.delete("a", "default", grace=0)
        assert (await watch.line()).split()[0] == "a"
        done = await watch.interrupt()
        assert (done.code, done.out, done.err.strip()) == (130, "", "")


async def test_a_watch_survives_its_server_and_says_so(servers: list[Server], client: Client, forkserver: ForkServer) -> None:
    both = Commands([server.address for server in servers], forkserver)
    async with both.start("get", "pods", "-w", "-o", "name") as watch:
        await client.pods.create(pod("a"))
        assert await watch.line() == "pod/a"
        await servers[0].stop()
        await client.pods.create(pod("b"))
        assert await watch.line() == "pod/b"
        await servers[0].start()
        await servers[1].stop()
        connection = Connection([servers[0].address])
        await Client(connection).pods.create(pod("c"))
        await connection.close()
        assert await watch.line() == "pod/c"
        done = await watch.interrupt()
        assert done.code == 130 and not done.out
        lost, again = done.errors[:2]
        assert lost.startswith("note: connection lost (") and again.startswith("note: connected again")


async def test_several_kinds_at_once_through_the_loss_of_a_server(
    servers: list[Server], client: Client, forkserver: ForkServer
) -> None:
    """Each kind goes on where it was, on the other server."""
    await client.pods.create(pod("a"))
    both = Commands([server.address for server in servers], forkserver)
    async with both.start("get", "pods,nodes", "-w", "--no-headers") as watch:
        assert (await watch.line()).split()[:2] == ["pod/a", "0/1"]
        await client.nodes.create(make_node("n").new())
        assert (await watch.line()).split()[0] == "node/n"
        await servers[0].stop()
        await client.pods.create(pod("b"))
        assert (await watch.line()).split()[0] == "pod/b"
        await client.nodes.delete("n")
        assert (await watch.line()).split()[0] == "node/n"
        done = await watch.interrupt()
        assert done.code == 130 and not done.out
        assert all(line.startswith(("note: pods: ", "note: nodes: ")) for line in done.errors if line)


async def test_a_timeout_ends_a_watch_as_asked(pinnace: Commands, client: Client) -> None:
    await client.pods.create(pod("a"))
    done = await pinnace("get", "pod", "a", "-w", "-o", "yaml", "--timeout", "500ms")
    assert done.code == 0 and done.out.startswith("---\n") and done.err == "note: watched for 0.5 s, as asked\n"
    assert (await pinnace("get", "pod", "nope", "-w")).code == 3


async def test_events_and_leaders(pinnace: Commands) -> None:
    async with pinnace.start("leader", "-w", "-o", "json") as watch:
        assert await watch.line() == '{"election": "scheduler", "holder": "", "token": 0}'
        assert (await watch.interrupt()).code == 130
    assert (await pinnace("events", "-w", "--timeout", "500ms")).code == 0


async def test_a_reader_that_leaves_is_no_error(pinnace: Commands, client: Client) -> None:
    for name in ("a", "b"):
        await client.pods.create(pod(name))
    script = " ".join(command("get", "pods", "-w")) + " | head -1; echo ${PIPESTATUS[0]} >&2"
    environment = {**os.environ, "PINNACE_CONFIG": os.devnull + "/nothing", "PINNACE_SERVER": pinnace.servers[1]}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1, env=environment)
    assert shell.stdout
    assert (await asyncio.wait_for(shell.stdout.readline(), PATIENCE)).startswith(b"NAME")
    for _ in range(2):  # the first write after the reader has gone may still fit into the pipe
        await client.pods.modify("a", "default", lambda a: a.metadata.labels.update({"x": a.metadata.resourceVersion}))
    _, err = await asyncio.wait_for(shell.communicate(), PATIENCE)
    assert err == b"141\n"


async def test_a_terminal_is_redrawn_in_place(pinnace: Commands, client: Client) -> None:
    await client.pods.create(pod("a"))
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "PINNACE_CONFIG": os.devnull + "/nothing",
        "PINNACE_SERVER": pinnace.servers[1],
        "TERM": "xterm",
    }
    words = command("get", "pods", "-w", "--timeout", "2s")
    process = await asyncio.create_subprocess_exec(*words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        while b"a   " not in seen:
            seen += await loop.run_in_executor(None, os.read, ours, 65536)
        await client.pods.create(pod("b"))
        while b"as asked" not in seen:
            seen += await loop.run_in_executor(None, os.read, ours, 65536)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    os.close(ours)
    assert b"\x1b[2K\x1b[1A" in seen, "it goes up to draw over what is there"
    assert b"b      0/1" in seen
