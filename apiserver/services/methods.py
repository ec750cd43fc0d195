"""The methods of the services in proto/, independent of the transport. gRPC and the simulation call them.

A service object has a coroutine or async generator for each method, named in snake case: `Pods.CreateBatch` is `create_batch`.
A missing method is an error at startup. Responses are messages or encoded bytes.

    bytes --parse--> message --call--> gate --> seat --> permission --> service --> bytes --> counted until the client has them
                        '-----stream-'   '-------'------------'-----------'-----------'--> Rejected (apiserver.errors)

Large requests with objects, and streamed requests, are parsed only when their call has its seat (apiserver.flow.levels).

**Stream authorization.** A stream is authenticated and authorized again while it is open:

    open --its timeout has passed, or its credential belongs to another user--> ends without an error: the client reconnects
         --its certificate has expired, or its token is unknown---------------> UNAUTHENTICATED
         --roles have changed and no longer permit it-------------------------> PERMISSION_DENIED

Guarantees: a stream ends within a few CHECK_INTERVALs after this server has received the change, and before it sends a later
event. While etcd is unreachable, streams stay open. Authorization is checked when etcd is reachable again.

Each interval checks every credential once. After a change of roles, each distinct permission is checked once, regardless of the
number of streams that need it. Decisions of the node authorizer depend on nodes, which change frequently. They are checked only
after a change of roles and at the start of a stream.
"""

from __future__ import annotations

import asyncio
import inspect
import mmap
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message

from pinnace.api import wire
from pinnace.api.resources import EVENTS, CustomResource
from pinnace.api.status import Code, Refusal
from pinnace.api.wire import Envelope
from pinnace.apiserver.auth.audit import AuditEvent, CallAudit, NoAudit
from pinnace.apiserver.auth.authentication import MASTERS, Credential, User
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.permissions import (
    AUTHENTICATION_GROUP,
    REVIEWS_GROUP,
    ActionTarget,
    ResourceAction,
    permission_of,
    standard_permission,
)
from pinnace.apiserver.cacher.store import CacheError
from pinnace.apiserver.errors import Rejected, bad_request, client_disconnected, to_refusal
from pinnace.apiserver.flow.control import MAX_STREAMS, ExemptSeat, PriorityAndFairness, Seat, StreamAdmission, set_current_seat
from pinnace.apiserver.flow.levels import (
    SMALL,
    LazyRequest,
    cost_function,
    cost_of_batch,
    cost_of_bytes,
    count_encoded_items,
    level_classifier,
)
from pinnace.apiserver.flow.send_budget import LARGE
from pinnace.apiserver.registry.fencing import FenceVerifier
from pinnace.apiserver.services import metrics
from pinnace.apiserver.storage.interface import StorageError
from pinnace.runtime.clock import Clock

MAX_REFLECTIONS = 10
"""Maximum number of open reflection streams per user, including system:masters. A tool opens one."""
MAX_BATCH = 1000
"""Maximum number of items in a batch request."""
ENVELOPE_LEVELS = 16
"""Nesting levels that are reserved for messages that contain the objects of a request, such as lists and watch events."""
MAX_LEVELS = wire.LIMIT - ENVELOPE_LEVELS
"""Maximum nesting depth of a request, including itself. The known fields have less than 20 levels."""
MEMORY_FACTOR = 3
"""Free memory that a large response needs before gRPC gets it, as a multiple of its size. gRPC copies the response, and aborts
the process if the allocation fails (std::bad_alloc)."""
_MALFORMED = f"the request is not a message of the method's type, or is nested deeper than {MAX_LEVELS} levels"
_LEFT_BEFORE_START = Refusal(Code.UNAVAILABLE, "Canceled", "the client left before the call began: the call had no effect")
"""For the audit log only."""
_NO_AUDIT = CallAudit(NoAudit())
Gate = Callable[[], Refusal | None]
"""Returns a refusal if the server accepts no calls now. Called at the start of each call."""
MIN_TIMEOUT = 1800.0
"""Minimum timeout of a watch in seconds, unless the client requests less. The timeout is random between this value and twice
this value, so that watches do not reconnect at the same time."""
CHECK_INTERVAL = 1.0
READ_TIMEOUT = 5.0
"""Maximum seconds that a read waits for the cache. An earlier deadline of the client has precedence."""
REPLY_MARGIN = 0.2
"""Seconds before the client's deadline at which a waiting read fails, so that the client receives the error."""


