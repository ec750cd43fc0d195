"""A leader's calls: none is sent once its term is over, and what was sent before commits only while it leads.

A process that was stopped, or starved, comes to itself in the middle of a look, and goes on with it before it hears that
another one leads. What it then creates would be there twice. So each attempt asks for the lead at the moment in which it is
sent, and carries the fence, in case that it arrives too late.
"""

from google.protobuf.message import Message

from pinnace.api.pods_pb2 import Fence
from pinnace.client.caller import Caller, PresentFence
from pinnace.client.streams import Duplex, Q, R, Stream


class Guarded:
    """A Caller through another one, in the name of the present leader: `fence`, or None, and calls raise Fenced. A call belongs
    to the term in which it began. Streams are not guarded: they change nothing."""

    def __init__(self, connection: Caller, fence: PresentFence) -> None:
        self._connection = connection
        self._fence = fence

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
        fence: PresentFence | None = None,
    ) -> R:
        if fence is not None:
            raise ValueError(f"{method}: the fence of this connection is its own")
        began = self._fence()

        def still() -> Fence | None:
            return began if self._fence() == began else None

        return await self._connection.call(method, request, response, timeout=timeout, retry=retry, fence=still)

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]:
        return await self._connection.stream(method, request, response)

    async def duplex(self, method: str, request: type[Q], response: type[R]) -> Duplex[Q, R]:
        return await self._connection.duplex(method, request, response)

    async def close(self) -> None:
        await self._connection.close()
