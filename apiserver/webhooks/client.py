"""The HTTPS client for webhooks of any kind: admission reviews, and conversions of custom resources.

    call --> queue of the target --> at most MAX_CONNECTIONS connections --> response, or WebhookCallError

A target is a URL, or a service of the cluster with a path. Each target has its own queue and connections, so a slow target
delays only its own calls. Guarantees:

* A call ends within its timeout, which includes the time in the queue.
* A response has at most MAX_RESPONSE bytes. All responses that are being received have at most MAX_BUFFERED bytes in total.
* At most MAX_OPEN calls per target are open. A user can have at most GREED open calls for each free one. Further calls are
  refused at once (TooManyCalls).
* Work that a target can cause is paced, because it delays other calls: CONNECTION_RATE new connections per second, and
  LARGE_RATE bytes per second of large responses. Calls wait for it within their timeouts. After a failed connection, calls
  fail for FAILED_SECONDS without another attempt.
* Names are resolved and certificates are parsed in threads of this client, so they delay nobody else.

The certificate of the target must be signed by the authorities of its caBundle, or by those of the system without a caBundle.
The name in the certificate of a service is `SERVICE.NAMESPACE.svc`. Redirects are not followed, responses are not
decompressed, and proxy settings of the environment are ignored.

Error texts have the form of Go's HTTP client, as far as the facts are known.

Source: pkg/util/webhook/client.go of k8s.io/apiserver 1.36.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

MAX_OPEN = 10_000
"""Open calls per target."""
GREED = 4
"""Open calls of a user per free one. A single user can have 8,000 open requests (see apiserver.flow.levels)."""
MAX_CONNECTIONS = 64
"""Connections per target."""
MAX_RESPONSE = 3 << 20
"""In bytes: a JSON patch in base64 of the largest object that etcd stores fits."""
MAX_BUFFERED = 64 << 20
"""In bytes."""
SMALL_RESPONSE = 64 << 10
"""Bytes of a response that are read at once."""
LARGE_RATE = 8 << 20
"""Bytes per second and target, of responses above SMALL_RESPONSE. Their decryption and parsing block the event loop."""
CONNECTION_RATE, CONNECTION_BURST = 50, 100
"""New connections per second and target, and the number of those that need not wait. A TLS handshake blocks the event loop for
about 1 ms."""
FAILED_SECONDS = 0.1
MAX_POOLS = 500
"""Targets whose connections are kept. The least recently used one without open calls is closed first."""
IDLE_TIMEOUT = 60.0
"""Seconds after which an unused connection is closed."""
_THREADS = 4
_CHUNK = 64 << 10
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*", "Accept-Encoding": "identity"}
_CONTENT_ENCODING = "Content-Encoding"
_SERVICE_UNAVAILABLE = 503
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""OpenSSL's verify codes for certificates whose authority is not trusted."""
_EXPIRED, _NOT_YET_VALID = 10, 9
_MISMATCH = (62, 64)
"""OpenSSL's verify codes for another host name or IP address."""
_STATUS_TEXTS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "the server does not allow access to the requested resource",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    410: "the server no longer has the requested resource",
    413: "the server has received a request that is too large",
    415: "the body of the request was in an unknown format",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
"""Messages by HTTP status code. Source: NewGenericServerResponse in pkg/api/errors of k8s.io/apimachinery."""


class WebhookCallError(Exception):
    """The call failed. `code`: the HTTP status code that Kubernetes' metrics report for such a failure."""

    def __init__(self, message: str, code: int = _SERVICE_UNAVAILABLE) -> None:
        super().__init__(message)
        self.code = code


