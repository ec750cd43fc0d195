"""python -m tests.fuzz.http_run --requests 20000 --seed 1: hostile HTTP requests to a gateway, and a look at how it is.

Exit code 0: the gateway is well; 10: it is not.
"""

import asyncio
import json
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click

from pinnace.cluster import certificates
from tests.conftest import free_port, start_members
from tests.fuzz.http_inputs import DEFINITIONS, PODS, WIDGET_SCHEMA, WIDGETS, End, Hostile, Inputs, definition, request
from tests.fuzz.live import live, problems_in
from tests.fuzz.shots import Who
from tests.integration.processes import Component

MINDED = 10
AT_ONCE = 64
ANSWER = 15.0
"""Seconds in which a response must have begun, or the connection must have ended."""
MAX_MEMORY = 300.0
"""MB of the gateway, at any time."""
HALF_CLOSED = 3.0
"""Seconds that a client which has sent all it has waits for a response."""
GROWTH = 40.0
"""MB by which the gateway may grow between the first third of the requests and the end."""
IDLE, UNREAD, BIG = 2000, 20, 200
"""Idle connections; watches that nobody reads; pods of 20 KB that these have to be sent."""
DRAIN = 10.0
"""Seconds in which a gateway must end after SIGTERM."""
MANY = 20


@dataclass
class Report:
    seconds: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    drain: float = 0.0

    def __str__(self) -> str:
        codes = ", ".join(f"{name} {count}" for name, count in self.codes.most_common())
        lines = [
            f"{self.codes.total()} requests in {self.seconds:.1f} s: {codes}",
            f"memory {self.memory[0]:.1f} MB at the start, {max(self.memory):.1f} at most, {self.memory[-1]:.1f} at the end; "
            f"ended {self.drain:.1f} s after SIGTERM",
        ]
        return "\n".join((*lines, *(f"PROBLEM {problem}" for problem in self.problems)))


