"""A page that pods of a Deployment serve, its Service, and a load that requests it. For `pinnace bench services` and tests."""

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from math import exp
from typing import Any

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.resources import DEPLOYMENTS, SERVICES
from pinnace.client.client import Client
from pinnace.verification.bench import BenchError
from pinnace.verification.bench.load import NAMESPACE

PORT = 8080
REQUEST_TIMEOUT = 10.0
PAGE = """
import http.server, os, signal, threading, time
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["POD_NAME"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
server = Server((os.environ["POD_IP"], 8080), Page)
def end(*_):
    # Serves for a second until all proxies have removed the endpoint, as a preStop hook would.
    threading.Thread(target=lambda: (time.sleep(1), server.shutdown())).start()
signal.signal(signal.SIGTERM, end)
server.serve_forever()
"""
"""Serves the name of the pod. `-S` keeps the start of the interpreter short."""


def build_page_deployment(name: str, replicas: int, version: str = "1") -> Deployment:
    """Return a Deployment whose pods are replaced one at a time, without loss of replicas."""
    labels = {"app": name}
    container = {
        "name": "page",
        "image": "python",
        "command": [sys.executable, "-S", "-c", PAGE],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "VERSION", "value": version},
        ],
        # A page that answers late because the load takes the processors stays an endpoint.
        "readinessProbe": {
            "httpGet": {"path": "/", "port": PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 10,
        },
    }
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return from_dict(Deployment, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def build_page_service(name: str, **spec: Any) -> Service:
    """Return a service for the pages. `spec`: further fields, in JSON."""
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    document = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }
    return from_dict(Service, document)


async def create_page_service(client: Client, made: Service, address: str, node_port: int) -> Service:
    """Create a service. If the API server allocates no address or node port, it gets these."""
    stored = await client.of(SERVICES).create(made)
    if stored.spec.clusterIP and all(service_port.nodePort for service_port in stored.spec.ports):
        return stored

    def set_addresses(service: Service) -> None:
        service.spec.clusterIP = service.spec.clusterIP or address
        for number, port in enumerate(service.spec.ports):
            port.nodePort = port.nodePort or node_port + number

    return await client.of(SERVICES).modify(stored.metadata.name, NAMESPACE, set_addresses)


async def wait_for_deployment(client: Client, name: str, replicas: int, timeout: float = 60.0) -> None:
    """Wait until the Deployment has exactly this number of pods, which are updated and ready. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        while True:
            result = await client.of(DEPLOYMENTS).get(name, NAMESPACE)
            status = result.status
            counts = {status.replicas, status.updatedReplicas, status.readyReplicas, status.availableReplicas}
            if counts == {replicas} and status.observedGeneration >= result.metadata.generation:
                return
            await asyncio.sleep(0.1)


async def request_page(host: str, port: int, timeout: float = REQUEST_TIMEOUT) -> str:
    """Request the page on a new connection, and return its body. Raises OSError, TimeoutError, BenchError."""
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator or b" 200 " not in head.partition(b"\r\n")[0]:
        raise BenchError(f"the page answered {answer[:100]!r}")
    return body.decode()


@dataclass(slots=True)
class PageLoad:
    """Callers that request the page one after the other, each request on a new connection."""

    host: str
    port: int
    callers: int = 8
    interval: float = 0.0
    """Seconds between two requests of a caller."""
    answers: Counter[str] = field(default_factory=Counter)
    """By pod."""
    failures: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> "PageLoad":
        self._tasks = [asyncio.create_task(self._call()) for _ in range(self.callers)]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def requests(self) -> int:
        return self.answers.total() + len(self.failures)

    async def wait_for_requests(self, requests: int, timeout: float) -> None:
        """Wait until this number of requests has been made. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while self.requests < requests:  # noqa: ASYNC110 (a counter)
                await asyncio.sleep(0.05)

    async def _call(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self.answers[await request_page(self.host, self.port)] += 1
                self.latencies.append(time.monotonic() - began)
            except (OSError, TimeoutError, BenchError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(0.01)
            if self.interval:
                await asyncio.sleep(self.interval)


def chi_square_p_value(counts: Counter[str]) -> float:
    """Return the p-value of the chi-square test of three counts against a uniform distribution."""
    if len(counts) != 3:
        raise BenchError(f"{len(counts)} pods answered, expected 3")
    expected = counts.total() / 3
    return exp(-sum((count - expected) ** 2 / expected for count in counts.values()) / 2)
