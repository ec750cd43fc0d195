"""One process of a flood, started as `python -m pinnace.verification.bench.flooder`.

The process is a misbehaving client that ignores RetryInfo. It runs until SIGTERM, and prints one line of JSON: the number of
requested calls, the number of finished calls by code, and the created pods.

--rate      creates pods at a fixed rate, independent of the server's capacity
--method    keeps a number of calls of these methods open, and starts a new call when one ends
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import grpc
import grpc.aio

from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.resources import PODS
from pinnace.runtime import process
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.bench import load

TICK = 0.01
OUTSTANDING = 1000
"""The maximum number of open calls, which bounds the memory of this process."""
TIMEOUT = 10.0
FLOOD_STARTED = "begun"
"""The first line of output. It is printed when the flood has started and SIGTERM is handled."""
PER_CONNECTION = 100
"""The number of open calls per connection, which is the usual limit of HTTP/2 servers."""
METHOD = f"/{PODS.service}/Create"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class CreateFlood:
    """Creates pods at a rate. `outcomes`: the number of calls that were "wanted", and of finished calls by gRPC code.
    `created`: the names of pods whose creation was acknowledged."""

    def __init__(self, channel: grpc.aio.Channel, prefix: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.created: list[str] = []
        self._create = channel.unary_unary(METHOD)
        self._prefix = prefix
        self._sent = 0

    async def send_creates(self, rate: float) -> None:
        """Run until cancelled. `rate`: calls per second."""
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
            await self._create(CreatePodRequest(object=load.build_pod(name)).SerializeToString(), timeout=TIMEOUT)
            self.outcomes["OK"] += 1
            self.created.append(name)
        except grpc.aio.AioRpcError as error:
            self.outcomes[error.code().name] += 1


class CallFlood:
    """Keeps `count` calls open. Each call sends an empty request and does not half-close. Every second call is cancelled after
    its first response; the others stay open until the server ends them. `outcomes`: see Flood."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], methods: Sequence[str], count: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.created: list[str] = []
        self._stubs = [[channel.stream_stream(method) for method in methods] for channel in channels]
        self._count = count

    async def keep_calls_open(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._repeat_calls(self._stubs[number % len(self._stubs)], number))

    async def _repeat_calls(self, calls: Sequence[grpc.aio.StreamStreamMultiCallable], number: int) -> None:
        holds, turn = number % 2, number // 2
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # gRPC may replace the cancellation with the status of the call
            turn += 1
            self.outcomes["wanted"] += 1
            call = calls[turn % len(calls)]()
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # InvalidStateError: the call has ended
                await call.write(b"")
                while await call.read() is not grpc.aio.EOF:
                    if not holds:
                        call.cancel()
                        break
            self.outcomes["CANCELLED" if call.cancelled() else (await call.code()).name] += 1


@click.command()
@click.option("--server", required=True)
@click.option("--ca", type=_FILE, required=True)
@click.option("--cert", type=_FILE)
@click.option("--key", type=_FILE)
@click.option("--prefix", default="")
@click.option("--rate", type=float, default=0.0)
@click.option("--method", "methods", multiple=True, help="The path of a method to call.")
@click.option("--calls", type=int, default=0, help="Number of calls of these methods to keep open.")
@click.option("--limit", type=float, required=True, help="Maximum run time in seconds, in case the parent process dies.")
def main(
    server: str,
    ca: Path,
    cert: Path | None,
    key: Path | None,
    prefix: str,
    rate: float,
    methods: Sequence[str],
    calls: int,
    limit: float,
) -> None:
    credentials = TlsFiles(ca, cert, key).read().for_channel()
    process.run_component(lambda stop: run_flood(stop, server, credentials, prefix, rate, methods, calls, limit))


async def run_flood(
    stop: asyncio.Event,
    server: str,
    credentials: grpc.ChannelCredentials,
    prefix: str,
    rate: float,
    methods: Sequence[str],
    calls: int,
    limit: float,
) -> None:
    own = (("grpc.use_local_subchannel_pool", 1),)
    count = max(1, calls // PER_CONNECTION)
    channels = [grpc.aio.secure_channel(server, credentials, options=own) for _ in range(count)]
    flood: CreateFlood | CallFlood = CallFlood(channels, methods, calls) if methods else CreateFlood(channels[0], prefix)
    running = asyncio.create_task(flood.keep_calls_open() if isinstance(flood, CallFlood) else flood.send_creates(rate))
    click.echo(FLOOD_STARTED)
    with suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await stop.wait()
    running.cancel()
    click.echo(json.dumps({"outcomes": flood.outcomes, "created": flood.created}))
    sys.stdout.flush()
    os._exit(0)  # closing channels takes a minute with thousands of calls, because gRPC scans all tasks


if __name__ == "__main__":
    main()
