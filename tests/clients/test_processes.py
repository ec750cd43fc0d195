"""kubectl, the official Python client, and containers that are processes: exec, cp, attach, port-forward and logs."""

import shlex
import socket
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import TIMEOUT, Kubectl, cluster, pod, until

pytestmark = pytest.mark.clients
SCRIPT = "echo started; echo problem >&2; sleep 3600"


@pytest.fixture(scope="module")
def running(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """With a pod `a` that runs."""
    with cluster(tmp_path_factory.mktemp("processes"), "--nodes", "1", "--runtime", "process") as kubeconfig:
        kubectl = Kubectl(program, kubeconfig, "default")
        kubectl("apply", "-f", "-", stdin=[command_pod("a", SCRIPT)])
        kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
        yield kubectl


def command_pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none", "command": ["sh", "-c", script]}]
    return pod(name, containers=containers, **spec)


def accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


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


def test_attach_streams_output_until_the_container_ends(running: Kubectl) -> None:
    script = "until [ -e go ]; do echo waiting; sleep 0.1; done; echo out; echo problem >&2"
    running("apply", "-f", "-", stdin=[command_pod("attached", script, restartPolicy="Never")])
    running("wait", "--for=condition=Ready", "pod/attached", "--timeout=40s")
    with running.background("attach", "attached") as attached:
        assert attached.stdout is not None and attached.stdout.readline() == "waiting\n"
        running("exec", "attached", "--", "touch", "go")
        out, err = attached.communicate(timeout=40)
    assert attached.returncode == 0 and out.endswith("\nout\n")
    assert "problem" in err
    assert "a container in a completed pod" in running("attach", "attached", fails=True)


def test_port_forward_carries_connections_at_once(running: Kubectl) -> None:
    port = 8000
    script = f'head -c 3000000 /dev/zero > big; exec {shlex.quote(sys.executable)} -m http.server --bind "$POD_IP" {port}'
    running("apply", "-f", "-", stdin=[command_pod("web", script)])
    running("wait", "--for=condition=Ready", "pod/web", "--timeout=40s")
    address = running("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    until(lambda: accepts(address, port))
    with running.background("port-forward", "web", f":{port}") as forwarding:
        assert forwarding.stdout is not None
        local = int(forwarding.stdout.readline().split(":")[1].split()[0])

        def fetch(_: int) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/big", timeout=30) as response:
                result: bytes = response.read()
                return result

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(fetch, range(8))) == {bytes(3_000_000)}


def test_port_forward_to_a_port_without_a_listener(running: Kubectl) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running.background("port-forward", "a", f":{port}") as forwarding:
        assert forwarding.stdout is not None and forwarding.stderr is not None
        local = int(forwarding.stdout.readline().split(":")[1].split()[0])
        with socket.create_connection(("127.0.0.1", local), timeout=30) as opened:
            assert opened.recv(1) == b""
        assert "connection refused" in forwarding.stderr.readline()
    assert 'pods "b" not found' in running("port-forward", "b", "1:1", fails=True)


def test_logs(running: Kubectl) -> None:
    assert set(running("logs", "a").splitlines()) == {"started", "problem"}
    assert running("logs", "a", "--tail=1").count("\n") == 1
    assert running("logs", "a", "--timestamps").startswith("20")
    assert "container other is not valid for pod a" in running("logs", "a", "-c", "other", fails=True)


@pytest.fixture
def core(running: Kubectl) -> Iterator[Any]:
    """The official Python client."""
    client = pytest.importorskip("kubernetes.client", reason="pip install '.[clients]'")
    config = pytest.importorskip("kubernetes.config")
    with config.new_client_from_config(str(running.kubeconfig)) as api:
        yield client.CoreV1Api(api)


def python_exec(core: Any, *command: str, stdin: bool = False, tty: bool = False) -> Any:
    stream = pytest.importorskip("kubernetes.stream")
    options = {"command": list(command), "stdin": stdin, "stdout": True, "stderr": True, "tty": tty}
    return stream.stream(core.connect_get_namespaced_pod_exec, "a", "default", _preload_content=False, **options)


def test_python_client_executes_a_command(core: Any) -> None:
    ran = python_exec(core, "sh", "-c", "echo out; echo err >&2; exit 7")
    ran.run_forever(timeout=TIMEOUT)
    assert (ran.read_stdout(), ran.read_stderr(), ran.returncode) == ("out\n", "err\n", 7)
    ran = python_exec(core, "true")
    ran.run_forever(timeout=TIMEOUT)
    assert (ran.read_stdout(), ran.returncode) == ("", 0)


def test_python_client_sends_input(core: Any) -> None:
    """It sends text messages."""
    ran = python_exec(core, "sh", "-c", "read one; echo out $one; read two; echo err $two >&2; exit 3", stdin=True)
    ran.write_stdin("ä\n")
    assert ran.readline_stdout(timeout=TIMEOUT) == "out ä"
    ran.write_stdin("b\n")
    ran.run_forever(timeout=TIMEOUT)
    assert (ran.read_stderr(), ran.returncode) == ("err b\n", 3)


def test_debug_adds_an_ephemeral_container_to_a_running_pod(running: Kubectl) -> None:
    """Its status, its log, and a command in it, while the pod stays ready."""
    script = "echo looking; sleep 3600"
    running("debug", "a", "--image=busybox", "-c", "debugger", "--target=main", "--", "sh", "-c", script)
    state = "jsonpath={.status.ephemeralContainerStatuses[0].state.running.startedAt}"
    until(lambda: running("get", "pod", "a", "-o", state))
    until(lambda: running("logs", "a", "-c", "debugger") == "looking\n")
    assert running("exec", "a", "-c", "debugger", "--", "echo", "hello") == "hello\n"
    assert "Ephemeral Containers:" in running("describe", "pod", "a")
    assert "1/1" in running("get", "pod", "a")


def test_claim_is_bound_used_and_protected_and_its_volume_released(running: Kubectl, tmp_path: Path) -> None:
    meta = {"name": "disk"}
    size = {"storage": "1Gi"}
    volume = {"capacity": size, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": str(tmp_path)}}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": size}}
    source = [{"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}]
    user = command_pod("user", "echo kept > /d/file; sleep 3600", volumes=source)
    user["spec"]["containers"][0]["volumeMounts"] = [{"name": "d", "mountPath": "/d"}]
    objects = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": volume},
        user,
    ]
    running("apply", "-f", "-", stdin=objects)
    running("wait", "--for=condition=Ready", "pod/user", "--timeout=40s")
    table = running("get", "pv,pvc").splitlines()
    assert ["Bound" in line for line in table if "/disk" in line] == [True, True]
    running("delete", "pvc", "disk", "--wait=false")
    assert "Terminating" in running("get", "pvc", "disk"), "a pod uses it"
    running("delete", "pod", "user", "--grace-period=1")
    running("wait", "--for=delete", "pvc/disk", "--timeout=40s")
    running("wait", "--for=jsonpath={.status.phase}=Released", "pv/disk", "--timeout=40s")
    assert (tmp_path / "file").read_text() == "kept\n"
    running("delete", "pv", "disk")


def test_job_fails_by_the_exit_code_of_a_pod(running: Kubectl) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    template = {"spec": {"restartPolicy": "Never", "containers": command_pod("x", "exit 42")["spec"]["containers"]}}
    spec = {"template": template, "podFailurePolicy": {"rules": [rule]}, "backoffLimit": 5}
    running("apply", "-f", "-", stdin=[{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": spec}])
    running("wait", "--for=condition=Failed", "job/once", "--timeout=40s")
    condition = running("get", "job", "once", "-o", 'jsonpath={.status.conditions[?(@.type=="Failed")]}')
    assert "PodFailurePolicy" in condition and "failed with exit code 42 matching FailJob rule at index 0" in condition
    assert running("get", "job", "once", "-o", "jsonpath={.status.failed}") == "1"
