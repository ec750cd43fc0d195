"""TCP proxies between the processes of a cluster, for fault injection.

Each direction of a connection has a mode, which can change at any time and applies to buffered and to later bytes:

    pass    bytes are forwarded immediately
    delay   bytes are forwarded in order after a delay in seconds
    hold    bytes are kept: a partition that heals, as TCP sees it
    lose    bytes are discarded, and the connection stays open: a device in between has lost its state. A connection that has
            lost bytes is reset at the next byte in another mode

The end of a connection is treated like its bytes: in the mode `hold`, a client does not notice that its server has ended.

A proxy accepts connections before the server does, and buffers up to `_QUEUE` chunks per connection and direction. So the
kernels of both sides see a healthy connection (TCP_USER_TIMEOUT).

All proxies of a cluster run in one helper process, so that a busy load generator does not delay them. The helper receives
commands as lines of JSON (pinnace.runtime.process). It runs in its own session, so that Ctrl-C does not end it early, and ends
when its stdin is closed. The proxies listen before the processes of the cluster start, and keep their ports when a process is
started again.
"""

import asyncio
import json
import shutil
import socket
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from typing import Any, Self

import click

from pinnace.cluster.errors import ClusterError
from pinnace.cluster.processes import PortAllocator
from pinnace.runtime import process

_SETPRIV = shutil.which("setpriv")
ANSWER_TIMEOUT = 20.0
"""Seconds; longer than any request to a helper takes."""
END_TIMEOUT = 5.0
_CHUNK = 1 << 16
_QUEUE = 256
"""Maximum number of buffered chunks before the sender is blocked."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""The value of SO_LINGER for an immediate close with RST."""
Link = tuple[str, str]
"""(source, target): the names of the processes; the source connects."""


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """A command that is killed when this process dies, for processes that do not read stdin. Without setpriv (util-linux), it
    survives if this process is killed.
    """
    return [_SETPRIV, "--pdeathsig", "KILL", "--", *command] if _SETPRIV else list(command)


class HelperError(ClusterError):
    """The helper rejected a request, did not respond in time, or has exited."""


class HelperProcess:
    """An async context manager that runs `python -m <module> <arguments>`. Responses have the order of the requests."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._arguments = arguments
        self._waiting: deque[asyncio.Future[Any]] = deque()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading

    def send_request(self, do: str, **fields: Any) -> Awaitable[Any]:
        """Send a request immediately. Waiting for the response is optional, and raises HelperError."""
        assert self._process.stdin
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._reading.done():
            raise self._gone_error()
        self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._waiting.append(answer)
        return answer

    async def request_result(self, do: str, **fields: Any) -> Any:
        """Raises HelperError."""
        answer = self.send_request(do, **fields)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                return await asyncio.shield(answer)
        except TimeoutError:
            raise HelperError(f"{self._module} does not respond to {do}") from None

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            answer = self._waiting.popleft()
            if answer.done():
                continue
            if "error" in said:
                _fail_answer(answer, HelperError(said["error"]))
            else:
                answer.set_result(said["answer"])
        for answer in self._waiting:
            _fail_answer(answer, self._gone_error())

    def _gone_error(self) -> HelperError:
        return HelperError(f"{self._module} is gone")


def _fail_answer(answer: asyncio.Future[Any], error: HelperError) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # a caller that does not wait ignores errors


class Mode(StrEnum):
    PASS = "pass"
    DELAY = "delay"
    HOLD = "hold"
    LOSE = "lose"


class Direction:
    """One direction of a proxy, for all its connections."""

    def __init__(self) -> None:
        self.mode = Mode.PASS
        self.delay = 0.0
        self.bytes = 0
        """Forwarded bytes."""
        self._changed = asyncio.Event()

    def set(self, mode: Mode, delay: float = 0.0) -> None:
        """`delay` in seconds, for DELAY."""
        self.mode, self.delay = mode, delay
        self._changed.set()
        self._changed = asyncio.Event()

    async def passage(self, arrived: float) -> bool:
        """Wait until data that arrived at this loop time can be forwarded. False: discard the data."""
        now = asyncio.get_running_loop().time
        while self.mode not in (Mode.PASS, Mode.LOSE):
            due = arrived + self.delay if self.mode is Mode.DELAY else None
            if due is not None and due <= now():
                break
            changed = self._changed
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await changed.wait()
        return self.mode is not Mode.LOSE


class Proxy:
    """Forwards `listen` (host:port; port 0 is any that is free) to `target` (host:port). An async context manager; `endpoint`
    is the address to connect to."""

    def __init__(self, target: str, listen: str = "127.0.0.1:0") -> None:
        self.target = target
        self.endpoint = listen
        self.requests = Direction()
        self.answers = Direction()
        self._server: asyncio.Server | None = None
        self._connections: set[_ProxyConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.reset()

    def set(self, mode: Mode, delay: float = 0.0) -> None:
        """Set the mode of both directions."""
        self.requests.set(mode, delay)
        self.answers.set(mode, delay)

    def reset(self) -> None:
        """Reset all connections. Held or delayed data is lost. New connections use the current modes."""
        for connection in self._connections:
            connection.abort()

    def refuse(self) -> None:
        """Refuse new connections ("connection refused"). Existing connections remain."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        """Accept new connections again."""
        if self._server is None:
            host, _, port = self.endpoint.rpartition(":")
            self._server = await asyncio.start_server(self._enter, host, int(port))
            self.endpoint = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        connection = _ProxyConnection(writer, far_writer)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.forward(self.requests, reader, far_writer), connection.forward(self.answers, far_reader, writer)
            )
        finally:
            connection.abort()
            self._connections.discard(connection)


class _ProxyConnection:
    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers

    def abort(self) -> None:
        for writer in self._writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    async def forward(self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Forward data until the source has closed and all data is sent, or until the connection breaks."""
        queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_QUEUE)
        taking = asyncio.create_task(_read_chunks(source, queue))
        lost = False
        try:
            while True:
                arrived, data = await queue.get()
                passed = await direction.passage(arrived)
                if not passed and data:
                    lost = True
                elif not passed:
                    return None  # no caller waits for the result
                elif lost or data is None:
                    return self.abort()
                elif not data:
                    return sink.write_eof()
                else:
                    sink.write(data)
                    direction.bytes += len(data)
                    await sink.drain()
        except OSError:
            self.abort()
        finally:
            taking.cancel()


