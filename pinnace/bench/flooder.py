"""One process of a flood: creates pods at a rate, whether or not the server keeps up. `python -m pinnace.bench.flooder`.

It is a client at its worst: it heeds no advice to wait, and goes on with the next pod when one is refused. It goes on until it
is sent SIGTERM, and then says as one line of JSON how many calls were wanted, how many ended how, and which pods were created.
"""

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import click
import grpc
import grpc.aio

from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.resources import PODS
from pinnace.bench import workload
from pinnace.runtime import process
from pinnace.runtime.tls import TlsFiles

TICK = 0.01
OUTSTANDING = 1000
"""Calls without an answer, at most: a client has not all the memory there is."""
TIMEOUT = 10.0
METHOD = f"/{PODS.service}/Create"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Flood:
    """`outcomes`: how many calls were "wanted", and by gRPC's code how many ended so. `created`: the names of the pods whose
    creates were acknowledged."""

    def __init__(self, channel: grpc.aio.Channel, prefix: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.created: list[str] = []
        self._create = channel.unary_unary(METHOD)
        self._prefix = prefix
        self._sent = 0

    async def run(self, rate: float) -> None:
        """Until cancelled. `rate`: calls that are wanted per second."""
        began, outstanding = time.monotonic(), set[asyncio.Task[None]]()
        async with asyncio.TaskGroup() as group:
            while True:
                due = int((time.monotonic() - began) * rate) - self.outcomes["wanted"]
                self.outcomes["wanted"] += due
                for _ in range(min(due, OUTSTANDING - len(outstanding))):
                    task = group.create_task(self._call())
                    outstanding.add(task)
                    task.add_done_callback(outstanding.discard)
                await asyncio.sleep(TICK)

    async def _call(self) -> None:
        self._sent += 1
        name = f"{self._prefix}{self._sent:06d}"
        try:
            await self._create(CreatePodRequest(object=workload.pod(name)).SerializeToString(), timeout=TIMEOUT)
            self.outcomes["OK"] += 1
            self.created.append(name)
        except grpc.aio.AioRpcError as error:
            self.outcomes[error.code().name] += 1


@click.command()
@click.option("--server", required=True)
@click.option("--ca", type=_FILE, required=True)
@click.option("--cert", type=_FILE, required=True)
@click.option("--key", type=_FILE, required=True)
@click.option("--prefix", required=True)
@click.option("--rate", type=float, required=True)
@click.option("--limit", type=float, required=True, help="Seconds after which it ends in any case: its parent may have died.")
def main(server: str, ca: Path, cert: Path, key: Path, prefix: str, rate: float, limit: float) -> None:
    process.run(lambda stop: flood(stop, server, TlsFiles(ca, cert, key), prefix, rate, limit))


async def flood(stop: asyncio.Event, server: str, tls: TlsFiles, prefix: str, rate: float, limit: float) -> None:
    async with grpc.aio.secure_channel(server, tls.read().for_channel()) as channel:
        flood = Flood(channel, prefix)
        running = asyncio.create_task(flood.run(rate))
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await stop.wait()
        running.cancel()
        await asyncio.wait((running,))
    click.echo(json.dumps({"outcomes": flood.outcomes, "created": flood.created}))


if __name__ == "__main__":
    main()
