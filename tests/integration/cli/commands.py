"""The command line as a user runs it, against API servers in this process: real gRPC, real watches."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.storage.interface import Storage
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from tests.integration.cli.forkserver import Forked, ForkServer
from tests.integration.processes import NOWHERE

PATIENCE = 20.0


def command(*arguments: str) -> tuple[str, ...]:
    """For a shell, or another program, to start."""
    return (sys.executable, "-m", "pinnace.cli.entry", *arguments)


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. It unpacks to (exit code, stdout)."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def errors(self) -> list[str]:
        return self.err.splitlines()


class Running:
    """A command that goes on."""

    def __init__(self, process: Forked) -> None:
        self._process = process

    async def line(self) -> str:
        """The next line of stdout, without its newline."""
        return await self._read(self._process.stdout)

    async def error(self) -> str:
        """The next line of stderr."""
        return await self._read(self._process.stderr)

    async def interrupt(self) -> Done:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)
        return await self.end()

    async def end(self) -> Done:
        out, err = await asyncio.wait_for(self._process.communicate(), PATIENCE)
        return Done(self._process.returncode or 0, out.decode(), err.decode())

    async def _read(self, stream: asyncio.StreamReader) -> str:
        line = await asyncio.wait_for(stream.readline(), PATIENCE)
        assert line, f"the command ended: {await self.end()}"
        return line.decode().rstrip("\n")


@dataclass(slots=True)
class Commands:
    """Runs `pinnace` with these API servers. `environment` is added to that of the tests."""

    servers: Sequence[str]
    forkserver: ForkServer
    environment: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, *arguments: str, stdin: str = "") -> Done:
        process = await self._spawn(*arguments, stdin=stdin)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        return Done(process.returncode or 0, out.decode(), err.decode())

    @asynccontextmanager
    async def start(self, *arguments: str) -> AsyncIterator[Running]:
        process = await self._spawn(*arguments)
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.communicate()

    async def _spawn(self, *arguments: str, stdin: str = "") -> Forked:
        ours = {"PINNACE_SERVER": ",".join(self.servers), "KUBECONFIG": str(NOWHERE), "NO_COLOR": "1"}
        return await self.forkserver.run(arguments, {**os.environ, **ours, **self.environment}, stdin.encode())


class Server:
    """One API server in this process. Several may share a storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._server: ApiServer | None = None
        self._running: asyncio.Task[None] | None = None
        self.address = "127.0.0.1:0"

    async def start(self) -> None:
        """Returns when it serves; after `stop`, at the same address."""
        self._server = ApiServer(self._storage)
        self.address = await self._server.start(self.address)
        self._running = asyncio.ensure_future(self._server.run())
        connection = Connection([self.address])
        client = Client(connection)
        async with asyncio.timeout(PATIENCE):
            while not await _has_namespaces(client):  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(0.01)
        await connection.close()

    async def stop(self) -> None:
        """Allowed when it has stopped already."""
        if self._server is not None and self._running is not None:
            await self._server.stop()
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None


async def _has_namespaces(client: Client) -> bool:
    try:
        return bool(await client.namespaces.get("kube-system"))
    except ApiError:
        return False
