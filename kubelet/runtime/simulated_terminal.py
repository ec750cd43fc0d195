"""Input and output of a command in a simulated container: a terminal or pipes, with bounds.

    stdin --feed--> Input (of a terminal: echo, line editing, Ctrl-C, Ctrl-D) --read, read_line--> command
    stdout, stderr <-- queue of OUTPUTS responses <--write-- command

A reader that is slow makes the command wait. A terminal drops keys beyond MAX_INPUT, as Linux does; a pipe waits.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from pinnace.api.pods_pb2 import ExecResponse
from pinnace.kubelet.runtime.simulated_shell import Interrupted
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import run_until_first

MAX_INPUT = 64 << 10
"""Bytes of input that wait for the command, and of the longest line."""
MAX_OUTPUT = 16 << 20
"""Bytes of output of a command."""
CHUNK = 16 << 10
"""Bytes of one response."""
OUTPUTS = 8
"""Responses that wait for the client."""
INTERRUPT, END, ERASE, KILL, ESCAPE = b"\x03", b"\x04", (b"\x7f", b"\x08"), b"\x15", b"\x1b"


class OutputLimit(Exception):
    """The command has written MAX_OUTPUT bytes."""


class TerminalLine:
    """The line that is being typed. Keys that edit it are handled here; sequences of arrow keys and the like are ignored."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._sequence = b""  # the beginning of an escape sequence

    def feed(self, key: bytes) -> tuple[bytes | None, bytes]:
        """One byte. Return the input that is complete now, which is empty for Ctrl-D on an empty line; and the echo."""
        if self._sequence or key == ESCAPE:
            self._sequence += key
            is_last = key not in b"[O" if len(self._sequence) == 2 else b"@" <= key <= b"~" and key != b"["
            if (len(self._sequence) > 1 and is_last) or len(self._sequence) > 16:
                self._sequence = b""
            return None, b""
        if key in (b"\r", b"\n"):
            return self._take_line() + b"\n", b"\r\n"
        if key == END:
            return self._take_line(), b""
        if key in ERASE:
            return None, self._erase()
        if key == KILL:
            shown = len(self._take_line().decode("utf-8", "replace"))
            return None, b"\b \b" * shown
        if key == INTERRUPT:
            self._take_line()
            return None, b"^C\r\n"
        if key < b" " or len(self._line) >= MAX_INPUT:
            return None, b""
        self._line += key
        return None, key

    def _take_line(self) -> bytes:
        line, self._line = bytes(self._line), bytearray()
        return line

    def _erase(self) -> bytes:
        """Remove the last character of UTF-8."""
        while self._line:
            if self._line.pop() & 0xC0 != 0x80:
                return b"\b \b"
        return b""


class CommandIo:
    """Implements kubelet.runtime.simulated_shell.Io. `responses` contains the output; None is its end."""

    def __init__(self, clock: Clock, *, terminal: bool, has_input: bool) -> None:
        self.terminal = terminal
        self.responses: asyncio.Queue[ExecResponse | None] = asyncio.Queue(OUTPUTS)
        self._clock = clock
        self._line = TerminalLine()
        self._input: deque[bytes] = deque()
        self._pending = 0
        self._ended = not has_input
        self._interrupted = False
        self._changed = asyncio.Event()
        self._written = 0

    async def pump(self, stdin: AsyncIterator[bytes]) -> None:
        """Read the client's input until its end."""
        async for data in stdin:
            for start in range(0, len(data), CHUNK):
                await self._feed_input(data[start : start + CHUNK])
        self._ended = True
        self._changed.set()

    async def _feed_input(self, data: bytes) -> None:
        if not self.terminal:
            while self._pending >= MAX_INPUT:
                self._changed.clear()
                await self._changed.wait()
            self._append_input(data)
            return
        echo = b""
        for number in data:
            key = bytes((number,))
            line, shown = self._line.feed(key)
            echo += shown
            if key == INTERRUPT:
                self._input.clear()
                self._pending, self._interrupted = 0, True
                self._changed.set()
            elif line is not None and self._pending < MAX_INPUT:
                self._append_input(line)
        if echo:
            await self.responses.put(ExecResponse(stdout=echo))

    def _append_input(self, data: bytes) -> None:
        self._input.append(data)
        self._pending += len(data)
        self._changed.set()

    async def _wait(self) -> None:
        """Wait for a change of the input. Raises Interrupted."""
        self._raise_interrupt()
        self._changed.clear()
        await self._changed.wait()

    def _raise_interrupt(self) -> None:
        if self._interrupted:
            self._interrupted = False
            raise Interrupted

    async def read(self) -> bytes:
        self._raise_interrupt()
        while not self._input and not self._ended:
            await self._wait()
        return self._pop_input()

    def _pop_input(self) -> bytes:
        data = self._input.popleft() if self._input else b""
        self._pending -= len(data)
        self._changed.set()
        return data

    async def read_line(self) -> str | None:
        line = b""
        while not line.endswith(b"\n"):
            data = await self.read()
            if not data and not line:
                return None
            if not data and self._ended:
                break
            head, newline, rest = data.partition(b"\n")
            line += head + newline
            if rest:
                self._input.appendleft(rest)
                self._pending += len(rest)
            if len(line) > MAX_INPUT:
                await self.write_error("sh: the line is too long\n")
                return None
        return line.removesuffix(b"\n").decode("utf-8", "replace")

    async def write(self, text: str) -> None:
        await self.write_bytes(text.encode("utf-8", "replace"))

    async def write_bytes(self, data: bytes) -> None:
        await self._send_output(data, is_error=False)

    async def write_error(self, text: str) -> None:
        await self._send_output(text.encode("utf-8", "replace"), is_error=True)

    async def _send_output(self, data: bytes, *, is_error: bool) -> None:
        """In a terminal, both outputs are one."""
        self._written += len(data)
        if self._written > MAX_OUTPUT:
            raise OutputLimit
        if self.terminal:
            data = data.replace(b"\n", b"\r\n")
        for start in range(0, len(data), CHUNK):
            part = data[start : start + CHUNK]
            is_stderr = is_error and not self.terminal
            await self.responses.put(ExecResponse(stderr=part) if is_stderr else ExecResponse(stdout=part))

    async def sleep(self, seconds: float) -> None:
        """Until then, or an interrupt."""
        await run_until_first(self._clock.sleep(min(seconds, 1e9)), self._until_interrupted())

    async def end_output(self) -> None:
        """No more output follows."""
        await self.responses.put(None)

    async def _until_interrupted(self) -> None:
        while True:
            await self._wait()
