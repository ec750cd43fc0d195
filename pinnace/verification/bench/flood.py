"""Row `flood`: the effect of one user's flood of calls on the gets of another user and on the heartbeats of a leader.

All clients use one API server. Two processes flood it. The gets belong to another user, and the election stream to a scheduler.
Latencies are measured without the flood and then with it. The CPU time covers the whole flood including its start, and excludes
the flooding processes. A get starts when the previous one has ended, so slow gets are underrepresented and percentiles are
optimistic.

Without `--as`, an administrator creates pods at a rate. With `--as`, a caller without permissions keeps calls open:

    nobody      connects to the token port and sends no token
    stranger    has a certificate of the cluster's CA and no role

Each process then keeps a number of calls to the methods of one service open, and starts a new call when one ends. Each call
sends an empty request and does not half-close, so a server that waits for more requests waits forever. Half of the calls are
cancelled after their first response, the others stay open. The services are those that the API server lists by gRPC reflection.
The sample "rise" contains the first seconds of all floods, in which all calls start.
"""

import asyncio
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.client.channel import Duplex
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.election import CAMPAIGN_METHOD, SECRET_SIZE
from pinnace.client.errors import ApiError
from pinnace.cluster import certificates
from pinnace.cluster.spec import APISERVER, ELECTION, SCHEDULER, pki_folder
from pinnace.cluster.startup import StartProgress
from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.bench import BenchError, load
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.flooder import FLOOD_STARTED
from pinnace.verification.bench.load import count_lost_pods
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter, read_metric

PROCESSES = 2
START_TIMEOUT = 30.0
RISE = 2.0
"""Seconds from the start of a flood until its full rate."""
INTERVAL = 0.03
SOMEBODY = "somebody"
RESPONSE_TIMEOUT = 20.0
QUEUED = "apiserver_flowcontrol_request_wait_duration_seconds_count"
Arguments = Callable[[int], Sequence[str]]
"""A function that returns the arguments of a flooding process by its number; see pinnace.verification.bench.flooder."""
HeartbeatStream = Duplex[CampaignRequest, CampaignResponse]
NOBODY, STRANGER = "nobody", "stranger"
ALL_METHODS = "all"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
MEMORY = "process_resident_memory_bytes"


async def measure_flood(bench: BenchCluster, rate: float, seconds: float, progress: StartProgress) -> BenchRun:
    """Measure a flood of creates. `rate`: requested creates per second. The created pods are read back after the measurement.
    Raises BenchError, ApiError."""
    folder, server = pki_folder(bench.cluster.spec.data_dir), bench.cluster.endpoints[0]
    PkiFolder(folder).provide([CertificateSpec(SOMEBODY, Subject(SOMEBODY, ("system:masters",)))], datetime.now(UTC))
    somebody = Connection([server], tls=certificates.component_files(folder, SOMEBODY))
    scheduler = Connection([server], tls=certificates.component_files(folder, SCHEDULER))
    probe = LeaderProbe(Client(somebody))
    try:
        await probe.begin_election(scheduler)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(probe.send_heartbeats())
            quiet = await probe.measure_calls(seconds)
            progress.waiting(f"{rate:,.0f} creates a second for {seconds:g} s")
            meter = ProcessMeter(bench.cluster.state)
            limit = RISE + seconds + RESPONSE_TIMEOUT
            async with flood_server(bench.cluster.endpoints[0], bench.cluster.tls, _create_arguments(rate), limit) as made:
                await probe.measure_calls(RISE)
                crowded = await probe.measure_calls(seconds)
            usage = meter.read_usage()
            beating.cancel()
        waited = await read_metric(bench.cluster.state.find_process(f"{APISERVER}-0").plan.http, QUEUED) or 0
        violations = await _find_violations(bench.clients[0], made, probe)
    finally:
        await probe.close()
        await somebody.close()
        await scheduler.close()
    outcomes, created = made.outcomes, made.outcomes["OK"]
    counts = {
        "wanted": outcomes["wanted"],
        "created": created,
        "refused": outcomes["UNAVAILABLE"],
        "otherwise_failed": outcomes.total() - outcomes["wanted"] - created - outcomes["UNAVAILABLE"],
        "queued": waited,
    }
    samples = {f"{what}, {when}": result[what] for when, result in (("quiet", quiet), ("flooded", crowded)) for what in result}
    return BenchRun(bench.calibration, usage, samples, items=created, violations=violations, counts=counts)


@dataclass(slots=True)
class FloodResult:
    """The results of a flood as reported by its processes; see pinnace.verification.bench.flooder.CreateFlood."""

    outcomes: Counter[str] = field(default_factory=Counter)
    created: list[str] = field(default_factory=list)


