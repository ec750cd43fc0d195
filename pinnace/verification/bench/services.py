"""Row `services`: the service proxy under load, beside HAProxy and beside direct connections in the same run.

* requests through a cluster IP during rolling updates, and while a pod is killed;
* the time from a change of endpoints until traffic follows it, with many services;
* a large stream and small requests at once: through the proxy, through HAProxy, and directly;
* the distribution of connections over three pods;
* as root: new connections per second through nftables rules, in network namespaces, with one service and with many.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import PodTemplateSpec, Service
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import DEPLOYMENTS, ENDPOINT_SLICES, SERVICES
from pinnace.api.wellknown import SERVICE_LABEL
from pinnace.client.client import Client
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.startup import StartProgress
from pinnace.verification.bench import BenchError, pages
from pinnace.verification.bench.calibration import BenchCluster
from pinnace.verification.bench.haproxy import find_haproxy, forward_tcp
from pinnace.verification.bench.load import NAMESPACE
from pinnace.verification.bench.pages import PageLoad
from pinnace.verification.bench.report import BenchRun
from pinnace.verification.bench.usage import ProcessMeter

CONNECTIONS = 3_000
"""Connections of the test of the distribution."""
ENDPOINTS = 10
SMALL_REQUESTS = 100
STREAM_SECONDS = 2.0
"""The minimum duration of a large stream."""
CHANGE_TIMEOUT = 30.0
STEP_TIMEOUT = 300.0
BACKEND = """
import socket, sys, threading
block = bytes(1 << 20)
def serve(c):
    try:
        if c.recv(1) == b"S":
            while True:
                c.sendall(block)
        else:
            c.sendall(bytes(100))
    except OSError:
        pass
    c.close()
s = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=1000)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
"""A stream until the client closes, or an answer of 100 bytes."""
NFT_SERVICES = (1, 5_000)
NFT_SECONDS, NFT_ROUNDS = 2.0, 3
NFT_CLIENT = """
import json, socket, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
began, count = time.monotonic(), 0
while time.monotonic() - began < seconds:
    s = socket.create_connection((host, port), 5)
    s.recv(1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))  # reset: leaves no TIME_WAIT
    s.close()
    count += 1
print(json.dumps(count / (time.monotonic() - began)))
"""
NFT_SERVER = """
import socket
s = socket.create_server(("10.79.0.2", 8080), backlog=4096)
print("ready", flush=True)
while True:
    c = s.accept()[0]
    c.sendall(b"x")
    try:
        c.recv(1)
    except OSError:
        pass
    c.close()
"""


async def measure_services(bench: BenchCluster, requests: int, count: int, changed: int, progress: StartProgress) -> BenchRun:
    """Measure all parts in turn. `requests`: through rolling updates. `count`: services with ENDPOINTS endpoints each.
    `changed`: changes of endpoints. The rate is that of requests. Raises BenchError, ApiError."""
    client, began = bench.clients[0], ProcessMeter(bench.cluster.state)
    counts: dict[str, int] = {}
    samples: dict[str, Sequence[float]] = {}
    ports = PortAllocator()
    await client.of(DEPLOYMENTS).create(pages.build_page_deployment("web", 3))
    web = await pages.create_page_service(
        client, pages.build_page_service("web", type="NodePort"), "127.250.255.1", ports.next()
    )
    await pages.wait_for_deployment(client, "web", 3)
    address = web.spec.clusterIP
    await _wait_for_answer(address)

    progress.waiting(f"{CONNECTIONS:,} connections")
    spread = await _count_answers(address)
    counts["evenness, chi-square p in 1/1000"] = round(pages.chi_square_p_value(spread) * 1000)
    rate = await _measure_rolling_update(client, address, requests, counts, samples, progress)
    await _measure_after_kill(client, address, counts, progress)
    samples["change of endpoints to traffic"] = await _measure_endpoint_changes(client, count, changed, progress)
    await _measure_streams(client, ports, counts, samples, progress)
    await asyncio.to_thread(_measure_nftables, counts, progress)
    return BenchRun(bench.calibration, began.read_usage(), samples=samples, items=requests, rate=rate, counts=counts)


