"""The cluster of docker-compose.yml, built and run: the story that the README tells, and the promises of its networks."""

import json
import re
import shutil
from collections.abc import Iterator
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from pinnace.timeline.link import request_link
from tests.compose.stack import BUILD_TIMEOUT, ROOT, START_TIMEOUT, Stack, eventually, run, started

pytestmark = [pytest.mark.compose, pytest.mark.timeout(BUILD_TIMEOUT + 2 * START_TIMEOUT)]

FAILOVER = 5.0
"""Seconds that a new leader may take here, where a kill goes through Docker."""
RUNNING = 20.0


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One for all tests: each leaves it as it found it. When it does not come up its logs are shown."""
    with started(Stack()) as stack:
        yield stack


@pytest.fixture(autouse=True)
def whole(stack: Stack) -> Iterator[None]:
    """What a test has killed is started again. The logs are there for a test that fails: pytest shows them only then."""
    yield
    print(stack.logs())
    for container in stack.containers():
        if stack.state(container)["Paused"]:
            run("docker", "unpause", container)
        elif not stack.state(container)["Running"]:
            run("docker", "start", container)
    stack.wait_healthy()


def assert_runs(stack: Stack, pod: str) -> None:
    stack.create_pod(pod)
    eventually(f"pod {pod} is Running", lambda: stack.phase(pod) == "Running" or None, RUNNING)
    deleted = stack.kubectl("delete", "pod", pod, "--now")  # `drain` refuses a node with a pod that no controller owns
    assert deleted.returncode == 0, deleted.stderr


def test_another_scheduler_takes_over_when_the_leading_container_is_killed(stack: Stack) -> None:
    before = eventually("there is a leader", stack.leader, RUNNING)
    (leading,) = [container for container in stack.containers("scheduler") if container.startswith(before["holder"])]
    assert_runs(stack, "before")

    run("docker", "kill", leading)
    after = eventually("there is another leader", lambda: another(stack, before["holder"]), FAILOVER)

    assert after["token"] > before["token"]
    assert_runs(stack, "after")
    assert not stack.state(leading)["Running"]


def another(stack: Stack, holder: str) -> dict[str, int] | None:
    leader = stack.leader()
    return leader if leader and leader["holder"] != holder else None


@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("index", [0, 1])
def test_leadership_is_kept_when_an_api_server_is_killed_or_freezes(stack: Stack, index: int, how: str) -> None:
    before = eventually("there is a leader", stack.leader, RUNNING)
    run("docker", how, sorted(stack.containers("apiserver"))[index])
    assert_runs(stack, f"{how}-{index}")
    now = eventually("there is a leader", stack.leader, RUNNING)
    assert (now["holder"], now["token"]) == (before["holder"], before["token"])


def test_only_api_servers_reach_etcd(stack: Stack) -> None:
    look = "import socket; socket.create_connection(('etcd', 2379), 2)"
    stack.compose("exec", "-T", "apiserver", "python", "-c", look)
    for service in ("scheduler", "controllers", "kubelet", "gateway"):
        with pytest.raises(AssertionError, match=r"gaierror|timed out"):
            stack.compose("exec", "-T", service, "python", "-c", look)


def test_etcd_opens_to_its_own_authority_only(stack: Stack) -> None:
    look = ("etcdctl", "--command-timeout", "2s", "get", "/", "--prefix", "--keys-only", "--limit", "1")
    assert stack.compose("exec", "-T", "etcd", *look).strip()
    shown = ("-e", "ETCDCTL_CERT=/pki/admin.crt", "-e", "ETCDCTL_KEY=/pki/admin.key")
    with pytest.raises(AssertionError, match="deadline exceeded"):
        stack.compose("exec", "-T", *shown, "etcd", *look)


def test_gateway_serves_kubectl_and_the_timeline_on_this_machine(stack: Stack) -> None:
    if (kubectl := shutil.which("kubectl")) is not None:
        nodes = run(kubectl, "--kubeconfig", str(stack.kubeconfig), "get", "nodes", "-o", "name").split()
        assert len(nodes) == 6
    tls = stack.config.tls
    assert tls is not None
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor())  # the link sets the cookie of the session
    with browser.open(request_link(stack.gateway, tls), timeout=RUNNING) as answer:
        assert answer.status == 200 and b"<html" in answer.read().lower()


def test_command_line_works_inside_of_the_containers_too(stack: Stack) -> None:
    leader = eventually("there is a leader", stack.leader, RUNNING)
    assert leader["holder"] in stack.compose("exec", "-T", "scheduler", "pinnace", "leader")


def test_commands_of_the_readme_run_in_the_containers(stack: Stack) -> None:
    commands = re.findall(r"^docker-compose exec (.*?)(?: +#.*)?$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == 3
    node = json.loads(stack.kubectl("get", "nodes", "-o", "json").stdout)["items"][0]["metadata"]["name"]
    for command in commands:
        words = [node if word == "NODE" else word for word in command.split()]
        assert stack.compose("exec", "-T", *words).strip(), command
    stack.compose("exec", "-T", "apiserver", "pinnace", "uncordon", node)


def test_examples_can_be_applied_from_inside(stack: Stack) -> None:
    """There were none in the containers."""
    applied = stack.compose("exec", "-T", "apiserver", "pinnace", "apply", "-f", "examples/deployment.yaml")
    assert "deployment.apps/shop created" in applied
    stack.compose("exec", "-T", "apiserver", "pinnace", "delete", "-f", "examples/deployment.yaml")


def test_pods_of_a_kubelet_that_is_killed_move_to_the_other(stack: Stack) -> None:
    stack.compose("exec", "-T", "apiserver", "pinnace", "apply", "-f", "examples/failover.yaml")
    stack.compose("exec", "-T", "apiserver", "pinnace", "rollout", "status", "deployment/steady", timeout=RUNNING + 40)
    first, second = stack.containers("kubelet")
    run("docker", "kill", first)
    nodes = f"kubelet-{run('docker', 'inspect', '--format', '{{.Config.Hostname}}', second).strip()}-"

    def moved() -> bool | None:
        answer = stack.kubectl("get", "pods", "-l", "app=steady", "-o", "json")
        result = json.loads(answer.stdout)["items"] if answer.returncode == 0 else []
        running = [pod for pod in result if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]]
        return (len(running) == 10 and all(pod["spec"]["nodeName"].startswith(nodes) for pod in running)) or None

    eventually("ten pods run on the other kubelet's nodes", moved, RUNNING + 20)
    stack.compose("exec", "-T", "apiserver", "pinnace", "delete", "-f", "examples/failover.yaml")
