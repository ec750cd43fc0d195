"""A connection to a set of equal API servers.

A connection uses one server at a time. It switches to the next server when the current one is unreachable, returns Unavailable,
or announces its shutdown. HTTP/2 keepalive detects an unresponsive server within three seconds. Each address of a host name is
a separate server. Host names are resolved again when none of the servers is reachable.

If a server does not implement a method, the next server is tried, because it may run a newer version. Unimplemented is raised
after all reachable servers have been tried.

A call is retried in two cases: the previous attempt had no effect (there was no connection, the response contains RetryInfo, or
the credentials were rejected), or the caller declares that the call is safe to repeat. Otherwise a lost response raises
OutcomeUnknown. Calls are sent only on an established connection, so that the two cases can be told apart.

`CallState` tracks one call, for the error message of a cancelled call. `Diagnosis` probes unreachable servers.
"""

import asyncio
import logging
import os
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message
from tenacity import AsyncRetrying, retry_if_exception

from pinnace.api import fences
from pinnace.api.wellknown import CREATED_KEY, IMPERSONATE_GROUP_KEY, IMPERSONATE_USER_KEY, REQUEST_ID_KEY, WARNING_KEY
from pinnace.client.channel import Decoder, Duplex, Peer, PresentFence, Q, R, Stream, host_of, resolve_addresses
from pinnace.client.errors import (
    ApiError,
    OutcomeUnknown,
    Timeout,
    Unauthenticated,
    Unavailable,
    fenced_error,
    from_rpc,
    lacks_storage,
    outcome_unknown,
    requested_delay,
    timed_out,
    unanswered_error,
    unavailable_error,
    unimplemented_error,
    unknown_method,
    unreadable_response_error,
)
from pinnace.runtime.backoff import Backoff, new_rng
from pinnace.runtime.tasks import CallCancelled, CancellationGuard
from pinnace.runtime.tls import ReloadingCredentials, TlsFiles

log = logging.getLogger(__name__)

Metadata: TypeAlias = Sequence[tuple[str, str]]
CHANGES = ("Create", "Update", "Patch", "Delete", "Bind", "Evict", "Record", "Transfer")
"""Prefixes of the methods that write. CallState reports OutcomeUnknown for them only."""
SLOW_AFTER = 0.5
"""Seconds after which a pending attempt counts as unanswered."""
TIMEOUT = 2.0
"""Seconds within which a server must accept a connection and send its first byte."""
PROBE_AFTER = 2.0
"""Seconds without a connection after which servers are probed."""
NO_ANSWER = "no answer"
"""The description of a server that accepts connections but sends nothing."""
PROBE_INTERVAL = 5.0
"""The minimum number of seconds between two probes."""


def impersonation_metadata(user: str, groups: Iterable[str]) -> Metadata:
    """Return the metadata with which calls are made as another user."""
    return [(IMPERSONATE_USER_KEY, user), *((IMPERSONATE_GROUP_KEY, group) for group in groups)]


"""Keys and values that are sent with a request."""


@dataclass(slots=True)
class CallState:
    """The state of one call, for its error if it is cancelled. `method` has the form "/pinnace.v1.Pods/Get"."""

    method: str
    last_problem: Unavailable | None = None
    """The error of the last finished attempt, if it was Unavailable."""
    sent_to: str = ""
    """The endpoint of the pending attempt, or "" if there is none."""
    sent_at: float = 0.0
    in_doubt: bool = False
    """Whether the response to an attempt was lost."""

    def record_sent(self, endpoint: str, now: float) -> None:
        self.sent_to, self.sent_at = endpoint, now

    def record_failure(self, error: ApiError) -> None:
        """Record that the pending attempt failed, or that it could not be sent."""
        self.in_doubt |= bool(self.sent_to) and isinstance(error, Unavailable) and error.retry_after is None
        self.last_problem = error if isinstance(error, Unavailable) else None
        self.sent_to = ""

    def cancellation_error(self, now: float) -> Unavailable | None:
        """Return the error of a call that is cancelled now, or None if no problem is known."""
        slow = bool(self.sent_to) and now - self.sent_at >= SLOW_AFTER
        cause = self.last_problem or (unanswered_error(self.sent_to) if slow else None)
        if cause is None or not (self.in_doubt or self.sent_to) or not self._changes:
            return cause
        return outcome_unknown(cause)

    def final_error(self, error: Unavailable) -> Unavailable:
        """Return `error`, the error of the last attempt, or OutcomeUnknown if an earlier attempt may have had an effect."""
        return outcome_unknown(error) if self.in_doubt and self._changes else error

    @property
    def _changes(self) -> bool:
        return self.method.rpartition("/")[2].startswith(CHANGES)


