"""Handlers of a service, found by the names of its methods in proto/.

A service object has a coroutine or async generator for each method, named in snake case: `Pods.CreateBatch` is `create_batch`.
A method without one fails at start-up. Requests arrive parsed; responses may be messages or bytes that are encoded already.
"""

import asyncio
import inspect
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from apiserver.registry.errors import Rejected, bad_request
from apiserver.services import metrics
from apiserver.services.errors import abort, to_refusal
from pinnace.api.status import Code, Refusal

log = logging.getLogger(__name__)

Unary = Callable[[Any, Any], Awaitable[Message | bytes]]
Stream = Callable[[Any, Any], AsyncIterator[Message | bytes]]
Gate = Callable[[], Refusal | None]
"""Asked before each call: why the server takes none now; None: it does."""


def generic_handler(descriptor: ServiceDescriptor, service: object, gate: Gate) -> grpc.GenericRpcHandler:
    """Raises TypeError when the service lacks a method of the descriptor."""
    handlers = {method.name: _handler(method, service, gate) for method in descriptor.methods}
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _handler(method: MethodDescriptor, service: object, gate: Gate) -> grpc.RpcMethodHandler:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
    function = getattr(service, name, None)
    full_name = f"{method.containing_service.full_name}/{method.name}"
    if function is None:
        raise TypeError(f"{type(service).__name__} has no {name}() for {full_name}")
    message = message_factory.GetMessageClass(method.input_type)
    parse = _parser(message, message.FromString(b"") if method.client_streaming else None)
    match method.client_streaming, method.server_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_unary(full_name, function, gate), parse, _encode)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_stream(full_name, function, gate), parse, _encode)
        case True, True:
            return grpc.stream_stream_rpc_method_handler(_stream(full_name, function, gate), parse, _encode)
    raise TypeError(f"{full_name}: client streams without a response stream are not supported")


def _parser(message: type[Message], nonsense: Message | None) -> Callable[[bytes], Message | None]:
    """Parses requests. Bytes that are no such message become `nonsense`: raised from here, gRPC would log a traceback for each
    and answer UNKNOWN. (In a stream an empty message is nonsense to whoever hears it.)"""

    def parse(data: bytes) -> Message | None:
        try:
            return message.FromString(data)
        except DecodeError:
            return nonsense

    return parse


def _encode(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()


def _check(request: object) -> Refusal | None:
    return bad_request("the request is no message of this method's type: compare with proto/") if request is None else None


def _unary(name: str, function: Unary, gate: Gate) -> Unary:
    async def call(request: Any, context: Any) -> Message | bytes:
        started = time.perf_counter()
        code = Code.OK
        try:
            if refusal := gate() or _check(request):
                raise Rejected(refusal)
            return await function(request, context)
        except asyncio.CancelledError:
            code = Code.DEADLINE_EXCEEDED
            raise
        except Exception as error:
            refusal = to_refusal(error, name)
            code = refusal.code
            await abort(context, refusal)
        finally:
            metrics.observe(name, code, time.perf_counter() - started)

    return call


def _stream(name: str, function: Stream, gate: Gate) -> Stream:
    if not inspect.isasyncgenfunction(function):
        raise TypeError(f"{name}: expected an async generator")

    async def call(request: Any, context: Any) -> AsyncIterator[Message | bytes]:
        with metrics.STREAMS.labels(name).track_inprogress():
            try:
                if refusal := gate() or _check(request):
                    raise Rejected(refusal)
                async for response in function(request, context):
                    yield response
            except Exception as error:
                await abort(context, to_refusal(error, name))

    return call
