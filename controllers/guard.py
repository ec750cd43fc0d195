"""A leader's calls: none is sent once its term is over.

A process that was stopped, or starved, comes to itself in the middle of a look, and goes on with it before it hears that
another one leads. What it then creates would be there twice: so each attempt asks for the lead at the moment in which it is
sent. A call that is on its way already cannot be called back.
"""

from collections.abc import Callable

from google.protobuf.message import Message

from pinnace.client.connection import Connection, Duplex, Q, R, Stream


class Guarded(Connection):
    """Calls through `connection`, while `leads`; then they raise Fenced. Streams are not guarded: they change nothing."""

    def __init__(self, connection: Connection, leads: Callable[[], bool]) -> None:
        self._connection = connection  # which has the peers
        self._leads = leads

    @property
    def endpoint(self) -> str:
        return self._connection.endpoint

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        allowed: Callable[[], bool] | None = None,
    ) -> R:
        return await self._connection.call(method, request, response, timeout=timeout, retry=retry, allowed=self._leads)

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]:
        return await self._connection.stream(method, request, response)

    async def duplex(self, method: str, request: type[Q], response: type[R]) -> Duplex[Q, R]:
        return await self._connection.duplex(method, request, response)

    async def close(self) -> None:
        await self._connection.close()
