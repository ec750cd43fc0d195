"""The one door of a server: methods as gRPC handlers. The caller becomes a User, a refusal the call's status; its details go in
the trailers, and so do the id of the call, and warnings.

    call --> authenticated --> request is parsed --> gate, seat, permission (apiserver.services.methods) --> service
                '--no----------unknown method--------'--no room, denied--> refused, at a pace (pinnace.runtime.grpc_server)

`MethodHandlers` answers every path, so that no other service of the same gRPC server could be reached past it. A caller that is
not authenticated is refused for every path, also for that of no method, before its request is parsed; on a port for tokens
before the request is received.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NoReturn, Self

import grpc
import grpc.aio

from apiserver.auth.authentication import Anybody, Authenticator, Bearer, Certificate, Credential, User
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.impersonation import impersonate, requested
from apiserver.errors import Rejected, forbidden
from apiserver.flow.control import TOO_MANY_REQUESTS
from apiserver.registry import fencing
from apiserver.registry.warnings import gathering
from apiserver.services import metrics
from apiserver.services.methods import Method
from apiserver.services.requests import RequestIds
from pinnace.api.status import DETAILS_KEY, Code, Refusal, encode
from pinnace.api.wellknown import REQUEST_ID_KEY, WARNING_KEY
from pinnace.runtime import logs, tracing
from pinnace.runtime.grpc_server import Refusals, abort, let_go
from pinnace.runtime.tracing import NO_TRACER, Tracer

MAX_MESSAGE = 1000
"""Bytes of a message, as it is sent: all but plain ASCII takes three for each byte of UTF-8. In the trailers are, besides, the
details of a refusal (apiserver.errors.MAX_VIOLATIONS), in which it is once more."""


Who = Callable[["grpc.aio.ServicerContext"], Credential]
"""Says what the caller shows."""
_NOBODY = ""
"""All callers that are not authenticated, as far as the pace of refusals goes."""


class Call:
    """What a service may ask about a call: an apiserver.services.context.Context."""

    __slots__ = ("credential", "time_remaining", "user")

    def __init__(self, context: "grpc.aio.ServicerContext", credential: Credential) -> None:
        """Raises Rejected, of one that is nobody's."""
        self.credential: Credential = credential
        self.user = credential.user()
        self.time_remaining: Callable[[], float | None] = context.time_remaining

    async def act_as(self, other: User, authorizer: Authorizer) -> None:
        """Makes the call that of another user. Raises Rejected (PERMISSION_DENIED)."""
        self.credential = await impersonate(self.credential, other, authorizer)
        self.user = self.credential.user()

    def when_taken(self, callback: Callable[[], None]) -> None:
        """gRPC runs each call in a task of its own, which lasts until the answer is sent. (The context's own add_done_callback
        makes a cycle of the context and the call, which the garbage collector finds much later.)"""
        if task := asyncio.current_task():
            task.add_done_callback(lambda _: callback())


class MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """All methods of a server, by path; every other path is refused."""

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
        """`authenticator`: None on a server without TLS, where everybody may do everything. `by_token`: the port asks for no
        certificate. `refusals`: of all ports of the server. `authorizer`: decides about impersonation; None: nobody may."""
        self._authenticator = authenticator if by_token else None
        self._door = _Door(_who(authenticator), ids, refusals, authorizer)
        self._handlers = {path: self._door.handler(method, tracer) for path, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None or (self._authenticator is not None and not _knows(self._authenticator, handler_call_details)):
            return self._door.refusing(path)
        return handler


def _knows(authenticator: Authenticator, details: grpc.HandlerCallDetails) -> bool:
    """Does the token belong to a user? Asked before the request is received, which a caller may never send."""
    try:
        _bearer(authenticator, details.invocation_metadata).user()
    except Rejected:
        return False
    return True


def _who(authenticator: Authenticator | None) -> Who:
    """By the client's certificate, or, where none was asked for, by its token."""
    if authenticator is None:
        return lambda context: Anybody()

    def who(context: "grpc.aio.ServicerContext") -> Credential:
        if shown := context.auth_context().get("x509_pem_cert"):
            return Certificate(authenticator, shown[0])
        return _bearer(authenticator, context.invocation_metadata())

    return who


def _bearer(authenticator: Authenticator, metadata: Any) -> Bearer:
    return Bearer(authenticator, dict(metadata or ()).get("authorization"))


class _Door:
    """Every call passes it. Requests are parsed here: gRPC would parse them before the caller is known."""

    def __init__(self, who: Who, ids: RequestIds, refusals: Refusals, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._who = who
        self._ids = ids
        self._refusals = refusals

    def handler(self, method: Method, tracer: Tracer) -> grpc.RpcMethodHandler:
        """Streams are not traced: they say nothing about what went through them."""
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(method))
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        if tracer.on:
            return grpc.unary_unary_rpc_method_handler(self._traced(method, tracer))
        return grpc.unary_unary_rpc_method_handler(self._unary(method, method.parse))

    def refusing(self, path: str) -> grpc.RpcMethodHandler:
        """Refuses a call of this path, whatever its form, without receiving a request."""

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
            metadata = context.invocation_metadata() or ()  # which gRPC puts together anew each time
            self._name(context, metadata)
            caller = _NOBODY
            try:
                made = self._call(context)
                caller = made.user.name
                if other := requested(metadata):
                    await self._act_as(made, other)
                    caller = made.user.name
                if method.is_paced:
                    await self._refusals.wait(caller, len(data), context.time_remaining())
                fencing.present(metadata)
                with gathering() as warnings:
                    answer = await method.call(parse(data), made)
                if warnings:
                    told = [(WARNING_KEY, warning.encode()) for warning in warnings]
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
                if other := requested(metadata):
                    await self._act_as(made, other)
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

    async def _act_as(self, made: Call, other: User) -> None:
        """Raises Rejected."""
        if self._authorizer is None:
            raise Rejected(forbidden("this server takes no impersonation"))
        await made.act_as(other, self._authorizer)

    def _call(self, context: Any) -> Call:
        """Raises Rejected: nobody knows the caller."""
        try:
            return Call(context, self._who(context))
        except Rejected:
            metrics.UNAUTHENTICATED.inc()
            raise

    def _name(self, context: Any, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Gives the call its id. gRPC runs each call in a task of its own, so that nobody need take it back."""
        request_id = self._ids.of(metadata)
        logs.request_id.set(request_id)
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))

    async def _refuse(self, context: Any, refusal: Refusal, caller: str, size: int = 0) -> NoReturn:
        """Ends the call. `caller`: the name of a user. `size`: bytes of a request that gRPC keeps until then. The refusals
        of a caller without rights are paced, and those for lack of room: a caller could repeat such calls at once."""
        if refusal.code in _PACED or refusal.reason == TOO_MANY_REQUESTS:
            waited = await self._refusals.wait(caller, size, context.time_remaining())
            if refusal.retry_after is not None:
                refusal = replace(refusal, retry_after=max(0.0, refusal.retry_after - waited))
        await _abort(context, refusal)


def _unknown(path: str) -> Refusal:
    return Refusal(Code.UNIMPLEMENTED, "NotFound", cut(f"the server has no method {path}"))


class _Requests:
    """Of a stream. gRPC's own iterator keeps the last one, in a cycle that the garbage collector finds much later."""

    def __init__(self, context: "grpc.aio.ServicerContext", parse: Callable[[bytes], Any]) -> None:
        self._context = context
        self._parse = parse

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await self._context.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return self._parse(request)


async def _abort(context: "grpc.aio.ServicerContext", refusal: Refusal) -> NoReturn:
    """Ends the call with the refusal."""
    told = replace(refusal, message=cut(refusal.message))
    trailers = ((DETAILS_KEY, encode(told).SerializeToString()), (REQUEST_ID_KEY, logs.request_id.get()))
    await abort(context, _GRPC[told.code], told.message, trailers)


def cut(message: str) -> str:
    """As much of a message as there is room for.

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
