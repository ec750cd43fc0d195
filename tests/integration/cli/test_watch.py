"""`-w`: the present state, then every change; through the loss of a server, until interrupted. And what a terminal is shown."""

import asyncio
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator
from typing import Self

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import PATIENCE, Commands, Server, command
from tests.integration.cli.forkserver import ForkServer
from tests.storage.memory import MemoryStorage


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
        assert lost.startswith("note: connection lost (") and again.startswith("note: reconnected")


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
    done = await pinnace("get", "pod", "a", "-w", "-o", "yaml", "--timeout", "2s")
    assert done.code == 0 and done.out.startswith("---\n") and done.err == "note: the watch ended after --timeout (2 s)\n"
    assert (await pinnace("get", "pod", "nope", "-w")).code == 3


async def test_events_and_leaders(pinnace: Commands) -> None:
    async with pinnace.start("leader", "-w", "-o", "json") as watch:
        assert await watch.line() == '{"election": "scheduler", "holder": "", "token": 0}'
        assert (await watch.interrupt()).code == 130
    assert (await pinnace("events", "-w", "--timeout", "2s")).code == 0


async def test_a_reader_that_leaves_is_no_error(pinnace: Commands, client: Client) -> None:
    for name in ("a", "b"):
        await client.pods.create(pod(name))
    script = " ".join(command("get", "pods", "-w")) + " | head -1; echo ${PIPESTATUS[0]} >&2"
    environment = {**os.environ, "KUBECONFIG": os.devnull + "/nothing", "PINNACE_SERVER": pinnace.servers[1]}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1, env=environment)
    assert shell.stdout
    assert (await asyncio.wait_for(shell.stdout.readline(), PATIENCE)).startswith(b"NAME")
    ended = asyncio.create_task(shell.communicate())
    async with asyncio.timeout(PATIENCE):
        while not ended.done():  # what is written before the reader has gone still fits into the pipe
            await client.pods.modify("a", "default", lambda a: a.metadata.labels.update({"x": a.metadata.resourceVersion}))
    _, err = await ended
    assert err == b"141\n"


@pytest.mark.parametrize("words", ["get events -w", "get pods -w", "get pods,nodes -w -o name", "leader -w -o json"])
async def test_a_watch_ends_when_its_reader_leaves(pinnace: Commands, client: Client, words: str) -> None:
    await client.pods.create(pod("a"))
    script = " ".join(command(*words.split())) + " | head -1 >&2; echo ${PIPESTATUS[0]} >&2"
    environment = {**os.environ, "KUBECONFIG": os.devnull + "/nothing", "PINNACE_SERVER": pinnace.servers[1]}
    shell = await asyncio.create_subprocess_exec("bash", "-c", script, stdout=-1, stderr=-1, env=environment)
    _, err = await asyncio.wait_for(shell.communicate(), PATIENCE)
    first, code = err.splitlines()
    assert first and code == b"141"


class Terminal:
    """A watch of pods on a terminal, until the block is left."""

    def __init__(self, server: str, rows: int) -> None:
        self.seen = b""
        self._server = server
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (rows, 80))

    async def __aenter__(self) -> Self:
        ours = {"KUBECONFIG": os.devnull + "/nothing", "PINNACE_SERVER": self._server, "TERM": "xterm"}
        sizes = ("LINES", "COLUMNS")  # they go before the terminal's own, and pytest's workers have them
        environment = {name: value for name, value in os.environ.items() if name not in sizes} | ours
        theirs, words = self._theirs, command("get", "pods", "-w")
        self._process = await asyncio.create_subprocess_exec(
            *words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        return self

    async def until(self, text: bytes, after: int = 0) -> None:
        """`after`: so many bytes."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.seen[after:]:
                self.seen += await asyncio.get_running_loop().run_in_executor(None, os.read, self._ours, 65536)

    async def __aexit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(self._process.wait(), PATIENCE) == 130
        os.close(self._ours)


async def test_a_terminal_is_redrawn_in_place(pinnace: Commands, client: Client) -> None:
    await client.pods.create(pod("a"))
    async with Terminal(pinnace.servers[1], rows=10) as terminal:
        await terminal.until(b"a   ")
        await client.pods.create(pod("b"))
        await terminal.until(b"b      0/1")
    assert b"\x1b[2K\x1b[1A" in terminal.seen, "it goes up to draw over what is there"


async def test_what_no_longer_fits_on_a_terminal_is_appended(pinnace: Commands, client: Client) -> None:
    for i in range(9):
        await client.pods.create(pod(f"old-{i}"))
    async with Terminal(pinnace.servers[1], rows=10) as terminal:
        await terminal.until(b"old-8")
        await client.pods.create(pod("young"))  # no line is left for it
        await terminal.until(b"young")
        there = len(terminal.seen)
        await client.pods.delete("old-8", "default", grace=0)
        await terminal.until(b"old-8", after=there)
        await client.pods.create(pod("younger"))
        await terminal.until(b"younger", after=there)
    assert b"\x1b[2K\x1b[1A" in terminal.seen[:there], "all of it is shown again, in the place of the picture"
    assert b"\x1b" not in terminal.seen[there:], "nothing is drawn over any more"


async def test_more_than_a_terminal_holds_is_shown_all_the_same(pinnace: Commands, client: Client) -> None:
    names = [f"pod-{i:02}" for i in range(22)]
    for name in names:
        await client.pods.create(pod(name))
    async with Terminal(pinnace.servers[1], rows=10) as terminal:
        await terminal.until(names[-1].encode())
    assert [line.split()[0].decode() for line in terminal.seen.splitlines()] == ["NAME", *names]
