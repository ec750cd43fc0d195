"""Row `custom`: many CustomResourceDefinitions and custom objects: time to create, list and watch them, memory and restart of
each component with them, and what a get of another user takes meanwhile.

    definitions, 16 callers --> Established everywhere --> objects in batches (gRPC) --> objects one by one (gateway)
    --> lists, watches, discovery, OpenAPI --> API server, gateway and controllers are killed and started again, in turn

Half of the objects are of one kind; the others are spread over all kinds.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import ConfigMap
from pinnace.api.customobjects import write_content
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, CustomResource
from pinnace.apiextensions.kinds import CustomKind, kind_of
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, NotFound, from_status
from pinnace.client.resource import ResourceClient
from pinnace.cluster import processes
from pinnace.cluster.errors import StartFailed
from pinnace.cluster.spec import APISERVER, CONTROLLERS, ETCD, GATEWAY
from pinnace.cluster.startup import StartProgress
from pinnace.runtime import procfs
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.gateway import open_sessions
from pinnace.verification.bench.load import CALLERS, NAMESPACE
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

GROUP = "bench.example.com"
ESTABLISH_TIMEOUT, SERVE_TIMEOUT, PORT_TIMEOUT = 300.0, 120.0, 20.0
BATCH, BATCH_CALLERS = 250, 4
THROUGH_GATEWAY = 2_000
"""The maximum number of objects that are created through the gateway."""
GET_INTERVAL = 0.02
"""Seconds between two gets of the other user."""
QUIET = 5.0
SETTLING = 5.0
_PARTS = {APISERVER: "API servers", GATEWAY: "gateways", CONTROLLERS: "controllers", ETCD: "etcd"}
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(slots=True)
class CustomResults:
    """Latencies in seconds by stage, and counters by name."""

    samples: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    async def measure(self, stage: str, call: Awaitable[Any]) -> Any:
        """Await a call and record its duration."""
        began = time.monotonic()
        result = await call
        self.samples.setdefault(stage, []).append(time.monotonic() - began)
        return result


def build_definition(number: int, group: str = GROUP) -> CustomResourceDefinition:
    """Return a definition of about 4 kB with 40 fields, a rule, columns, and the subresources status and scale."""
    fields: dict[str, Any] = {
        f"field{index:02d}": {"type": "string", "maxLength": 64, "description": f"Field {index} of the specification."}
        for index in range(36)
    }
    fields |= {
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "limit": {"type": "integer"},
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    rule = {"rule": "!has(self.limit) || self.replicas <= self.limit", "message": "more replicas than the limit"}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": [rule]}
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}, "phase": {"type": "string"}}}
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
    }  # fmt: skip
    kinds = {
        "plural": f"things{number}",
        "singular": f"thing{number}",
        "kind": f"Thing{number}",
        "listKind": f"Thing{number}List",
    }
    document = {
        "metadata": {"name": f"things{number}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": kinds, "versions": [version]},
    }
    return from_dict(CustomResourceDefinition, document)


def build_content(number: int) -> dict[str, Any]:
    """Return the fields of an object of about 300 bytes."""
    texts = {f"field{index:02d}": f"value {number} of field {index}" for index in range(5)}
    return {"spec": {"replicas": number % 10, "limit": 10, "labels": {"number": str(number)}, **texts}}


def build_object(resource: CustomResource, number: int) -> CustomObject:
    obj = CustomObject(apiVersion=resource.api_version, kind=resource.kind, content=write_content(build_content(number)))
    obj.metadata.name, obj.metadata.namespace = f"object-{number:06d}", NAMESPACE
    return obj


async def measure_custom(bench: BenchCluster, definitions: int, objects: int, progress: StartProgress) -> BenchRun:
    """Measure all stages in turn. The rate is that of creates in batches. Raises BenchError, ApiError, ClusterError."""
    results, meter = CustomResults(), ProcessMeter(bench.cluster.state)
    client, gateway = bench.clients[0], bench.cluster.state.processes_of(GATEWAY)[0].plan.address
    probe = ConfigMap()
    probe.metadata.name, probe.metadata.namespace = "probe", NAMESPACE
    await client.of(CONFIG_MAPS).create(probe)
    _record_memory(bench, results, "before")
    async with _gets_measured(client, results, "get, quiet"):
        await asyncio.sleep(QUIET)
    progress.waiting(f"{definitions:,} definitions")
    async with _gets_measured(client, results, "get, definitions"):
        kinds = await results.measure("definitions", _create_definitions(bench, results, definitions))
    progress.done(f"{definitions:,} definitions established in {results.samples['definitions'][0]:.1f} s")
    async with open_sessions(f"https://{gateway}", bench.cluster.tls) as sessions:
        await _wait_until_served(sessions[0], kinds[-1].storage.resource)
        _record_memory(bench, results, "with definitions")
        progress.waiting(f"{objects:,} objects in batches")
        async with _gets_measured(client, results, "get, objects"):
            began = time.monotonic()
            created = await _create_objects(bench, kinds, objects)
            elapsed = time.monotonic() - began
        results.samples["objects in batches"] = [elapsed]
        progress.done(f"{created:,} objects created in {elapsed:.1f} s")
        largest = kinds[0].storage.resource
        singles = min(THROUGH_GATEWAY, objects)
        progress.waiting(f"{singles:,} objects through the gateway")
        began = time.monotonic()
        results.samples["create, gateway"] = await _create_through_gateway(sessions, largest, objects, singles)
        results.counts["creates/s through the gateway"] = round(singles / (time.monotonic() - began))
        await asyncio.sleep(SETTLING)
        _record_memory(bench, results, "with objects")
        progress.waiting("lists, watches and documents")
        async with _gets_measured(client, results, "get, reads"):
            listed = await _measure_reads(client, sessions[0], largest, results)
        progress.done("lists, watches and documents read")
        results.counts["objects of the largest kind"] = listed
        _record_memory(bench, results, "after reads")
    usage = meter.read_usage()
    for component in (APISERVER, GATEWAY, CONTROLLERS):
        for record in bench.cluster.state.processes_of(component)[:1]:
            progress.waiting(f"the restart of {record.name}")
            seconds = await _restart(bench, record.name)
            results.samples[f"restart, {component}"] = [seconds]
            progress.done(f"{record.name} ready {seconds:.1f} s after its start")
            if component == GATEWAY:
                gateway = bench.cluster.state.processes_of(GATEWAY)[0].plan.address  # it may have another port now
                async with open_sessions(f"https://{gateway}", bench.cluster.tls) as sessions:
                    await results.measure("first get, gateway", _wait_until_served(sessions[0], largest))
    await asyncio.sleep(SETTLING)
    _record_memory(bench, results, "after restarts")
    lost = (created // 2 + created % 2 + -(-(created // 2) // definitions) + singles) - listed
    return BenchRun(
        bench.calibration, usage, samples=results.samples, items=created, rate=created / elapsed,
        violations={"lost_objects": max(0, lost)}, counts=results.counts,
    )  # fmt: skip


async def _create_definitions(bench: BenchCluster, results: CustomResults, count: int) -> list[CustomKind]:
    """Create definitions, and wait until all are established. Return their kinds."""
    numbers = iter(range(count))

    async def create(client: Client) -> None:
        for number in numbers:  # shared between the callers
            await results.measure("create, definition", client.of(CUSTOM_RESOURCE_DEFINITIONS).create(build_definition(number)))

    async with asyncio.TaskGroup() as group:
        for caller in range(CALLERS):
            group.create_task(create(bench.clients[caller % len(bench.clients)]))
    deadline = time.monotonic() + ESTABLISH_TIMEOUT
    while True:
        listed = (await bench.clients[0].of(CUSTOM_RESOURCE_DEFINITIONS).list(page_size=100)).items
        kinds = {kind.plural: kind for definition in listed if (kind := kind_of(definition)) is not None}
        if len(kinds) >= count:
            return [kinds[f"things{number}"] for number in range(count)]
        if time.monotonic() > deadline:
            raise BenchError(f"{len(kinds):,} of {count:,} definitions are established after {ESTABLISH_TIMEOUT:g} s")
        await asyncio.sleep(0.2)


async def _create_objects(bench: BenchCluster, kinds: list[CustomKind], count: int) -> int:
    """Create half of the objects in the first kind, the others in all kinds. Return their number. Raises BenchError."""
    half = count - count // 2
    calls: list[tuple[CustomResource, range]] = [
        (kinds[0].storage.resource, range(start, min(start + BATCH, half))) for start in range(0, half, BATCH)
    ]
    each, more = divmod(count // 2, len(kinds))
    start = half
    for index, kind in enumerate(kinds):
        end = start + each + (index < more)
        calls += [(kind.storage.resource, range(at, min(at + BATCH, end))) for at in range(start, end, BATCH)]
        start = end
    rounds = iter(calls)

    async def create(client: Client) -> None:
        for resource, numbers in rounds:  # shared between the callers
            items = await client.of(resource).create_batch([build_object(resource, number) for number in numbers])
            for item in items:
                if item.HasField("error"):
                    raise BenchError(f"{resource.kind} {item.name} was not created: {from_status(item.error)}")

    async with asyncio.TaskGroup() as group:
        for caller in range(BATCH_CALLERS):
            group.create_task(create(bench.clients[caller % len(bench.clients)]))
    return start


async def _create_through_gateway(
    sessions: list[aiohttp.ClientSession], resource: CustomResource, first: int, count: int
) -> list[float]:
    """Create objects with the numbers from `first`. Return the latencies."""
    numbers, latencies = iter(range(first, first + count)), list[float]()
    path = _path(resource)

    async def create(session: aiohttp.ClientSession) -> None:
        for number in numbers:  # shared between the callers
            metadata = {"name": f"object-{number:06d}", "namespace": NAMESPACE}
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **build_content(number)}
            sent = time.monotonic()
            await _request(session, "POST", path, body=json.dumps(body).encode())
            latencies.append(time.monotonic() - sent)

    async with asyncio.TaskGroup() as group:
        for session in sessions:
            group.create_task(create(session))
    return latencies


async def _measure_reads(
    client: Client, session: aiohttp.ClientSession, resource: CustomResource, results: CustomResults
) -> int:
    """Measure lists, the initial state of a watch, and documents. Return the number of objects of the kind."""
    objects = client.of(resource)
    for _ in range(2):
        listed = len((await results.measure("list, gRPC", objects.list(NAMESPACE))).items)
        await results.measure("list, gateway", _list_pages(session, _path(resource)))
        await results.measure("watch to the present, gRPC", _watch_initial(objects, listed))
        await results.measure("watch to the present, gateway", _watch_gateway(session, _path(resource), listed))
        await results.measure("discovery", _request(session, "GET", "/apis", accept=_AGGREGATED))
        await results.measure("OpenAPI v3, index", _request(session, "GET", "/openapi/v3"))
        await results.measure("OpenAPI v3, one document", _request(session, "GET", f"/openapi/v3/apis/{resource.api_version}"))
        await results.measure("OpenAPI v2", _request(session, "GET", "/openapi/v2"))
    return listed


async def _list_pages(session: aiohttp.ClientSession, path: str) -> None:
    token = ""
    while True:
        page = json.loads(await _request(session, "GET", path, {"limit": "500", "continue": token}))
        token = page["metadata"].get("continue", "")
        if not token:
            return


async def _watch_initial(objects: ResourceClient[CustomObject], count: int) -> None:
    """Read the present objects by a watch."""
    seen = 0
    stream = objects.watch(NAMESPACE)
    try:
        async for batch in stream:
            seen += len(batch.events)
            if seen >= count:
                return
    finally:
        await stream.aclose()
    raise BenchError(f"a watch ended after {seen:,} of {count:,} objects")


async def _watch_gateway(session: aiohttp.ClientSession, path: str, count: int) -> None:
    seen = 0
    async with session.get(path, params={"watch": "true"}) as answer:
        async for chunk in answer.content.iter_any():
            seen += chunk.count(b"\n")
            if seen >= count:
                return
    raise BenchError(f"a watch through the gateway ended after {seen:,} of {count:,} objects")


async def _wait_until_served(session: aiohttp.ClientSession, resource: CustomResource) -> None:
    """Wait until the gateway serves a kind. Raises BenchError."""
    deadline = time.monotonic() + SERVE_TIMEOUT
    while True:
        try:
            await _request(session, "GET", _path(resource), {"limit": "1"})
            return
        except (BenchError, aiohttp.ClientError) as error:
            if time.monotonic() > deadline:
                raise BenchError(f"{resource.plural} is not served after {SERVE_TIMEOUT:g} s: {error}") from error
        await asyncio.sleep(0.05)


async def _restart(bench: BenchCluster, name: str) -> float:
    """Kill a process, and start it again. Return the seconds until it is ready. Raises ClusterError."""
    bench.cluster.kill(name)
    ended = bench.cluster.state.find_process(name).process
    await processes.wait_ended([ended] if ended else [], PORT_TIMEOUT)
    deadline = time.monotonic() + PORT_TIMEOUT
    while True:
        began = time.monotonic()
        try:
            await bench.cluster.start(name, timeout=SERVE_TIMEOUT)
            return time.monotonic() - began
        except StartFailed:  # the kernel closes the sockets of a killed process later
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


@asynccontextmanager
async def _gets_measured(client: Client, results: CustomResults, stage: str) -> AsyncIterator[None]:
    """Get a ConfigMap at a steady rate, as another user would, and record the latencies."""

    async def get() -> None:
        while True:
            try:
                await results.measure(stage, client.of(CONFIG_MAPS).get("probe", NAMESPACE))
            except NotFound:
                raise
            except ApiError:
                results.counts["failed gets"] = results.counts.get("failed gets", 0) + 1
            await asyncio.sleep(GET_INTERVAL)

    results.samples[stage] = []
    results.counts.setdefault("failed gets", 0)
    task = asyncio.create_task(get())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _record_memory(bench: BenchCluster, results: CustomResults, when: str) -> None:
    """Record the resident memory of each component, in MB, summed over its processes."""
    for component, name in _PARTS.items():
        running = [record.process for record in bench.cluster.state.processes_of(component) if record.process]
        usages = map(procfs.read_usage, (*running, *procfs.find_descendants(running)))
        results.counts[f"{name}, MB {when}"] = round(sum(usage.rss_mb for usage in usages if usage))


def _path(resource: CustomResource) -> str:
    return f"/apis/{resource.api_version}/namespaces/{NAMESPACE}/{resource.plural}"


async def _request(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    params: Mapping[str, str] | None = None,
    *,
    body: bytes | None = None,
    accept: str = "application/json",
) -> bytes:
    """Send a request, and return the body of the answer. Raises BenchError unless it succeeds."""
    headers = {"Accept": accept} | ({"Content-Type": "application/json"} if body is not None else {})
    async with session.request(method, path, headers=headers, data=body, params=params) as answer:
        data = await answer.read()
        if answer.status >= 400:
            raise BenchError(f"{method} {path}: {answer.status} {data[:200].decode(errors='replace')}")
        return data
