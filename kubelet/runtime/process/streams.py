"""Logs and exec of the process runtime. Implements kubelet.runtime.interface.Streams.

Logs are read from the files of the attempts (see crilog), so the log of a finished pod can be read, and a running log can be
followed. A reader keeps its open file through a rotation and continues with the next newer file. A reader that is slower than
two rotations misses the removed files.

An exec starts a command in a container. Its output waits in pipes, and then the command waits; nothing is buffered here. The
process group of the command is killed when the command has ended, the caller disconnects, or the kubelet exits. With `tty`, the
command has a terminal instead of pipes, whose output is both stdout and stderr.
"""

import asyncio
import json
import os
import signal
import sys
import termios
import time
from asyncio.subprocess import DEVNULL, PIPE, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecExit,
    ExecResponse,
    ExecStart,
    LogOptions,
    LogsRequest,
    PortForwardRequest,
    PortForwardResponse,
    PortForwardStart,
)
from pinnace.api.status import Code
from pinnace.kubelet.runtime.interface import StreamError
from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.files import ProcessPlan
from pinnace.kubelet.runtime.process.plan import read_running_plan, with_command
from pinnace.kubelet.runtime.process.root import SHIM_ENVIRONMENT, RuntimeRoot, is_shim_alive
from pinnace.kubelet.runtime.process.shim import format_timestamp

CHUNK = 1 << 16
CONNECT_TIMEOUT = 5.0
"""Maximum seconds to connect to a port of a pod."""
POLL = 0.1
"""Seconds between two reads of a followed log."""
WINDOW = 24, 80
"""Rows and columns of a terminal. Its size does not follow that of the client."""
DRAIN = 2.0
"""Maximum seconds between reads of output after all processes of the command have exited."""
Written = asyncio.Queue[ExecResponse | None]


class LogSelection(NamedTuple):
    """`since`: a timestamp (shim.stamp), or empty. `tail` counts entries, as in Kubernetes: the parts of a long line count
    separately.
    """

    tail: int | None = None
    since: str = ""
    timestamps: bool = False
    limit: int | None = None
    follow: bool = False


