"""Who leads when processes are killed, frozen and stopped: real API servers, real candidates, a real etcd.

Times are asserted generously, for slow machines; what is printed with `-s` is what it took.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pinnace.apiserver.election.service import TIMING
from tests.conftest import EtcdServer, dying_with_us, wipe
from tests.integration.processes import Component

PATIENCE = 15.0
ELECTION = "scheduler"


class Process:
    """A candidate. `said` is what it has told so far, with the time of telling under "at"."""

    def __init__(self, holder: str, servers: list[str]) -> None:
        command = [sys.executable, "-m", "tests.integration.candidate", ELECTION, holder, *servers]
        self._process = subprocess.Popen(dying_with_us(command), stdout=subprocess.PIPE, text=True)
        self.holder = holder
        self.said: list[dict[str, Any]] = []
        self._more = asyncio.Event()
        self._reading = asyncio.ensure_future(asyncio.to_thread(self._read, asyncio.get_running_loop()))

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            loop.call_soon_threadsafe(self._hear, json.loads(line))

    def _hear(self, what: dict[str, Any]) -> None:
        self.said.append(what)
        self._more.set()

    async def says(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first thing it says, or has said, that is as wanted."""
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                for what in self.said[seen:]:
                    if wanted(what):
                        return what
                seen = len(self.said)
                self._more.clear()
                await self._more.wait()

    async def elected(self, after: int = 0) -> dict[str, Any]:
        return await self.says(lambda what: what.get("elected", 0) > after)

    async def stands(self) -> None:
        await self.says(lambda what: "standing" in what)

    async def lost(self) -> dict[str, Any]:
        return await self.says(lambda what: "lost" in what)

    async def acts(self, after: float) -> dict[str, Any]:
        """The first time after the instant at which it has a token."""
        return await self.says(lambda what: what["at"] > after and "token" in what)

    def signal(self, number: signal.Signals) -> float:
        """Sends a signal; when."""
        self._process.send_signal(number)
        return time.monotonic()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    async def end(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        await self._reading
        assert self._process.stdout is not None
        self._process.stdout.close()


class Field:
    """Two API servers, and candidates."""

    def __init__(self, folder: Path, etcd: EtcdServer) -> None:
        self.servers = [Component(folder, "apiserver", f"apiserver-{n}", "--etcd", etcd.endpoint) for n in range(2)]
        self.candidates: list[Process] = []

    def stand(self, holder: str, *servers: Component) -> Process:
        self.candidates.append(Process(holder, [server.address for server in servers or self.servers]))
        return self.candidates[-1]

    async def leader_and_follower(self, *servers: Component) -> tuple[Process, Process, int]:
        """Two candidates, one of which leads: that one, the other, and the token."""
        leader = self.stand("a", *servers)
        token = (await leader.elected())["elected"]
        follower = self.stand("b", *servers)
        await follower.stands()
        return leader, follower, token


@pytest.fixture
async def field(etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Field]:
    await wipe(etcd.endpoint)
    field = Field(tmp_path, etcd)
    for server in field.servers:
        await server.ready()
    yield field
    for candidate in field.candidates:
        await candidate.end()
    for server in field.servers:
        server.kill()


def report(what: str, since: float, at: dict[str, Any]) -> float:
    taken: float = at["at"] - since
    print(f"{what}: {taken * 1000:.1f} ms")
    return taken


async def test_kill(field: Field) -> None:
    leader, follower, token = await field.leader_and_follower()
    killed = leader.signal(signal.SIGKILL)
    elected = await follower.elected(after=token)
    assert report("kill -9 of the leader", killed, elected) < TIMING.silence


async def test_resignation(field: Field) -> None:
    leader, follower, token = await field.leader_and_follower()
    asked = leader.signal(signal.SIGTERM)
    elected = await follower.elected(after=token)
    assert report("SIGTERM to the leader", asked, elected) < TIMING.silence
    assert (await leader.lost())["lost"] == "resigned"
    assert leader.wait() == 0


async def test_frozen_leader_is_replaced_and_stands_down_when_it_wakes(field: Field) -> None:
    leader, follower, token = await field.leader_and_follower()
    frozen = leader.signal(signal.SIGSTOP)
    elected = await follower.elected(after=token)
    assert TIMING.silence / 2 < report("SIGSTOP of the leader", frozen, elected) < TIMING.silence + TIMING.ttl
    await asyncio.sleep(TIMING.validity)
    woken = leader.signal(signal.SIGCONT)
    await leader.lost()
    assert not [what for what in leader.said if what["at"] > woken and "token" in what]
    follower.signal(signal.SIGKILL)
    await leader.elected(after=elected["elected"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_leadership_outlives_its_api_server(field: Field, number: signal.Signals) -> None:
    """Whichever of the two it is that the leader is connected to: each in turn goes away and comes back."""
    leader, follower, token = await field.leader_and_follower()
    for server in field.servers:
        os.kill(server.process.pid, number)
        gone = time.monotonic()
        await leader.acts(after=gone + TIMING.ttl + 1.0)
        if number is signal.SIGSTOP:
            os.kill(server.process.pid, signal.SIGCONT)
            await asyncio.sleep(TIMING.silence)
        else:
            server.process.wait(PATIENCE)
            server.restart()
            await server.ready()
    assert [what for what in leader.said if "elected" in what or "lost" in what][1:] == []
    assert [what for what in follower.said if "elected" in what] == []
    assert (await leader.acts(after=time.monotonic()))["token"] == token


async def test_server_and_leader_die_together(field: Field) -> None:
    one, two = field.servers
    leader = field.stand("a", one)
    token = (await leader.elected())["elected"]
    follower = field.stand("b", two)
    await follower.stands()
    one.process.send_signal(signal.SIGKILL)
    killed = leader.signal(signal.SIGKILL)
    elected = await follower.elected(after=token)
    assert report("leader and API server killed together", killed, elected) < TIMING.ttl * 2