class LeaderProbe:
    """Continuously gets one pod, and sends heartbeats for a session that leads an election."""

    def __init__(self, client: Client) -> None:
        self.lost = 0
        self._client = client
        self._stream: HeartbeatStream | None = None
        self._beats: list[float] = []

    async def begin_election(self, connection: Connection) -> None:
        await self._client.pods.create(load.build_pod("probe"))
        self._stream = await connection.duplex(CAMPAIGN_METHOD, CampaignRequest, CampaignResponse)
        await self._stream.write(
            CampaignRequest(
                open=CampaignRequest.Open(election=ELECTION, holder="probe", secret=secrets.token_bytes(SECRET_SIZE))
            )
        )
        opened = await self._stream.read(RESPONSE_TIMEOUT)
        if opened is None or not opened.HasField("opened"):
            raise BenchError(f"the API server did not open a session: {opened}")

    async def measure_calls(self, seconds: float) -> dict[str, list[float]]:
        """Return the duration of each get and each heartbeat in seconds. Raises ApiError."""
        gets, end = list[float](), time.monotonic() + seconds
        self._beats = []
        while (now := time.monotonic()) < end:
            await self._client.pods.get("probe", load.NAMESPACE)
            gets.append(time.monotonic() - now)
            await asyncio.sleep(INTERVAL)
        return {"get": gets, "heartbeat": self._beats.copy()}  # heartbeats continue while a flood ends

    async def send_heartbeats(self) -> None:
        """Send heartbeats until cancelled or deposed."""
        number = 0
        while self._stream is not None:
            number += 1
            sent = time.monotonic()
            try:
                answered = await self._is_acknowledged(self._stream, number)
            except ApiError:
                answered = False
            if not answered:
                self.lost += 1
                return
            self._beats.append(time.monotonic() - sent)
            await asyncio.sleep(INTERVAL)

    async def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    async def _is_acknowledged(self, stream: HeartbeatStream, number: int) -> bool:
        """Send a heartbeat, and return whether it was acknowledged. False means that the session has ended. Raises ApiError."""
        await stream.write(CampaignRequest(heartbeat=CampaignRequest.Heartbeat(sequence=number)))
        while (response := await stream.read(RESPONSE_TIMEOUT)) is not None and not response.HasField("lost"):
            if response.HasField("heartbeat") and response.heartbeat.sequence == number:
                return True
        return False


async def _find_violations(client: Client, made: FloodResult, probe: LeaderProbe) -> dict[str, int]:
    """Return the violations. Flow control must prevent that a flood deposes a leader."""
    return {"lost": await count_lost_pods(client, made.created), "leaders_lost": probe.lost}


def _create_arguments(rate: float) -> Arguments:
    return lambda number: ["--rate", f"{rate / PROCESSES}", "--prefix", f"flood-{number}-"]


