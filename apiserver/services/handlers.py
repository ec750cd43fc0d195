"""gRPC handlers for the methods: authentication, request IDs, refusals and warnings.

A refusal becomes the status of the call. The trailers contain its details, the request ID and warnings.

    call --> authenticated --> request is parsed --> gate, seat, permission (apiserver.services.methods) --> service
                '--no----------unknown method--------'--no room, denied--> refused, with a delay (pinnace.runtime.grpc_server)

`MethodHandlers` handles every path, so no other service of the gRPC server is reachable. Calls without authentication are
refused before their requests are parsed, for every path, including unknown ones. On a port for tokens, they are refused before
their requests are received.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NoReturn, Self

import grpc
import grpc.aio

from pinnace.api.status import DETAILS_KEY, Code, Refusal, encode
from pinnace.api.wellknown import CREATED_KEY, REQUEST_ID_KEY, WARNING_KEY
from pinnace.apiserver.auth.authentication import (
    BearerCredential,
    CertificateCredential,
    Credential,
    RequestAuthenticator,
    UnsecuredCredential,
)
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services import metrics
from pinnace.apiserver.services.calls import CallContext, CallRunner, Metadata
from pinnace.apiserver.services.methods import Method
from pinnace.runtime import logs
from pinnace.runtime.grpc_server import abort_call, break_reference_cycle

MAX_REFUSAL_WARNINGS = 3
"""Warnings in the trailers of a refused call, which also contain its details."""
MAX_MESSAGE = 1000
"""Maximum size of a status message in bytes, percent-encoded: a byte outside printable ASCII takes three. The trailers also
contain the message in the details of the refusal (apiserver.errors.MAX_VIOLATIONS)."""


CredentialReader = Callable[["grpc.aio.ServicerContext"], Credential]
"""Returns the credential of a call."""
_UNAUTHENTICATED = ""
"""The user name for the delays of refusals without authentication."""
_GRPC_CODES = {code: next(status for status in grpc.StatusCode if status.value[0] == int(code)) for code in Code}


class MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """All methods of a server by path. Calls with other paths are refused."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        authenticator: RequestAuthenticator | None,
        runner: CallRunner,
        *,
        by_token: bool = False,
    ) -> None:
        """`authenticator`: None on a server without TLS, where every client has all permissions. `runner`: shared by all ports
        of the server. `by_token`: the port requests no client certificate."""
        self._authenticator = authenticator if by_token else None
        self._call_handlers = _CallHandlers(_credential_reader(authenticator), runner)
        self._methods = methods
        self._handlers = {path: self._call_handlers.handler_of(method) for path, method in methods.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        path = handler_call_details.method
        handler = self._handlers.get(path)
        if handler is None and (method := self._methods.get(path)) is not None:  # of a custom kind
            handler = self._call_handlers.handler_of(method)
        if handler is None or (
            self._authenticator is not None and not _has_valid_token(self._authenticator, handler_call_details)
        ):
            return self._call_handlers.refusing_handler(path)
        return handler


def _has_valid_token(authenticator: RequestAuthenticator, details: grpc.HandlerCallDetails) -> bool:
    """Return whether the token belongs to a user, before the request is received, because the client may never send it."""
    try:
        _bearer_credential(authenticator, details.invocation_metadata).user()
    except Rejected:
        return False
    return True


def _credential_reader(authenticator: RequestAuthenticator | None) -> CredentialReader:
    """Return a function that authenticates by client certificate, or by token on a port that requests no certificate."""
    if authenticator is None:
        return lambda context: UnsecuredCredential()

    def read_credential(context: grpc.aio.ServicerContext) -> Credential:
        if shown := context.auth_context().get("x509_pem_cert"):
            return CertificateCredential(authenticator, shown[0])
        return _bearer_credential(authenticator, context.invocation_metadata())

    return read_credential


def _bearer_credential(authenticator: RequestAuthenticator, metadata: Any) -> BearerCredential:
    return BearerCredential(authenticator, dict(metadata or ()).get("authorization"))


class _CallHandlers:
    """gRPC handlers that parse requests after authentication. gRPC would parse them before."""

    def __init__(self, read_credential: CredentialReader, runner: CallRunner) -> None:
        self._credential_reader = read_credential
        self._runner = runner

    def handler_of(self, method: Method) -> grpc.RpcMethodHandler:
        """Return the gRPC handler of a method. Streams are not traced."""
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._stream(method))
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        return grpc.unary_unary_rpc_method_handler(self._unary(method))

    def refusing_handler(self, path: str) -> grpc.RpcMethodHandler:
        """Return a handler that refuses calls of this path without receiving their requests."""

        async def refuse(requests: object, context: Any) -> None:
            self._set_request_id(context, context.invocation_metadata() or ())
            caller, refusal = _UNAUTHENTICATED, _unknown_method(path)
            try:
                caller = self._authenticate(context).user.name
            except Rejected as rejected:
                break_reference_cycle(rejected)
                refusal = rejected.refusal
            else:
                metrics.UNKNOWN.inc()
            await self._refuse_call(context, refusal, caller)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _unary(self, method: Method) -> Any:
        async def call(data: bytes, context: Any) -> bytes:
            metadata = context.invocation_metadata() or ()  # gRPC builds it at each access
            self._set_request_id(context, metadata)
            caller = _UNAUTHENTICATED
            try:
                call_context = self._authenticate(context)
                caller = call_context.user.name
                await self._runner.impersonate(call_context, metadata)
                caller = call_context.user.name
                answer, warnings = await self._runner.run_call(method, data, call_context, metadata)
                if warnings or warnings.created:
                    trailers: list[tuple[str, str | bytes]] = [(WARNING_KEY, warning.encode()) for warning in warnings]
                    if warnings.created:
                        trailers.append((CREATED_KEY, "true"))
                    context.set_trailing_metadata(((REQUEST_ID_KEY, logs.request_id.get()), *trailers))
                return answer
            except Rejected as rejected:
                break_reference_cycle(rejected)
                await self._refuse_call(context, rejected.refusal, caller, len(data), rejected.warnings)
            except asyncio.CancelledError as cancelled:
                break_reference_cycle(cancelled)
                raise cancelled from None
            finally:
                del data

        return call

    def _stream(self, method: Method) -> Any:
        async def call(data: Any, context: Any) -> AsyncIterator[bytes]:
            metadata = context.invocation_metadata() or ()
            self._set_request_id(context, metadata)
            caller = _UNAUTHENTICATED
            try:
                call_context = self._authenticate(context)
                caller = call_context.user.name
                await self._runner.impersonate(call_context, metadata)
                caller = call_context.user.name
                if method.is_paced:
                    await self._runner.refusals.wait(caller, remaining=context.time_remaining())
                request: Any = _RequestIterator(context, method.parse) if method.client_streaming else method.parse(data)
                async with aclosing(method.stream(request, call_context)) as responses:
                    async for response in responses:
                        yield response
            except Rejected as rejected:
                break_reference_cycle(rejected)
                size = 0 if method.client_streaming else len(data)
                data = request = None
                await self._refuse_call(context, rejected.refusal, caller, size)

        return call

    def _authenticate(self, context: Any) -> CallContext:
        """Return the context of a call. Raises Rejected if the caller is not authenticated."""
        try:
            return CallContext(self._credential_reader(context), context.time_remaining)
        except Rejected:
            metrics.UNAUTHENTICATED.inc()
            raise

    def _set_request_id(self, context: Any, metadata: Metadata) -> None:
        """Set the request ID of the call. gRPC runs each call in its own task, so the context variable is not reset."""
        request_id = self._runner.ids.request_id_of(metadata)
        logs.request_id.set(request_id)
        context.set_trailing_metadata(((REQUEST_ID_KEY, request_id),))

    async def _refuse_call(
        self, context: Any, refusal: Refusal, caller: str, size: int = 0, warnings: Sequence[str] = ()
    ) -> NoReturn:
        """End the call with a refusal. Refusals for lack of permission or capacity are delayed, because clients may repeat such
        calls immediately. `caller`: a user name. `size`: size in bytes of the request, which gRPC keeps until the call ends."""
        refusal = await self._runner.delay_refusal(refusal, caller, size, context.time_remaining())
        await _abort_call(context, refusal, warnings)


def _unknown_method(path: str) -> Refusal:
    return Refusal(Code.UNIMPLEMENTED, "NotFound", truncate_message(f"the server has no method {path}"))


class _RequestIterator:
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


async def _abort_call(context: grpc.aio.ServicerContext, refusal: Refusal, warnings: Sequence[str] = ()) -> NoReturn:
    """End the call with the refusal."""
    shortened = replace(refusal, message=truncate_message(refusal.message))
    shown = ((WARNING_KEY, warning.encode()) for warning in warnings[:MAX_REFUSAL_WARNINGS])
    trailers = ((DETAILS_KEY, encode(shortened).SerializeToString()), (REQUEST_ID_KEY, logs.request_id.get()), *shown)
    await abort_call(context, _GRPC_CODES[shortened.code], shortened.message, trailers)


def truncate_message(message: str) -> str:
    """Return the message, truncated to MAX_MESSAGE encoded bytes.

    Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md (Percent-Encoded)
    """
    room = MAX_MESSAGE
    for index, character in enumerate(message[:MAX_MESSAGE]):
        room -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if room < 0:
            return message[:index]
    return message[:MAX_MESSAGE]
