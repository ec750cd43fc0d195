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
* Names are resolved and certificates are parsed in threads of this client, so they delay nobody else. A name whose resolution
  hangs occupies one of RESOLVER_THREADS; calls to addresses and services need none of them. aiohttp is imported by the first
  call, so servers without webhooks start faster (pinnace.apiserver.webhooks.connections).

The certificate of the target must be signed by the authorities of its caBundle, or by those of the system without a caBundle.
The name in the certificate of a service is `SERVICE.NAMESPACE.svc`. Redirects are not followed, responses are not
decompressed, and proxy settings of the environment are ignored.

Source: pkg/util/webhook/client.go of k8s.io/apiserver 1.36.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinnace.apiserver.webhooks.connections import TargetConnections

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
_THREADS, RESOLVER_THREADS = 4, 32
"""Threads for certificates and imports, and for names. A resolution can hang for 20 s."""
_SERVICE_UNAVAILABLE = 503


class WebhookCallError(Exception):
    """The call failed. `code`: the HTTP status code that Kubernetes' metrics report for such a failure."""

    def __init__(self, message: str, code: int = _SERVICE_UNAVAILABLE) -> None:
        super().__init__(message)
        self.code = code


class NoEndpoint(WebhookCallError):
    """The service of the target does not exist, or has no endpoint."""


class ConnectFailed(WebhookCallError):
    """No connection could be made."""


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


def shown_url(target: WebhookTarget, timeout: float) -> str:
    return f"{target.url}?timeout={timeout:g}s"


ResolveService = Callable[[ServiceTarget], tuple[str, int]]
"""Returns the host and port of an endpoint of a service. Raises NoEndpoint."""


class WebhookClient:
    """Calls webhooks. `resolve_service` may return another endpoint for each call."""

    def __init__(self, resolve_service: ResolveService) -> None:
        self._resolve_service = resolve_service
        self._pools: OrderedDict[WebhookTarget, _Pool] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None
        self._names = NameResolver()
        self._budget = BufferBudget(MAX_BUFFERED)

    async def post(self, target: WebhookTarget, body: bytes, timeout: float, user: str = "") -> bytes:
        """Send JSON and return the body of the response. `timeout`: in seconds. `user`: who causes the call, for fairness.

        Raises WebhookCallError, TooManyCalls.
        """
        pool = self._pool(target)
        pool.count_call(user)
        try:
            try:
                async with asyncio.timeout(timeout):
                    return await pool.post(body, timeout)
            except TimeoutError:
                raise WebhookCallError(f'Post "{shown_url(target, timeout)}": context deadline exceeded') from None
        finally:
            pool.end_call(user)

    async def close(self) -> None:
        pools = list(self._pools.values())
        self._pools.clear()
        for pool in pools:
            await pool.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._names.close()

    def _pool(self, target: WebhookTarget) -> _Pool:
        pool = self._pools.get(target)
        if pool is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhook")
            pool = self._pools[target] = _Pool(target, self._resolve_service, self._threads, self._names, self._budget)
            self._close_unused_pool()
        self._pools.move_to_end(target)
        return pool

    def _close_unused_pool(self) -> None:
        if len(self._pools) > MAX_POOLS:
            unused = next((target for target, pool in self._pools.items() if not pool.is_open), None)
            if unused is not None:
                self._pools.pop(unused).close_soon()


class NameResolver:
    """Resolves names in threads. Calls for the same name share one resolution, so a name that hangs occupies one thread."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._running: dict[tuple[str, int, int], asyncio.Future[list[Any]]] = {}

    async def look_up(self, host: str, port: int, family: int) -> list[Any]:
        """Return the result of socket.getaddrinfo. Raises OSError."""
        key = host, port, family
        resolution = self._running.get(key)
        if resolution is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")

            def resolve() -> list[Any]:
                return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)

            def forget(done: asyncio.Future[list[Any]]) -> None:
                del self._running[key]
                if not done.cancelled():
                    done.exception()  # the calls that waited for it may have ended

            resolution = self._running[key] = asyncio.get_running_loop().run_in_executor(self._threads, resolve)
            resolution.add_done_callback(forget)
        return await asyncio.shield(resolution)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class CallRateLimiter:
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


class BufferBudget:
    """Bytes that may be buffered."""

    def __init__(self, free: int) -> None:
        self.free = free


class _Pool:
    """The queue and the connections of one target."""

    def __init__(
        self,
        target: WebhookTarget,
        resolve_service: ResolveService,
        threads: ThreadPoolExecutor,
        names: NameResolver,
        budget: BufferBudget,
    ) -> None:
        self._target = target
        self._resolve_service = resolve_service
        self._threads = threads
        self._names = names
        self._budget = budget
        self._open = 0
        self._open_of = Counter[str]()
        self._connections: TargetConnections | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._closing: asyncio.Task[None] | None = None
        self._failure: tuple[float, WebhookCallError] | None = None
        """The last failed connection: the end of the time in which calls fail at once, and the error."""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def count_call(self, user: str) -> None:
        """Count a call. Raises TooManyCalls."""
        own, free = self._open_of[user], MAX_OPEN - self._open
        if own and own >= GREED * free:
            raise TooManyCalls(f'{own:,} requests of user "{user}"')
        if free <= 0:
            raise TooManyCalls(f"{MAX_OPEN:,} requests")
        self._open += 1
        self._open_of[user] += 1

    def end_call(self, user: str) -> None:
        self._open -= 1
        self._open_of[user] -= 1
        if not self._open_of[user]:
            del self._open_of[user]

    async def post(self, body: bytes, timeout: float) -> bytes:
        async with self._slots:
            connections = self._connections or await self._connect()
            if self._failure is not None and asyncio.get_running_loop().time() < self._failure[0]:
                raise WebhookCallError(str(self._failure[1]), self._failure[1].code)
            try:
                return await connections.post(body, timeout)
            except ConnectFailed as error:
                self._failure = asyncio.get_running_loop().time() + FAILED_SECONDS, error
                raise

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections.close()

    def close_soon(self) -> None:
        self._closing = asyncio.create_task(self.close())

    async def _connect(self) -> TargetConnections:
        """Return the connections, which the first call makes."""
        async with self._connecting:
            if self._connections is None:
                run = asyncio.get_running_loop().run_in_executor
                module = await run(self._threads, importlib.import_module, "pinnace.apiserver.webhooks.connections")
                context = await run(self._threads, module.tls_context, self._target.ca_bundle)
                self._connections = module.TargetConnections(
                    self._target, context, self._resolve_service, self._names, self._budget
                )
            return self._connections
