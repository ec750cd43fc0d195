"""Start components by forking a process that has already imported them.

Five components import for two seconds of CPU time in all. Forked, they share one import of 0.7 s and its memory. They run the
same `main` with the same arguments as `python -m pinnace.COMPONENT.main`, in processes of their own.

    server (subreaper)
      |-- forkserver: imports, and forks on request
      |-- component  (its parent, an intermediate process, has exited)
      '-- etcd       (executed)

Every process is killed when the server dies (PR_SET_PDEATHSIG): nothing survives it.

Source: prctl(2).
"""

import ctypes
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from pinnace.cluster.processes import ChildProcess
from pinnace.cluster.spec import APISERVER, CONTROLLERS, GATEWAY, KUBELET, SCHEDULER

FORKED = tuple(f"pinnace.{component}.main" for component in (APISERVER, GATEWAY, CONTROLLERS, KUBELET, SCHEDULER))
"""In the order of their import. A component that is requested earlier is forked at once, and imports the rest itself, while the
next one is imported here."""
MAX_REQUEST = 1 << 18
"""Bytes of arguments and changed environment variables."""
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
ADOPTION_TIMEOUT = 10.0
"""Seconds until the intermediate process, which has nothing more to do, has exited."""
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, the process `parent`, dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


class ForkedProcess:
    """A component, as subprocess.Popen. It is a child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        code = self._reap(0)
        assert code is not None
        return code

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """Create it before this process has threads or an event loop, or has used gRPC: the constructor forks."""

    def __init__(self) -> None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._server = os.getpid()
        self._socket, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self._socket.close()
            try:
                die_with_parent(self._server)
                _serve_forks(requests, self._server)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        requests.close()

    def launch(self, argv: Sequence[str], output: IO[bytes], folder: Path, environment: Mapping[str, str]) -> ChildProcess:
        """Fork a component, or execute another program (pinnace.cluster.processes.Launch). Raises OSError."""
        if argv[1] != "-m" or argv[2] not in FORKED:
            server = self._server
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, env=environment,
                start_new_session=True, preexec_fn=lambda: die_with_parent(server),
            )  # fmt: skip
        changed = {name: value for name, value in environment.items() if os.environ.get(name) != value}
        removed = [name for name in os.environ if name not in environment]
        request = json.dumps([list(argv), changed, removed, str(folder)]).encode()
        socket.send_fds(self._socket, [request], [output.fileno()])
        pid = int(self._socket.recv(MAX_REQUEST) or b"0")
        if not pid:
            raise ChildProcessError("the process that forks components has ended")
        return ForkedProcess(pid)


def _serve_forks(requests: socket.socket, server: int) -> NoReturn:
    """Import the components, and fork on request, until the other end of the socket is closed."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has only the thread that forks
    gc.disable()
    waiting = list(FORKED)
    while True:
        while waiting and not _has_request(requests):
            importlib.import_module(waiting.pop(0))
            gc.freeze()  # collections in the children leave the shared memory alone
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST, 1)
        if not request:
            os._exit(0)
        if (module := json.loads(request)[0][2]) in waiting:
            waiting.remove(module)
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                os.close(writing)
                _become_component(request, descriptors[0], requests, server)
            os.write(writing, str(pid).encode())
            os._exit(0)
        os.waitpid(middle, 0)  # from here on, the component is a child of the server
        requests.send(os.read(reading, 32))
        for descriptor in (reading, writing, descriptors[0]):
            os.close(descriptor)


def _has_request(requests: socket.socket) -> bool:
    return bool(select.select([requests], [], [], 0)[0])


def _await_adoption(server: int) -> None:
    """Return when this process is a child of the server: when the intermediate process has exited. Otherwise, exit."""
    parent = os.getppid()
    if parent != server:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(parent)
            select.select([handle], [], [], ADOPTION_TIMEOUT)
            os.close(handle)
        if os.getppid() != server:
            os._exit(1)


def _become_component(request: bytes, output: int, requests: socket.socket, server: int) -> NoReturn:
    code: Any = 1
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        requests.close()
        _await_adoption(server)
        die_with_parent(server)
        argv, changed, removed, folder = json.loads(request)
        for name in removed:
            os.environ.pop(name, None)
        os.environ.update(changed)
        os.chdir(folder)
        component, arguments = argv[2], argv[3:]
        _libc.prctl(_PR_SET_NAME, component.removeprefix("pinnace.").removesuffix(".main").encode()[:15], 0, 0, 0)
        sys.argv = [component, *arguments]
        gc.enable()
        importlib.import_module(component).main(args=arguments, prog_name=component)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)
