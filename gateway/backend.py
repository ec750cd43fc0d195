"""Calls to the API servers on behalf of the user of a request.

Responses are kept as bytes, because protobuf responses are forwarded without decoding.
"""

import asyncio
from contextvars import ContextVar
from typing import Any, NamedTuple

from google.protobuf.message import Message

from pinnace.api.authorization_pb2 import TokenReviewRequest, TokenReviewResponse
from pinnace.client.channel import Duplex, Stream
from pinnace.client.connection import Connection, Metadata, impersonation_metadata
from pinnace.client.errors import ApiError
from pinnace.gateway.http import Request, User

CALL_TIMEOUT = 30.0
"""The timeout of a call to an API server in seconds."""
REVIEW_TIMEOUT = 5.0
"""The timeout of a token review in seconds."""
_request: ContextVar[Request | None] = ContextVar("request", default=None)


class RawResponse(NamedTuple):
    """A response that is not decoded."""

    data: bytes

    @classmethod
    def FromString(cls, data: bytes) -> "RawResponse":  # noqa: N802 (protobuf's name)
        return cls(data)


def add_warning(text: str) -> None:
    """Add a warning of an API server to the current request."""
    request = _request.get()
    if request is not None:
        request.warnings.append(text)


def record_created() -> None:
    """Record that the current request created an object."""
    request = _request.get()
    if request is not None:
        request.created = True


def metadata_for_user(user: User) -> Metadata:
    """Return the call metadata that impersonates a user."""
    return impersonation_metadata(user.name, user.groups)


async def await_first_response(stream: Stream[Any], timeout: float, silence: float | None = None) -> "asyncio.Future[Any]":
    """Return the first response of a stream, which may be pending after `timeout` seconds. If it is an error, raises ApiError.
    `silence`: see `Stream.read`. The stream is cancelled if this function raises."""
    first = asyncio.ensure_future(stream.read(silence))
    first.add_done_callback(_mark_retrieved)
    try:
        await asyncio.wait((first,), timeout=timeout)
        if first.done() and isinstance(error := first.exception(), ApiError):
            raise error
    except BaseException:
        stream.cancel()
        first.cancel()
        raise
    return first


def _mark_retrieved(first: "asyncio.Future[Any]") -> None:
    """Mark the error as retrieved: the client may leave before it is sent."""
    if not first.cancelled():
        first.exception()


class Backend:
    def __init__(self, connection: Connection) -> None:
        """`connection`: authenticated with the gateway's certificate, with `add_warning` and `record_created` as its
        callbacks."""
        self._connection = connection

    async def call(self, request: Request, method: str, message: Message, *, retry: bool = False) -> bytes:
        """Return the encoded response. Raises ApiError."""
        token = _request.set(request)
        try:
            answer: Any = await self._connection.call(
                method,
                message,
                RawResponse,
                timeout=CALL_TIMEOUT,
                retry=retry,
                metadata=metadata_for_user(request.user),
            )
        finally:
            _request.reset(token)
        data: bytes = answer.data
        return data

    async def review_token(self, token: str) -> User | None:
        """Return the user of a bearer token, or None if an API server rejects it. The gateway calls as itself. Raises
        ApiError."""
        request = TokenReviewRequest(token=token)
        review = await self._connection.call(
            "/pinnace.v1.Authorization/TokenReview", request, TokenReviewResponse, timeout=REVIEW_TIMEOUT
        )
        if not review.HasField("user"):
            return None
        user = review.user
        extra = tuple((item.key, tuple(item.values)) for item in user.extra)
        return User(user.username, tuple(user.groups), user.uid, extra)

    async def stream(self, request: Request, method: str, message: Message, received: type[Any] = RawResponse) -> Stream[Any]:
        """Open a stream of responses. Raises ApiError."""
        return await self._connection.stream(method, message, received, metadata=metadata_for_user(request.user))

    async def duplex(self, request: Request, method: str, sent: type[Any], received: type[Any]) -> Duplex[Any, Any]:
        """Open a bidirectional stream. Raises ApiError."""
        return await self._connection.duplex(method, sent, received, metadata=metadata_for_user(request.user))
