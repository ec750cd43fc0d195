"""Logs and exec: what a runtime shows of a container, and runs in one, beside the life of its pod.

Kept apart from kubelet.runtime, because these wait: for what a container writes, for a command, for whoever reads.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from pinnace.api.pods_pb2 import ExecResponse, ExecStart, LogsRequest
from pinnace.api.status import Code


class Unstreamable(Exception):
    """There is nothing to show, or to run in. The message is for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Streams(Protocol):
    """Both raise Unstreamable. Who does not want more closes the generator; nothing is left behind then."""

    def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        """See Pods.Logs in proto/."""
        ...

    def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        """See Pods.Exec in proto/. `stdin` is not read unless `start` says that there is input."""
        ...


class NoStreams:
    """Of the fake runtime. To make lines up would be worse than to say that there are none: somebody might believe them."""

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        raise Unstreamable(
            Code.FAILED_PRECONDITION,
            "the fake runtime keeps no logs: its containers are pretended, and write nothing; see the events of the pod",
        )
        yield b""

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        raise Unstreamable(
            Code.FAILED_PRECONDITION,
            "the fake runtime runs no commands: its containers are pretended, and there is nothing inside",
        )
        yield ExecResponse()
