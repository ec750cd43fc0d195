"""What clients call through: a Connection, or one that calls in a leader's name (Guarded)."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from google.protobuf.message import Message

from pinnace.api.pods_pb2 import Fence
from pinnace.client.streams import Duplex, Q, R, Stream

PresentFence: TypeAlias = Callable[[], Fence | None]
"""The fence of a term for as long as it lasts; then None."""


class Caller(Protocol):
    """Each method as Connection has it."""

    @property
    def endpoint(self) -> str: ...

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
    ) -> R: ...

    async def stream(self, method: str, request: Message, response: type[R]) -> Stream[R]: ...

    async def duplex(self, method: str, request: type[Q], response: type[R]) -> Duplex[Q, R]: ...

    async def close(self) -> None: ...
