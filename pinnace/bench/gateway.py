"""Row `gateway`: creates, gets, lists and watches of pods through a gateway, in JSON and in Kubernetes' protobuf, each beside
the same work through gRPC at the API server.

One process generates all load, as in the reference measurement of kube-apiserver. HTTP requests use one connection per caller.
Payloads are encoded before the clock starts, and answers are counted, not decoded. CPU times exclude the load generator.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import grpc.aio

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.api.wire import kubernetes_envelope
from pinnace.bench import BenchError
from pinnace.bench.calibration import Bench
from pinnace.bench.load import CALLERS, NAMESPACE, Load, pod
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.bench.watch import WatchResponse, open_watch
from pinnace.client.channel import Peer
from pinnace.cluster.spec import APISERVER, GATEWAY
from pinnace.cluster.startup import Progress
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessUsage
from pinnace.runtime.tls import Renewed, TlsFiles

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
FORMATS = {"JSON": JSON, "protobuf": PROTOBUF}
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
WATCH_TIMEOUT = 60.0
"""Seconds within which all watchers must have received all events."""
Opener = Callable[[int], AbstractAsyncContextManager[AsyncIterator[int]]]
"""Opens a watch of the pods at a revision. The iterator yields numbers of events as they arrive."""


@dataclass(slots=True)
class Measured:
    """The results by stage: latencies in seconds, and counters by name."""

    samples: dict[str, Sequence[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


async def gateway(bench: Bench, requests: int, listed: int, watchers: int, events: int, progress: Progress) -> Run:
    """Measure all stages in turn. `requests`: creates and gets of each kind. `listed`: pods in a list. `events`: creates that
    `watchers` receive. The rate is that of creates in JSON. Raises BenchError, ApiError."""
    (record,) = bench.cluster.state.of(GATEWAY)
    done, began = Measured(), Meter(bench.cluster.state)
    async with sessions(f"https://{record.plan.address}", bench.cluster.tls) as callers:
        for name, work in _creates(bench, callers, requests).items():
            progress.waiting(f"creates through {name}")
            await _timed(bench, done, f"create, {name}", requests, work)
        for name, work in _gets(bench, callers).items():
            progress.waiting(f"gets through {name}")
            await _timed(bench, done, f"get, {name}", requests, work)
        there = len((await bench.clients[0].pods.list(NAMESPACE)).items)
        await Load("listed-").create(bench.clients, max(1, listed - there), batch=500)
        async with _connected(bench) as peer:
            for name, fetch in _lists(peer, callers[0]).items():
                progress.waiting(f"lists of {listed:,} pods through {name}")
                await _lists_timed(done, name, fetch)
        done.counts["gateway, MB with the pods"] = _memory(bench, GATEWAY)
        streams = {name: _through(callers[0], media_type) for name, media_type in FORMATS.items()}
        for name, open_stream in (streams | {"gRPC": _directly(bench)}).items():
            progress.waiting(f"{watchers} watchers through {name}")
            await _watched(bench, done, name, watchers, events, open_stream)
        done.counts["gateway, MB with the watches"] = _memory(bench, GATEWAY)
        done.counts["API server, MB"] = _memory(bench, APISERVER)
    return Run(
        bench.calibration,
        began.read(),
        samples=done.samples,
        items=requests,
        rate=done.counts["create, JSON, per second"],
        counts=done.counts,
    )


@asynccontextmanager
async def sessions(url: str, tls: TlsFiles) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Yield one session per caller, with the user's certificate."""
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.load_cert_chain(str(tls.cert), str(tls.key))
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(CALLERS):
            connector = aiohttp.TCPConnector(ssl=context, limit=0)
            session = aiohttp.ClientSession(url, connector=connector, timeout=aiohttp.ClientTimeout(total=WATCH_TIMEOUT))
            made.append(await stack.enter_async_context(session))
        yield made


Call = Callable[[int, int], Awaitable[object]]
"""A call by the caller with the first number, for the item with the second number."""