class Connection:
    """A connection that all parts of a process can share. The first call needs a running event loop."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: TlsFiles | None = None,
        rng: random.Random | None = None,
        metadata: Sequence[tuple[str, str]] | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_created: Callable[[], None] | None = None,
        storage_timeout: float | None = None,
        exchanges: bool = False,
    ) -> None:
        """`endpoints`: servers as "host:port". They are tried in random order, which spreads clients over the servers. `tls`:
        files for mutual TLS; None disables TLS and authentication. `metadata`: sent with each unary call. `on_warning` receives
        the server's warnings about accepted requests. `on_created` is called when an apply created an object.
        `storage_timeout`: seconds after which a call is no longer retried if etcd is unavailable; None uses the timeout of the
        call. `exchanges`: send the calls that wait at the same moment in one message (pinnace.client.exchange). Raises OSError
        if a TLS file cannot be loaded."""
        if not endpoints:
            raise ValueError("no API server is configured: at least one HOST:PORT is required")
        self._rng = rng or new_rng()
        self._tls = ReloadingCredentials(tls) if tls is not None else None
        self._endpoints = self._rng.sample(list(endpoints), len(endpoints))
        self._metadata = metadata
        self._on_warning = on_warning
        self._on_created = on_created
        self._storage_patience = storage_timeout
        self._exchanges = exchanges
        self._diagnosis = Diagnosis(self._endpoints, tls.create_ssl_context if tls is not None else None)
        self._peers: list[Peer] = []  # empty before the first call
        self._current = 0
        self._closed = False
        self.given_up: tuple[float, Unavailable] | None = None
        """The time of the latest cancelled call (by the loop's clock), and the error of its last attempt."""

    @property
    def endpoint(self) -> str:
        """The endpoint that the next call uses."""
        return self._peers[self._current].endpoint if self._peers else self._endpoints[0]

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
        metadata: Metadata = (),
    ) -> R:
        """Send a unary call and return its response within `timeout` seconds. `method` has the form "/pinnace.v1.Pods/Get".

        An attempt that had no effect is retried on the next server until `timeout`. With `retry`, a call whose response was
        lost is retried as well: use it only for reads and for writes that are safe to repeat. `fence` is called before each
        attempt: the server commits the write only while the fence is valid (pinnace.api.fences). If `fence` returns None,
        Fenced is raised. `metadata` is sent with this call only.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        state = CallState(method)
        send = partial(self._send_attempt, state, request, response, deadline, retry, fence, metadata)
        try:
            try:
                return await _retry_unauthenticated(send)  # the fast path
            except ApiError as error:
                if not _is_retryable(error, retry):
                    raise
                return await self._retry(error, send, deadline, retry)
        except Unavailable as error:
            raise state.final_error(error) from None
        except ApiError as error:
            error.in_doubt = state.in_doubt
            raise
        except asyncio.CancelledError:
            if (problem := state.cancellation_error(now())) is not None:
                self.given_up = now(), problem
            raise

    async def _retry(self, first: ApiError, send: Callable[[], Awaitable[R]], deadline: float, retry: bool) -> R:
        """Retry a call whose first attempt failed with `first`. Raises the last error that is not a plain timeout."""
        now = asyncio.get_running_loop().time
        patience = deadline if self._storage_patience is None else min(deadline, now() + self._storage_patience)
        backoff = Backoff(initial=0.02, maximum=0.5, rng=self._rng)
        last_error = first

        def should_retry(error: BaseException) -> bool:
            nonlocal last_error
            if not isinstance(error, ApiError):
                return False
            if not isinstance(error, Timeout) or error.reason:
                last_error = error
            return _is_retryable(error, retry)

        attempts = AsyncRetrying(
            retry=retry_if_exception(should_retry),
            wait=lambda _: max(requested_delay(last_error), backoff.next_delay()),
            stop=lambda state: now() + state.upcoming_sleep >= (patience if lacks_storage(last_error) else deadline),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            async for attempt in attempts:
                with attempt:
                    if attempt.retry_state.attempt_number == 1:  # made by the caller
                        raise first
                    return await _retry_unauthenticated(send)
        except ApiError:
            raise last_error from None
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def stream(self, method: str, request: Message, response: type[R], *, metadata: Metadata = ()) -> Stream[R]:
        """Open a stream of responses from one server."""
        decode = Decoder(response)

        def open_stream(peer: Peer) -> Any:
            def start(channel: grpc.aio.Channel) -> Any:
                call: Any = channel.unary_stream(method, type(request).SerializeToString, decode)
                return call(request, metadata=metadata or None)

            return peer.open_stream(start)

        return Stream(self, method, await self.select_server(method), open_stream, decode)

    async def duplex(self, method: str, request: type[Q], response: type[R], *, metadata: Metadata = ()) -> Duplex[Q, R]:
        """Open a bidirectional stream to one server."""
        decode = Decoder(response)

        def open_stream(peer: Peer) -> Any:
            def start(channel: grpc.aio.Channel) -> Any:
                call: Any = channel.stream_stream(method, request.SerializeToString, decode)
                return call(metadata=metadata or None)

            return peer.open_stream(start)

        return Duplex(self, method, await self.select_server(method), open_stream, decode)

    async def close(self) -> None:
        """Close the connection and cancel its open calls."""
        self._closed = True
        self._diagnosis.close()
        await asyncio.gather(*(peer.close() for peer in self._peers))

    def handle_failure(self, peer: Peer, failure: ApiError) -> ApiError:
        """Return the error of a call to `peer`. Switch to the next server if the error is specific to this server."""
        if isinstance(failure, Unavailable) or unknown_method(failure):
            self.switch_server(peer)
        elif isinstance(failure, Unauthenticated):
            peer.mark_credentials_rejected()
        return failure

    def switch_server(self, peer: Peer) -> None:
        """Make the next server the current one, if `peer` is the current one."""
        if len(self._peers) > 1 and self._peers[self._current] is peer:
            self._current = (self._current + 1) % len(self._peers)
            log.debug("switching from API server %s to %s", peer.endpoint, self.endpoint)

    async def select_server(self, method: str, ignorant: Collection[str] = ()) -> Peer:
        """Return the first connected server, starting with the current one. Servers in `ignorant` do not implement `method` and
        are skipped. Nothing has been sent if it raises Unavailable, or Unimplemented if `ignorant` is not empty."""
        for must_resolve in (not self._peers, not ignorant):
            if must_resolve:
                await self._resolve_endpoints()
            for _ in self._peers:
                peer = self._peers[self._current]
                if peer.endpoint not in ignorant:
                    if await peer.connect():
                        self._diagnosis.record_success()
                        return peer
                    self._diagnosis.record_failure()
                self.switch_server(peer)
        if ignorant:
            raise unimplemented_error(method, ignorant)
        raise unavailable_error(f"cannot connect to the API server at {self._diagnosis.describe_servers}")

    def _ready_server(self) -> Peer | None:
        """Return the current server if it is connected. This fast path needs no timeout."""
        if not self._peers or not (peer := self._peers[self._current]).is_ready():
            return None
        self._diagnosis.record_success()
        return peer

    async def _resolve_endpoints(self) -> None:
        """Resolve the endpoints. A server whose address is unchanged keeps its channel."""
        result = [(address, host_of(endpoint)) for endpoint in self._endpoints for address in await resolve_addresses(endpoint)]
        known = {peer.endpoint: peer for peer in self._peers}
        wanted = dict(self._rng.sample(result, len(result)))
        self._peers = [known.pop(each) if each in known else Peer(each, host, self._tls) for each, host in wanted.items()]
        self._current = 0
        for peer in known.values():
            await peer.close()

    async def _send_attempt(
        self,
        state: CallState,
        request: Message,
        response: type[R],
        deadline: float,
        retry: bool,
        fence: PresentFence | None,
        metadata: Metadata,
        ignorant: tuple[str, ...] = (),
    ) -> R:
        """Send the call once. `ignorant`: endpoints of the servers that do not implement the method."""
        method, now = state.method, asyncio.get_running_loop().time
        try:
            peer = None if ignorant else self._ready_server()
            if peer is None:
                async with asyncio.timeout_at(deadline):
                    peer = await self.select_server(method, ignorant)
        except Unavailable as error:
            state.record_failure(error)
            raise
        except TimeoutError:
            if ignorant:
                raise unimplemented_error(method, ignorant) from None
            raise timed_out(f"timed out connecting to the API server at {self._diagnosis.describe_servers}") from None
        sent_metadata = [*(self._metadata or ()), *metadata]
        if fence is not None:
            leader = fence()
            if leader is None:
                raise fenced_error(f"{method} was not sent: the term has ended")
            sent_metadata.append((fences.KEY, fences.encode_header(leader)))
        if (remaining := deadline - now()) <= 0:
            raise timed_out(f"{method} was not sent: the deadline has passed")
        state.record_sent(peer.endpoint, now())
        send = self._send_in_exchange if self._exchanges else self._send_call
        try:
            return await send(peer, method, request, response, remaining, sent_metadata)
        except ApiError as error:
            if unknown_method(error):
                return await self._send_attempt(
                    state, request, response, deadline, retry, fence, metadata, (*ignorant, peer.endpoint)
                )
            state.record_failure(error)
            raise _reported_error(error, retry) from None

    async def _send_call(
        self, peer: Peer, method: str, request: Message, response: type[R], timeout: float, metadata: Sequence[tuple[str, str]]
    ) -> R:
        """Send a gRPC call. Raises ApiError."""
        call: Any = peer.channel.unary_unary(method, type(request).SerializeToString, Decoder(response))
        sent = call(request, timeout=timeout, metadata=metadata or None)
        try:
            with CancellationGuard():
                answer: R | None = await sent
        except CallCancelled:
            if self._closed:
                raise asyncio.CancelledError("the connection was closed") from None
            raise unavailable_error(f"the connection to API server {peer.endpoint} was closed") from None
        except grpc.aio.AioRpcError as error:
            if self._on_warning:
                self._read_trailers(method, peer, error.trailing_metadata() or ())
            raise self._log_failure(peer, method, from_rpc(error)) from None
        if answer is None:
            raise unreadable_response_error(method, peer.endpoint)
        if self._on_warning or self._on_created or log.isEnabledFor(logging.DEBUG):
            self._read_trailers(method, peer, await sent.trailing_metadata())
        return answer

    async def _send_in_exchange(
        self, peer: Peer, method: str, request: Message, response: type[R], timeout: float, metadata: Sequence[tuple[str, str]]
    ) -> R:
        """Send a call in the stream of many calls. Raises ApiError."""
        try:
            answer = await peer.exchange.call(method, request.SerializeToString(), metadata, timeout)
        except TimeoutError:
            raise self._log_failure(peer, method, unanswered_error(peer.endpoint)) from None
        except ApiError as error:
            self._report_warnings(error.warnings)
            raise self._log_failure(peer, method, error) from None
        self._report_warnings(answer.warnings)
        if answer.created and self._on_created:
            self._on_created()
        decoded = Decoder(response)(answer.data)
        if decoded is None:
            raise unreadable_response_error(method, peer.endpoint)
        return decoded

    def _report_warnings(self, warnings: Sequence[str]) -> None:
        if self._on_warning:
            for warning in warnings:
                self._on_warning(warning)

    def _log_failure(self, peer: Peer, method: str, failure: ApiError) -> ApiError:
        failure = self.handle_failure(peer, failure)
        if isinstance(failure, Timeout) and not failure.reason:
            failure = unanswered_error(peer.endpoint)
        log.debug("%s at %s: %s, request %s", method, peer.endpoint, failure.code.name, failure.request_id or "unknown")
        return failure

    def _read_trailers(self, method: str, peer: Peer, trailers: Iterable[tuple[str, str | bytes]]) -> None:
        """Log the request ID, and pass the server's warnings to `on_warning`."""
        for key, value in trailers:
            if key == REQUEST_ID_KEY:
                log.debug("%s at %s: OK, request %s", method, peer.endpoint, value)
            elif key == WARNING_KEY and self._on_warning and isinstance(value, bytes):
                self._on_warning(value.decode(errors="replace"))
            elif key == CREATED_KEY and self._on_created:
                self._on_created()


