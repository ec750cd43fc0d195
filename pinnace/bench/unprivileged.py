"""Row `flood --as`: what a caller without rights does to another user's gets, and to the heartbeats of a leader.

    nobody      connects to the port for tokens, and sends no token
    stranger    has a certificate of the cluster's authority, and no role

Two processes keep a number of calls open, to the methods of one service in turn, and begin a new call as soon as one ends. Each
sends an empty request and never ends its side, so a server that waits for more waits forever. Half of the calls are cancelled
after their first response, the others stay open. The services are those that the API server names over gRPC's reflection.

The gets and the heartbeats are those of `pinnace.bench.flood`. "rise" has those of the first seconds of all floods, in which
all calls arrive at once.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from pinnace.bench import metrics
from pinnace.bench.calibration import Bench
from pinnace.bench.errors import BenchError
from pinnace.bench.flood import PATIENCE, PROCESSES, RISE, SOMEBODY, Arguments, Probe, flooded
from pinnace.bench.report import Run
from pinnace.bench.usage import Meter
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.cluster import certificates
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import APISERVER, SCHEDULER, pki_folder
from pinnace.pki import Subject
from pinnace.pki.folder import Folder, Wanted
from pinnace.runtime.tls import TlsFiles

NOBODY, STRANGER = "nobody", "stranger"
ALL = "all"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MEMORY = "process_resident_memory_bytes"


async def flood_as(bench: Bench, who: str, tokens_at: str, service: str, calls: int, seconds: float, progress: Progress) -> Run:
    """`tokens_at`: the address of the server's port for tokens. `service`: its full name, or "all": one after the other.
    `calls`: how many are kept open. `seconds`: for each service. Raises BenchError, ApiError."""
    folder, server = pki_folder(bench.cluster.spec.data_dir), bench.cluster.endpoints[0]
    wanted = [Wanted(SOMEBODY, Subject(SOMEBODY, ("system:masters",))), Wanted(STRANGER, Subject(STRANGER))]
    Folder(folder).provide(wanted, datetime.now(UTC))
    found = await registered(server, bench.cluster.tls)
    if service not in (ALL, *found):
        raise BenchError(f"the API server has no service {service}: it has {', '.join(found)}")
    chosen = found if service == ALL else {service: found[service]}
    target, tls = (tokens_at, TlsFiles(folder / "ca.crt")) if who == NOBODY else (server, certificates.files(folder, STRANGER))
    samples, counts, meter = dict[str, Sequence[float]](), dict[str, int](), Meter(bench.cluster.state)
    async with _probing(folder, server) as probe:
        samples |= {f"{what}, quiet": times for what, times in (await probe.measure(seconds)).items()}
        for name, methods in chosen.items():
            progress.waiting(f"{calls:,} calls of {name} as {who} for {seconds:g} s")
            async with flooded(target, tls, _calls(methods, calls), seconds + PATIENCE) as made:
                for what, times in (await probe.measure(RISE)).items():
                    samples[f"{what}, rise"] = [*samples.get(f"{what}, rise", ()), *times]
                samples |= {f"{what}, {name}": times for what, times in (await probe.measure(seconds)).items()}
            counts |= {f"{name} {code}": count for code, count in made.outcomes.items() if code != "wanted"}
        lost = probe.lost
    memory = await metrics.read(bench.cluster.state.find(f"{APISERVER}-0").plan.http, MEMORY) or 0
    counts["megabytes_of_the_server"] = int(memory / 1e6)
    items = max(1, sum(counts.values()))
    return Run(bench.calibration, meter.read(), samples, items=items, violations={"leaders_lost": lost}, counts=counts)


@asynccontextmanager
async def _probing(folder: Path, server: str) -> AsyncIterator[Probe]:
    """A probe whose election's stream beats."""
    somebody, scheduler = (Connection([server], tls=certificates.files(folder, each)) for each in (SOMEBODY, SCHEDULER))
    probe = Probe(Client(somebody))
    try:
        await probe.begin(scheduler)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(probe.beat())
            yield probe
            beating.cancel()
    finally:
        await probe.close()
        await somebody.close()
        await scheduler.close()


def _calls(methods: Sequence[str], calls: int) -> Arguments:
    named = [argument for method in methods for argument in ("--method", method)]
    return lambda number: [*named, "--calls", f"{calls // PROCESSES}"]


async def registered(server: str, tls: TlsFiles) -> Mapping[str, Sequence[str]]:
    """The paths of the methods of each service that a server names to its administrator, by the service's full name. Raises
    BenchError."""
    async with grpc.aio.secure_channel(server, tls.read().for_channel()) as channel:
        services = [
            each.name
            for each in (await _asked(channel, ServerReflectionRequest(list_services=""))).list_services_response.service
        ]
        found = dict[str, Sequence[str]]()
        for service in services:
            answer = await _asked(channel, ServerReflectionRequest(file_containing_symbol=service))
            files = map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
            found[service] = [f"/{service}/{method}" for method in _methods(service, files)]
    return found


def _methods(service: str, files: Iterable[FileDescriptorProto]) -> list[str]:
    return [
        method.name
        for file in files
        for each in file.service
        if f"{file.package}.{each.name}" == service
        for method in each.method
    ]


async def _asked(channel: grpc.aio.Channel, request: ServerReflectionRequest) -> ServerReflectionResponse:
    call = channel.stream_stream(
        REFLECTION,
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )(iter((request,)), timeout=PATIENCE)
    try:
        async for answer in call:
            return answer
    except grpc.aio.AioRpcError as error:
        raise BenchError(f"the API server does not say what it serves: {error.details()}") from error
    raise BenchError("the API server does not say what it serves")