def _creates(bench: Bench, callers: Sequence[aiohttp.ClientSession], count: int) -> dict[str, Call]:
    def prepared(prefix: str) -> list[Pod]:
        return [pod(f"{prefix}{number:06d}") for number in range(count)]

    bodies = {
        "JSON": [json.dumps({"apiVersion": "v1", "kind": "Pod"} | to_dict(each)).encode() for each in prepared("json-")],
        "protobuf": [kubernetes_envelope("v1", "Pod", each.SerializeToString()) for each in prepared("protobuf-")],
    }
    direct = prepared("grpc-")

    def through(name: str, media_type: str) -> Call:
        headers = {"Content-Type": media_type, "Accept": media_type}

        async def create(caller: int, number: int) -> None:
            await _request(callers[caller], "POST", PODS_PATH, headers, bodies[name][number])

        return create

    calls = {name: through(name, media_type) for name, media_type in FORMATS.items()}
    return calls | {"gRPC": lambda caller, number: bench.clients[0].pods.create(direct[number])}


def _gets(bench: Bench, callers: Sequence[aiohttp.ClientSession]) -> dict[str, Call]:
    def through(media_type: str) -> Call:
        headers = {"Accept": media_type}

        async def get(caller: int, number: int) -> None:
            await _request(callers[caller], "GET", f"{PODS_PATH}/grpc-{number:06d}", headers)

        return get

    calls = {name: through(media_type) for name, media_type in FORMATS.items()}
    return calls | {"gRPC": lambda caller, number: bench.clients[0].pods.get(f"grpc-{number:06d}", NAMESPACE)}


async def _timed(bench: Bench, done: Measured, stage: str, count: int, call: Call) -> None:
    """Make `count` calls by CALLERS callers, and record latencies, the rate, and the servers' CPU time."""
    latencies, numbers = list[float](), iter(range(count))

    async def caller(index: int) -> None:
        for number in numbers:  # shared between the callers
            sent = time.monotonic()
            await call(index, number)
            latencies.append(time.monotonic() - sent)

    meter, began = Meter(bench.cluster.state), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for index in range(CALLERS):
            group.create_task(caller(index))
    elapsed = time.monotonic() - began
    done.samples[stage] = latencies
    done.counts[f"{stage}, per second"] = round(count / elapsed)
    done.counts[f"{stage}, server CPU in us"] = round(_servers_cpu(meter.read()) / count * 1e6)


def _lists(peer: Peer, session: aiohttp.ClientSession) -> dict[str, Callable[[], Awaitable[int]]]:
    listing: Any = peer.channel.unary_unary("/pinnace.v1.Pods/List", ListRequest.SerializeToString)

    async def direct() -> int:
        request = ListRequest(namespace=NAMESPACE, options=ListOptions(resourceVersion="0"))
        return len(await listing(request))

    def through(media_type: str) -> Callable[[], Awaitable[int]]:
        return lambda: _request(session, "GET", f"{PODS_PATH}?resourceVersion=0", {"Accept": media_type})

    return {name: through(media_type) for name, media_type in FORMATS.items()} | {"gRPC": direct}


LISTS = 20
"""The number of lists of each kind. The first one, which fills the caches, is not counted."""


async def _lists_timed(done: Measured, name: str, fetch: Callable[[], Awaitable[int]]) -> None:
    took, size = list[float](), await fetch()
    for _ in range(LISTS):
        sent = time.monotonic()
        size = await fetch()
        took.append(time.monotonic() - sent)
    done.samples[f"list, {name}"] = took
    done.counts[f"list, {name}, kB"] = size // 1000