async def _wait_for_answer(address: str) -> None:
    async with asyncio.timeout(CHANGE_TIMEOUT):
        while True:
            try:
                await pages.request_page(address, 80)
                return
            except OSError:
                await asyncio.sleep(0.05)


async def _count_answers(address: str) -> Counter[str]:
    async with PageLoad(address, 80) as load:
        await load.wait_for_requests(CONNECTIONS, STEP_TIMEOUT)
    if load.failures:
        raise BenchError(f"{len(load.failures)} of {load.requests} requests failed: {load.failures[0]}")
    return load.answers


async def _measure_rolling_update(
    client: Client,
    address: str,
    requests: int,
    counts: dict[str, int],
    samples: dict[str, Sequence[float]],
    progress: StartProgress,
) -> float:
    version = 1
    began = time.monotonic()
    async with PageLoad(address, 80) as load:
        while load.requests < requests:
            version += 1
            progress.waiting(f"rolling update {version - 1}: {load.requests:,} of {requests:,} requests")
            new = pages.build_page_deployment("web", 3, str(version)).spec.template
            await client.of(DEPLOYMENTS).modify("web", NAMESPACE, partial(_set_pod_template, new))
            await pages.wait_for_deployment(client, "web", 3, STEP_TIMEOUT)
    counts["updates"] = version - 1
    counts["updates, requests"] = load.requests
    counts["updates, failed"] = len(load.failures)
    samples["request during updates"] = load.latencies
    return load.requests / (time.monotonic() - began)


def _set_pod_template(template: PodTemplateSpec, each: Deployment) -> None:
    each.spec.template.CopyFrom(template)


async def _measure_after_kill(client: Client, address: str, counts: dict[str, int], progress: StartProgress) -> None:
    progress.waiting("a killed pod")
    victim = next(
        item
        for item in (await client.pods.list(NAMESPACE)).items
        if item.status.podIP and not item.metadata.HasField("deletionTimestamp")
    )
    async with PageLoad(address, 80) as load:
        await load.wait_for_requests(200, STEP_TIMEOUT)
        kill_listener(victim.status.podIP, pages.PORT)
        await load.wait_for_requests(load.requests + 1_000, STEP_TIMEOUT)
    counts["kill, requests"] = load.requests
    counts["kill, callers"] = load.callers
    counts["kill, failed"] = len(load.failures)


def kill_listener(address: str, port: int) -> None:
    """Kill the process that listens at this IPv4 address. Raises BenchError if there is none."""
    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    wanted = f"{number:08X}:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{fields[9]}]" for fields in lines if fields[1] == wanted and fields[3] == "0A"}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            result = {str(path.readlink()) for path in folder.iterdir()}
        except OSError:  # of another user, or ended
            continue
        if result & inodes:
            os.kill(int(folder.parent.name), signal.SIGKILL)
            return
    raise BenchError(f"no process listens at {address}:{port}")


async def _measure_endpoint_changes(client: Client, count: int, changed: int, progress: StartProgress) -> list[float]:
    """Move services from ten endpoints to ten others, one service at a time."""
    progress.waiting(f"{count:,} services with {ENDPOINTS} endpoints")
    groups = [[f"127.249.{group}.{index}" for index in range(1, ENDPOINTS + 1)] for group in range(2)]
    port = PortAllocator().next()
    probe = await client.of(SERVICES).create(_build_service("probe", ""))
    numbers = range(count)
    made = [
        _build_service(f"many-{item}", "" if probe.spec.clusterIP else f"127.250.{item // 250}.{item % 250 + 1}")
        for item in numbers
    ]
    async with _start_named_servers(groups, port):
        for start in range(0, count, 50):
            part = made[start : start + 50]
            await asyncio.gather(*(client.of(SERVICES).create(service) for service in part))
            new = (_build_endpoint_slice(service.metadata.name, groups[0], port) for service in part)
            await asyncio.gather(*(client.of(ENDPOINT_SLICES).create(endpoint_slice) for endpoint_slice in new))
        stored = {item.metadata.name: item.spec.clusterIP for item in (await client.of(SERVICES).list(NAMESPACE)).items}
        await _measure_until_named_server_answers(stored[f"many-{count - 1}"], "0")
        result = []
        for number in range(changed):
            name = f"many-{number * 7919 % count}"
            progress.waiting(f"change {number + 1} of {changed}")
            group = 1 - int(await _read_server_name(stored[name]))
            slices = client.of(ENDPOINT_SLICES)
            wanted = await slices.get(name, NAMESPACE)
            wanted.CopyFrom(_move_endpoints(wanted, groups[group]))
            began = time.monotonic()
            update = asyncio.ensure_future(slices.update(wanted))
            await _measure_until_named_server_answers(stored[name], str(group))
            result.append(time.monotonic() - began)
            await update
        return result


