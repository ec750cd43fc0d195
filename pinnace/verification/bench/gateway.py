"""Row `gateway`: creates, gets, lists and watches of pods through a gateway, in JSON and in Kubernetes' protobuf, each beside
the same work through gRPC at the API server.

One process generates all load, as in the reference measurement of kube-apiserver. HTTP requests use one connection per caller.
Payloads are encoded before the clock starts, and answers are counted, not decoded.

Before and after each kind of work, the same client measures a static HTTPS answer of HAProxy, if it is installed. The ratio of
the work's rate to the mean of both rates varies less between machines, and during an hour, than the rate itself.
"""

import asyncio
import json
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from itertools import pairwise
from statistics import mean
from typing import Any

import aiohttp
import grpc.aio

from pinnace.api.codec import to_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.api.wire import kubernetes_envelope
from pinnace.client.channel import Peer
from pinnace.cluster import certificates
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import APISERVER, ETCD, GATEWAY, pki_folder
from pinnace.cluster.startup import StartProgress
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessUsage
from pinnace.runtime.tls import ReloadingCredentials, TlsFiles
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.haproxy import find_haproxy, serve_static_answer
from pinnace.verification.bench.load import CALLERS, NAMESPACE, CreatedPods, build_pod
from pinnace.verification.bench.report import BenchRun, WorkResult
from pinnace.verification.bench.usage import LOAD, ProcessMeter
from pinnace.verification.bench.watch import WatchResponse, open_watch

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
FORMATS = {"JSON": JSON, "protobuf": PROTOBUF}
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
WATCH_TIMEOUT = 60.0
"""Seconds within which all watchers must have received all events."""
Opener = Callable[[int], AbstractAsyncContextManager[AsyncIterator[int]]]
"""Opens a watch of the pods at a revision. The iterator yields numbers of events as they arrive."""


STATIC_REQUESTS = 3_000
"""The number of requests of one calibration."""
CLIENT = "client"
_COMPONENTS = {GATEWAY: "gateways", APISERVER: "API servers", ETCD: "etcd", LOAD: CLIENT}
"""The names of the processes whose CPU time is reported, by the beginning of their own names."""
LISTS = 20
"""The number of lists of each kind. The first one, which fills the caches, is not counted."""
Calibrate = Callable[[], Awaitable[None]]
"""Appends a static rate to the results."""
Call = Callable[[int, int], Awaitable[object]]
"""A call by the caller with the first number, for the item with the second number."""


