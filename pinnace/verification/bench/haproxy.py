"""HAProxy as a yardstick: a kept, fast server in C on the same machine, so that figures of different machines compare."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinnace.verification.bench import BenchError

PROGRAM = "HAPROXY"
"""Environment variable with the path of the program. Without it, the program is searched in PATH and in /usr/sbin."""
START_TIMEOUT = 10.0
TIMEOUTS = "timeout connect 5s\n  timeout client 60s\n  timeout server 60s"
STATIC = "{}"
"""The body of the static answer."""


def find_haproxy() -> str | None:
    """Return the path of the program, or None. Raises BenchError if $HAPROXY is not a program."""
    if named := os.environ.get(PROGRAM):
        if (haproxy := shutil.which(named)) is None:
            raise BenchError(f"{PROGRAM}={named} is not a program")
        return haproxy
    return shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextmanager
def forward_tcp(program: str, target: str, listen: str) -> Iterator[None]:
    """HAProxy in TCP mode. Addresses are host:port. Raises BenchError."""
    configuration = f"""
defaults
  mode tcp
  {TIMEOUTS}
frontend in
  bind {listen}
  default_backend out
backend out
  server one {target}
"""
    with tempfile.TemporaryDirectory() as folder, _run_haproxy(program, Path(folder), configuration, listen):
        yield


@contextmanager
def serve_static_answer(program: str, certificate: Path, key: Path, listen: str, threads: int) -> Iterator[None]:
    """HAProxy that answers each HTTPS request with STATIC in JSON. Raises BenchError."""
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder) / "server.pem"
        pem.touch(mode=0o600)
        pem.write_text(certificate.read_text() + key.read_text())
        configuration = f"""
global
  nbthread {threads}
defaults
  mode http
  {TIMEOUTS}
frontend in
  bind {listen} ssl crt {pem}
  http-request return status 200 content-type application/json string "{STATIC}"
"""
        with _run_haproxy(program, Path(folder), configuration, listen):
            yield


@contextmanager
def _run_haproxy(program: str, folder: Path, configuration: str, listen: str) -> Iterator[None]:
    file = folder / "haproxy.cfg"
    file.write_text(configuration)
    with subprocess.Popen([program, "-db", "-f", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            _await_listener(process, listen)
            yield
        finally:
            process.kill()


def _await_listener(process: "subprocess.Popen[bytes]", listen: str) -> None:
    host, _, port = listen.rpartition(":")
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            if process.poll() is not None:
                errors = process.stderr.read().decode(errors="replace") if process.stderr is not None else ""
                raise BenchError(f"HAProxy exited with code {process.returncode}: {errors.strip()}") from None
            if time.monotonic() > deadline:
                raise BenchError(f"HAProxy does not listen on {listen} after {START_TIMEOUT:g} s") from None
            time.sleep(0.01)
        else:
            return
