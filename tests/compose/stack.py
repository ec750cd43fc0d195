"""docker-compose.yml as a test sees it: one project of its own, with ports of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pinnace.client.config import ClientConfig, load_config
from pinnace.cluster.processes import is_port_free
from tests.conftest import free_port
from tests.integration.processes import pinnace

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT = 900.0
START_TIMEOUT = 180.0
T = TypeVar("T")


def compose_command() -> list[str]:
    """Compose v2 where it is installed, else docker-compose."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"]


def missing() -> str | None:
    """What keeps these tests from running on this machine, and the way out."""
    if shutil.which("docker") is None:
        return "Docker is not installed\nhint: apt-get install docker.io docker-compose"
    info = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if info.returncode:
        return f"Docker does not answer: {info.stderr.strip()}\nhint: start dockerd"
    if compose_command() == ["docker-compose"] and shutil.which("docker-compose") is None:
        return "Compose is not installed\nhint: apt-get install docker-compose"
    return None


def run(*command: str, timeout: float = 60.0, environment: dict[str, str] | None = None) -> str:
    """The output of a command. Raises AssertionError with all that it said when it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environment or {})}, timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def eventually(what: str, look: Callable[[], T | None], timeout: float) -> T:
    """Looks until there is something to see."""
    deadline = time.monotonic() + timeout
    while (seen := look()) is None:
        assert time.monotonic() < deadline, f"{what}: not within {timeout:.0f} s"
        time.sleep(0.1)
    return seen


class Stack:
    def __init__(self, nodes: int = 3, env_file: str = "") -> None:
        """`env_file`: as with --env-file."""
        first = next(port for port in iter(free_port, None) if is_port_free(f"127.0.0.1:{port + 1}"))
        self.server = f"127.0.0.1:{first},127.0.0.1:{first + 1}"
        self._project = f"pinnace-test-{os.getpid()}"
        self._folder = Path(tempfile.mkdtemp(prefix="pinnace-compose-"))
        self.gateway = f"127.0.0.1:{free_port()}"
        self._environment = {
            "APISERVER_PORTS": f"{first}-{first + 1}",
            "GATEWAY_PORT": self.gateway.rpartition(":")[2],
            "TIMELINE_PORT": str(free_port()),
            "NODES_PER_KUBELET": str(nodes),
            "KUBE_FOLDER": str(self._folder),
        }
        lines = (ROOT / env_file).read_text().splitlines() if env_file else []
        self._environment |= dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def compose(self, *arguments: str, timeout: float = 60.0) -> str:
        return run(*compose_command(), "-p", self._project, *arguments, timeout=timeout, environment=self._environment)

    def up(self) -> None:
        self.compose("build", timeout=BUILD_TIMEOUT)
        self.compose("up", "--detach", timeout=START_TIMEOUT)
        self.wait_healthy()

    def wait_healthy(self) -> None:
        eventually("all containers healthy", lambda: None if self._unhealthy() else True, START_TIMEOUT)

    def down(self) -> None:
        self.compose("down", "--timeout", "5", "--remove-orphans", "--volumes", timeout=120.0)
        shutil.rmtree(self._folder)

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "100")

    def containers(self, service: str = "") -> list[str]:
        """Ids, of containers that have ended too."""
        filters = [f"label=com.docker.compose.project={self._project}"]
        if service:
            filters.append(f"label=com.docker.compose.service={service}")
        options = [option for filter_plugin in filters for option in ("--filter", filter_plugin)]
        return run("docker", "ps", "--all", "--no-trunc", "--quiet", *options).split()

    def state(self, container: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(run("docker", "inspect", "--format", "{{json .State}}", container))
        return state

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator, for kubectl and pinnace on this machine."""
        return self._folder / "config"

    @property
    def config(self) -> ClientConfig:
        """Of the administrator, from this machine."""
        return load_config(file=self.kubeconfig)

    def pinnace(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of our verbs."""
        return pinnace(self.server, *arguments, stdin=stdin, config=self.kubeconfig)

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pinnace.cli.entry", "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30, check=False)

    def leader(self) -> dict[str, Any] | None:
        answer = self.pinnace("leader", "-o", "json")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def create_pod(self, name: str) -> None:
        container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        answer = self.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        assert answer.returncode == 0, answer.stderr

    def phase(self, name: str) -> str:
        answer = self.kubectl("get", "pod", name, "-o", "json")
        return str(json.loads(answer.stdout)["status"]["phase"]) if answer.returncode == 0 else ""

    def _unhealthy(self) -> list[str]:
        return [container for container in self.containers() if not _is_well(self.state(container))]


def _is_well(state: dict[str, Any]) -> bool:
    """Healthy, or done with what it was for."""
    return state.get("Health", {}).get("Status") == "healthy" or (state["Status"] == "exited" and state["ExitCode"] == 0)


@contextmanager
def started(stack: Stack) -> Iterator[Stack]:
    """Start the containers, and remove them at the end. An error has their logs as a note. Fails without Docker."""
    if problem := missing():
        pytest.fail(problem, pytrace=False)
    try:
        stack.up()
        yield stack
    except Exception as error:
        error.add_note(stack.logs())
        raise
    finally:
        stack.down()