async def _read_chunks(source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes | None]]) -> None:
    """Put received chunks with their times into the queue. b"" is a close, None a reset."""
    now = asyncio.get_running_loop().time
    try:
        while data := await source.read(_CHUNK):
            await queue.put((now(), data))
        await queue.put((now(), b""))
    except OSError:
        await queue.put((now(), None))


class Links:
    """An async context manager. `assign_address` is the Wiring for the hooks of a cluster."""

    def __init__(self, count: int) -> None:
        """`count`: the maximum number of links."""
        self._helper = HelperProcess("pinnace.cluster.links", "--count", str(count))
        self._free: list[str] = []
        self._addresses: dict[Link, str] = {}

    async def __aenter__(self) -> Self:
        await self._helper.__aenter__()
        self._free = await self._helper.request_result("addresses")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._helper.__aexit__(*error)

    @property
    def all_links(self) -> list[Link]:
        return list(self._addresses)

    def assign_address(self, source: str, target: str, address: str) -> str:
        """The address that `source` uses for `target` from now on. Raises IndexError if all links are in use."""
        link = (source, target)
        if link not in self._addresses:
            self._addresses[link] = self._free.pop()
        self._send_request("connect", [link], target=address)
        return self._addresses[link]

    async def set(
        self, links: Iterable[Link], requests: Mode | None = None, answers: Mode | None = None, delay: float = 0.0
    ) -> None:
        """Change the modes of requests (from source to target) and responses from now on. None: unchanged."""
        await self._send_request("set", links, requests=requests, answers=answers, delay=delay)

    async def reset(self, links: Iterable[Link]) -> None:
        """Reset their connections."""
        await self._send_request("reset", links)

    async def refuse(self, links: Iterable[Link]) -> None:
        """Refuse new connections until `accept`. Existing connections remain."""
        await self._send_request("refuse", links)

    async def accept(self, links: Iterable[Link]) -> None:
        await self._send_request("accept", links)

    async def reset_links(self) -> None:
        """Reset all links to the initial modes."""
        await self.accept(self.all_links)
        await self.set(self.all_links, Mode.PASS, Mode.PASS)

    def _send_request(self, do: str, links: Iterable[Link], **fields: Any) -> Awaitable[Any]:
        return self._helper.send_request(do, links=[self._addresses[link] for link in links], **fields)


class _LinkServer:
    """The proxies by address, and their requests."""

    def __init__(self, proxies: Iterable[Proxy]) -> None:
        self._proxies = {proxy.endpoint: proxy for proxy in proxies}

    async def addresses(self) -> list[str]:
        return list(self._proxies)

    async def connect(self, links: list[str], target: str) -> None:
        for link in links:
            self._proxies[link].target = target

    async def set(self, links: list[str], requests: str | None, answers: str | None, delay: float) -> None:
        for link in links:
            proxy = self._proxies[link]
            for direction, mode in ((proxy.requests, requests), (proxy.answers, answers)):
                if mode is not None:
                    direction.set(Mode(mode), delay)

    async def reset(self, links: list[str]) -> None:
        for link in links:
            self._proxies[link].reset()

    async def refuse(self, links: list[str]) -> None:
        for link in links:
            self._proxies[link].refuse()

    async def accept(self, links: list[str]) -> None:
        for link in links:
            await self._proxies[link].accept()


@click.command()
@click.option("--count", type=click.IntRange(min=1), required=True, help="How many links.")
def main(count: int) -> None:
    """Run links, and execute requests from stdin."""
    asyncio.run(_serve(count))


async def _serve(count: int) -> None:
    ports = PortAllocator()
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy("", f"127.0.0.1:{ports.next()}")) for _ in range(count)]
        board = _LinkServer(proxies)
        commands = (board.addresses, board.connect, board.set, board.reset, board.refuse, board.accept)
        await process.serve_requests({command.__name__: command for command in commands})


if __name__ == "__main__":
    main()
