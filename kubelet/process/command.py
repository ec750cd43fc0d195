"""A command that is run in a container for somebody who looks on: an exec.

What it writes waits for its reader in pipes, and then it waits itself: nothing is gathered here. When it has ended, or nobody
looks on any more, its whole process group is killed; so it is when the kubelet is.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress

from kubelet.process import shims
from kubelet.process.files import Plan
from pinnace.api.pods_pb2 import ExecExit, ExecResponse

CHUNK = 1 << 16
DRAIN = 2.0
"""Seconds in which more must come of what a command has written, once all of its group are dead."""

Written = asyncio.Queue[ExecResponse | None]


async def run(plan: Plan, stdin: AsyncIterator[bytes] | None) -> AsyncGenerator[ExecResponse, None]:
    """`stdin` None: there is no input. The last response is the exit. Raises OSError."""
    command = await _start(plan, stdin is not None)
    written: Written = asyncio.Queue(1)
    tasks = [asyncio.ensure_future(command.copy(written))]
    if stdin is not None:
        tasks.append(asyncio.ensure_future(command.feed(stdin)))
    try:
        while (response := await written.get()) is not None:
            yield response
        yield ExecResponse(exit=ExecExit(code=await command.code()))
    finally:
        command.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await command.code()
        command.close()


class _Command(SubprocessStreamProtocol):
    """One that runs. (asyncio's own Process says that it has ended only when its pipes have: a daemon may hold them on.)"""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=CHUNK, loop=loop)
        self._exited: asyncio.Future[None] = loop.create_future()
        self._process: asyncio.SubprocessTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport
        super().connection_made(transport)

    def process_exited(self) -> None:
        self.kill()
        if not self._exited.done():
            self._exited.set_result(None)
        super().process_exited()

    async def code(self) -> int:
        """Waits for its end."""
        await asyncio.shield(self._exited)
        code = self._process.get_returncode()
        assert code is not None
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Its group, whether it has ended itself or not."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.get_pid(), signal.SIGKILL)

    def close(self) -> None:
        self._process.close()

    async def copy(self, written: Written) -> None:
        """What it writes, and None when there is no more."""
        assert self.stdout is not None and self.stderr is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(self.stdout, lambda data: ExecResponse(stdout=data), written))
            group.create_task(self._pump(self.stderr, lambda data: ExecResponse(stderr=data), written))
        await written.put(None)

    async def _pump(self, stream: asyncio.StreamReader, wrap: Callable[[bytes], ExecResponse], written: Written) -> None:
        """To the end of the stream; or until nothing comes after the command has ended: then somebody else holds it."""
        while True:
            reading = asyncio.ensure_future(stream.read(CHUNK))
            try:
                await asyncio.wait((reading, self._exited), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    await asyncio.wait((reading,), timeout=DRAIN)
                if not reading.done() or not reading.result():
                    return
            finally:
                reading.cancel()
            await written.put(wrap(reading.result()))

    async def feed(self, stdin: AsyncIterator[bytes]) -> None:
        """Until the input ends, or the command does not want more of it."""
        assert self.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            async for data in stdin:
                self.stdin.write(data)
                await self.stdin.drain()
        self.stdin.close()


async def _start(plan: Plan, has_input: bool) -> _Command:
    descriptor = os.memfd_create("plan")
    try:
        with os.fdopen(os.dup(descriptor), "w") as file:
            json.dump(plan, file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        argv = [sys.executable, "-S", "-P", "-m", "kubelet.process.launch", str(descriptor), str(os.getpid())]
        _, command = await asyncio.get_running_loop().subprocess_exec(
            _Command, *argv, env=shims.ENVIRONMENT, stdin=PIPE if has_input else DEVNULL, stdout=PIPE, stderr=PIPE,
            pass_fds=(descriptor,), start_new_session=True,
        )  # fmt: skip
        return command
    finally:
        os.close(descriptor)
