"""Methods as gRPC handlers: the caller becomes a User, a refusal the call's status; its details go in the trailers, and so do
the id of the call, and warnings."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, Self

import grpc
import grpc.aio

from apiserver.auth.authentication import Anybody, Authenticator, Bearer, Certificate, Credential
from apiserver.errors import Rejected
from apiserver.registry import fencing
from apiserver.registry.warnings import gathering
from apiserver.services.methods import Method
from apiserver.services.requests import RequestIds
from pinnace.api.status import DETAILS_KEY, Code, Refusal, encode
from pinnace.api.wellknown import REQUEST_ID_KEY, WARNING_KEY
from pinnace.runtime import logs, tracing
from pinnace.runtime.tracing import NO_TRACER, Tracer

MAX_MESSAGE = 1000
"""Bytes of a message, as it is sent: all but plain ASCII takes three for each byte of UTF-8. In the trailers are, besides, the
details of a refusal (apiserver.errors.MAX_VIOLATIONS), in which it is once more."""


Who = Callable[["grpc.aio.ServicerContext"], Credential]
"""Says what the caller shows."""


class Call:
    """What a service may ask about a call: an apiserver.services.context.Context."""

    __slots__ = ("credential", "time_remaining", "user")

    def __init__(self, context: "grpc.aio.ServicerContext", credential: Credential) -> None:
        """Raises Rejected, of one that is nobody's."""
        self.credential = credential
        self.user = credential.user()
        self.time_remaining: Callable[[], float | None] = context.time_remaining

    def when_taken(self, callback: Callable[[], None]) -> None:
        """gRPC runs each call in a task of its own, which lasts until the answer is sent. (The context's own add_done_callback
        makes a cycle of the context and the call, which the garbage collector finds much later.)"""
        if task := asyncio.current_task():
            task.add_done_callback(lambda _: callback())


class MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """All methods of a server, by path."""

    def __init__(self, methods: Mapping[str, Method], who: Who, ids: RequestIds, tracer: Tracer = NO_TRACER) -> None:
        self._handlers = {path: _handler(method, who, ids, tracer) for path, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)


def by_certificate(authenticator: Authenticator) -> Who:
    """Of servers that talk TLS: by the client's certificate, or, where none was asked for, by its token."""

    def who(context: "grpc.aio.ServicerContext") -> Credential:
        if shown := context.auth_context().get("x509_pem_cert"):
            return Certificate(authenticator, shown[0])
        return Bearer(authenticator, dict(context.invocation_metadata() or ()).get("authorization"))

    return who


def anybody(context: "grpc.aio.ServicerContext") -> Credential:
    """Of servers without TLS."""
    return Anybody()


def _handler(method: Method, who: Who, ids: RequestIds, tracer: Tracer) -> grpc.RpcMethodHandler:
    """Streams are not traced: they say nothing about what went through them."""
    if not method.server_streaming:
        unary = _unary(method, who, ids)
        if tracer.on:
            return grpc.unary_unary_rpc_method_handler(_traced(unary, method, tracer))
        return grpc.unary_unary_rpc_method_handler(unary, method.parse)
    if not method.client_streaming:
        return grpc.unary_stream_rpc_method_handler(_stream(method, who, ids), method.parse)
    return grpc.stream_stream_rpc_method_handler(_stream(method, who, ids), method.parse)


def _unary(method: Method, who: Who, ids: RequestIds) -> Any:
    async def call(request: Any, context: Any) -> bytes:
        metadata = context.invocation_metadata() or ()  # which gRPC puts together anew each time
        _name(context, metadata, ids)
        try:
            made = Call(context, who(context))
            fencing.enter(metadata)
            with gathering() as warnings:
                answer = await method.call(request, made)
            if warnings:
                told = [(WARNING_KEY, warning.encode()) for warning in warnings]
                context.set_trailing_metadata(((REQUEST_ID_KEY, logs.request_id.get()), *told))
            return answer
        except Rejected as rejected:
            _let_go(rejected)
            await _abort(context, rejected.refusal)
        except asyncio.CancelledError as cancelled:
            _let_go(cancelled)
            raise cancelled from None
        finally:
            del request

    return call


def _traced(unary: Any, method: Method, tracer: Tracer) -> Any:
    async def call(data: bytes, context: Any) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        with tracer.call(method.name, metadata.get(tracing.KEY, "")):
            with tracer.span("decode"):
                request = method.parse(data)
            answer: bytes = await unary(request, context)
            return answer

    return call


def _stream(method: Method, who: Who, ids: RequestIds) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[bytes]:
        _name(context, context.invocation_metadata() or (), ids)
        if method.client_streaming:
            request = _Requests(context)
        try:
            async with aclosing(method.stream(request, Call(context, who(context)))) as responses:
                async for response in responses:
                    yield response
        except Rejected as rejected:
            _let_go(rejected)
            del request
            await _abort(context, rejected.refusal)

    return call


class _Requests:
    """Of a stream. gRPC's own iterator keeps the last one, in a cycle that the garbage collector finds much later."""

    def __init__(self, context: "grpc.aio.ServicerContext") -> None:
        self._context = context

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await self._context.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return request


def _let_go(error: BaseException) -> None:
    """gRPC keeps the exception with which a call ended, and with its traceback all that the call had, in a cycle that the
    garbage collector finds much later: a few requests of megabytes, which are hundreds in memory. (Frames are left alone: where
    many wait for one thing they share its error, and with it the frames of whoever goes on.)"""
    error.__traceback__ = error.__cause__ = error.__context__ = None


def _name(context: "grpc.aio.ServicerContext", metadata: Iterable[tuple[str, str | bytes]], ids: RequestIds) -> None:
    """Gives the call its id. gRPC runs each call in a task of its own, so that nobody need take it back."""
    request_id = ids.of(metadata)
    logs.request_id.set(request_id)
    context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))


async def _abort(context: "grpc.aio.ServicerContext", refusal: Refusal) -> NoReturn:
    """Ends the call with the refusal."""
    told = replace(refusal, message=cut(refusal.message))
    trailers = ((DETAILS_KEY, encode(told).SerializeToString()), (REQUEST_ID_KEY, logs.request_id.get()))
    try:
        await context.abort(_GRPC[told.code], told.message, trailers)
    except grpc.aio.AbortError as aborted:  # the call keeps it, and by all that it went through it leads back to the call
        call = asyncio.current_task()
        assert call is not None
        call.add_done_callback(partial(_over, aborted))
        raise
    raise AssertionError("abort raises")


def _over(aborted: grpc.aio.AbortError, call: object) -> None:
    """When the call is over. Each refused call was garbage for the collector, with the memory that gRPC has for it; and those
    that were under way when it looked stayed for good, as it hardly ever looks at what is old."""
    _let_go(aborted)


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
