"""pytest starts a cluster, and the operator runs in a thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kopf.testing import KopfRunner

OPERATOR = Path(__file__).with_name("sites.py")


@pytest.fixture(autouse=True)
def operator(namespace: str) -> Iterator[None]:
    with KopfRunner(["run", "--standalone", "--namespace", namespace, str(OPERATOR)]):
        yield


def create_site(cluster, namespace: str, **spec) -> str:
    site = {"apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "shop"}, "spec": spec}
    cluster.apply(site, namespace=namespace)
    return f"/apis/example.com/v1/namespaces/{namespace}/sites/shop"


def test_site_has_running_pods(pinnace_cluster, namespace):
    create_site(pinnace_cluster, namespace, image="shop:1", replicas=2)

    def running() -> bool:
        pods = pinnace_cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector="site=shop")["items"]
        return [pod["status"].get("phase") for pod in pods] == ["Running"] * 2

    pinnace_cluster.wait(running)


def test_status_says_that_site_is_deployed(pinnace_cluster, namespace):
    path = create_site(pinnace_cluster, namespace, image="shop:1")
    pinnace_cluster.wait(lambda: pinnace_cluster.request("GET", path).get("status", {}).get("phase") == "Deployed")


def test_deployment_is_deleted_with_site(pinnace_cluster, namespace):
    path = create_site(pinnace_cluster, namespace, image="shop:1")
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    pinnace_cluster.wait(lambda: pinnace_cluster.request("GET", deployments)["items"])
    pinnace_cluster.request("DELETE", path)
    pinnace_cluster.wait(lambda: not pinnace_cluster.request("GET", deployments)["items"])
