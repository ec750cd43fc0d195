"""A well-behaved user in a separate process, so that its latency depends on the servers and not on the load generator.

`python -m pinnace.chaos.bystander` reads one pod repeatedly until SIGTERM, and records each call in a history.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import click

from pinnace.chaos import ChaosError
from pinnace.chaos.clients import Journal, RecordingConnection
from pinnace.chaos.load import BYSTANDER, BYSTANDER_RATE, pace
from pinnace.chaos.workers import LOAD
from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.cluster.links import dying_with_us
from pinnace.runtime import process
from pinnace.runtime.tls import TlsFiles

END_TIMEOUT = 10.0
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Bystander:
    """An async context manager for the process. `output`: the file of its history, which is complete at the end."""

    def __init__(self, servers: Sequence[str], tls: TlsFiles, output: Path) -> None:
        self._servers = servers
        self._tls = tls
        self._output = output

    async def __aenter__(self) -> Self:
        shown = ("--ca", f"{self._tls.ca}", "--cert", f"{self._tls.cert}", "--key", f"{self._tls.key}")
        command = [sys.executable, "-m", "pinnace.chaos.bystander", "--server", ",".join(self._servers), *shown]
        self._process = await asyncio.create_subprocess_exec(
            *dying_with_us(command), "--output", self._output, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises ChaosError if the process ended unexpectedly or does not stop."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
        if code and kind is None:
            raise ChaosError(f"the bystander exited with code {code}: the latency of other users is unknown")


class _Reader:
    """Reads a pod that does not exist, so that faults do not affect the result."""

    def __init__(self, client: Client) -> None:
        self._pods = client.pods

    async def step(self) -> None:
        with suppress(NotFound):
            await self._pods.get(BYSTANDER, LOAD)


@click.command()
@click.option("--server", required=True, metavar="HOST:PORT,...", help="API servers.")
@click.option("--ca", type=_FILE, required=True)
@click.option("--cert", type=_FILE, required=True)
@click.option("--key", type=_FILE, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file for the history.")
def main(server: str, ca: Path, cert: Path, key: Path, output: Path) -> None:
    """Read a pod until SIGTERM."""
    sys.exit(process.run(lambda stop: _read(stop, server.split(","), TlsFiles(ca, cert, key), output)))


async def _read(stop: asyncio.Event, servers: Sequence[str], tls: TlsFiles, output: Path) -> None:
    with Journal(output) as journal:
        connection = RecordingConnection(BYSTANDER, servers, journal, random.Random(0), tls)
        reading = asyncio.create_task(pace(_Reader(Client(connection)), BYSTANDER_RATE, 0.0))
        try:
            await stop.wait()
        finally:
            reading.cancel()
            await asyncio.wait((reading,))
            await connection.close()


if __name__ == "__main__":
    main()
