"""gRPC handlers for the methods: authentication, request IDs, refusals and warnings.

A refusal becomes the status of the call. The trailers contain its details, the request ID and warnings.

    call --> authenticated --> request is parsed --> gate, seat, permission (apiserver.services.methods) --> service
                '--no----------unknown method--------'--no room, denied--> refused, with a delay (pinnace.runtime.grpc_server)

`MethodHandlers` handles every path, so no other service of the gRPC server is reachable. Calls without authentication are
refused before their requests are parsed, for every path, including unknown ones. On a port for tokens, they are refused before
their requests are received.

The request ID of a call is in the audit log (auditID), in the log lines of the call, and in its trailers. A client can set it
by the metadata `x-request-id`, as with Kubernetes' Audit-ID. IDs from clients need not be unique.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import count
from typing import Any, NoReturn, Self

import grpc
import grpc.aio

from apiserver.auth.authentication import Anybody, Authenticator, Bearer, Certificate, Credential
from apiserver.auth.authorizer import Authorizer, impersonate, requested
from apiserver.errors import Rejected, forbidden
from apiserver.flow.control import TOO_MANY_REQUESTS
from apiserver.registry import fencing
from apiserver.registry.strategy import gathering
from apiserver.services import metrics
from apiserver.services.methods import Method
from pinnace.api.status import DETAILS_KEY, Code, Refusal, encode
from pinnace.api.users import Impersonation
from pinnace.api.wellknown import CREATED_KEY, REQUEST_ID_KEY, WARNING_KEY
from pinnace.runtime import logs, tracing
from pinnace.runtime.grpc_server import Refusals, abort, let_go
from pinnace.runtime.tracing import NO_TRACER, Tracer

MAX_MESSAGE = 1000
"""Maximum size of a status message in bytes, percent-encoded: a byte outside printable ASCII takes three. The trailers also
contain the message in the details of the refusal (apiserver.errors.MAX_VIOLATIONS)."""


Who = Callable[["grpc.aio.ServicerContext"], Credential]
"""Returns the credential of a call."""
_NOBODY = ""
"""The user name for the delays of refusals without authentication."""


class CallContext:
    """The context of a gRPC call: an apiserver.services.methods.Context."""

    __slots__ = ("credential", "time_remaining", "user")

    def __init__(self, context: grpc.aio.ServicerContext, credential: Credential) -> None:
        """Authenticate the caller. Raises Rejected if the credential belongs to no user."""
        self.credential: Credential = credential
        self.user = credential.user()
        self.time_remaining: Callable[[], float | None] = context.time_remaining

    async def act_as(self, impersonation: Impersonation, authorizer: Authorizer) -> None:
        """Impersonate another user for this call. Raises Rejected (PERMISSION_DENIED)."""
        self.credential = await impersonate(self.credential, impersonation, authorizer)
        self.user = self.credential.user()

    def when_taken(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end of the call's task, which gRPC keeps until the response is sent.

        The add_done_callback method of gRPC's context would create a reference cycle of context and call, which only the
        garbage collector frees.
        """
        if task := asyncio.current_task():
            task.add_done_callback(lambda _: callback())


class MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """All methods of a server by path. Calls with other paths are refused."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        authenticator: Authenticator | None,
        ids: RequestIds,
        refusals: Refusals,
        tracer: Tracer = NO_TRACER,
        *,
        by_token: bool = False,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authenticator`: None on a server without TLS, where every client has all permissions. `by_token`: the port requests
        no client certificate. `refusals`: shared by all ports of the server. `authorizer`: checks impersonation; without it,
        impersonation is refused."""
        self._authenticator = authenticator if by_token else None
        self._door = _CallHandlers(_who(authenticator), ids, refusals, authorizer)
        self._handlers = {path: self._door.handler(method, tracer) for path, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None or (self._authenticator is not None and not _knows(self._authenticator, handler_call_details)):
            return self._door.refusing(path)
        return handler


def _knows(authenticator: Authenticator, details: grpc.HandlerCallDetails) -> bool:
    """Return whether the token belongs to a user, before the request is received, because the client may never send it."""
    try:
        _bearer(authenticator, details.invocation_metadata).user()
    except Rejected:
        return False
    return True


def _who(authenticator: Authenticator | None) -> Who:
    """Return a function that authenticates by client certificate, or by token on a port that requests no certificate."""
    if authenticator is None:
        return lambda context: Anybody()

    def who(context: grpc.aio.ServicerContext) -> Credential:
        if shown := context.auth_context().get("x509_pem_cert"):
            return Certificate(authenticator, shown[0])
        return _bearer(authenticator, context.invocation_metadata())

    return who


def _bearer(authenticator: Authenticator, metadata: Any) -> Bearer:
    return Bearer(authenticator, dict(metadata or ()).get("authorization"))


class _CallHandlers:
    """gRPC handlers that parse requests after authentication. gRPC would parse them before."""

    def __init__(self, who: Who, ids: RequestIds, refusals: Refusals, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._who = who
        self._ids = ids
        self._refusals = refusals

    def handler(self, method: Method, tracer: Tracer) -> grpc.RpcMethodHandler:
        """Return the gRPC handler of a method. Streams are not traced."""
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(method))
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        if tracer.on:
            return grpc.unary_unary_rpc_method_handler(self._traced(method, tracer))
        return grpc.unary_unary_rpc_method_handler(self._unary(method, method.parse))

    def refusing(self, path: str) -> grpc.RpcMethodHandler:
        """Return a handler that refuses calls of this path without receiving their requests."""

        async def refuse(requests: object, context: Any) -> None:
            self._name(context, context.invocation_metadata() or ())
            caller, refusal = _NOBODY, _unknown(path)
            try:
                caller = self._call(context).user.name
            except Rejected as rejected:
                let_go(rejected)
                refusal = rejected.refusal
            else:
                metrics.UNKNOWN.inc()
            await self._refuse(context, refusal, caller)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _unary(self, method: Method, parse: Callable[[bytes], Any]) -> Any:
        async def call(data: bytes, context: Any) -> bytes:
            metadata = context.invocation_metadata() or ()  # gRPC builds it at each access
            self._name(context, metadata)
            caller = _NOBODY
            try:
                made = self._call(context)
                caller = made.user.name
                if impersonation := requested(metadata):
                    await self._act_as(made, impersonation)
                    caller = made.user.name
                if method.is_paced:
                    await self._refusals.wait(caller, len(data), context.time_remaining())
                fencing.read_fences(metadata)
                with gathering() as warnings:
                    answer = await method.call(parse(data), made)
                if warnings or warnings.created:
                    told: list[tuple[str, str | bytes]] = [(WARNING_KEY, warning.encode()) for warning in warnings]
                    if warnings.created:
                        told.append((CREATED_KEY, "true"))
                    context.set_trailing_metadata(((REQUEST_ID_KEY, logs.request_id.get()), *told))
                return answer
            except Rejected as rejected:
                let_go(rejected)
                await self._refuse(context, rejected.refusal, caller, len(data))
            except asyncio.CancelledError as cancelled:
                let_go(cancelled)
                raise cancelled from None
            finally:
                del data

        return call

    def _traced(self, method: Method, tracer: Tracer) -> Any:
        def parse(data: bytes) -> Any:
            with tracer.span("decode"):
                return method.parse(data)

        unary = self._unary(method, parse)

        async def call(data: bytes, context: Any) -> bytes:
            metadata = dict(context.invocation_metadata() or ())
            with tracer.call(method.name, metadata.get(tracing.KEY, "")):
                answer: bytes = await unary(data, context)
                return answer

        return call

    def _stream(self, method: Method) -> Any:
        async def call(data: Any, context: Any) -> AsyncIterator[bytes]:
            metadata = context.invocation_metadata() or ()
            self._name(context, metadata)
            caller = _NOBODY
            try:
                made = self._call(context)
                caller = made.user.name
                if impersonation := requested(metadata):
                    await self._act_as(made, impersonation)
                    caller = made.user.name
                if method.is_paced:
                    await self._refusals.wait(caller, remaining=context.time_remaining())
                request: Any = _Requests(context, method.parse) if method.client_streaming else method.parse(data)
                async with aclosing(method.stream(request, made)) as responses:
                    async for response in responses:
                        yield response
            except Rejected as rejected:
                let_go(rejected)
                size = 0 if method.client_streaming else len(data)
                data = request = None
                await self._refuse(context, rejected.refusal, caller, size)

        return call

    async def _act_as(self, made: CallContext, impersonation: Impersonation) -> None:
        """Impersonate another user. Raises Rejected."""
        if self._authorizer is None:
            raise Rejected(forbidden("this server does not support impersonation"))
        await made.act_as(impersonation, self._authorizer)

    def _call(self, context: Any) -> CallContext:
        """Return the context of a call. Raises Rejected if the caller is not authenticated."""
        try:
            return CallContext(context, self._who(context))
        except Rejected:
            metrics.UNAUTHENTICATED.inc()
            raise

    def _name(self, context: Any, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Set the request ID of the call. gRPC runs each call in its own task, so the context variable is not reset."""
        request_id = self._ids.of(metadata)
        logs.request_id.set(request_id)
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))

    async def _refuse(self, context: Any, refusal: Refusal, caller: str, size: int = 0) -> NoReturn:
        """End the call with a refusal. Refusals for lack of permission or capacity are delayed, because clients may repeat such
        calls immediately. `caller`: a user name. `size`: size in bytes of the request, which gRPC keeps until the call ends."""
        if refusal.code in _PACED or refusal.reason == TOO_MANY_REQUESTS:
            waited = await self._refusals.wait(caller, size, context.time_remaining())
            if refusal.retry_after is not None:
                refusal = replace(refusal, retry_after=max(0.0, refusal.retry_after - waited))
        await _abort(context, refusal)


def _unknown(path: str) -> Refusal:
    return Refusal(Code.UNIMPLEMENTED, "NotFound", cut(f"the server has no method {path}"))


class _Requests:
    """The requests of a stream. gRPC's own iterator would keep the last request in a reference cycle."""

    def __init__(self, context: grpc.aio.ServicerContext, parse: Callable[[bytes], Any]) -> None:
        self._context = context
        self._parse = parse

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await self._context.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return self._parse(request)


async def _abort(context: grpc.aio.ServicerContext, refusal: Refusal) -> NoReturn:
    """End the call with the refusal."""
    told = replace(refusal, message=cut(refusal.message))
    trailers = ((DETAILS_KEY, encode(told).SerializeToString()), (REQUEST_ID_KEY, logs.request_id.get()))
    await abort(context, _GRPC[told.code], told.message, trailers)


def cut(message: str) -> str:
    """Return the message, truncated to MAX_MESSAGE encoded bytes.

    Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md (Percent-Encoded)
    """
    room = MAX_MESSAGE
    for index, character in enumerate(message[:MAX_MESSAGE]):
        room -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if room < 0:
            return message[:index]
    return message[:MAX_MESSAGE]


_GRPC = {code: next(each for each in grpc.StatusCode if each.value[0] == int(code)) for code in Code}
_PACED = frozenset({Code.UNAUTHENTICATED, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED})


_SOUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,63}")


class RequestIds:
    """Assigns request IDs. `server`: a prefix that is unique for each server process."""

    def __init__(self, server: str) -> None:
        self._prefix = f"{server}-"
        self._calls = count(1)

    def of(self, metadata: Iterable[tuple[str, str | bytes]]) -> str:
        """Return the request ID in the metadata if it is valid (at most 64 safe characters), else a new one."""
        for key, value in metadata:
            if key == REQUEST_ID_KEY and isinstance(value, str) and _SOUND.fullmatch(value):
                return value
        return f"{self._prefix}{next(self._calls)}"
