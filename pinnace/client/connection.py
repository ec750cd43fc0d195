"""One connection to several equal API servers.

A connection uses one server at a time. It moves on to the next when that one cannot be reached, fails, or announces that it
shuts down. HTTP/2 keepalive detects a server that drops packets within three seconds. A host name stands for all of its
addresses, each a server of its own; it is resolved again when none of them can be reached.

If a server does not know a method, the next one is tried: it may be newer, and newer servers know all methods of older ones.
When all reachable servers have been tried once, the connection returns to the first, and Unimplemented is raised.

A call is repeated only if the previous attempt had no effect (there was no connection, the server says so with RetryInfo, or it
does not accept the credentials), or if the caller declares that a repetition is harmless. Otherwise a lost answer is
`OutcomeUnknown`. To distinguish the cases, calls are sent only on an established connection.

What has become of one call so far: for who gives it up before it has ended.

Why there is no connection to a server. Needs no gRPC, which does not say; so it asks by a connection of its own.

Guarantees: connecting never waits for it. Does not promise that what it found is still so: it is as old as PROBE_INTERVAL, at
the most, and as long as a probe takes.
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

from pinnace.api import fences
from pinnace.api.wellknown import REQUEST_ID_KEY, WARNING_KEY
from pinnace.client.channel import Duplex, Peer, PresentFence, Q, R, Stream, addresses, decoder, host_of
from pinnace.client.errors import (
    ApiError,
    OutcomeUnknown,
    Timeout,
    Unauthenticated,
    Unavailable,
    asked_to_wait,
    fenced,
    from_rpc,
    lacks_storage,
    outcome_unknown,
    timed_out,
    unanswered,
    unavailable,
    unimplemented,
    unknown_method,
    unreadable,
)
from pinnace.runtime.backoff import Backoff, new_rng
from pinnace.runtime.tasks import CallCancelled, HeedsCancellation
from pinnace.runtime.tls import Renewed, TlsFiles

log = logging.getLogger(__name__)

Metadata: TypeAlias = Sequence[tuple[str, str]]
"""Keys and values that are sent beside a request."""


CHANGES = ("Create", "Update", "Patch", "Delete", "Bind", "Evict", "Record", "Transfer")
"""Prefixes of the methods that write."""
SLOW_AFTER = 0.5
"""Seconds after which an attempt without an answer is reported."""


@dataclass(slots=True)
class CallState:
    """What is known of one call so far, for the error of a call that is cancelled. `method` is like "/pinnace.v1.Pods/Get"."""

    method: str
    met: Unavailable | None = None
    """The error of the last attempt that ended."""
    sent_to: str = ""
    """The server of the present attempt; "" if there is none."""
    sent_at: float = 0.0
    in_doubt: bool = False
    """The answer to an attempt was lost."""

    def sent(self, endpoint: str, now: float) -> None:
        self.sent_to, self.sent_at = endpoint, now

    def failed(self, error: ApiError) -> None:
        """Records that the present attempt failed, or could not be sent."""
        self.in_doubt |= bool(self.sent_to) and isinstance(error, Unavailable) and error.retry_after is None
        self.met = error if isinstance(error, Unavailable) else None
        self.sent_to = ""

    def told(self, now: float) -> Unavailable | None:
        """The error of a call that is cancelled now; None if no problem is known."""
        slow = bool(self.sent_to) and now - self.sent_at >= SLOW_AFTER
        cause = self.met or (unanswered(self.sent_to) if slow else None)
        if cause is None or not (self.in_doubt or self.sent_to) or not self._changes:
            return cause
        return outcome_unknown(cause)

    def ended(self, error: Unavailable) -> Unavailable:
        """The error of a call whose last attempt failed with `error`: an earlier attempt may have had an effect."""
        return outcome_unknown(error) if self.in_doubt and self._changes else error

    @property
    def _changes(self) -> bool:
        return self.method.rpartition("/")[2].startswith(CHANGES)


class Connection:
    """Needs a running event loop from its first call on. Safe to share by everything in one process."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: TlsFiles | None = None,
        rng: random.Random | None = None,
        metadata: Sequence[tuple[str, str]] | None = None,
        on_warning: Callable[[str], None] | None = None,
        storage_timeout: float | None = None,
    ) -> None:
        """`endpoints` are "host:port". They are tried in random order, so that clients spread over the servers. `tls`: the
        files for mutual TLS; None: a plain connection without authentication. `metadata`: sent with each unary call.
        `on_warning` is called with the server's warnings about accepted requests. `storage_timeout`: seconds after which a call
        is no longer retried because etcd is unavailable; None: the call's own timeout. Raises OSError if the files of `tls`
        cannot be used."""
        if not endpoints:
            raise ValueError("no API server to connect to: name at least one host:port")
        self._rng = rng or new_rng()
        self._tls = Renewed(tls) if tls is not None else None
        self._endpoints = self._rng.sample(list(endpoints), len(endpoints))
        self._metadata = metadata
        self._on_warning = on_warning
        self._storage_patience = storage_timeout
        self._diagnosis = Diagnosis(self._endpoints, tls.context if tls is not None else None)
        self._peers: list[Peer] = []  # none before the first call
        self._current = 0
        self._closed = False
        self.given_up: tuple[float, Unavailable] | None = None
        """When the latest cancelled call was cancelled (by the loop's clock), and the error that it had met until then."""

    @property
    def endpoint(self) -> str:
        """The server that the next call goes to."""
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
        """One unary call, answered or failed within `timeout` seconds. `method` is like "/pinnace.v1.Pods/Get".

        An attempt that certainly had no effect is repeated on the next server, until `timeout`. With `retry`, so is a call
        whose answer was lost: use it only for reads, and for writes that may be applied twice. `fence` is called when an
        attempt is sent: its writes commit only while this leader leads (pinnace.api.fences). If it returns None, Fenced is
        raised. `metadata` is sent with this call only.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        course = CallState(method)
        send = partial(self._attempt, course, request, response, deadline, retry, fence, metadata)
        try:
            try:
                return await _introduced(send)  # most calls succeed at once
            except ApiError as error:
                if not _repeatable(error, retry):
                    raise
                return await self._again(error, send, deadline, retry)
        except Unavailable as error:
            raise course.ended(error) from None
        except ApiError as error:
            error.in_doubt = course.in_doubt
            raise
        except asyncio.CancelledError:
            if (met := course.told(now())) is not None:
                self.given_up = now(), met
            raise

    async def _again(self, first: ApiError, send: Callable[[], Awaitable[R]], deadline: float, retry: bool) -> R:
        """Repeats a call whose first attempt failed with `first`. Raises the last error other than a bare timeout."""
        now = asyncio.get_running_loop().time
        patience = deadline if self._storage_patience is None else min(deadline, now() + self._storage_patience)
        backoff = Backoff(initial=0.02, maximum=0.5, rng=self._rng)
        told = first
        while now() + (pause := max(asked_to_wait(told), backoff.next())) < (patience if lacks_storage(told) else deadline):
            await asyncio.sleep(pause)
            try:
                return await _introduced(send)
            except ApiError as error:
                if not isinstance(error, Timeout) or error.reason:
                    told = error
                if not _repeatable(error, retry):
                    break
        raise told

    async def stream(self, method: str, request: Message, response: type[R], *, metadata: Metadata = ()) -> Stream[R]:
        """Opens a stream of responses from one server."""

        def begin(peer: Peer) -> Any:
            call = peer.channel.unary_stream(method, type(request).SerializeToString, decoder(response))
            return call(request, metadata=metadata or None)

        return Stream(self, method, await self.connected(method), begin)

    async def duplex(self, method: str, request: type[Q], response: type[R], *, metadata: Metadata = ()) -> Duplex[Q, R]:
        """Opens a stream in both directions to one server."""

        def begin(peer: Peer) -> Any:
            call = peer.channel.stream_stream(method, request.SerializeToString, decoder(response))
            return call(metadata=metadata or None)

        return Duplex(self, method, await self.connected(method), begin)

    async def close(self) -> None:
        """Closes the connection, and cancels its open calls."""
        self._closed = True
        self._diagnosis.close()
        await asyncio.gather(*(peer.close() for peer in self._peers))

    def failed(self, peer: Peer, error: grpc.aio.AioRpcError) -> ApiError:
        """Converts the error of a call to `peer`, and moves on if the peer caused it."""
        failure = from_rpc(error)
        if isinstance(failure, Unavailable) or unknown_method(failure):
            self.move_on(peer)
        elif isinstance(failure, Unauthenticated):
            peer.doubt()
        return failure

    def move_on(self, peer: Peer) -> None:
        """Makes the next server the current one, unless `peer` is not the current one any more."""
        if len(self._peers) > 1 and self._peers[self._current] is peer:
            self._current = (self._current + 1) % len(self._peers)
            log.debug("leaving API server %s for %s", peer.endpoint, self.endpoint)

    async def connected(self, method: str, ignorant: Collection[str] = ()) -> Peer:
        """The first connected server, from the current one on, without those that do not know `method` (`ignorant`). Raises
        Unavailable, or Unimplemented if `ignorant` is not empty; nothing was sent then."""
        for look_up in (not self._peers, not ignorant):
            if look_up:
                await self._look_up()
            for _ in self._peers:
                peer = self._peers[self._current]
                if peer.endpoint not in ignorant:
                    if await peer.connect():
                        self._diagnosis.over()
                        return peer
                    self._diagnosis.failed()
                self.move_on(peer)
        if ignorant:
            raise unimplemented(method, ignorant)
        raise unavailable(f"cannot connect to the API server at {self._diagnosis.servers}")

    def _ready(self) -> Peer | None:
        """The current server if it is connected. This is the usual case, and needs no timeout."""
        if not self._peers or not (peer := self._peers[self._current]).is_ready():
            return None
        self._diagnosis.over()
        return peer

    async def _look_up(self) -> None:
        """Resolves the endpoints. Servers whose address is still among the results keep their channels."""
        found = [(address, host_of(endpoint)) for endpoint in self._endpoints for address in await addresses(endpoint)]
        known = {peer.endpoint: peer for peer in self._peers}
        wanted = dict(self._rng.sample(found, len(found)))
        self._peers = [known.pop(each) if each in known else Peer(each, host, self._tls) for each, host in wanted.items()]
        self._current = 0
        for peer in known.values():
            await peer.close()

    async def _attempt(
        self,
        course: CallState,
        request: Message,
        response: type[R],
        deadline: float,
        retry: bool,
        fence: PresentFence | None,
        metadata: Metadata,
        ignorant: tuple[str, ...] = (),
    ) -> R:
        """Sends the call once. `ignorant`: the servers that have answered that they do not know the method."""
        method, now = course.method, asyncio.get_running_loop().time
        try:
            peer = None if ignorant else self._ready()
            if peer is None:
                async with asyncio.timeout_at(deadline):
                    peer = await self.connected(method, ignorant)
        except Unavailable as error:
            course.failed(error)
            raise
        except TimeoutError:
            if ignorant:
                raise unimplemented(method, ignorant) from None
            raise timed_out(f"no connection to the API server at {self._diagnosis.servers} in time") from None
        sent_metadata = [*(self._metadata or ()), *metadata]
        if fence is not None:
            leader = fence()
            if leader is None:
                raise fenced(f"{method} is not sent: the term is over")
            sent_metadata.append((fences.KEY, fences.header(leader)))
        if (remaining := deadline - now()) <= 0:
            raise timed_out(f"no time was left for {method}: nothing was sent")
        call: Any = peer.channel.unary_unary(method, type(request).SerializeToString, decoder(response))
        course.sent(peer.endpoint, now())
        sent = call(request, timeout=remaining, metadata=sent_metadata or None)
        try:
            with HeedsCancellation():
                answer: R | None = await sent
        except CallCancelled:
            if self._closed:
                raise asyncio.CancelledError("the connection was closed") from None
            failure: ApiError = unavailable(f"the connection to API server {peer.endpoint} was given up")
            course.failed(failure)
            raise _lost(failure, retry) from None
        except grpc.aio.AioRpcError as error:
            failure = self.failed(peer, error)
            if isinstance(failure, Timeout) and not failure.reason:
                failure = unanswered(peer.endpoint)
            course.failed(failure)
            log.debug("%s at %s: %s, request %s", method, peer.endpoint, failure.code.name, failure.request_id or "unknown")
            if unknown_method(failure):
                return await self._attempt(
                    course, request, response, deadline, retry, fence, metadata, (*ignorant, peer.endpoint)
                )
            raise _lost(failure, retry) from None
        if answer is None:
            raise unreadable(method, peer.endpoint)
        if self._on_warning or log.isEnabledFor(logging.DEBUG):
            self._read_trailers(method, peer, await sent.trailing_metadata())
        return answer

    def _read_trailers(self, method: str, peer: Peer, trailers: Iterable[tuple[str, str | bytes]]) -> None:
        """Logs the request's id, and passes the server's warnings on."""
        for key, value in trailers:
            if key == REQUEST_ID_KEY:
                log.debug("%s at %s: OK, request %s", method, peer.endpoint, value)
            elif key == WARNING_KEY and self._on_warning and isinstance(value, bytes):
                self._on_warning(value.decode(errors="replace"))


async def _introduced(send: Callable[[], Awaitable[R]]) -> R:
    """Who is not known asks once more: the connection may be older than the certificate that is there by now."""
    try:
        return await send()
    except Unauthenticated:
        return await send()


def _lost(failure: ApiError, retry: bool) -> ApiError:
    """What is told of a call that was sent and failed."""
    if isinstance(failure, Unavailable) and failure.retry_after is None and not retry:
        return outcome_unknown(failure)
    return failure


def _repeatable(error: ApiError, retry: bool) -> bool:
    """May the call be sent again? Only what is OutcomeUnknown depends on `retry`: of any other Unavailable nothing happened."""
    if isinstance(error, OutcomeUnknown):
        return retry
    return isinstance(error, Unavailable) and not isinstance(error, Timeout)


TIMEOUT = 2.0
"""Seconds for a server to accept a connection and to send its first byte."""
PROBE_AFTER = 2.0
"""Seconds without a connection after which the servers are probed."""
NO_ANSWER = "no answer"
"""The description of a server that accepts connections and does not answer."""
PROBE_INTERVAL = 5.0
"""Seconds between two probes."""


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """Why there is no connection. `distrust`: a server listens, but one side does not accept the other's certificate."""

    what: str
    distrust: bool = False