@dataclass(slots=True)
class GatewayResults:
    """The results: latencies in seconds by stage, counters by name, and works by name without calibration. `static`: the static
    rates before each work, and after the last one."""

    samples: dict[str, Sequence[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    works: dict[str, WorkResult] = field(default_factory=dict)
    static: list[float] = field(default_factory=list)

    def calibrated_works(self) -> dict[str, WorkResult]:
        """Return the works, each with the mean of the static rates around it."""
        if not self.static:
            return self.works
        rates = (mean(around) for around in pairwise(self.static))
        return {name: replace(work, static_rate=rate) for (name, work), rate in zip(self.works.items(), rates, strict=True)}


async def measure_gateway(
    bench: BenchCluster, requests: int, listed: int, watchers: int, events: int, progress: StartProgress
) -> BenchRun:
    """Measure all stages in turn. `requests`: creates and gets of each kind. `listed`: pods in a list. `events`: creates that
    `watchers` receive. The rate is that of creates in JSON. Raises BenchError, ApiError."""
    (record,) = bench.cluster.state.processes_of(GATEWAY)
    done, began = GatewayResults(), ProcessMeter(bench.cluster.state)
    async with AsyncExitStack() as stack:
        callers = await stack.enter_async_context(open_sessions(f"https://{record.plan.address}", bench.cluster.tls))
        calibrate = await stack.enter_async_context(_measure_static_answers(bench, done, progress))
        for name, work in _measure_creates(bench, callers, "", requests).items():
            progress.waiting(f"creates through {name}")
            await calibrate()
            await _measure_calls(bench, done, f"create, {name}", requests, work)
        for name, work in _measure_gets(bench, callers).items():
            progress.waiting(f"gets through {name}")
            await calibrate()
            await _measure_calls(bench, done, f"get, {name}", requests, work)
        there = len((await bench.clients[0].pods.list(NAMESPACE)).items)
        await CreatedPods("listed-").create_pods(bench.clients, max(1, listed - there), batch=500)
        async with _open_connection(bench) as peer:
            for name, fetch in _measure_lists(peer, callers[0]).items():
                progress.waiting(f"lists of {listed:,} pods through {name}")
                await calibrate()
                await _lists_timed(bench, done, name, fetch)
        done.counts["gateways, MB with the pods"] = _read_memory(bench, GATEWAY)
        streams = {name: _gateway_opener(callers[0], media_type) for name, media_type in FORMATS.items()} | {
            "gRPC": _grpc_opener(bench)
        }
        for name, create in _measure_creates(bench, callers, "watched-", events).items():
            progress.waiting(f"{watchers} watchers through {name}")
            await calibrate()
            await _measure_watch(bench, done, name, watchers, events, streams[name], create)
        await calibrate()
        done.counts["gateways, MB with the watches"] = _read_memory(bench, GATEWAY)
        done.counts["API servers, MB"] = _read_memory(bench, APISERVER)
    return BenchRun(
        bench.calibration,
        began.read_usage(),
        samples=done.samples,
        items=requests,
        rate=done.works["create, JSON"].rate,
        counts=done.counts,
        works=done.calibrated_works(),
    )


@asynccontextmanager
async def _measure_static_answers(
    bench: BenchCluster, done: GatewayResults, progress: StartProgress
) -> AsyncIterator[Calibrate]:
    """Yield a function that measures HAProxy's static answer, or does nothing if HAProxy is not installed."""

    async def nothing() -> None:
        pass

    if (program := find_haproxy()) is None:
        progress.warn("HAProxy is not installed, so there are no ratios: install haproxy, or set HAPROXY to its path")
        yield nothing
        return
    server, listen = (
        certificates.component_files(pki_folder(bench.cluster.spec.data_dir), APISERVER),
        f"127.0.0.1:{PortAllocator().next()}",
    )
    assert server.cert is not None and server.key is not None
    threads = len(os.sched_getaffinity(0))
    with serve_static_answer(program, server.cert, server.key, listen, threads):
        async with open_sessions(f"https://{listen}", bench.cluster.tls) as callers:

            async def request(caller: int, number: int) -> None:
                await _request(callers[caller], "GET", PODS_PATH, {"Accept": JSON})

            async def calibrate() -> None:
                _, elapsed = await _run_calls(STATIC_REQUESTS, request)
                done.static.append(STATIC_REQUESTS / elapsed)

            await _run_calls(CALLERS, request)  # opens the connections
            yield calibrate


@asynccontextmanager
async def open_sessions(url: str, tls: TlsFiles) -> AsyncIterator[list[aiohttp.ClientSession]]:
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


def _measure_creates(bench: BenchCluster, callers: Sequence[aiohttp.ClientSession], prefix: str, count: int) -> dict[str, Call]:
    def prepared(format_: str) -> list[Pod]:
        return [build_pod(f"{prefix}{format_}-{number:06d}") for number in range(count)]

    bodies = {
        "JSON": [json.dumps({"apiVersion": "v1", "kind": "Pod"} | to_dict(item)).encode() for item in prepared("json")],
        "protobuf": [kubernetes_envelope("v1", "Pod", item.SerializeToString()) for item in prepared("protobuf")],
    }
    direct = prepared("grpc")

    def through(name: str, media_type: str) -> Call:
        headers = {"Content-Type": media_type, "Accept": media_type}

        async def create(caller: int, number: int) -> None:
            await _request(callers[caller], "POST", PODS_PATH, headers, bodies[name][number])

        return create

    calls = {name: through(name, media_type) for name, media_type in FORMATS.items()}
    return calls | {"gRPC": lambda caller, number: bench.clients[0].pods.create(direct[number])}


def _measure_gets(bench: BenchCluster, callers: Sequence[aiohttp.ClientSession]) -> dict[str, Call]:
    def through(media_type: str) -> Call:
        headers = {"Accept": media_type}

        async def get(caller: int, number: int) -> None:
            await _request(callers[caller], "GET", f"{PODS_PATH}/grpc-{number:06d}", headers)

        return get

    calls = {name: through(media_type) for name, media_type in FORMATS.items()}
    return calls | {"gRPC": lambda caller, number: bench.clients[0].pods.get(f"grpc-{number:06d}", NAMESPACE)}


async def _run_calls(count: int, call: Call) -> tuple[list[float], float]:
    """Make `count` calls by CALLERS callers. Return the latencies and the total time in seconds."""
    latencies, numbers, began = list[float](), iter(range(count)), time.monotonic()

    async def caller(index: int) -> None:
        for number in numbers:  # shared between the callers
            sent = time.monotonic()
            await call(index, number)
            latencies.append(time.monotonic() - sent)

    async with asyncio.TaskGroup() as group:
        for index in range(CALLERS):
            group.create_task(caller(index))
    return latencies, time.monotonic() - began


async def _measure_calls(bench: BenchCluster, done: GatewayResults, stage: str, count: int, call: Call) -> None:
    """Make `count` calls, and record latencies, the rate, and CPU times."""
    meter = ProcessMeter(bench.cluster.state)
    done.samples[stage], elapsed = await _run_calls(count, call)
    done.works[stage] = WorkResult(count / elapsed, None, cpu_per_item(meter.read_usage(), count))


def _measure_lists(peer: Peer, session: aiohttp.ClientSession) -> dict[str, Callable[[], Awaitable[int]]]:
    listing: Any = peer.channel.unary_unary("/pinnace.v1.Pods/List", ListRequest.SerializeToString)

    async def direct() -> int:
        request = ListRequest(namespace=NAMESPACE, options=ListOptions(resourceVersion="0"))
        return len(await listing(request))

    def through(media_type: str) -> Callable[[], Awaitable[int]]:
        return lambda: _request(session, "GET", f"{PODS_PATH}?resourceVersion=0", {"Accept": media_type})

    return {name: through(media_type) for name, media_type in FORMATS.items()} | {"gRPC": direct}


async def _lists_timed(bench: BenchCluster, done: GatewayResults, name: str, fetch: Callable[[], Awaitable[int]]) -> None:
    took, size = list[float](), await fetch()
    meter = ProcessMeter(bench.cluster.state)
    for _ in range(LISTS):
        sent = time.monotonic()
        size = await fetch()
        took.append(time.monotonic() - sent)
    done.samples[f"list, {name}"] = took
    done.works[f"list, {name}"] = WorkResult(LISTS / sum(took), None, cpu_per_item(meter.read_usage(), LISTS))
    done.counts[f"list, {name}, kB"] = size // 1000


async def _measure_watch(
    bench: BenchCluster, done: GatewayResults, name: str, watchers: int, events: int, open_stream: Opener, create: Call
) -> None:
    """Measure from the first create to the last event at the last watcher. Each watcher has a connection of its own. The pods
    are created in the same way as they are watched. Raises BenchError if events are missing after WATCH_TIMEOUT."""
    revision = (await bench.clients[0].pods.list(NAMESPACE)).resource_version
    latest = [0.0]

    async def watch(stream: AsyncIterator[int]) -> None:
        seen = 0
        async for count in stream:
            seen, latest[0] = seen + count, time.monotonic()
            if seen >= events:
                return
        raise BenchError(f"a watch through {name} ended after {seen} of {events} events")

    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(open_stream(revision)) for _ in range(watchers)]
        meter, began = ProcessMeter(bench.cluster.state), time.monotonic()
        try:
            async with asyncio.timeout(WATCH_TIMEOUT), asyncio.TaskGroup() as group:
                for stream in streams:
                    group.create_task(watch(stream))
                await _run_calls(events, create)
        except TimeoutError:
            raise BenchError(f"not all events arrived through {name} within {WATCH_TIMEOUT:g} s") from None
        used = meter.read_usage()
    deliveries = watchers * events
    done.works[f"watch, {name}"] = WorkResult(deliveries / (latest[0] - began), None, cpu_per_item(used, deliveries))


def _gateway_opener(session: aiohttp.ClientSession, media_type: str) -> Opener:
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


def _grpc_opener(bench: BenchCluster) -> Opener:
    @asynccontextmanager
    async def open_stream(revision: int) -> AsyncIterator[AsyncIterator[int]]:
        async with _open_connection(bench) as peer:
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
async def _open_connection(bench: BenchCluster) -> AsyncIterator[Peer]:
    """Yield a connection of its own to the API server."""
    peer = Peer(bench.cluster.endpoints[0], tls=ReloadingCredentials(bench.cluster.tls))
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


def cpu_per_item(usage: Mapping[str, ProcessUsage], items: int) -> dict[str, float]:
    """Return the CPU time per item in microseconds by component."""
    result = Counter[str]()
    for process, used in usage.items():
        result.update({name: used.cpu_s for beginning, name in _COMPONENTS.items() if process.startswith(beginning)})
    return {name: result[name] / items * 1e6 for name in _COMPONENTS.values()}


def _read_memory(bench: BenchCluster, component: str) -> int:
    """Return the resident memory of a component with its descendants in MB."""
    running = [record.process for record in bench.cluster.state.processes_of(component) if record.process]
    result = map(procfs.read_usage, (*running, *procfs.find_descendants(running)))
    return round(sum(usage.rss_mb for usage in result if usage))
