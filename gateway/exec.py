"""exec and attach over a WebSocket, with the protocols v4.channel.k8s.io and v5.channel.k8s.io.

The first byte of a message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 the terminal size. In version 5,
channel 255 closes the channel in its second byte.

A request that is no WebSocket runs the same checks and receives their error: kubectl repeats a refused WebSocket over SPDY and
prints only that answer. If the checks pass, it is refused because it is no WebSocket. Nothing is started.

Source: https://github.com/kubernetes/apimachinery/blob/master/pkg/util/remotecommand/constants.go
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pinnace.api.pods_pb2 import AttachRequest, ExecRequest, ExecResponse, ExecStart
from pinnace.client.channel import Duplex, Stream
from pinnace.client.errors import ApiError, FailedPrecondition
from pinnace.gateway.backend import Backend, await_first_response
from pinnace.gateway.errors import convert_error
from pinnace.gateway.http import ApiStatus, Request, bad_request, dump_json
from pinnace.gateway.routes import Route

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
DETACH_KEYS = frozenset(b"\x03\x04")
"""Ctrl-C and Ctrl-D."""
OPENING = 0.1
"""Seconds to wait for an error before the connection is upgraded. An error within this time is the status of the response."""
CHECK_TIMEOUT = 10.0
"""Seconds for the checks of the API server and the kubelet before a response."""
WEBSOCKET_EXEC, WEBSOCKET_PORT_FORWARD = "1.30", "1.31"
"""The first version of kubectl that opens WebSockets by default, for exec, attach and cp, and for port-forward.

Source: https://kubernetes.io/blog/2024/08/20/websockets-transition/
"""


class WebSocketStream(Protocol):
    """An open WebSocket."""

    async def receive(self) -> bytes | None:
        """Return the next message, or None at the end."""
        ...

    async def send(self, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class WebSocketUpgrade:
    """A response that switches to a WebSocket. `run` serves it until it returns. `cancel` is called instead if the client does
    not complete the handshake."""

    protocols: tuple[str, ...]
    run: Callable[[WebSocketStream], Awaitable[None]]
    cancel: Callable[[], None] = lambda: None
    code = 101


class Exec:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def exec(self, request: Request, route: Route) -> WebSocketUpgrade:
        """Start a command. Raises ApiStatus."""
        protocol = choose_protocol(request, PROTOCOLS)
        command = request.query.get("command", ())
        start = ExecStart(
            namespace=route.namespace,
            name=route.name,
            container=request.param("container"),
            command=command if protocol else (),
            stdin=request.flag("stdin"),
            tty=request.flag("tty"),
            check=not protocol and bool(command),
        )
        try:
            stream = await self._backend.duplex(request, "/pinnace.v1.Pods/Exec", ExecRequest, ExecResponse)
            try:
                await stream.write(ExecRequest(start=start))
            except BaseException:
                stream.cancel()
                raise
            if not protocol:
                await await_check_with_timeout(_read_end(stream))
                raise websocket_required(request, "exec", WEBSOCKET_EXEC)
            first = await await_first_response(stream, OPENING)
        except ApiError as error:
            raise refusal_response(error, route) from None
        return WebSocketUpgrade(PROTOCOLS, _ExecSession(stream, first, route, stream).run, stream.cancel)

    async def attach(self, request: Request, route: Route) -> WebSocketUpgrade:
        """Stream the output of a running container. Input is ignored, because containers have no stdin; in a terminal, which
        sends all keys, Ctrl-C and Ctrl-D detach. Raises ApiStatus."""
        protocol = choose_protocol(request, PROTOCOLS)
        outputs = request.flag("stdout"), request.flag("stderr")
        if not any((*outputs, request.flag("stdin"))):
            raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
        message = AttachRequest(
            namespace=route.namespace,
            name=route.name,
            container=request.param("container"),
            stdout=outputs[0],
            stderr=outputs[1],
            check=not protocol,
        )
        try:
            stream = await self._backend.stream(request, "/pinnace.v1.Pods/Attach", message, ExecResponse)
            if not protocol:
                await await_check_with_timeout(_read_end(stream))
                raise websocket_required(request, "attach", WEBSOCKET_EXEC)
            first = await await_first_response(stream, OPENING)
        except ApiError as error:
            raise refusal_response(error, route) from None
        return WebSocketUpgrade(PROTOCOLS, _ExecSession(stream, first, route, detaches=request.flag("tty")).run, stream.cancel)


async def await_check_with_timeout(check: Awaitable[object]) -> None:
    """Wait for a check. Raises ApiError, and ApiStatus (504) after CHECK_TIMEOUT seconds."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            await check
    except TimeoutError:
        raise ApiStatus(504, "Timeout", f"the node of the pod did not respond within {CHECK_TIMEOUT:g} s") from None


