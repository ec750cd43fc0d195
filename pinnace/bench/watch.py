"""Row `watch`: one stream of events to many watchers."""

import asyncio
import time

from pinnace.bench.calibration import Bench
from pinnace.bench.errors import BenchError
from pinnace.bench.load import Load
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.runtime.tls import TlsFiles

PATIENCE = 300.0


class Watcher:
    """One client with a connection of its own. `arrivals` are the monotonic times of the events, by the pod's name."""

    def __init__(self, endpoint: str, tls: TlsFiles, expected: int) -> None:
        self.arrivals: dict[str, float] = {}
        self.repeated = 0
        self.first = asyncio.Event()
        self._connection = Connection([endpoint], tls=tls)
        self._expected = expected

    async def run(self, revision: int) -> None:
        """Until everything that is expected has arrived. Raises ApiError when the stream ends before."""
        try:
            async for batch in Client(self._connection).pods.watch(resource_version=revision):
                now = time.monotonic()
                for _, pod in batch.events:
                    self.repeated += pod.metadata.name in self.arrivals
                    self.arrivals[pod.metadata.name] = now
                    self.first.set()
                if len(self.arrivals) >= self._expected:
                    return
        finally:
            await self._connection.close()


async def watch(bench: Bench, watchers: int, events: int, batch: int) -> Run:
    """From the first create that is sent to the arrival of the last event at the last watcher. The rate is of deliveries."""
    endpoints = bench.cluster.endpoints
    crowd = [Watcher(endpoints[i % len(endpoints)], bench.cluster.tls, events + 1) for i in range(watchers)]
    first, load = Load("first-"), Load()
    revision = (await bench.clients[0].pods.list()).resource_version
    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for watcher in crowd:
                group.create_task(watcher.run(revision))
            await first.create(bench.clients, 1, batch=1)  # its arrival shows who listens
            await asyncio.gather(*(watcher.first.wait() for watcher in crowd))
            meter = Meter(bench.cluster.state)
            await load.create(bench.clients, events, batch=batch)
    except TimeoutError:
        missing = sum(events + 1 - len(watcher.arrivals) for watcher in crowd)
        raise BenchError(f"{missing:,} events had not arrived after {PATIENCE:g} s") from None
    usage = meter.read()
    deliveries = [watcher.arrivals[name] - sent for watcher in crowd for name, sent in load.sent.items()]
    elapsed = max(max(watcher.arrivals.values()) for watcher in crowd) - load.began
    return Run(
        bench.calibration,
        usage,
        samples={"created": load.latencies, "delivered": deliveries},
        items=len(deliveries),
        rate=len(deliveries) / elapsed,
        violations={"repeated": sum(watcher.repeated for watcher in crowd)},
    )