class Gateway:
    def __init__(self, folder: Path, server: str) -> None:
        self.pki = folder / "pki"
        self.port = free_port()
        shown = certificates.component_files(self.pki, "apiserver")
        self.process = Component(
            folder, "gateway", "gateway", "--server", server, "--kubeconfig", str(self.pki / "gateway.conf"),
            "--listen", f"127.0.0.1:{self.port}", "--timeline", f"127.0.0.1:{free_port()}",
            "--tls-cert-file", str(shown.cert), "--tls-private-key-file", str(shown.key),
            "--client-ca-file", str(shown.ca), "--logging-format", "text",
        )  # fmt: skip

    @property
    def memory(self) -> float:
        """MB."""
        status = Path(f"/proc/{self.process.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024 / 1e6

    def context(self, who: Who | None) -> ssl.SSLContext:
        files = certificates.component_files(self.pki, (who or Who.ADMIN).value)
        context = ssl.create_default_context(cafile=str(files.ca))
        context.check_hostname = False
        if who is not None:
            context.load_cert_chain(str(files.cert), str(files.key))
        return context

    @asynccontextmanager
    async def connected(self, context: ssl.SSLContext) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


class Run:
    def __init__(self, gateway: Gateway, seed: int) -> None:
        self._gateway = gateway
        self._inputs = Inputs(seed)
        self._contexts = {who: gateway.context(who) for who in (Who.ADMIN, Who.NOBODY, None)}
        self.report = Report()

    async def play(self, requests: int) -> Report:
        report, began = self.report, time.monotonic()
        await self._create_target()
        await self._create_widget()
        report.memory.append(self._gateway.memory)
        waiting = islice(iter(self._inputs), requests)

        async def work() -> None:
            for hostile in waiting:
                if len(report.problems) > MANY:
                    return
                await self._fire(hostile)
                if report.codes.total() % 500 == 0:
                    report.memory.append(self._gateway.memory)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        report.seconds = time.monotonic() - began
        report.memory.append(self._gateway.memory)
        third = report.memory[len(report.memory) // 3]
        if report.memory[-1] - third > GROWTH:
            report.problems.append(f"the gateway has grown from {third:.1f} to {report.memory[-1]:.1f} MB")
        await self._is_well("after the requests")
        await self._idle_connections()
        await self._slow_senders()
        await self._watches_that_nobody_reads()
        if max(report.memory) > MAX_MEMORY:
            report.problems.append(f"the gateway has used {max(report.memory):.1f} MB")
        await self._drain()
        report.problems += problems_in_log(self._gateway.process.log())
        return report

    async def _fire(self, hostile: Hostile) -> None:
        ordinary = hostile.codes or "stream" not in hostile.name
        who = Who.NOBODY if hostile.codes == (400, 403) else None if hostile.codes == (401, 403) else Who.ADMIN
        code, body = 0, b""
        try:
            patience = ANSWER if hostile.end is End.READ else HALF_CLOSED
            async with asyncio.timeout(patience), self._gateway.connected(self._contexts[who]) as (reader, writer):
                writer.write(hostile.data)
                with suppress(ConnectionError):
                    await writer.drain()
                if hostile.end is End.LEAVE:
                    self.report.codes["left"] += 1
                    return
                if hostile.end is End.HALF_CLOSE:
                    with suppress(NotImplementedError, OSError, RuntimeError):
                        writer.write_eof()
                code, body = await _response(reader)
        except TimeoutError:
            if hostile.end is End.READ:
                self.report.problems.append(f"{hostile.name}: no answer within {ANSWER:.0f} s: {hostile.data[:120]!r}")
            else:
                code = -1
        except OSError as error:
            self.report.problems.append(f"{hostile.name}: {error!r}")
        self.report.codes[{0: "closed", -1: "open"}.get(code, str(code))] += 1
        # As in Kubernetes, which gives no reason for patches that do not have the types of the object.
        unmergeable = b"strategic-merge-patch" in hostile.data or b"failed to create typed patch object" in body
        untyped = code == 500 and unmergeable and b'"reason"' not in body
        wrong = code >= 500 and code not in (501, 503, 504, 505) and not untyped
        if wrong or (hostile.codes and code not in hostile.codes):
            self.report.problems.append(f"{hostile.name}: {code}: {hostile.data[:160]!r}: {body[:300]!r}")
        if ordinary and code >= 400 and body.startswith(b"{"):
            with suppress(ValueError):
                if json.loads(body).get("kind") != "Status":
                    self.report.problems.append(f"{hostile.name}: {code} without a Status: {body[:200]!r}")

    async def _ask(self, data: bytes) -> tuple[int, bytes]:
        async with asyncio.timeout(ANSWER), self._gateway.connected(self._contexts[Who.ADMIN]) as (reader, writer):
            writer.write(data)
            return await _response(reader)

    async def _create_widget(self) -> None:
        """A custom kind, and an object of it."""
        await self._ask(request("POST", DEFINITIONS, (), json.dumps(definition(WIDGET_SCHEMA)).encode()))
        widget = {"apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": {"name": "target"}, "spec": {"size": 1}}
        async with asyncio.timeout(10):
            while True:
                code, _ = await self._ask(request("POST", WIDGETS, (), json.dumps(widget).encode()))
                if code in (201, 409):
                    break
                await asyncio.sleep(0.1)

    async def _create_target(self, name: str = "target", text: str = "") -> None:
        metadata = {
            "name": name,
            "labels": {"a": "b"},
            "annotations": {"x": text},
            "finalizers": ["example.com/fuzz"],
        }  # it survives DELETE
        body = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        code, answer = await self._ask(request("POST", PODS, (), json.dumps(body).encode()))
        assert code == 201, answer

    async def _is_well(self, when: str) -> None:
        try:
            code, body = await self._ask(request("GET", "/api/v1/namespaces/default"))
        except (OSError, TimeoutError) as error:
            code, body = 0, repr(error).encode()
        if code != 200:
            self.report.problems.append(f"{when}: {code}: {body[:200]!r}")

    async def _idle_connections(self) -> None:
        opened: list[asyncio.StreamWriter] = []
        limit = asyncio.Semaphore(50)

        async def connect() -> None:
            async with limit:
                _, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port, ssl=self._contexts[Who.ADMIN])
                opened.append(writer)

        try:
            await asyncio.gather(*(connect() for _ in range(IDLE)))
            self.report.memory.append(self._gateway.memory)
            await self._is_well(f"with {IDLE} idle connections")
        except OSError as error:
            self.report.problems.append(f"idle connections: {error!r} after {len(opened)}")
        finally:
            for writer in opened:
                writer.transport.abort()

    async def _slow_senders(self) -> None:
        """Half a header, and half a body: the gateway ends both."""

        async def end_of(data: bytes) -> str:
            try:
                async with asyncio.timeout(45), self._gateway.connected(self._contexts[Who.ADMIN]) as (reader, writer):
                    writer.write(data)
                    code, _ = await _response(reader)
                    return str(code)
            except TimeoutError:
                return "open"

        head = f"POST {PODS} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
        result = await asyncio.gather(end_of(b"GET /api HTTP/1.1\r\nHo"), end_of(b""), end_of(head.encode()))
        if result[0] != "0" or result[1] != "0" or result[2] != "408":
            self.report.problems.append(f"slow senders: half a header, nothing, half a body: {', '.join(result)}")

    async def _watches_that_nobody_reads(self) -> None:
        opened: list[asyncio.StreamWriter] = []
        try:
            for _ in range(UNREAD):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._gateway.port, ssl=self._contexts[Who.ADMIN], limit=1024
                )
                writer.write(request("GET", f"{PODS}?watch=1"))
                await reader.readuntil(b"\r\n\r\n")
                opened.append(writer)
            before = self._gateway.memory
            for number in range(BIG):
                await self._create_target(f"big-{number}", "x" * 20_000)
            self.report.memory.append(self._gateway.memory)
            unread = UNREAD * BIG * 20_000 / 1e6
            if self._gateway.memory - before > unread / 2:
                self.report.problems.append(
                    f"of {unread:.0f} MB for watches that nobody reads the gateway keeps {self._gateway.memory - before:.0f}"
                )
            await self._is_well("with watches that nobody reads")
        finally:
            for writer in opened:
                writer.transport.abort()

    async def _drain(self) -> None:
        """With a watch, and an idle connection."""
        async with (
            self._gateway.connected(self._contexts[Who.ADMIN]) as (reader, writer),
            self._gateway.connected(self._contexts[Who.ADMIN]),
        ):
            writer.write(request("GET", f"{PODS}?watch=1"))
            await reader.read(1)
            began = time.monotonic()
            self._gateway.process.process.terminate()
            code = await asyncio.to_thread(self._gateway.process.process.wait, 30)
        self.report.drain = time.monotonic() - began
        if code or self.report.drain > DRAIN:
            self.report.problems.append(f"SIGTERM: exit code {code} after {self.report.drain:.1f} s")


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The code and what has come of the body; 0 for a connection that ends without a response."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        code = int(head.split(b" ", 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ssl.SSLError, ValueError, IndexError):
        return 0, b""
    with suppress(TimeoutError, ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
        async with asyncio.timeout(0.2 if code == 101 else 2):
            length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
            return code, await (reader.readexactly(min(length, 65536)) if length is not None else reader.read(65536))
    return code, b""


def problems_in_log(log: str) -> list[str]:
    """Errors, and lines that the gateway did not write."""
    return [problem.replace(" apiserver ", " gateway ") for problem in problems_in(log.replace(" gateway ", " apiserver "))]


@asynccontextmanager
async def gateway(folder: Path, etcd: str) -> AsyncIterator[Gateway]:
    async with live(folder, etcd) as server:
        result = Gateway(folder, server.process.address)
        try:
            await result.process.ready()
            yield result
        finally:
            result.process.kill()


async def fuzz(folder: Path, requests: int, seed: int) -> Report:
    (etcd,) = await start_members(folder, 1)
    try:
        async with gateway(folder, etcd.endpoint) as target:
            return await Run(target, seed).play(requests)
    finally:
        etcd.kill()


@click.command()
@click.option("--requests", default=20_000, show_default=True, help="How many to send.")
@click.option("--seed", default=1, show_default=True, help="Of what is sent.")
def main(requests: int, seed: int) -> None:
    """Send hostile HTTP requests to a gateway."""
    with tempfile.TemporaryDirectory(prefix="pinnace-fuzz-") as folder:
        report = asyncio.run(fuzz(Path(folder), requests, seed))
    print(report)
    sys.exit(MINDED if report.problems else 0)


if __name__ == "__main__":
    main()
