"""Components as real processes, one by one: for tests that need a cluster with a part missing."""

import asyncio
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, TypeVar

from pinnace.api.pods_pb2 import LogOptions, LogsRequest
from pinnace.client.client import Client
from pinnace.runtime.logs import LogEvent, read_log, select_events
from tests.conftest import dying_with_us, free_port

E = TypeVar("E", bound=LogEvent)

READY_TIMEOUT = 20.0
NOWHERE = Path(os.devnull) / "nothing"


class Component:
    """One process of ours. `address` is its gRPC address, for an API server; `http` says whether it is ready."""

    def __init__(self, folder: Path, module: str, name: str, *arguments: str, insecure: bool = True) -> None:
        """`insecure`: of an API server; otherwise the arguments name its certificates."""
        self.name = name
        self.address = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self._log = folder / f"{name}.log"
        listen = ["--listen", self.address, *["--insecure"] * insecure] if module == "apiserver" else []
        common = ["--name", name, "--http", self.http, "--logging-format", "json"]
        self._command = [sys.executable, "-m", f"pinnace.{module}.main", *common, *listen, *arguments]
        self.process = self._start()

    async def ready(self) -> None:
        """Waits for /readyz."""
        async with asyncio.timeout(READY_TIMEOUT):
            while not await asyncio.to_thread(self._is_ready):
                if self.process.poll() is not None:
                    raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")
                await asyncio.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(15)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def restart(self) -> None:
        """After `kill`: where it was."""
        self.process = self._start()

    def log(self) -> str:
        """For people: tests compare `logged`."""
        return self._log.read_text()

    def logged(self, kind: type[E]) -> list[E]:
        """The events of this kind in its log."""
        return select_events(read_log(self._log), kind)

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            environment = {**os.environ, "KUBECONFIG": str(NOWHERE)}  # not that of who runs the tests
            return subprocess.Popen(dying_with_us(self._command), env=environment, stdout=log, stderr=log)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


async def log_of(client: Client, pod: str, **options: Any) -> str:
    """The log of a pod's only container. `options`: of LogOptions."""
    stream = await client.pods.logs(LogsRequest(namespace="default", name=pod, options=LogOptions(**options)))
    text = b""
    while (response := await stream.read()) is not None:
        text += response.data
    return text.decode()


def pinnace(server: str, *arguments: str, stdin: str = "", config: Path = NOWHERE) -> subprocess.CompletedProcess[str]:
    """Runs one of our verbs as a user would; without certificates, if no configuration names them."""
    command = [sys.executable, "-m", "pinnace.cli.entry", "--server", server, *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "KUBECONFIG": str(config)}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, env=environment, check=False)