def _build_service(name: str, address: str) -> Service:
    """Return a service without selector."""
    made = pages.build_page_service(name)
    made.spec.selector.clear()
    made.spec.clusterIP = address
    return made


def _build_endpoint_slice(service: str, addresses: Sequence[str], port: int) -> EndpointSlice:
    made = EndpointSlice(addressType="IPv4")
    made.metadata.name, made.metadata.namespace = service, NAMESPACE
    made.metadata.labels[SERVICE_LABEL] = service
    made.ports.add(name="http", protocol="TCP", port=port)
    return _move_endpoints(made, addresses)


def _move_endpoints(old: EndpointSlice, addresses: Sequence[str]) -> EndpointSlice:
    made = EndpointSlice()
    made.CopyFrom(old)
    del made.endpoints[:]
    for address in addresses:
        made.endpoints.add(addresses=[address]).conditions.ready = True
    return made


@asynccontextmanager
async def _start_named_servers(groups: Sequence[Sequence[str]], port: int) -> AsyncIterator[None]:
    """Start servers that send the number of their group."""
    servers = []
    try:
        for number, addresses in enumerate(groups):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = number) -> None:
                writer.write(str(number).encode())
                writer.close()

            servers.append(await asyncio.start_server(serve, list(addresses), port))
        yield
    finally:
        for server in servers:
            server.close()


async def _read_server_name(address: str) -> str:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(address, 80)
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()


async def _measure_until_named_server_answers(address: str, name: str) -> None:
    """Connect until this group answers."""
    async with asyncio.timeout(CHANGE_TIMEOUT):
        while True:
            try:
                if await _read_server_name(address) == name:
                    return
            except OSError:
                await asyncio.sleep(0.001)


async def _measure_streams(
    client: Client, ports: PortAllocator, counts: dict[str, int], samples: dict[str, Sequence[float]], progress: StartProgress
) -> None:
    host, port = "127.249.2.1", ports.next()
    with _run_process([sys.executable, "-S", "-c", BACKEND, host, str(port)], "ready"):
        made = await client.of(SERVICES).create(_build_service("stream", ""))
        if not made.spec.clusterIP:
            made = await client.of(SERVICES).modify(
                "stream", NAMESPACE, lambda service: setattr(service.spec, "clusterIP", "127.250.255.2")
            )
        await client.of(ENDPOINT_SLICES).create(_build_endpoint_slice("stream", [host], port))
        ways = {"the proxy": (made.spec.clusterIP, 80), "direct": (host, port)}
        with ExitStack() as stack:
            if (program := find_haproxy()) is not None:
                ways["HAProxy"] = "127.0.0.1", ports.next()
                stack.enter_context(forward_tcp(program, f"{host}:{port}", "{}:{}".format(*ways["HAProxy"])))
            for name, where in ways.items():
                progress.waiting(f"a stream and small requests: {name}")
                rate, alone, latencies = await asyncio.to_thread(_measure_stream, where)
                counts[f"stream, {name}, MB/s"] = round(rate)
                counts[f"small requests beside it, {name}, per second"] = round(len(latencies) / sum(latencies))
                counts[f"small requests alone, {name}, per second"] = round(alone)
                samples[f"small request beside a stream, {name}"] = latencies


