"""The controller runs as a program that gets KUBECONFIG. Replace COMMAND with yours, such as `bin/manager`."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, str(Path(__file__).with_name("reloader.py"))]
LABELS = {"app": "web"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "annotations": {"reload-with": "settings"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
    },
}


def settings(**data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


@pytest.fixture
def controller(kubeconfig):  # KUBECONFIG is set
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.terminate()
        assert process.wait(10) == 0


def test_changed_config_replaces_pods(controller, pinnace_cluster, namespace):
    def running() -> set[str]:
        pods = pinnace_cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector="app=web")["items"]
        return {pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"}

    pinnace_cluster.apply(DEPLOYMENT, namespace=namespace)
    pinnace_cluster.wait(lambda: len(running()) == 2)
    before = running()
    pinnace_cluster.apply(settings(colour="blue"), namespace=namespace)
    pinnace_cluster.wait(lambda: len(running()) == 2 and running().isdisjoint(before))


def test_equal_config_replaces_nothing(controller, pinnace_cluster, namespace):
    pinnace_cluster.apply(DEPLOYMENT, settings(colour="blue"), namespace=namespace)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"

    def template_hash() -> str:
        return pinnace_cluster.request("GET", path)["spec"]["template"]["metadata"].get("annotations", {}).get("config-hash")

    before = pinnace_cluster.wait(template_hash)
    changed = settings(colour="blue")
    changed["metadata"]["labels"] = {"checked": "yes"}
    pinnace_cluster.apply(changed, namespace=namespace)
    assert controller.stdout.readline() == "reloaded web\n"
    assert controller.stdout.readline() == "reloaded web\n"
    assert template_hash() == before
