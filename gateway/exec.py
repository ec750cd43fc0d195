"""exec and attach over a WebSocket, with the protocols v4.channel.k8s.io and v5.channel.k8s.io.

The first byte of a message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 the terminal size. In version 5,
channel 255 closes the channel in its second byte.

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/util/remotecommand/constants.go
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.backend import Backend, opening
from gateway.errors import to_status
from gateway.http import ApiStatus, Request, bad_request, dump
from gateway.routes import Route
from pinnace.api.pods_pb2 import AttachRequest, ExecRequest, ExecResponse, ExecStart
from pinnace.client.channel import Duplex, Stream
from pinnace.client.errors import ApiError, FailedPrecondition

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
OPENING = 0.1
"""Seconds to wait for an error before the connection is upgraded. An error within this time is the status of the response."""


class Socket(Protocol):
    """An open WebSocket."""

    async def receive(self) -> bytes | None:
        """Return the next message, or None at the end."""
        ...

    async def send(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A response that switches to a WebSocket. `run` serves it until it returns. `cancel` is called instead if the client does
    not complete the handshake."""

    protocols: tuple[str, ...]
    run: Callable[[Socket], Awaitable[None]]
    cancel: Callable[[], None] = lambda: None
    code = 101


class Exec:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def exec(self, request: Request, route: Route) -> Upgrade:
        """Start a command. Raises ApiStatus."""
        choose_protocol(request, "exec", PROTOCOLS)
        start = ExecStart(
            namespace=route.namespace,
            name=route.name,
            container=request.param("container"),
            command=request.query.get("command", ()),
            stdin=request.flag("stdin"),
        )
        try:
            stream = await self._backend.duplex(request, "/pinnace.v1.Pods/Exec", ExecRequest, ExecResponse)
            try:
                await stream.write(ExecRequest(start=start))
            except BaseException:
                stream.cancel()
                raise
            first = await opening(stream, OPENING)
        except ApiError as error:
            raise refusal(error, route) from None
        return Upgrade(PROTOCOLS, _Session(stream, first, route, stream).run, stream.cancel)

    async def attach(self, request: Request, route: Route) -> Upgrade:
        """Stream the output of a running container. Input is ignored, because containers have no stdin. Raises ApiStatus."""
        choose_protocol(request, "attach", PROTOCOLS)
        outputs = request.flag("stdout"), request.flag("stderr")
        if not any((*outputs, request.flag("stdin"))):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        message = AttachRequest(
            namespace=route.namespace,
            name=route.name,
            container=request.param("container"),
            stdout=outputs[0],
            stderr=outputs[1],
        )
        try:
            stream = await self._backend.stream(request, "/pinnace.v1.Pods/Attach", message, ExecResponse)
            first = await opening(stream, OPENING)
        except ApiError as error:
            raise refusal(error, route) from None
        return Upgrade(PROTOCOLS, _Session(stream, first, route).run, stream.cancel)


def choose_protocol(request: Request, action: str, served: Sequence[str]) -> str:
    """Return the first protocol offered by the client that is served. Raises ApiStatus (400)."""
    if "websocket" not in request.headers.get("upgrade", "").lower():
        raise bad_request(f"{action} requires a WebSocket: use kubectl 1.31 or later; SPDY is not supported")
    offered = [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",")]
    found = next((each for each in offered if each in served), None)
    if found is None:
        raise bad_request(f"{action} requires one of the protocols {', '.join(served)}")
    return found


def refusal(error: ApiError, route: Route) -> ApiStatus:
    if isinstance(error, FailedPrecondition):  # for example, simulated containers cannot run commands
        return bad_request(error.message)
    return to_status(error, route.resource, route.name)


class _Session:
    def __init__(
        self, stream: Stream[Any], first: "asyncio.Future[Any]", route: Route, sink: Duplex[Any, Any] | None = None
    ) -> None:
        """`sink`: the stream for the command's input, or None."""
        self._stream = stream
        self._sink = sink
        self._first: asyncio.Future[Any] | None = first
        self._route = route

    async def run(self, socket: Socket) -> None:
        """Run until the command ends. If the client disconnects, the command is killed."""
        reading = asyncio.create_task(self._pass_input(socket))
        writing = asyncio.create_task(self._pass_output(socket))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not writing.done() and reading.result():
                await writing
        finally:
            self._stream.cancel()
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _pass_input(self, socket: Socket) -> bool:
        """Forward the client's input. Return False when the client has disconnected."""
        with suppress(ApiError):
            while (message := await socket.receive()) is not None:
                channel = message[0] if message else RESIZE
                if self._sink is None:
                    continue
                if channel == STDIN:
                    await self._sink.write(ExecRequest(stdin=message[1:]), patience=None)
                elif channel == CLOSE and message[1:2] == bytes((STDIN,)):
                    await self._sink.write(ExecRequest(closeStdin=True))
        return False

    async def _pass_output(self, socket: Socket) -> None:
        try:
            while (answer := await self._next()) is not None:
                if answer.HasField("exit"):
                    await socket.send(bytes((STATUS,)) + dump(_status(answer.exit.code)))
                    return
                is_error = answer.HasField("stderr")
                data = answer.stderr if is_error else answer.stdout
                await socket.send(bytes((STDERR if is_error else STDOUT,)) + data)
            if self._sink is None:
                await socket.send(bytes((STATUS,)) + dump(_status(0)))
        except ApiError as error:
            await socket.send(bytes((STATUS,)) + dump(refusal(error, self._route).document))

    async def _next(self) -> Any:
        first, self._first = self._first, None
        return await (first if first is not None else self._stream.read())


def _status(code: int) -> dict[str, Any]:
    """Return the Status for an exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }
