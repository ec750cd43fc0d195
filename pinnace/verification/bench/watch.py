"""Row `watch`: one stream of events to many watchers. Row `crowd`: a very large number of watchers of a steady stream of
events. Some of them never read, and the history is compacted meanwhile.

In `crowd`, the messages of the first watcher are recorded, and the other streams are compared with them byte by byte. On each
server a few watchers also decode the events, check their order, and measure their latency. The measuring process therefore
spends little more on a thousand watchers than the transfer of their messages.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import PodWatchEvent
from pinnace.api.verbs_pb2 import WatchRequest
from pinnace.client.channel import Peer
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import from_status
from pinnace.cluster.spec import APISERVER
from pinnace.runtime import procfs
from pinnace.runtime.tls import ReloadingCredentials, TlsFiles
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.load import CreatedPods
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

WATCH_TIMEOUT = 300.0
STREAMS = 20
"""The number of watches per connection."""
PODS = 500
"""The number of pods that are updated repeatedly."""
BATCH = 50
"""The number of writes per call."""
DECODING_WATCHES = 50
"""One of this many watchers decodes the events."""
DELIVERY_TIMEOUT = 60.0
"""Seconds after the last write within which all watchers must have received all events."""
ATTEMPTS = 3
"""The number of connection attempts, of one second each."""
WARM_UP = 1 / 6
"""The fraction of the duration after which memory must be constant."""
_METHOD = "/pinnace.v1.Pods/Watch"


class WatchClient:
    """A client with its own connection. `arrivals`: the monotonic arrival times of events by pod name."""

    def __init__(self, endpoint: str, tls: TlsFiles, expected: int) -> None:
        self.arrivals: dict[str, float] = {}
        self.repeated = 0
        self.first = asyncio.Event()
        self._connection = Connection([endpoint], tls=tls)
        self._expected = expected

    async def watch_events(self, revision: int) -> None:
        """Watch until all expected events have arrived. Raises ApiError if the stream ends earlier."""
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


async def measure_watchers(bench: BenchCluster, watchers: int, events: int, batch: int) -> BenchRun:
    """Measure from the first create to the arrival of the last event at the last watcher. The rate is that of deliveries."""
    endpoints = bench.cluster.endpoints
    crowd = [WatchClient(endpoints[i % len(endpoints)], bench.cluster.tls, events + 1) for i in range(watchers)]
    first, load = CreatedPods("first-"), CreatedPods()
    revision = (await bench.clients[0].pods.list()).resource_version
    try:
        async with asyncio.timeout(WATCH_TIMEOUT), asyncio.TaskGroup() as group:
            for watcher in crowd:
                group.create_task(watcher.watch_events(revision))
            await first.create_pods(bench.clients, 1, batch=1)  # its arrival shows that the watchers are connected
            await asyncio.gather(*(watcher.first.wait() for watcher in crowd))
            meter = ProcessMeter(bench.cluster.state)
            await load.create_pods(bench.clients, events, batch=batch)
    except TimeoutError:
        missing = sum(events + 1 - len(watcher.arrivals) for watcher in crowd)
        raise BenchError(f"{missing:,} events did not arrive within {WATCH_TIMEOUT:g} s") from None
    usage = meter.read_usage()
    deliveries = [watcher.arrivals[name] - sent for watcher in crowd for name, sent in load.sent.items()]
    elapsed = max(max(watcher.arrivals.values()) for watcher in crowd) - load.began_at
    return BenchRun(
        bench.calibration,
        usage,
        samples={"created": load.latencies, "delivered": deliveries},
        items=len(deliveries),
        rate=len(deliveries) / elapsed,
        violations={"repeated": sum(watcher.repeated for watcher in crowd)},
    )


class WatchMessage(NamedTuple):
    """A message of a watch."""

    encoded: bytes
    events: Sequence[bytes]
    revision: int


class SharedEventLog:
    """The events of all watches in order, as received by the first watcher."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._pages: dict[int, WatchMessage] = {}
        """Messages by the index of their first event. Watchers that keep up receive the same messages, which are decoded
        once."""

    def record_message(self, place: int, encoded: bytes) -> tuple[WatchMessage, bool]:
        """Return the message with the events from index `place`, and whether it equals the recorded events."""
        known = self._pages.get(place)
        if known is not None and known.encoded == encoded:
            return known, True
        response = WatchResponse.FromString(encoded)
        page = WatchMessage(encoded, list(response.events), int(response.resourceVersion or 0))
        written = self._events[place : place + len(page.events)]
        self._events += page.events[len(written) :]
        self._pages[place] = page
        return page, written == page.events[: len(written)]