class Diagnosis:
    """Finds out why none of a client's servers can be reached, by connections of its own, because gRPC does not report the
    reason.

    Connecting never waits for it. A finding is at most PROBE_INTERVAL seconds old, plus the duration of a probe."""

    def __init__(self, endpoints: Sequence[str], secure: Callable[[], ssl.SSLContext] | None) -> None:
        """`secure` makes an SSL context from the present certificate files, or raises OSError; None: no TLS."""
        self._endpoints = endpoints
        self._secure = secure
        self._since: float | None = None
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._found: dict[str, str] = {}

    @property
    def servers(self) -> str:
        """All servers, each with its known problem: "a:1 (connection refused), b:1"."""
        return ", ".join(f"{each} ({self._found[each]})" if each in self._found else each for each in self._endpoints)

    def failed(self) -> None:
        """Records that a server could not be reached."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif self._looking is None and now - self._since >= PROBE_AFTER and now - self._looked >= PROBE_INTERVAL:
            self._looked = now
            self._looking = asyncio.create_task(self._look())

    def over(self) -> None:
        """Records that a server was reached."""
        if self._since is not None:
            self._since = None
            self._found = {}
            self._stop()

    def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        with suppress(OSError):  # the certificates cannot be read now; connections use the previous ones
            secure = self._secure() if self._secure is not None else None
            met = await asyncio.gather(*(probe(endpoint, secure) for endpoint in self._endpoints))
            self._found = {each: wrong.what for each, wrong in zip(self._endpoints, met, strict=True) if wrong is not None}
        self._looking = None  # not reached when cancelled


async def probe(endpoint: str, secure: ssl.SSLContext | None) -> ConnectionProblem | None:
    """Connects to a server. Returns None if it answers, or why it does not. In HTTP/2 the server sends first, so a rejection of
    the client's certificate is noticed as well."""
    host, _, port = endpoint.rpartition(":")
    connected = False
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=secure)
            connected = True
            try:
                if not await reader.read(1):
                    shown = "it does not trust our certificate" if secure else "it requires TLS"
                    return ConnectionProblem(f"it closes the connection: {shown}", distrust=True)
            finally:
                writer.transport.abort()
    except TimeoutError:
        plain = connected and not secure
        return ConnectionProblem(f"{NO_ANSWER}{' without TLS' if plain else ''} in {TIMEOUT:.0f} s", distrust=plain)
    except UnicodeError:  # not a valid name: a label is empty or too long
        return ConnectionProblem("no such host")
    except OSError as error:
        return ConnectionProblem(_why(error), distrust=isinstance(error, ssl.SSLError))
    except (ValueError, OverflowError):  # after OSError: errors of certificates are of both kinds
        return ConnectionProblem("no such port")
    return None


def _why(error: OSError) -> str:
    """The operating system's description, such as "connection refused", whichever of the host's addresses were tried; or why
    the certificate is not accepted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return (os.strerror(int(number[1])) if number else error.strerror or str(error)).lower()