async def _read_end(stream: Stream[Any]) -> None:
    try:
        await stream.read()
    finally:
        stream.cancel()


def choose_protocol(request: Request, served: Sequence[str]) -> str | None:
    """Return the first protocol offered by the client that is served, or None if the request is no WebSocket. Raises ApiStatus
    (400)."""
    if "websocket" not in request.headers.get("upgrade", "").lower():
        return None
    offered = [name.strip() for name in request.headers.get("sec-websocket-protocol", "").split(",")]
    protocol = next((name for name in offered if name in served), None)
    if protocol is None:
        raise bad_request(f"the WebSocket must offer one of the protocols {', '.join(served)}")
    return protocol


def websocket_required(request: Request, action: str, kubectl: str) -> ApiStatus:
    """Return the refusal of a request that passed all checks but is no WebSocket. `kubectl`: the first version that opens
    WebSockets."""
    if "spdy" not in request.headers.get("upgrade", "").lower():
        return bad_request("Upgrade request required")
    return bad_request(f"{action} over SPDY is not supported: use WebSockets, which kubectl supports since {kubectl}")


def refusal_response(error: ApiError, route: Route) -> ApiStatus:
    if isinstance(error, FailedPrecondition):  # for example, the node has no kubelet that serves streams
        return bad_request(error.message)
    return convert_error(error, route.resource, route.name)


class _ExecSession:
    def __init__(
        self,
        stream: Stream[Any],
        first: "asyncio.Future[Any]",
        route: Route,
        sink: Duplex[Any, Any] | None = None,
        *,
        detaches: bool = False,
    ) -> None:
        """`sink`: the stream for the command's input, or None. `detaches`: whether DETACH_KEYS end the session."""
        self._detaches = detaches
        self._stream = stream
        self._sink = sink
        self._first: asyncio.Future[Any] | None = first
        self._route = route

    async def run(self, socket: WebSocketStream) -> None:
        """Run until the command ends. If the client disconnects, the command is killed."""
        reading = asyncio.create_task(self._forward_input(socket))
        writing = asyncio.create_task(self._forward_output(socket))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not writing.done() and reading.result():
                await writing
        finally:
            self._stream.cancel()
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _forward_input(self, socket: WebSocketStream) -> bool:
        """Forward the client's input. Return False when the client has disconnected."""
        with suppress(ApiError):
            while (message := await socket.receive()) is not None:
                channel = message[0] if message else RESIZE
                if self._sink is None:
                    if self._detaches and channel == STDIN and not DETACH_KEYS.isdisjoint(message[1:]):
                        await socket.send(bytes((STATUS,)) + dump_json(_exit_status(0)))
                        return False
                    continue
                if channel == STDIN:
                    await self._sink.write(ExecRequest(stdin=message[1:]), patience=None)
                elif channel == CLOSE and message[1:2] == bytes((STDIN,)):
                    await self._sink.write(ExecRequest(closeStdin=True))
        return False

    async def _forward_output(self, socket: WebSocketStream) -> None:
        try:
            while (answer := await self._read_response()) is not None:
                if answer.HasField("exit"):
                    await socket.send(bytes((STATUS,)) + dump_json(_exit_status(answer.exit.code)))
                    return
                is_error = answer.HasField("stderr")
                data = answer.stderr if is_error else answer.stdout
                await socket.send(bytes((STDERR if is_error else STDOUT,)) + data)
            if self._sink is None:
                await socket.send(bytes((STATUS,)) + dump_json(_exit_status(0)))
        except ApiError as error:
            await socket.send(bytes((STATUS,)) + dump_json(refusal_response(error, self._route).document))

    async def _read_response(self) -> Any:
        first, self._first = self._first, None
        return await (first if first is not None else self._stream.read())


def _exit_status(code: int) -> dict[str, Any]:
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
