"""kubectl and images without a command in the process runtime: nginx with a ConfigMap as its page, changed while it runs."""

import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import Kubectl, cluster, pod, until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("process-runtime")]


@pytest.fixture(scope="module")
def running(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("images"), "--nodes", "2", "--runtime", "process") as kubeconfig:
        yield Kubectl(program, kubeconfig, "default")


def nginx() -> list[dict[str, Any]]:
    """A ConfigMap, a Service and a Deployment of two pods."""
    labels = {"app": "web"}
    container = {
        "name": "web",
        "image": "nginx:1.27",
        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}],
        "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
    }
    spec = {"volumes": [{"name": "page", "configMap": {"name": "page"}}], "containers": [container]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}, "data": {"index.html": "one\n"}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]


def fetch(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=5) as response:
            page: str = response.read().decode()
            return page
    except OSError:
        return ""


def test_nginx_serves_a_config_map_that_changes(running: Kubectl) -> None:
    running("apply", "-f", "-", stdin=nginx())
    running("rollout", "status", "deployment/web", "--timeout=60s")
    service = running("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    until(lambda: fetch(service) == "one\n")
    with running.background("port-forward", "deployment/web", ":80") as forwarding:
        assert forwarding.stdout is not None
        local = f"127.0.0.1:{forwarding.stdout.readline().split(':')[1].split()[0]}"
        assert fetch(local) == "one\n"
        running("patch", "configmap", "page", "-p", '{"data": {"index.html": "two\\n"}}')
        until(lambda: fetch(local) == "two\n")
    pods = running.json("get", "pods", "-l", "app=web")["items"]
    for item in pods:
        until(lambda item=item: fetch(item["status"]["podIP"]) == "two\n")
    assert fetch(service) == "two\n"
    assert re.search(r'"GET / HTTP/1.1" 200 4 ', running("logs", "-l", "app=web", "--tail=-1"))
    assert running("exec", "deployment/web", "--", "sh", "-c", "cat usr/share/nginx/html/index.html") == "two\n"
    assert {item["status"]["containerStatuses"][0]["restartCount"] for item in pods} == {0}


def test_unknown_image_runs_simulated_and_says_so_once(running: Kubectl) -> None:
    running("apply", "-f", "-", stdin=[pod("unknown", containers=[{"name": "main", "image": "example.org/team/app:1"}])])
    running("wait", "--for=condition=Ready", "pod/unknown", "--timeout=40s")

    def events() -> list[str]:
        result = running.json("get", "events", "--field-selector", "involvedObject.name=unknown")["items"]
        return [f"{item['reason']} {item['count']} {item['message']}" for item in result if item["reason"] != "Scheduled"]

    (event,) = until(events)
    assert event.startswith('Simulated 1 image "example.org/team/app:1" is not in the table of images')


def test_container_waits_for_its_secret(running: Kubectl) -> None:
    variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "1000"], "env": [variable]}
    running("apply", "-f", "-", stdin=[pod("waiting", containers=[container])])

    def state() -> Any:
        return running.json("get", "pod", "waiting")["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting")

    until(lambda: state() == {"reason": "CreateContainerConfigError", "message": 'secret "late" not found'})
    running("create", "secret", "generic", "late", "--from-literal=k=v")
    running("wait", "--for=condition=Ready", "pod/waiting", "--timeout=40s")
    assert running("exec", "waiting", "--", "sh", "-c", "echo $A") == "v\n"