class Method:
    """One method of a service. `path` is the gRPC path, such as "/pinnace.v1.Pods/Get"."""

    def __init__(
        self,
        descriptor: MethodDescriptor,
        service: object,
        gate: Gate,
        flow: PriorityAndFairness,
        authorizer: Authorizer,
        authorizations: StreamReauthorizer,
        fences: FenceVerifier,
        audit: CallAudit,
        custom: CustomResource | None = None,
    ) -> None:
        """`custom`: the version of a custom kind that a method of CustomObjects serves. Raises TypeError if the service does
        not implement the method, and LookupError if the method has no permission in apiserver.auth.permissions."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", descriptor.name).lower()
        self.name = f"{custom.service if custom is not None else descriptor.containing_service.full_name}/{descriptor.name}"
        self.path = f"/{self.name}"
        self.client_streaming: bool = descriptor.client_streaming
        self.server_streaming: bool = descriptor.server_streaming
        self._message = message_factory.GetMessageClass(descriptor.input_type)
        self._envelope = Envelope(self._message, ENVELOPE_LEVELS)
        self._batched = "items" in descriptor.input_type.fields_by_name
        self._is_heavy = self.client_streaming or self._batched or "object" in descriptor.input_type.fields_by_name
        self._watches = descriptor.name == "Watch" and "options" in descriptor.input_type.fields_by_name
        self._gate = gate
        self._flow = flow
        self._authorizer = authorizer
        self._authorizations = authorizations
        self._fences = fences
        self.permission = permission_of(descriptor) if custom is None else standard_permission(custom, descriptor.name)
        action = self.permission.actions(self._message())[0]
        self._writes = not self.server_streaming and action.verb not in ("get", "list")
        self._audit = audit
        reviews = action.group in (REVIEWS_GROUP, AUTHENTICATION_GROUP)
        self._audited = self._writes and audit.enabled and action.resource != EVENTS.plural and not reviews
        self._level_of = level_classifier(action, pulse=self.client_streaming)
        about_nothing = action.resource.startswith("/")
        self._is_discovery = self.client_streaming and about_nothing
        self.is_paced = about_nothing or action.resource.startswith("selfsubject")
        """Whether calls are delayed as refusals are. Every user may call these methods, but rarely needs them."""
        self._cost_of = cost_function(descriptor, service)
        self._meter = metrics.RequestMetrics(action, batch=self._batched, connects=self.client_streaming)
        self._function: Any = getattr(service, name, None)
        if self._function is None:
            raise TypeError(f"{type(service).__name__} has no {name}() for {self.name}")
        if self.client_streaming and not self.server_streaming:
            raise TypeError(f"{self.name}: client streams without a response stream are not supported")
        if self.server_streaming and not inspect.isasyncgenfunction(self._function):
            raise TypeError(f"{self.name}: expected an async generator")

    def parse(self, data: bytes) -> Message | LazyRequest | None:
        """Return the request, or a LazyRequest if it is large.

        The result is None if the request is malformed or nested deeper than MAX_LEVELS. `call` and `stream` then refuse it. (On
        an exception here, gRPC would log a traceback and return UNKNOWN.) In a stream of requests, such a request becomes an
        empty message, which the service refuses.
        """
        return LazyRequest(data) if self._is_heavy and len(data) > SMALL else self._read_request(data)

    def _read_request(self, data: bytes) -> Message | None:
        try:
            return self._envelope.read(data)
        except DecodeError:
            return self._message() if self.client_streaming else None

    async def call(self, request: Message | LazyRequest | None, context: Context) -> bytes:
        """Run a method with one response and return the encoded response. Raises Rejected."""
        self._meter.record_start()
        started = time.perf_counter()
        code = Code.OK
        was_started = False
        if self._audited:
            self._audit.begin_call()
        try:
            with self._request_seat(request, context) as seat:
                if seat.waits:
                    await seat.acquire()
                set_current_seat(seat)
                if isinstance(request, LazyRequest):
                    request = self._validate_request(self._read_request(request.data))
                await self._authorize(request, context)
                if self._writes:
                    await self._fences.guard_call(context.user)
                was_started = True
                answer = _encode_response(await self._function(request, context))
                if self._audited:
                    self._audit_call(request, context, None)
                if len(answer) >= LARGE:
                    if not self._writes:
                        _require_memory(MEMORY_FACTOR * len(answer))
                    context.on_response_taken(seat.charge_response(len(answer), refusable=not self._writes))
                return answer
        except asyncio.CancelledError:
            code = Code.DEADLINE_EXCEEDED
            if self._audited:
                self._audit_call(request, context, client_disconnected() if was_started else _LEFT_BEFORE_START)
            raise
        except Exception as error:
            refusal = to_refusal(error, self.name, writes=self._writes)
            code = refusal.code
            if self._audited:
                self._audit_call(request, context, refusal)
            raise Rejected(refusal) from error
        finally:
            self._meter.record_end(code, time.perf_counter() - started)

    async def stream(self, request: Message | AsyncIterator[Message] | None, context: Context) -> AsyncGenerator[bytes, None]:
        """Run a method that streams, and yield the encoded responses. `request` is an iterator if requests are streamed, too.
        Raises Rejected.

        A stream that starts with the present state holds a seat until its first response, and another stream until it is open.
        A stream of requests holds a seat from its first request.
        """
        code = Code.OK
        with self._meter.stream():
            try:
                with (
                    self._count_stream(context),
                    self._request_stream_seat(request, context) as seat,
                    self._authorize_stream(request, context) as authorization,
                ):
                    if seat.waits:
                        await seat.acquire()
                    set_current_seat(seat)
                    await self._authorize(request, context)
                    if self._waits_for_events(request):
                        seat.release()
                    stream_input = seat if isinstance(seat, StreamAdmission) else request
                    async with aclosing(self._function(stream_input, context)) as responses:
                        async for response in authorization.wrap_responses(responses):
                            seat.release()
                            yield _encode_response(response)
                    if isinstance(seat, StreamAdmission) and seat.refused is not None:
                        raise seat.refused
            except Exception as error:
                refusal = to_refusal(error, self.name)
                code = refusal.code
                raise Rejected(refusal) from error
            finally:
                self._meter.record_stream_end(code)

    def _audit_call(self, request: Message | LazyRequest | None, context: Context, refusal: Refusal | None) -> None:
        """Write the call to the audit log, unless its service did. A request that was not parsed has no targets."""
        if self._audit.has_recorded():
            return
        actions, find = self.permission
        known = isinstance(request, Message) and find is not None
        action, targets = actions(request if known else self._message())[0], find(request) if known and find else ()
        events = [AuditEvent(action, target.namespace, target.name, refusal=refusal) for target in targets]
        self._audit.record(context.user, events or [AuditEvent(action, "", "", refusal=refusal)])

    def _count_stream(self, context: Context) -> AbstractContextManager[None]:
        """Count a stream of requests while it is open. It has no seat, but the number of streams per flow is limited. Raises
        Rejected."""
        if not self.client_streaming:
            return nullcontext()
        user = context.user
        level = self._level_of(user) if self._is_discovery or MASTERS not in user.groups else None
        return self._flow.count_stream(level, user.name, MAX_REFLECTIONS if self._is_discovery else MAX_STREAMS)

    def _request_seat(self, request: Message | LazyRequest | None, context: Context) -> Seat | ExemptSeat:
        self._require_readiness()
        if isinstance(request, LazyRequest):
            cost = self._cost_of_unparsed(request)
        elif self.client_streaming:
            cost = cost_of_bytes(request.ByteSize() if request is not None else 0)
        else:
            cost = self._cost_of(self._validate_request(request))
        user, remaining = context.user, context.time_remaining()
        return self._flow.request_seat(self._level_of(user), user.name, cost, request, remaining, writes=self._writes)

    def _cost_of_unparsed(self, request: LazyRequest) -> int:
        cost = cost_of_bytes(request.ByteSize())
        if self._batched:
            number = self._message.DESCRIPTOR.fields_by_name["items"].number
            cost = max(cost, cost_of_batch(count_encoded_items(request.data, number, MAX_BATCH)))
        return cost

    def _request_stream_seat(self, request: Message | AsyncIterator[Message] | None, context: Context) -> Seat | ExemptSeat:
        if request is None or isinstance(request, Message):
            return self._request_seat(request, context)
        self._require_readiness()
        return StreamAdmission(
            request, lambda first: self._request_seat(first, context), self._parse_streamed, each=self._is_discovery
        )

    def _parse_streamed(self, data: bytes) -> Message:
        """Parse a request of a stream."""
        return self._read_request(data) or self._message()

    def _require_readiness(self) -> None:
        """Check that the server accepts calls. Raises Rejected."""
        if refusal := self._gate():
            raise Rejected(refusal)

    def _validate_request(self, request: Message | None) -> Message:
        """Check the request before the permission check of each item, and return it. Raises Rejected."""
        if request is None:
            raise Rejected(bad_request(_MALFORMED))
        if self._batched:
            _check_batch_size(request)
        return request

    def _authorize_stream(self, request: Any, context: Context) -> AbstractContextManager[StreamAuthorization]:
        seconds = self._authorizations.watch_timeout(request.options.timeoutSeconds) if self._watches else None
        actions, find = self.permission
        checks = [(action, tuple(find(request))) for action in actions(request)] if find is not None else ()
        return self._authorizations.authorize_stream(context.credential, context.user, seconds, checks)

    def _waits_for_events(self, request: Any) -> bool:
        """Return whether an open stream only waits for events. A watch from the present state first sends that state. The
        purpose of a stream of requests is unknown before its first request."""
        if not self._watches:
            return not self.client_streaming
        options = request.options
        if options.HasField("sendInitialEvents"):
            return not options.sendInitialEvents
        return options.resourceVersion not in ("", "0")

    async def _authorize(self, request: object, context: Context) -> None:
        """Check the permission. In a stream of requests, the service checks each request. Raises Rejected."""
        actions, find = self.permission
        if find is None:
            return
        targets = partial(find, request)
        for action in actions(request):
            await self._authorizer.authorize(context.user, action, targets)


def _check_batch_size(request: Any) -> None:
    if len(request.items) > MAX_BATCH:
        raise Rejected(bad_request(f"{len(request.items)} items in one batch: send at most {MAX_BATCH}"))


def _require_memory(size: int) -> None:
    """Raise OSError if `size` bytes cannot be allocated. Maps and unmaps memory without touching it: two system calls."""
    mmap.mmap(-1, size).close()


def build_methods(
    descriptors: Iterable[MethodDescriptor],
    service: object,
    gate: Gate,
    flow: PriorityAndFairness,
    authorizer: Authorizer,
    authorizations: StreamReauthorizer,
    fences: FenceVerifier,
    audit: CallAudit = _NO_AUDIT,
    custom: CustomResource | None = None,
) -> Mapping[str, Method]:
    """Return the methods by path. `custom`: see Method. Raises the errors of Method."""
    methods = (
        Method(descriptor, service, gate, flow, authorizer, authorizations, fences, audit, custom) for descriptor in descriptors
    )
    return {method.path: method for method in methods}


def _encode_response(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()


class AccessCheck(NamedTuple):
    user: User
    action: ResourceAction
    targets: frozenset[ActionTarget]


class StreamAuthorization:
    """The authorization of one stream. Iteration yields the responses of `wrap_responses` until the authorization ends."""

    __slots__ = ("_ended", "_reader", "_refusal", "_responses", "checks", "credential", "user")

    def __init__(self, credential: Credential, user: User) -> None:
        self.credential = credential
        self.user = user
        self.checks: list[AccessCheck] = []
        self._responses: AsyncIterator[bytes]
        self._reader: asyncio.Task[object] | None = None  # the task that waits for a response
        self._ended = False
        self._refusal: Refusal | None = None

    def require_access(self, action: ResourceAction, targets: Collection[ActionTarget]) -> None:
        """Add a permission that the stream needs, before the first check of that permission."""
        self.checks.append(AccessCheck(self.user, action, frozenset(targets)))

    def end(self, refusal: Refusal | None = None) -> None:
        """End the stream, without an error if `refusal` is None."""
        if self._ended:
            return
        self._ended, self._refusal = True, refusal
        if self._reader is not None:
            self._reader.cancel()

    def wrap_responses(self, responses: AsyncIterator[bytes]) -> StreamAuthorization:
        self._responses = responses
        return self

    def __aiter__(self) -> StreamAuthorization:
        return self

    async def __anext__(self) -> bytes:
        """Return the next response. Raises Rejected if the stream ends with a refusal."""
        if self._ended:
            self._raise_end()
        self._reader = reader = asyncio.current_task()
        try:
            return await anext(self._responses)
        except BaseException:
            if self._ended and reader is not None and not reader.uncancel():  # otherwise, the task was cancelled as well
                self._raise_end()
            raise
        finally:
            self._reader = None

    def _raise_end(self) -> None:
        if self._refusal is not None:
            raise Rejected(self._refusal)
        raise StopAsyncIteration


class StreamReauthorizer:
    """All open streams of a server. `role_versions` returns a value that changes with the roles, or None if it is unknown."""

    def __init__(
        self,
        authorizer: Authorizer,
        role_versions: Callable[[], Hashable | None],
        min_timeout: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._authorizer = authorizer
        self._role_versions = role_versions
        self._min_timeout = min_timeout
        self._clock = clock
        self._rng = rng
        self._open: dict[StreamAuthorization, None] = {}
        self._checked_versions = role_versions()

    @contextmanager
    def authorize_stream(
        self,
        credential: Credential,
        user: User,
        seconds: float | None,
        checks: Iterable[tuple[ResourceAction, Collection[ActionTarget]]],
    ) -> Iterator[StreamAuthorization]:
        """Authorize a stream while it is open. `seconds`: its timeout or None. `checks`: the arguments of `require_access`."""
        authorization = StreamAuthorization(credential, user)
        for action, targets in checks:
            authorization.require_access(action, targets)
        timer = asyncio.get_running_loop().call_later(seconds, authorization.end) if seconds is not None else None
        self._open[authorization] = None
        _CURRENT.set(authorization)
        try:
            yield authorization
        finally:
            del self._open[authorization]
            if timer is not None:
                timer.cancel()

    def watch_timeout(self, asked: int) -> float:
        """Return the timeout of a watch in seconds. `asked`: the maximum that the client requests; 0: none."""
        longest = self._min_timeout * self._rng.uniform(1.0, 2.0)
        return min(float(asked), longest) if asked > 0 else longest

    async def run(self) -> None:
        """Check all streams every CHECK_INTERVAL, until cancelled."""
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            self._end_changed_users()
            if (
                (versions := self._role_versions()) is not None
                and versions != self._checked_versions
                and await self._check_permissions()
            ):
                self._checked_versions = versions

    def _end_changed_users(self) -> None:
        known: dict[Credential, User | Refusal] = {}
        for authorization in list(self._open):
            if (refusal := known.get(authorization.credential)) is None:
                refusal = known[authorization.credential] = _authenticated_user(authorization.credential)
            if isinstance(refusal, Refusal):
                authorization.end(refusal)
            elif refusal != authorization.user:
                authorization.end()

    async def _check_permissions(self) -> bool:
        """Check all permissions again. Return False if some could not be checked."""
        by_check: dict[AccessCheck, list[StreamAuthorization]] = {}
        for authorization in self._open:
            for check in authorization.checks:
                by_check.setdefault(check, []).append(authorization)
        complete = True
        for check, authorizations in by_check.items():
            try:
                await self._authorizer.authorize(check.user, check.action, partial(iter, check.targets))
            except Rejected as rejected:
                if rejected.refusal.code is not Code.PERMISSION_DENIED:
                    complete = False
                    continue
                for authorization in authorizations:
                    authorization.end(rejected.refusal)
            except (CacheError, StorageError):
                complete = False
            await asyncio.sleep(0)
        return complete


def _authenticated_user(credential: Credential) -> User | Refusal:
    try:
        return credential.user()
    except Rejected as rejected:
        return rejected.refusal


_CURRENT: ContextVar[StreamAuthorization] = ContextVar("stream authorization")


def current_authorization() -> StreamAuthorization:
    """Return the authorization of the stream of the current task."""
    return _CURRENT.get()


class Context(Protocol):
    """The context of one call."""

    @property
    def user(self) -> User:
        """The user of the call."""
        ...

    @property
    def credential(self) -> Credential:
        """The credential of the caller."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline, or None."""
        ...

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the client has received the response or has disconnected."""
        ...


def read_timeout(context: Context) -> float:
    """Return the seconds that a handler may wait, so that the client receives its error before the deadline."""
    remaining = context.time_remaining()
    if remaining is None:
        return READ_TIMEOUT
    return max(0.0, min(READ_TIMEOUT, remaining - min(REPLY_MARGIN, remaining / 5)))