async def _watched(bench: Bench, done: Measured, name: str, watchers: int, events: int, open_stream: Opener) -> None:
    """Measure from the first create to the last event at the last watcher. Each watcher has a connection of its own. The pods
    are created through gRPC in all cases. Raises BenchError if events are missing after WATCH_TIMEOUT."""
    revision = (await bench.clients[0].pods.list(NAMESPACE)).resource_version
    load, latest = Load(f"watched-{name.lower()}-"), [0.0]

    async def watch(stream: AsyncIterator[int]) -> None:
        seen = 0
        async for count in stream:
            seen, latest[0] = seen + count, time.monotonic()
            if seen >= events:
                return
        raise BenchError(f"a watch through {name} ended after {seen} of {events} events")

    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_stream(revision)) for _ in range(watchers)]
        meter = Meter(bench.cluster.state)
        try:
            async with asyncio.timeout(WATCH_TIMEOUT), asyncio.TaskGroup() as group:
                for stream in streams:
                    group.create_task(watch(stream))
                await load.create(bench.clients, events, batch=1)
        except TimeoutError:
            raise BenchError(f"not all events arrived through {name} within {WATCH_TIMEOUT:g} s") from None
        used = meter.read()
    deliveries = watchers * events
    done.counts[f"watch, {name}, deliveries per second"] = round(deliveries / (latest[0] - load.began))
    done.counts[f"watch, {name}, server CPU in us"] = round(_servers_cpu(used) / deliveries * 1e6)


def _through(session: aiohttp.ClientSession, media_type: str) -> Opener:
    stream_type = f"{media_type};stream=watch" if media_type == PROTOBUF else media_type
    count = count_frames if media_type == PROTOBUF else count_lines

    @asynccontextmanager
    async def open_stream(revision: int) -> AsyncIterator[AsyncIterator[int]]:
        query = {"watch": "true", "resourceVersion": str(revision)}
        async with session.get(PODS_PATH, params=query, headers={"Accept": stream_type}) as answer:
            if answer.status != HTTPStatus.OK:
                raise BenchError(f"the gateway refused a watch: {answer.status} {await answer.text()}")
            yield count(answer.content.iter_any())

    return open_stream


async def count_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[int]:
    """Yield the number of events in each chunk of a watch in JSON."""
    async for chunk in chunks:
        yield chunk.count(b"\n")


async def count_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[int]:
    """Yield the number of events that each chunk of a watch in protobuf completes. An event follows its length, four bytes in
    network byte order."""
    buffer = b""
    async for chunk in chunks:
        buffer, at, count = buffer + chunk, 0, 0
        while at + 4 <= len(buffer) and (end := at + 4 + int.from_bytes(buffer[at : at + 4], "big")) <= len(buffer):
            at, count = end, count + 1
        buffer = buffer[at:]
        yield count


def _directly(bench: Bench) -> Opener:
    @asynccontextmanager
    async def open_stream(revision: int) -> AsyncIterator[AsyncIterator[int]]:
        async with _connected(bench) as peer:
            call = open_watch(peer, revision)

            async def counts() -> AsyncIterator[int]:
                while (encoded := await call.read()) is not grpc.aio.EOF:
                    yield len(WatchResponse.FromString(encoded).events)

            try:
                yield counts()
            finally:
                call.cancel()

    return open_stream


@asynccontextmanager
async def _connected(bench: Bench) -> AsyncIterator[Peer]:
    """Yield a connection of its own to the API server."""
    peer = Peer(bench.cluster.endpoints[0], tls=Renewed(bench.cluster.tls))
    try:
        if not await peer.connect():
            raise BenchError(f"API server {peer.endpoint} does not accept more connections")
        yield peer
    finally:
        await peer.close()


async def _request(
    session: aiohttp.ClientSession, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
) -> int:
    """Send a request, and return the number of bytes of the answer. Raises BenchError unless it succeeds."""
    async with session.request(method, path, headers=headers, data=body) as answer:
        data = await answer.read()
        if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise BenchError(f"{method} {path}: {answer.status} {data[:200].decode(errors='replace')}")
        return len(data)


def _servers_cpu(usage: Mapping[str, ProcessUsage]) -> float:
    """Return the CPU seconds of the gateway and the API server."""
    return sum(used.cpu_s for name, used in usage.items() if name.startswith((GATEWAY, APISERVER)))


def _memory(bench: Bench, component: str) -> int:
    """Return the resident memory of a component in MB."""
    found = (procfs.usage(record.process) for record in bench.cluster.state.of(component) if record.process)
    return round(sum(usage.rss_mb for usage in found if usage))