class WatchReader:
    """A watch that is read as fast as possible. It must not end."""

    def __init__(self, call: Any, chronicle: SharedEventLog, *, curious: bool) -> None:
        self.revision = 0
        self.events = 0
        self.latencies: list[float] = []
        self.disordered = 0
        self.agrees = True
        self._call = call
        self._chronicle = chronicle
        self._curious = curious
        self._last = 0.0

    async def read_until_cancelled(self) -> None:
        """Read until cancelled. Raises BenchError if the stream ends."""
        while (encoded := await self._read()) is not grpc.aio.EOF:
            page, agrees = self._chronicle.record_message(self.events, encoded)
            self.agrees &= agrees
            if self._curious:
                for event in page.events:
                    self._look_into(event)
            self.events += len(page.events)
            self.revision = page.revision or self.revision
        raise BenchError(f"a watch ended: {await self._call.code()}: {await self._call.details()}")

    async def _read(self) -> Any:
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise BenchError(f"a watch failed: {error.code().name}: {error.details()}") from None

    def _look_into(self, event: bytes) -> None:
        sent = float(PodWatchEvent.FromString(event).object.status.message)
        self.latencies.append(time.monotonic() - sent)
        self.disordered += sent < self._last
        self._last = sent


async def measure_watcher_crowd(bench: BenchCluster, watchers: int, stuck: int, rate: int, seconds: float) -> BenchRun:
    """Measure a crowd of watchers. `rate`: writes per second. Raises BenchError if a stream ends."""
    pods = await _list_pods(bench)
    revision = (await bench.clients[0].pods.list()).resource_version
    async with _open_connections(bench, watchers) as peers:
        chronicle = SharedEventLog()
        listeners = [
            WatchReader(
                open_watch(peers[i % len(peers)], revision),
                chronicle,
                curious=i % DECODING_WATCHES < len(bench.cluster.endpoints),
            )
            for i in range(watchers)
        ]
        async with _open_connections(bench, stuck * STREAMS) as idle, asyncio.TaskGroup() as group:
            deaf = [open_watch(peer, revision) for peer in idle]
            listening = [group.create_task(listener.read_until_cancelled()) for listener in listeners]
            meter = ProcessMeter(bench.cluster.state)
            written, late, memory = await _write_statuses(bench, pods, rate, seconds)
            usage = meter.read_usage()
            last = (await bench.clients[0].pods.list()).resource_version
            lacking = await _count_late_listeners(listeners, last)
            for task in listening:
                task.cancel()
            for call in deaf:
                call.cancel()
    curious = [listener for listener in listeners if listener.latencies]
    return BenchRun(
        bench.calibration,
        usage,
        samples={"delivered": [latency for listener in curious for latency in listener.latencies], "late": late},
        items=written * watchers,
        rate=sum(listener.events for listener in listeners) / seconds,
        violations={
            "not_told_everything": lacking + sum(listener.events != written for listener in listeners),
            "told_otherwise": sum(not listener.agrees for listener in listeners),
            "out_of_order": sum(listener.disordered for listener in curious),
        },
        counts={"written": written, "watchers": watchers, "stuck": stuck, **memory},
    )