async def read_log(path: Path, wanted: LogSelection, ended: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """Yield chunks. `ended`: whether the log is complete, so that following ends."""
    render = _LogRenderer(wanted)
    async with aclosing(read_entries(path, wanted.tail, wanted.follow, ended)) as batches:
        async for entries in batches:
            if text := render.lines(entries):
                yield text
            if render.is_full:
                return


async def read_entries(
    path: Path, tail: int | None, follow: bool, ended: Callable[[], bool]
) -> AsyncGenerator[list[bytes], None]:
    """Yield the entries of a log in groups."""
    file = _open_first_entry(path, tail)
    try:
        while file is not None:
            last = ended() or not follow
            newest = _is_current_log_file(file, path)
            rest = b""
            while data := file.read(CHUNK):
                *lines, rest = (rest + data).split(b"\n")
                yield lines
            file.seek(-len(rest), os.SEEK_CUR)  # an incomplete line
            if not newest and (newer := _open_next_file(file, path)) is not None:
                file.close()
                file = newer
            elif newest and last:
                return
            else:
                await asyncio.sleep(POLL)
    finally:
        if file is not None:
            file.close()


class _LogRenderer:
    def __init__(self, wanted: LogSelection) -> None:
        self._since = wanted.since.encode()
        self._timestamps = wanted.timestamps
        self._left = wanted.limit
        self._inside = False  # of a line

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def lines(self, entries: list[bytes]) -> bytes:
        """Parse entries. Invalid entries are skipped."""
        text = b"".join(part for entry in entries for part in self._render_entry(entry))
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text

    def _render_entry(self, entry: bytes) -> Iterator[bytes]:
        moment, _, rest = entry.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, blank, content = rest.partition(b" ")
        if blank and moment >= self._since:
            if self._timestamps and not self._inside:
                yield moment + b" "
            yield content
            self._inside = tag == b"P"
            if not self._inside:
                yield b"\n"


def _log_files(path: Path) -> list[Path]:
    """Newest first."""
    older = sorted((int(item.suffix[1:]), item) for item in path.parent.glob(f"{path.name}.[0-9]*"))
    return [path, *(each for _, each in older)]


def _open_first_entry(path: Path, tail: int | None) -> BinaryIO | None:
    """The file and offset of the first requested entry. None: there is no log."""
    file = None
    for candidate in _log_files(path):
        if (older := _open_file(candidate)) is None:
            continue
        if file is not None:
            file.close()
        file = older
        if tail is not None:
            offset, tail = _seek_last_lines(file, tail)
            file.seek(offset)
            if tail < 0:
                break
    return file


def _seek_last_lines(file: BinaryIO, lines: int) -> tuple[int, int]:
    """The offset of the last `lines` lines, and how many to read from older files; -1: this file has none of them."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        block = file.read(step)
        end = len(block)
        while (end := block.rfind(b"\n", 0, end)) >= 0:
            if lines == 0:
                return position + end + 1, -1
            lines -= 1
    return 0, lines


def _is_current_log_file(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:  # rotated at this moment, or the pod was deleted
        return not path.parent.exists()


def _open_next_file(file: BinaryIO, path: Path) -> BinaryIO | None:
    """The next newer file. None: there is none yet, during a rotation."""
    mine, newer = os.fstat(file.fileno()), None
    for candidate in _log_files(path):
        opened = _open_file(candidate)
        if opened is not None and os.path.samestat(os.fstat(opened.fileno()), mine):
            opened.close()
            break
        if newer is not None:
            newer.close()
        newer = opened
    return newer


def _open_file(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


async def run_command(
    plan: ProcessPlan, stdin: AsyncIterator[bytes] | None, *, tty: bool = False
) -> AsyncGenerator[ExecResponse, None]:
    """`stdin` None: no input. The last response has the exit code. Raises OSError."""
    command = await (_start_command_on_terminal(plan) if tty else _start_command(plan, stdin is not None))
    written: Written = asyncio.Queue(1)
    tasks = [asyncio.ensure_future(command.copy_output(written))]
    if stdin is not None:
        tasks.append(asyncio.ensure_future(command.feed_input(stdin)))
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
    """A running command. (asyncio's Process waits for the end of the pipes, which a daemon may keep open.)"""

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
        """Wait for the exit."""
        await asyncio.shield(self._exited)
        code = self._process.get_returncode()
        assert code is not None
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        """Kill the process group, even if its leader has exited."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.get_pid(), signal.SIGKILL)

    def close(self) -> None:
        self._process.close()

    async def copy_output(self, written: Written) -> None:
        """The next output, or None at the end."""
        assert self.stdout is not None and self.stderr is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump_output(self.stdout, lambda data: ExecResponse(stdout=data), written))
            group.create_task(self._pump_output(self.stderr, lambda data: ExecResponse(stderr=data), written))
        await written.put(None)

    async def _pump_output(self, stream: asyncio.StreamReader, wrap: Callable[[bytes], ExecResponse], written: Written) -> None:
        """Read until the end of the stream, or until a pause after the exit of the command, because another process may keep
        the pipe open.
        """
        while True:
            reading = asyncio.ensure_future(stream.read(CHUNK))
            try:
                await asyncio.wait((reading, self._exited), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    await asyncio.wait((reading,), timeout=DRAIN)
                if not reading.done() or not reading.result():
                    return
            except OSError:  # the other end of a terminal is closed
                return
            finally:
                reading.cancel()
            await written.put(wrap(reading.result()))

    async def feed_input(self, stdin: AsyncIterator[bytes]) -> None:
        """Write input until it ends, or the command closes its end."""
        assert self.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            async for data in stdin:
                self.stdin.write(data)
                await self.stdin.drain()
        self.stdin.close()


class _TerminalCommand(_Command):
    """A running command with a terminal."""

    def __init__(self, terminal: int) -> None:
        super().__init__()
        self._terminal = terminal
        """Our end of the terminal, a descriptor."""

    def close(self) -> None:
        super().close()
        os.close(self._terminal)

    async def copy_output(self, written: Written) -> None:
        reader = asyncio.StreamReader(CHUNK)
        loop, ours = asyncio.get_running_loop(), os.fdopen(os.dup(self._terminal), "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), ours)
        try:
            await self._pump_output(reader, lambda data: ExecResponse(stdout=data), written)
        finally:
            transport.close()
        await written.put(None)

    async def feed_input(self, stdin: AsyncIterator[bytes]) -> None:
        loop, ours = asyncio.get_running_loop(), os.fdopen(os.dup(self._terminal), "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, ours)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            with suppress(OSError):
                async for data in stdin:
                    writer.write(data)
                    await writer.drain()
        finally:
            transport.abort()


async def _start_command_on_terminal(plan: ProcessPlan) -> _Command:
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(theirs, WINDOW)
        return await _launch_command({**plan, "terminal": True}, lambda: _TerminalCommand(ours), theirs, theirs)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)


async def _start_command(plan: ProcessPlan, has_input: bool) -> _Command:
    return await _launch_command(plan, _Command, PIPE if has_input else DEVNULL, PIPE)


C = TypeVar("C", bound=_Command)


async def _launch_command(plan: ProcessPlan, command: Callable[[], C], stdin: int, output: int) -> C:
    descriptor = os.memfd_create("plan")
    try:
        with os.fdopen(os.dup(descriptor), "w") as file:
            json.dump(plan, file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        argv = [sys.executable, "-S", "-P", "-m", "pinnace.kubelet.runtime.process.launch", str(descriptor), str(os.getpid())]
        _, started = await asyncio.get_running_loop().subprocess_exec(
            command, *argv, env=SHIM_ENVIRONMENT, stdin=stdin, stdout=output, stderr=output,
            pass_fds=(descriptor,), start_new_session=True,
        )  # fmt: skip
        return started
    finally:
        os.close(descriptor)


class ProcessStreams:
    def __init__(self, root: RuntimeRoot) -> None:
        self._root = root

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        options = request.options
        attempts = self._root.attempt_directories(request.uid, options.container)
        if options.previous and len(attempts) < 2:
            raise StreamError(
                Code.INVALID_ARGUMENT,
                f'previous terminated container "{options.container}" in pod "{request.name}" not found',
            )
        if not attempts:
            raise StreamError(
                Code.INVALID_ARGUMENT, f'container "{options.container}" in pod "{request.name}" is waiting to start'
            )
        attempt = attempts[-2 if options.previous else -1]
        async with aclosing(
            read_log(attempt / files.LOG, _log_selection(options), lambda: not is_shim_alive(attempt))
        ) as chunks:
            async for data in chunks:
                yield data

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        attempt = self._find_running_attempt(start.uid, start.container, start.name)
        if start.check:
            return
        plan = with_command(read_running_plan(attempt), start.command)
        try:
            async with aclosing(run_command(plan, stdin if start.stdin else None, tty=start.tty)) as responses:
                async for response in responses:
                    yield response
        except OSError as error:
            raise StreamError(Code.UNAVAILABLE, f"the command cannot be started: {error}") from error

    async def attach(self, request: AttachRequest) -> AsyncGenerator[ExecResponse, None]:
        attempt = self._find_running_attempt(request.uid, request.container, request.name)
        if request.check:
            return
        path = attempt / files.LOG
        async with aclosing(read_entries(path, 0, True, lambda: not is_shim_alive(attempt))) as batches:
            async for entries in batches:
                for response in _exec_responses(entries, request):
                    yield response

    async def port_forward(
        self, start: PortForwardStart, sent: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[PortForwardResponse, None]:
        """To the address of the pod. A process that listens on all addresses can be reached there, too; one that listens on
        127.0.0.1 only cannot: another pod, or an unrelated process of the machine, could have the port there.
        """
        if not start.port:
            return
        reader, writer = await _connect_to_pod(start, self._pod_address(start))
        sending = asyncio.ensure_future(_send_to_port(writer, sent))
        try:
            yield PortForwardResponse()
            with suppress(ConnectionError):
                while data := await reader.read(CHUNK):
                    yield PortForwardResponse(data=data)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.transport.abort()

    def _pod_address(self, start: PortForwardStart) -> str:
        """The address of the pod. Raises StreamError."""
        address = self._root.read_pod_address(start.uid)
        if not address:
            raise StreamError(Code.INVALID_ARGUMENT, f'pod "{start.name}" is not running')
        return address

    def _find_running_attempt(self, uid: str, container: str, name: str) -> Path:
        """The running attempt of the container. Raises StreamError."""
        attempts = self._root.attempt_directories(uid, container)
        if not attempts or files.read_record(str(attempts[-1] / files.RUNNING)) is None or not is_shim_alive(attempts[-1]):
            raise StreamError(Code.INVALID_ARGUMENT, f'container "{container}" in pod "{name}" is not running')
        return attempts[-1]


def _exec_responses(entries: list[bytes], wanted: AttachRequest) -> Iterator[ExecResponse]:
    """The text of entries, by stream."""
    for is_error, group in groupby(entries, lambda entry: entry.split(b" ", 2)[1:2] == [b"stderr"]):
        if not (wanted.stderr if is_error else wanted.stdout):
            continue
        text = b"".join(_entry_text(entry) for entry in group)
        if text:
            yield ExecResponse(stderr=text) if is_error else ExecResponse(stdout=text)


def _entry_text(entry: bytes) -> bytes:
    """The text of an entry, with a newline unless it is partial."""
    parts = entry.split(b" ", 3)
    if len(parts) < 4:
        return b""
    return parts[3] if parts[2] == b"P" else parts[3] + b"\n"


async def _connect_to_pod(start: PortForwardStart, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises StreamError."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            return await asyncio.open_connection(address, start.port, limit=CHUNK)
    except (OSError, TimeoutError) as error:
        message = (
            f'error forwarding port {start.port} to pod "{start.name}": failed to connect to {address}:{start.port}: '
            f"{_error_reason(error)}; a process of the pod must listen there (its address is $POD_IP)"
        )
        raise StreamError(Code.INVALID_ARGUMENT, message) from error


def _error_reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "timed out"


async def _send_to_port(writer: asyncio.StreamWriter, sent: AsyncIterator[PortForwardRequest]) -> None:
    """Copy data until the client closes its direction, or the port accepts no more data."""
    with suppress(ConnectionError):
        async for request in sent:
            if request.closeWrite:
                break
            writer.write(request.data)
            await writer.drain()
        writer.write_eof()


def _log_selection(options: LogOptions) -> LogSelection:
    since = ""
    if options.HasField("sinceSeconds"):
        since = format_timestamp(time.time_ns() - options.sinceSeconds * 10**9)
    elif options.HasField("sinceTime"):
        since = format_timestamp(options.sinceTime.seconds * 10**9 + options.sinceTime.nanos)
    return LogSelection(
        tail=options.tailLines if options.HasField("tailLines") else None,
        since=since,
        timestamps=options.timestamps,
        limit=options.limitBytes if options.HasField("limitBytes") else None,
        follow=options.follow,
    )
