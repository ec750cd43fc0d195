"""A TCP proxy that stands between a client and a server and misbehaves when told to."""

import asyncio
from contextlib import suppress


class Proxy:
    """Forwards 127.0.0.1:`port` to `target` (host:port). Use as an async context manager."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._answers = asyncio.Event()
        self._answers.set()
        self._requests = asyncio.Event()
        self._requests.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hold_answers(self) -> None:
        """From now on requests arrive, and nothing comes back."""
        self._answers.clear()

    def hold_all(self) -> None:
        """From now on nothing arrives in either direction, and connections stay open."""
        self._answers.clear()
        self._requests.clear()

    def cut(self) -> None:
        """Resets all connections; what was held is lost. New ones work."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._answers.set()
        self._requests.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, far_writer}
            for source, sink, gate in ((reader, far_writer, self._requests), (far_reader, writer, self._answers)):
                task = asyncio.create_task(_forward(source, sink, gate))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with suppress(OSError):
        while data := await source.read(1 << 16):
            await gate.wait()
            sink.write(data)
            await sink.drain()
    sink.close()
