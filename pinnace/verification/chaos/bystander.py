"""Well-behaved users in separate processes, so that their latencies depend on the servers and not on the load generator.

`python -m pinnace.verification.chaos.bystander` works until SIGTERM, and records each call in a history:

    --server     reads a pod from API servers, one call after the other
    --gateway    reads a pod, and creates and deletes others, through gateways. Each call starts at its time, whether or not
                 earlier calls have ended, so that a stall delays as many calls as it would delay of many users.
"""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

import click

from pinnace.client.client import Client
from pinnace.client.errors import NotFound
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.links import dying_with_parent
from pinnace.runtime import process
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.attacks.callers import bind_role, create_user_certificates, provide_namespace
from pinnace.verification.chaos.clients import PAUSE, HistoryJournal, RecordingConnection
from pinnace.verification.chaos.gateways import PodSession
from pinnace.verification.chaos.load import BYSTANDER, BYSTANDER_RATE, GATEWAY_BYSTANDER, run_at_rate
from pinnace.verification.chaos.workers import LOAD

END_TIMEOUT = 10.0
READ_RATE, WRITE_RATE = 20.0, 2.0
"""Reads, and creates, of the user of gateways per second in a chaos run. Each created pod is deleted."""
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Bystander:
    """An async context manager for the process. `output`: the file of its history, which is complete at the end. `addresses`:
    of API servers; with `rates`, those of reads and writes per second, of gateways."""

    def __init__(self, addresses: Sequence[str], tls: TlsFiles, output: Path, rates: tuple[float, float] | None = None) -> None:
        self._addresses = addresses
        self._tls = tls
        self._output = output
        self._rates = rates

    async def __aenter__(self) -> Self:
        shown = ("--ca", f"{self._tls.ca}", "--cert", f"{self._tls.cert}", "--key", f"{self._tls.key}")
        command = [sys.executable, "-m", "pinnace.verification.chaos.bystander", *shown, "--output", f"{self._output}"]
        if self._rates is None:
            command += ["--server", ",".join(self._addresses)]
        else:
            reads, writes = self._rates
            command += ["--gateway", ",".join(self._addresses), "--reads", f"{reads:g}", "--writes", f"{writes:g}"]
        self._process = await asyncio.create_subprocess_exec(
            *dying_with_parent(command), stdin=asyncio.subprocess.DEVNULL, start_new_session=True
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


async def create_gateway_user(cluster: Cluster, client: Client) -> TlsFiles:
    """Create the user of gateways with its namespace, unless they exist. It is no administrator, because flow control exempts
    administrators. Raises ApiError."""
    folder = create_user_certificates(cluster, GATEWAY_BYSTANDER)
    await bind_role(client, GATEWAY_BYSTANDER, "edit")
    await provide_namespace(client, GATEWAY_BYSTANDER)
    return certificates.component_files(folder, GATEWAY_BYSTANDER)


class _MissingPodReader:
    """Reads a pod that does not exist, so that faults do not affect the result."""

    def __init__(self, client: Client) -> None:
        self._pods = client.pods

    async def execute_step(self) -> None:
        with suppress(NotFound):
            await self._pods.get(BYSTANDER, LOAD)


@click.command()
@click.option("--server", metavar="HOST:PORT,...", help="API servers.")
@click.option("--gateway", metavar="HOST:PORT,...", help="Gateways.")
@click.option("--reads", type=float, default=READ_RATE, help="Reads per second through gateways.")
@click.option("--writes", type=float, default=WRITE_RATE, help="Creates per second through gateways.")
@click.option("--ca", type=_FILE, required=True)
@click.option("--cert", type=_FILE, required=True)
@click.option("--key", type=_FILE, required=True)
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file for the history.")
def main(
    server: str | None, gateway: str | None, reads: float, writes: float, ca: Path, cert: Path, key: Path, output: Path
) -> None:
    """Read, and write through gateways, until SIGTERM."""
    tls = TlsFiles(ca, cert, key)

    async def work(stop: asyncio.Event) -> None:
        with HistoryJournal(output) as journal:
            if gateway is not None:
                await _use_gateways(stop, gateway.split(","), tls, journal, reads, writes)
            elif server is not None:
                await _read_until_stopped(stop, server.split(","), tls, journal)

    sys.exit(process.run_component(work))


async def _read_until_stopped(stop: asyncio.Event, servers: Sequence[str], tls: TlsFiles, journal: HistoryJournal) -> None:
    connection = RecordingConnection(BYSTANDER, servers, journal, random.Random(0), tls)
    reading = asyncio.create_task(run_at_rate(_MissingPodReader(Client(connection)), BYSTANDER_RATE, 0.0))
    try:
        await stop.wait()
    finally:
        reading.cancel()
        await asyncio.wait((reading,))
        await connection.close()


async def _use_gateways(
    stop: asyncio.Event, addresses: Sequence[str], tls: TlsFiles, journal: HistoryJournal, reads: float, writes: float
) -> None:
    pods, names = PodSession(addresses, tls, journal, random.Random(0)), count()
    prefix = f"{GATEWAY_BYSTANDER}-{time.monotonic_ns():x}"
    first = await pods.create(GATEWAY_BYSTANDER, GATEWAY_BYSTANDER, f"{prefix}-{next(names)}")
    while first is None and not stop.is_set():  # a fault may prevent it for a while, or hide that it was created
        await asyncio.sleep(PAUSE)
        first = await pods.create(GATEWAY_BYSTANDER, GATEWAY_BYSTANDER, f"{prefix}-{next(names)}")
    if first is None:
        await pods.close()
        return
    name = first.metadata.name

    async def write() -> None:
        created = await pods.create(GATEWAY_BYSTANDER, GATEWAY_BYSTANDER, f"{prefix}-{next(names)}")
        if created is not None:
            await pods.delete(GATEWAY_BYSTANDER, created)

    async def read() -> None:
        await pods.get(GATEWAY_BYSTANDER, GATEWAY_BYSTANDER, name)

    calls = set[asyncio.Task[None]]()

    async def begin(call: Callable[[], Coroutine[Any, Any, None]], rate: float) -> None:
        began = time.monotonic()
        for number in count():
            await asyncio.sleep(began + number / rate - time.monotonic())
            task: asyncio.Task[None] = asyncio.create_task(call())
            calls.add(task)
            task.add_done_callback(calls.discard)

    beginning = [asyncio.create_task(begin(read, reads)), asyncio.create_task(begin(write, writes))]
    try:
        await stop.wait()
    finally:
        for task in beginning:
            task.cancel()
        await asyncio.wait(beginning)
        if calls:
            await asyncio.wait(calls)
        await pods.delete(GATEWAY_BYSTANDER, first)
        await pods.close()


if __name__ == "__main__":
    main()