async def _list_pods(bench: BenchCluster) -> list[Pod]:
    load = CreatedPods()
    await load.create_pods(bench.clients, PODS, batch=BATCH)
    return (await bench.clients[0].pods.list(load.namespace)).items


async def _write_statuses(
    bench: BenchCluster, pods: Sequence[Pod], rate: int, seconds: float
) -> tuple[int, list[float], dict[str, int]]:
    """Write the status of the pods in turn. Return the number of writes, the delay of each call, and the API servers' memory in
    MB after the warm-up and at the end."""
    written, late, memory = 0, list[float](), dict[str, int]()
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        due = began + written / rate
        if now < due:
            await asyncio.sleep(due - now)
        late.append(max(0.0, time.monotonic() - due))
        if not memory and now > began + seconds * WARM_UP:
            memory["mb_when_warm"] = _read_memory(bench)
        client = bench.clients[written // BATCH % len(bench.clients)]
        await _write_time(client, [pods[(written + i) % len(pods)] for i in range(BATCH)])
        written += BATCH
    memory["mb_at_the_end"] = _read_memory(bench)
    return written, late, memory


async def _write_time(client: Client, pods: Sequence[Pod]) -> None:
    """Write the current time into each pod. There is one writer, so the times are in the order of the writes."""
    for pod in pods:
        pod.metadata.resourceVersion = ""
        pod.status.message = repr(time.monotonic())
    for item in await client.pods.update_status_batch(pods):
        if item.HasField("error"):
            raise BenchError(f"failed to update pod {item.name}: {from_status(item.error)}")


async def _count_late_listeners(listeners: Sequence[WatchReader], revision: int) -> int:
    """Return the number of listeners that have not received all events in time."""
    deadline = time.monotonic() + DELIVERY_TIMEOUT
    while True:
        lacking = sum(listener.revision < revision for listener in listeners)
        if not lacking or time.monotonic() > deadline:
            return lacking
        await asyncio.sleep(0.1)


def _read_memory(bench: BenchCluster) -> int:
    """Return the memory of all API servers in MB."""
    result = (procfs.read_usage(record.process) for record in bench.cluster.state.processes_of(APISERVER) if record.process)
    return round(sum(usage.rss_mb for usage in result if usage))


@asynccontextmanager
async def _open_connections(bench: BenchCluster, streams: int) -> AsyncIterator[list[Peer]]:
    """Open connections for this number of streams, distributed over the servers."""
    endpoints, tls = bench.cluster.endpoints, ReloadingCredentials(bench.cluster.tls)
    peers = [Peer(endpoints[i % len(endpoints)], tls=tls) for i in range(-(-streams // STREAMS))]
    try:
        for peer in peers:  # in sequence, because a server processes handshakes in one thread
            for _ in range(ATTEMPTS):
                if await peer.connect():
                    break
            else:
                raise BenchError(f"API server {peer.endpoint} does not accept more connections")
        yield peers
    finally:
        await asyncio.gather(*(peer.close() for peer in peers))


def open_watch(peer: Peer, revision: int) -> Any:
    """Open a watch of all pods. Its `read` returns the bytes of a WatchResponse, or EOF."""
    request = WatchRequest(options=ListOptions(resourceVersion=str(revision), allowWatchBookmarks=True))
    return peer.channel.unary_stream(_METHOD, WatchRequest.SerializeToString)(request)


def _build_response_class() -> Any:
    """Return a message class for watch responses that does not decode the events."""
    file = descriptor_pb2.FileDescriptorProto(name="pinnace/bench/crowd.proto", package="pinnace.bench", syntax="proto3")
    message = file.message_type.add(name="Response")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="events", number=1, label=field.LABEL_REPEATED, type=field.TYPE_BYTES)
    message.field.add(name="resourceVersion", number=2, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pinnace.bench.Response"))


WatchResponse = _build_response_class()
"""A watch response with encoded events."""
