"""Commands as processes of their own, without half a second for the imports of each: forked from one that has them already.

What is forked has its own arguments, environment, standard streams and exit code, and hears signals, as if a shell had started
it. A nanny process stands between, for who asked is not the command's parent: it tells its pid, and in the end its exit code.
"""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tests.conftest import dying_with_us

MAX_REQUEST = 1 << 18
"""Bytes of arguments and environment."""
PR_SET_PDEATHSIG = 1
_IMPORTS = ("changes", "output.documents", "session")


class Forked:
    """One command. Its streams are read to their end here; what it is to read, it has from the start."""

    def __init__(
        self, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader, told: asyncio.StreamReader, pid: int
    ) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._pid = pid
        self._told = told

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Waits for its end, and returns what it had still to say on stdout and stderr."""
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        if self.returncode is None:
            self.returncode = int(await self._told.readline())
        return out, err


class ForkServer:
    """Needs a running event loop. Dies with us."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(dying_with_us(program), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()

    async def run(self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes = b"") -> Forked:
        given = os.memfd_create("stdin")
        os.write(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        (out, out_end), (err, err_end), (told, told_end) = os.pipe(), os.pipe(), os.pipe()
        request = json.dumps([arguments, dict(environment), str(Path.cwd())]).encode()
        theirs = [given, out_end, err_end, told_end]
        socket.send_fds(self._socket, [request], theirs)
        for end in theirs:
            os.close(end)
        stdout, stderr, tidings = [await _reader(end) for end in (out, err, told)]
        return Forked(stdout, stderr, tidings, int(await tidings.readline()))

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)


async def _reader(end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb"))
    return reader


def serve(requests: socket.socket) -> None:
    """Until nobody is left to ask."""
    for name in _IMPORTS:
        __import__(f"pinnace.cli.{name}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for nannies
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _look_after(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _look_after(request: bytes, descriptors: Sequence[int]) -> NoReturn:
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, told = descriptors
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _be(request, standard)
    for descriptor in (*standard, 0, 1, 2):
        os.close(descriptor)
    os.write(told, f"{pid}\n".encode())
    os.write(told, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    os._exit(0)


def _be(request: bytes, standard: Sequence[int]) -> NoReturn:
    """Becomes the command."""
    from pinnace.cli.main import main  # only our verbs: kubectl's would take the place of the process

    _die_with_parent()
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    arguments, environment, folder = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code: object = 0
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def _die_with_parent() -> None:
    """However that ends: no test leaves a command behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