class TooManyCalls(Exception):
    """The queue of the target is full. The text describes the calls that fill it."""


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    namespace: str
    name: str
    port: int

    @property
    def host(self) -> str:
        """The name in the certificate."""
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where a webhook is called. `url`: the URL of the calls; for a service, its host is that of the service."""

    url: str
    ca_bundle: bytes = b""
    service: ServiceTarget | None = None

    @classmethod
    def from_config(cls, config: Any) -> WebhookTarget:
        """Read a WebhookClientConfig of admissionregistration.k8s.io or apiextensions.k8s.io."""
        if not config.HasField("service"):
            return cls(config.url, config.caBundle)
        reference = config.service
        service = ServiceTarget(reference.namespace, reference.name, reference.port or 443)
        path = reference.path if reference.path.startswith("/") else f"/{reference.path}"
        return cls(f"https://{service.host}:{service.port}{path}", config.caBundle, service)


ResolveService = Callable[[ServiceTarget], tuple[str, int]]
"""Returns the host and port of an endpoint of a service. Raises WebhookCallError."""


class WebhookClient:
    """Calls webhooks. `resolve_service` may return another endpoint for each call."""

    def __init__(self, resolve_service: ResolveService) -> None:
        self._resolve_service = resolve_service
        self._pools: OrderedDict[WebhookTarget, _Pool] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None
        self._budget = _Budget(MAX_BUFFERED)

    async def post(self, target: WebhookTarget, body: bytes, timeout: float, user: str = "") -> bytes:
        """Send JSON and return the body of the response. `timeout`: in seconds. `user`: who causes the call, for fairness.

        Raises WebhookCallError, TooManyCalls.
        """
        pool = self._pool(target)
        pool.enter(user)
        try:
            try:
                async with asyncio.timeout(timeout):
                    return await pool.post(body, timeout)
            except TimeoutError:
                raise WebhookCallError(f'Post "{pool.shown_url(timeout)}": context deadline exceeded') from None
        finally:
            pool.leave(user)

    async def close(self) -> None:
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _pool(self, target: WebhookTarget) -> _Pool:
        pool = self._pools.get(target)
        if pool is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhook")
            pool = self._pools[target] = _Pool(target, self._resolver_of(target), self._threads, self._budget)
            self._close_unused_pool()
        self._pools.move_to_end(target)
        return pool

    def _close_unused_pool(self) -> None:
        if len(self._pools) > MAX_POOLS:
            unused = next((target for target, pool in self._pools.items() if not pool.is_open), None)
            if unused is not None:
                self._pools.pop(unused).close_soon()

    def _resolver_of(self, target: WebhookTarget) -> AbstractResolver:
        assert self._threads is not None
        if target.service is None:
            return _ThreadResolver(self._threads)
        return _ServiceResolver(target.service, self._resolve_service, _ThreadResolver(self._threads))


class _Pace:
    """Allows `rate` events per second, and `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._due = 0.0
        """The time at which all events so far would have been allowed at the rate."""

    async def wait(self, amount: float = 1) -> None:
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._burst / self._rate) + amount / self._rate
        if self._due > now:
            await asyncio.sleep(self._due - now)


class _Budget:
    """Bytes that may be buffered."""

    def __init__(self, free: int) -> None:
        self.free = free


class _Pool:
    """The queue and the connections of one target."""

    def __init__(self, target: WebhookTarget, resolver: AbstractResolver, threads: ThreadPoolExecutor, budget: _Budget) -> None:
        self._target = target
        self._resolver = resolver
        self._threads = threads
        self._budget = budget
        self._open = 0
        self._open_of = Counter[str]()
        self._session: aiohttp.ClientSession | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._closing: asyncio.Task[None] | None = None
        self._connections = _Pace(CONNECTION_RATE, CONNECTION_BURST)
        self._large = _Pace(LARGE_RATE, SMALL_RESPONSE)
        self._failure: tuple[float, WebhookCallError] | None = None
        """The last failed connection: the end of the time in which calls fail at once, and the error."""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def enter(self, user: str) -> None:
        """Count a call. Raises TooManyCalls."""
        own, free = self._open_of[user], MAX_OPEN - self._open
        if own and own >= GREED * free:
            raise TooManyCalls(f'{own:,} requests of user "{user}"')
        if free <= 0:
            raise TooManyCalls(f"{MAX_OPEN:,} requests")
        self._open += 1
        self._open_of[user] += 1

    def leave(self, user: str) -> None:
        self._open -= 1
        self._open_of[user] -= 1
        if not self._open_of[user]:
            del self._open_of[user]

    def shown_url(self, timeout: float) -> str:
        return f"{self._target.url}?timeout={timeout:g}s"

    async def post(self, body: bytes, timeout: float) -> bytes:
        async with self._slots:
            session = self._session or await self._connect()
            if self._failure is not None and asyncio.get_running_loop().time() < self._failure[0]:
                raise WebhookCallError(str(self._failure[1]), self._failure[1].code)
            try:
                return await self._send(session, body, timeout)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if isinstance(error, aiohttp.ClientConnectorError):
                    failed = self._failed(error, timeout)
                    self._failure = asyncio.get_running_loop().time() + FAILED_SECONDS, failed
                    raise failed from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise self._failed(error, timeout) from None
            try:  # the target has closed a connection that was in use before: try once more
                return await self._send(session, body, timeout)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise self._failed(error, timeout) from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def close_soon(self) -> None:
        self._closing = asyncio.create_task(self.close())

    async def _connect(self) -> aiohttp.ClientSession:
        """Return the session, which is created by the first call, because it needs the running event loop."""
        async with self._connecting:
            if self._session is None:
                loop = asyncio.get_running_loop()
                try:
                    context = await loop.run_in_executor(self._threads, _tls_context, self._target.ca_bundle)
                except (ssl.SSLError, ValueError):
                    problem = "unable to load root certificates: unable to parse bytes as PEM block"
                    raise WebhookCallError(problem, 500) from None
                connector = aiohttp.TCPConnector(
                    ssl=context,
                    limit=MAX_CONNECTIONS,
                    resolver=self._resolver,
                    use_dns_cache=False,
                    keepalive_timeout=IDLE_TIMEOUT,
                )
                tracing = aiohttp.TraceConfig()
                tracing.on_connection_create_start.append(self._pace_connection)
                self._session = aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    trust_env=False,
                    trace_configs=[tracing],
                )
            return self._session

    async def _pace_connection(self, session: aiohttp.ClientSession, context: Any, params: Any) -> None:
        await self._connections.wait()

    async def _send(self, session: aiohttp.ClientSession, body: bytes, timeout: float) -> bytes:
        call = session.post(
            self._target.url,
            params={"timeout": f"{timeout:g}s"},
            data=body,
            headers=_HEADERS,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with call as response:
            if response.headers.get(_CONTENT_ENCODING, "identity").lower() != "identity":
                raise WebhookCallError("the response is compressed, although the request does not allow it", 500)
            content = await self._read(response)
            if not 200 <= response.status <= 206:
                raise WebhookCallError(_describe_status(response.status, content), response.status)
            return content

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size, budget = list[bytes](), 0, self._budget
        try:
            while chunk := await response.content.read(_CHUNK):
                size += len(chunk)
                budget.free -= len(chunk)
                chunks.append(chunk)
                if size > SMALL_RESPONSE:
                    await self._large.wait(len(chunk))
                if size > MAX_RESPONSE:
                    raise WebhookCallError(f"the response has more than {MAX_RESPONSE:,} bytes", 500)
                if budget.free < 0:
                    raise WebhookCallError("too many large responses of webhooks at once", 500)
        finally:
            budget.free += size
        return b"".join(chunks)

    def _failed(self, error: Exception, timeout: float) -> WebhookCallError:
        if isinstance(error, WebhookCallError):
            return error
        return WebhookCallError(f'Post "{self.shown_url(timeout)}": {describe_client_error(error)}')


def _tls_context(ca_bundle: bytes) -> ssl.SSLContext:
    """Raises ssl.SSLError and ValueError if the bundle contains no certificate."""
    if ca_bundle:
        context = ssl.create_default_context(cadata=ca_bundle.decode("ascii"))
        if not context.get_ca_certs() and not context.cert_store_stats()["x509"]:
            raise ValueError("no certificates")
    else:
        context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like Go, trust every certificate of the bundle
    context.set_alpn_protocols(["http/1.1"])
    return context


def describe_client_error(error: Exception) -> str:
    """Return Go's text of an error of aiohttp."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return _describe_certificate_error(error)
        case aiohttp.ClientConnectorSSLError():
            if error.os_error.reason == "WRONG_VERSION_NUMBER":
                return "http: server gave HTTP response to HTTPS client"
            return f"tls: {str(getattr(error.os_error, 'reason', error.os_error)).lower().replace('_', ' ')}"
        case aiohttp.ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror or str(error.os_error)
            if error.os_error.errno is not None:
                reason = _describe_errno(error.os_error)
            return f"dial tcp {_address(error.host, error.port)}: connect: {reason}"
        case aiohttp.ServerDisconnectedError():
            return "EOF"
        case aiohttp.ClientPayloadError():
            return "unexpected EOF"
        case aiohttp.ClientResponseError():
            return f"malformed HTTP response: {error.message}"
        case OSError():
            return _describe_errno(error)
        case _:
            return str(error) or type(error).__name__


def _describe_errno(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else str(error)


def _address(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _describe_certificate_error(error: aiohttp.ClientConnectorCertificateError) -> str:
    inner: Any = error.certificate_error
    code, message = getattr(inner, "verify_code", None), getattr(inner, "verify_message", str(inner))
    if code in _UNKNOWN_AUTHORITY:
        reason = "certificate signed by unknown authority"
    elif code in (_EXPIRED, _NOT_YET_VALID):
        reason = f"certificate has expired or is not yet valid: {message}"
    elif code in _MISMATCH:
        reason = f"certificate is not valid for {error.host}"
    else:
        reason = str(message)
    return f"tls: failed to verify certificate: x509: {reason}"


def _describe_status(code: int, content: bytes) -> str:
    if code in _STATUS_TEXTS:
        return _STATUS_TEXTS[code]
    if code >= 500:
        shown = content[:1024].decode(errors="replace").strip()
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'an error on the server ("{quoted or "unknown"}") has prevented the request from succeeding'
    return f"the server responded with the status code {code} but did not return more information"


class _ThreadResolver(AbstractResolver):
    """Resolves names in threads of the client."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        def look_up() -> list[Any]:
            return socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)

        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [_resolved(host, str(address[0]), port, found_family) for found_family, _, _, _, address in addresses]

    async def close(self) -> None:
        return


class _ServiceResolver(AbstractResolver):
    """Resolves the host of a service to one of its endpoints."""

    def __init__(self, service: ServiceTarget, resolve_service: ResolveService, names: AbstractResolver) -> None:
        self._service = service
        self._resolve_service = resolve_service
        self._names = names

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        address, endpoint_port = self._resolve_service(self._service)
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
        except OSError:  # a name, of a service with the type ExternalName
            results = await self._names.resolve(address, endpoint_port, family)
            return [_resolved(host, result["host"], endpoint_port, result["family"]) for result in results]
        return [_resolved(host, address, endpoint_port, socket.AF_INET6 if ":" in address else socket.AF_INET)]

    async def close(self) -> None:
        return


def _resolved(host: str, address: str, port: int, family: int) -> ResolveResult:
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST)
