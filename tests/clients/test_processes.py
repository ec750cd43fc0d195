"""kubectl and containers that are processes: exec, cp and logs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import Kubectl, cluster, pod

pytestmark = pytest.mark.clients
SCRIPT = "echo started; echo problem >&2; sleep 3600"


@pytest.fixture(scope="module")
def running(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """With a pod `a` that runs."""
    with cluster(tmp_path_factory.mktemp("processes"), "--nodes", "1", "--runtime", "process") as kubeconfig:
        kubectl = Kubectl(program, kubeconfig, "default")
        containers = [{"name": "main", "image": "none", "command": ["sh", "-c", SCRIPT]}]
        kubectl("apply", "-f", "-", stdin=[pod("a", containers=containers)])
        kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
        yield kubectl


def test_exec_separates_outputs_and_tells_the_exit_code(running: Kubectl) -> None:
    ran = running.run("exec", "a", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ran.code, ran.out) == (7, "out\n")
    assert ran.err.startswith("err\n") and "exit code 7" in ran.err


def test_exec_passes_input_until_its_end(running: Kubectl) -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    assert running("exec", "-i", "a", "--", "cat", stdin=text) == text


def test_exec_of_a_command_or_a_pod_that_does_not_exist(running: Kubectl) -> None:
    assert running.run("exec", "a", "--", "no-such-command").code != 0
    assert 'pods "b" not found' in running("exec", "b", "--", "true", fails=True)


def test_copying_files(running: Kubectl, tmp_path: Path) -> None:
    source, target, back = tmp_path / "source", tmp_path / "target", tmp_path / "back"
    source.write_bytes(bytes(range(256)) * 2000)
    running("cp", str(source), f"a:{target}")
    running("cp", f"a:{target}", str(back))
    assert back.read_bytes() == source.read_bytes()


def test_logs(running: Kubectl) -> None:
    assert set(running("logs", "a").splitlines()) == {"started", "problem"}
    assert running("logs", "a", "--tail=1").count("\n") == 1
    assert running("logs", "a", "--timestamps").startswith("20")
    assert "container other is not valid for pod a" in running("logs", "a", "-c", "other", fails=True)