@asynccontextmanager
async def flood_server(
    server: str, tls: TlsFiles, arguments: Arguments, limit: float, *, nice: int = 0
) -> AsyncIterator[FloodResult]:
    """Run a flood during the body, for at most `limit` seconds. The result contains the outcomes after the body. `arguments`:
    the arguments of a process. `nice`: its niceness. Raises BenchError."""
    made = FloodResult()
    command = [
        "nice",
        "-n",
        f"{nice}",
        sys.executable,
        "-m",
        "pinnace.verification.bench.flooder",
        "--server",
        server,
        "--ca",
        f"{tls.ca}",
        "--limit",
        f"{limit}",
    ]
    if tls.cert is not None:
        command += ["--cert", f"{tls.cert}", "--key", f"{tls.key}"]
    processes = [
        await asyncio.create_subprocess_exec(*command, *arguments(number), stdout=asyncio.subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout
            async with asyncio.timeout(START_TIMEOUT):
                if (await process.stdout.readline()).decode().strip() != FLOOD_STARTED:
                    raise BenchError("a flooding process did not start")
        yield made
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                async with asyncio.timeout(RESPONSE_TIMEOUT):
                    output, _ = await process.communicate()
            except TimeoutError:
                raise BenchError(f"a flooding process did not exit within {RESPONSE_TIMEOUT:g} s after SIGTERM") from None
            if process.returncode != 0:
                raise BenchError(f"a flooding process exited with code {process.returncode}")
            result = json.loads(output)
            made.outcomes.update(result["outcomes"])
            made.created += result["created"]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def flood_as(
    bench: BenchCluster, who: str, tokens_at: str, service: str, calls: int, seconds: float, progress: StartProgress
) -> BenchRun:
    """Measure a flood of open calls. `tokens_at`: the address of the server's token port. `service`: its full name, or "all"
    for all services in sequence. `calls`: the number of open calls. `seconds`: the duration per service. Raises BenchError,
    ApiError."""
    folder, server = pki_folder(bench.cluster.spec.data_dir), bench.cluster.endpoints[0]
    wanted = [CertificateSpec(SOMEBODY, Subject(SOMEBODY, ("system:masters",))), CertificateSpec(STRANGER, Subject(STRANGER))]
    PkiFolder(folder).provide(wanted, datetime.now(UTC))
    result = await list_methods_by_service(server, bench.cluster.tls)
    if service not in (ALL_METHODS, *result):
        raise BenchError(f"unknown service {service}; the API server has {', '.join(result)}")
    chosen = result if service == ALL_METHODS else {service: result[service]}
    target, tls = (
        (tokens_at, TlsFiles(folder / "ca.crt")) if who == NOBODY else (server, certificates.component_files(folder, STRANGER))
    )
    samples, counts, meter = dict[str, Sequence[float]](), dict[str, int](), ProcessMeter(bench.cluster.state)
    async with _run_probe(folder, server) as probe:
        samples |= {f"{what}, quiet": times for what, times in (await probe.measure_calls(seconds)).items()}
        for name, methods in chosen.items():
            progress.waiting(f"{calls:,} calls of {name} as {who} for {seconds:g} s")
            async with flood_server(target, tls, _call_arguments(methods, calls), seconds + RESPONSE_TIMEOUT) as made:
                for what, times in (await probe.measure_calls(RISE)).items():
                    samples[f"{what}, rise"] = [*samples.get(f"{what}, rise", ()), *times]
                samples |= {f"{what}, {name}": times for what, times in (await probe.measure_calls(seconds)).items()}
            counts |= {f"{name} {code}": count for code, count in made.outcomes.items() if code != "wanted"}
        lost = probe.lost
    memory = await read_metric(bench.cluster.state.find_process(f"{APISERVER}-0").plan.http, MEMORY) or 0
    counts["megabytes_of_the_server"] = int(memory / 1e6)
    items = max(1, sum(counts.values()))
    return BenchRun(
        bench.calibration, meter.read_usage(), samples, items=items, violations={"leaders_lost": lost}, counts=counts
    )


@asynccontextmanager
async def _run_probe(folder: Path, server: str) -> AsyncIterator[LeaderProbe]:
    """Yield a probe that is sending heartbeats for its election."""
    somebody, scheduler = (
        Connection([server], tls=certificates.component_files(folder, item)) for item in (SOMEBODY, SCHEDULER)
    )
    probe = LeaderProbe(Client(somebody))
    try:
        await probe.begin_election(scheduler)
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(probe.send_heartbeats())
            yield probe
            beating.cancel()
    finally:
        await probe.close()
        await somebody.close()
        await scheduler.close()


def _call_arguments(methods: Sequence[str], calls: int) -> Arguments:
    named = [argument for method in methods for argument in ("--method", method)]
    return lambda number: [*named, "--calls", f"{calls // PROCESSES}"]


async def list_methods_by_service(server: str, tls: TlsFiles) -> Mapping[str, Sequence[str]]:
    """Return the method paths of each service that a server lists for an administrator, by full service name. Raises
    BenchError."""
    async with grpc.aio.secure_channel(server, tls.read().for_channel()) as channel:
        services = [
            item.name
            for item in (
                await _call_reflection(channel, ServerReflectionRequest(list_services=""))
            ).list_services_response.service
        ]
        result = dict[str, Sequence[str]]()
        for service in services:
            answer = await _call_reflection(channel, ServerReflectionRequest(file_containing_symbol=service))
            files = map(FileDescriptorProto.FromString, answer.file_descriptor_response.file_descriptor_proto)
            result[service] = [f"/{service}/{method}" for method in _method_names(service, files)]
    return result


def _method_names(service: str, files: Iterable[FileDescriptorProto]) -> list[str]:
    return [
        method.name
        for file in files
        for descriptor_proto in file.service
        if f"{file.package}.{descriptor_proto.name}" == service
        for method in descriptor_proto.method
    ]


async def _call_reflection(channel: grpc.aio.Channel, request: ServerReflectionRequest) -> ServerReflectionResponse:
    call = channel.stream_stream(
        REFLECTION,
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )(iter((request,)), timeout=RESPONSE_TIMEOUT)
    try:
        async for answer in call:
            return answer
    except grpc.aio.AioRpcError as error:
        raise BenchError(f"the API server did not list its services: {error.details()}") from error
    raise BenchError("the API server did not list its services")