def _measure_stream(where: tuple[str, int]) -> tuple[float, float, list[float]]:
    """Return MB/s of the stream, small requests per second without it, and the latencies of the small requests beside it."""
    deadline = time.monotonic() + CHANGE_TIMEOUT
    while True:
        try:
            _measure_small_requests(where)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise BenchError(f"{where[0]}:{where[1]} does not answer") from None
            time.sleep(0.01)
    began = time.monotonic()
    for _ in range(SMALL_REQUESTS):
        _measure_small_requests(where)
    alone = SMALL_REQUESTS / (time.monotonic() - began)
    received, stop = [0], threading.Event()

    def read() -> None:
        buffer = bytearray(1 << 20)
        with socket.create_connection(where, 10) as stream:
            stream.sendall(b"S")
            while not stop.is_set():
                received[0] += stream.recv_into(buffer)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.2)
    before, began = received[0], time.monotonic()
    latencies = [_measure_small_requests(where) for _ in range(SMALL_REQUESTS)]
    time.sleep(max(0.0, STREAM_SECONDS - (time.monotonic() - began)))
    rate = (received[0] - before) / (time.monotonic() - began) / 1e6
    stop.set()
    reader.join(10)
    return rate, alone, latencies


def _measure_small_requests(where: tuple[str, int]) -> float:
    began = time.monotonic()
    with socket.create_connection(where, 10) as connection:
        connection.sendall(b"R")
        received = 0
        while part := connection.recv(1000):
            received += len(part)
    if received != 100:
        raise OSError(f"{received} of 100 bytes")
    return time.monotonic() - began


@contextmanager
def _run_process(command: Sequence[str], says: str = "") -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if says and (process.stdout is None or process.stdout.readline().strip() != says):
                raise BenchError(f"{command[0]} did not start")
            yield
        finally:
            process.kill()


def _measure_nftables(counts: dict[str, int], progress: StartProgress) -> None:
    """New connections per second from one network namespace to another, directly and through a service. Rounds alternate."""
    if os.geteuid() or shutil.which("nft") is None or shutil.which("ip") is None:
        progress.warn("nftables is not measured: it requires root, nft and ip")
        return
    node, server = f"pb{os.getpid()}-node", f"pb{os.getpid()}-server"

    def run(*command: str, text: str | None = None) -> str:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise BenchError(f"{command[0]} failed: {done.stderr.strip()[:200]}")
        return done.stdout

    def rate(host: str, port: int) -> float:
        command = ("ip", "netns", "exec", node, sys.executable, "-S", "-c", NFT_CLIENT, host, str(port), str(NFT_SECONDS))
        return float(json.loads(run(*command)))

    try:
        for name in (node, server):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", node, "link", "add", "o", "type", "veth", "peer", "name", "i", "netns", server)
        for name, device, address in ((node, "o", "10.79.0.1/24"), (server, "i", "10.79.0.2/24")):
            run("ip", "-n", name, "addr", "add", address, "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        run("ip", "-n", node, "route", "add", "10.96.0.0/12", "via", "10.79.0.2")
        command = ["ip", "netns", "exec", server, sys.executable, "-S", "-c", NFT_SERVER]
        with _run_process(command, "ready"):
            for number in NFT_SERVICES:
                progress.waiting(f"connections through nftables with {number:,} services")
                rules = run(*_rules_command("--services", str(number)))
                through, direct = [], []
                for _ in range(NFT_ROUNDS):
                    run(*_nft_command(node), text=rules)
                    through.append(rate("10.96.0.1", 80))
                    run(*_nft_command(node), text="flush ruleset\n")
                    direct.append(rate("10.79.0.2", 8080))
                counts[f"nftables, {number} services, connections/s"] = round(sum(through) / NFT_ROUNDS)
                counts[f"direct, beside {number} services, connections/s"] = round(sum(direct) / NFT_ROUNDS)
    finally:
        for name in (node, server):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _nft_command(namespace: str) -> Sequence[str]:
    return "ip", "netns", "exec", namespace, "nft", "-f", "-"


def _rules_command(*arguments: str) -> Sequence[str]:
    return sys.executable, "-m", "pinnace.proxy.sample", "--endpoint", "10.79.0.2:8080", *arguments