async def _retry_unauthenticated(send: Callable[[], Awaitable[R]]) -> R:
    """Retry a call once if its credentials are rejected: the connection may predate the renewal of the certificate."""
    try:
        return await send()
    except Unauthenticated:
        return await send()


def _reported_error(failure: ApiError, retry: bool) -> ApiError:
    """Return the error to report for a call that was sent and failed."""
    if isinstance(failure, Unavailable) and failure.retry_after is None and not retry:
        return outcome_unknown(failure)
    return failure


def _is_retryable(error: ApiError, retry: bool) -> bool:
    """Return whether the call may be sent again. `retry` applies to OutcomeUnknown only; other Unavailable errors mean that the
    call had no effect."""
    if isinstance(error, OutcomeUnknown):
        return retry
    return isinstance(error, Unavailable) and not isinstance(error, Timeout)


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """The reason why a server cannot be reached. `distrust`: the server listens, but one side rejects the other's
    certificate."""

    what: str
    distrust: bool = False


class Diagnosis:
    """Probes a client's servers when none can be reached, because gRPC does not report the reason.

    Probes run in the background and never delay a connection. A result is at most PROBE_INTERVAL seconds old, plus the duration
    of a probe."""

    def __init__(self, endpoints: Sequence[str], secure: Callable[[], ssl.SSLContext] | None) -> None:
        """`secure` creates an SSL context from the current certificate files, or raises OSError. None disables TLS."""
        self._endpoints = endpoints
        self._secure = secure
        self._since: float | None = None
        self._probed_at = float("-inf")
        self._probe_task: asyncio.Task[None] | None = None
        self._problems: dict[str, str] = {}

    @property
    def describe_servers(self) -> str:
        """All servers with their known problems, for example "a:1 (connection refused), b:1"."""
        return ", ".join(
            f"{endpoint} ({self._problems[endpoint]})" if endpoint in self._problems else endpoint
            for endpoint in self._endpoints
        )

    def record_failure(self) -> None:
        """Record that a server could not be reached. Start a probe if one is due."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif self._probe_task is None and now - self._since >= PROBE_AFTER and now - self._probed_at >= PROBE_INTERVAL:
            self._probed_at = now
            self._probe_task = asyncio.create_task(self._diagnose_servers())

    def record_success(self) -> None:
        """Record that a server was reached. Discard all results."""
        if self._since is not None:
            self._since = None
            self._problems = {}
            self._stop()

    def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._probe_task is not None:
            self._probe_task.cancel()
            self._probe_task = None

    async def _diagnose_servers(self) -> None:
        with suppress(OSError):  # the certificates cannot be read; connections use the previous ones
            secure = self._secure() if self._secure is not None else None
            problem = await asyncio.gather(*(probe_server(endpoint, secure) for endpoint in self._endpoints))
            self._problems = {
                each: wrong.what for each, wrong in zip(self._endpoints, problem, strict=True) if wrong is not None
            }
        self._probe_task = None  # a cancelled probe does not reach this line


async def probe_server(endpoint: str, secure: ssl.SSLContext | None) -> ConnectionProblem | None:
    """Connect to a server, and return its problem, or None if it responds. In HTTP/2 the server sends first, so the read also
    detects a rejected client certificate."""
    host, _, port = endpoint.rpartition(":")
    connected = False
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=secure)
            connected = True
            try:
                if not await reader.read(1):
                    shown = "it rejects the client certificate" if secure else "it requires TLS"
                    return ConnectionProblem(f"it closes the connection: {shown}", distrust=True)
            finally:
                writer.transport.abort()
    except TimeoutError:
        plain = connected and not secure
        return ConnectionProblem(f"{NO_ANSWER}{' without TLS' if plain else ''} in {TIMEOUT:.0f} s", distrust=plain)
    except UnicodeError:  # a label of the name is empty or too long
        return ConnectionProblem("no such host")
    except OSError as error:
        return ConnectionProblem(_describe_os_error(error), distrust=isinstance(error, ssl.SSLError))
    except (ValueError, OverflowError):  # certificate errors are both OSError and ValueError
        return ConnectionProblem("no such port")
    return None


def _describe_os_error(error: OSError) -> str:
    """Return the operating system's description of the error, such as "connection refused", or the reason why the certificate
    is rejected."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"invalid certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return (os.strerror(int(number[1])) if number else error.strerror or str(error)).lower()
