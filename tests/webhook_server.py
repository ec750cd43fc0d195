"""An HTTPS server that answers AdmissionReviews, for tests of webhooks. `Answer` functions are what the webhooks do.

python -m tests.webhook_server: a server whose webhooks misbehave (BAD). It prints its port, and runs until its input ends.
"""

import asyncio
import base64
import inspect
import ipaddress
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Request = dict[str, Any]
Answer = Callable[[Request], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Returns the fields of `response` other than `uid` for the `request` of a review."""


@cache
def certificate(*names: str) -> tuple[bytes, bytes]:
    """Return a self-signed certificate for host names and addresses, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")])
    alternatives: list[x509.GeneralName] = []
    for name in names:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            alternatives.append(x509.DNSName(name))
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return signed.public_bytes(serialization.Encoding.PEM), private


def server_context(*names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Path(folder, "cert"), Path(folder, "key")
        for path, content in zip((cert, key), certificate(*names), strict=True):
            path.write_bytes(content)
        context.load_cert_chain(cert, key)
    return context


def allow(_: Request) -> Mapping[str, Any]:
    return {"allowed": True}


def deny(**status: Any) -> Answer:
    return lambda request: {"allowed": False, "status": status} if status else {"allowed": False}


def patch(*operations: Mapping[str, Any]) -> Answer:
    return lambda request: patch_response(operations)


def patch_response(operations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    encoded = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def label(name: str, value: str = "yes") -> Answer:
    """Add a label."""

    def answer(request: Request) -> Mapping[str, Any]:
        labels = request["object"]["metadata"].get("labels")
        first = [] if labels is not None else [{"op": "add", "path": "/metadata/labels", "value": {}}]
        return patch_response([*first, {"op": "add", "path": f"/metadata/labels/{name}", "value": value}])

    return answer


class WebhookServer:
    """`answers`: what the webhook at a path does. `reviews`: the received reviews by path. `port` is set while it runs."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("127.0.0.1",)
        self.answers: dict[str, Answer] = {}
        self.raw: dict[str, Callable[[web.Request, Any], Awaitable[web.StreamResponse]]] = {}
        """What is sent instead of a review, by path."""
        self.reviews: dict[str, list[dict[str, Any]]] = {}
        self.port = 0
        self.connections = 0
        self._peers: set[Any] = set()

    @property
    def ca_bundle(self) -> bytes:
        return certificate(*self.names)[0]

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}/{path}"

    def requests(self, path: str) -> list[Request]:
        """Return the requests of the reviews that a path received."""
        return [review["request"] for review in self.reviews.get(path, [])]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.lstrip("/")
        if request.transport is not None:
            peer = request.transport.get_extra_info("peername")
            self.connections += peer not in self._peers
            self._peers.add(peer)
        review = await request.json()
        self.reviews.setdefault(path, []).append(review)
        if path in self.raw:
            return await self.raw[path](request, review)
        response = self.answers[path](review["request"])
        if inspect.isawaitable(response):
            response = await response
        answer = {"uid": review["request"]["uid"]} | dict(response)
        return web.json_response({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": answer})

    @asynccontextmanager
    async def run(self) -> AsyncIterator["WebhookServer"]:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_post("/{path:.*}", self.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(*self.names))
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


async def _allow_late(_: Request) -> Mapping[str, Any]:
    await asyncio.sleep(1)
    return {"allowed": True}


async def hang(_: Request) -> Mapping[str, Any]:
    await asyncio.Event().wait()
    return {"allowed": True}


async def _flood(request: web.Request, review: Any) -> web.StreamResponse:
    """Send an endless response."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"[" * (256 << 10))


async def _answer_huge(request: web.Request, review: Any) -> web.Response:
    return web.Response(text='{"kind": "AdmissionReview", "response": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}")


async def _lie(request: web.Request, review: Any) -> web.Response:
    return web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "lie"}})


async def _break_off(request: web.Request, review: Any) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _hang(request: web.Request, review: Any) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def _trickle(request: web.Request, review: Any) -> web.StreamResponse:
    """Send a byte every 50 ms."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def _answer_page(request: web.Request, review: Any) -> web.Response:
    return web.Response(text="<html>" + "welcome " * 1000, content_type="text/html")


async def _redirect(request: web.Request, review: Any) -> web.Response:
    return web.Response(status=307, headers={"Location": str(request.url)})


async def _patch_badly(request: web.Request, review: Any) -> web.Response:
    answer = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": "W3sib3AiOiJ4In1d"}
    return web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": answer})


BAD = {
    "hang": _hang, "flood": _flood, "huge": _answer_huge, "lie": _lie, "break": _break_off, "trickle": _trickle,
    "page": _answer_page, "redirect": _redirect, "patch": _patch_badly,
}  # fmt: skip
"""What webhooks do that misbehave, by path."""


async def _serve_bad_webhooks() -> None:
    server = WebhookServer()
    server.raw = dict(BAD)
    server.answers = {"good": allow, "slow": _allow_late}
    async with server.run():
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve_bad_webhooks())
