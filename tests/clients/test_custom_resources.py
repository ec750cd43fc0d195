"""Custom resources with real clients: kubectl, kopf, kr8s, lightkube, and the dynamic client of the Python client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Kubectl, until
from tests.unit.gateway.test_custom_resources import make_definition, make_version

pytestmark = pytest.mark.clients
COLUMNS = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
NAME = "widgets.example.com"
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "kopf.dev/test"

@kopf.on.create("example.com", "v1", "widgets")
def created(name, spec, patch, **_):
    print("created", name, flush=True)
    patch.status["doubled"] = 2 * spec["size"]

@kopf.on.delete("example.com", "v1", "widgets")
def deleted(name, **_):
    print("deleted", name, flush=True)
"""


def widget(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1} | spec}


@pytest.fixture
def definition(kubectl: Kubectl) -> Iterator[None]:
    version = make_version(subresources={"status": {}, "scale": SCALE}, additionalPrinterColumns=COLUMNS)
    kubectl("apply", "-f", "-", stdin=[make_definition(version, shortNames=["wd"], categories=["all"])])
    kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=10s")
    yield
    kubectl("delete", "crd", NAME)
    assert "NotFound" in kubectl("get", "crd", NAME, fails=True)


@pytest.mark.usefixtures("definition")
def test_kubectl_serves_custom_kinds(kubectl: Kubectl) -> None:
    assert "widget.example.com/a created" in kubectl("apply", "-f", "-", stdin=[widget()])
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=[widget()])
    assert "configured" in kubectl("apply", "-f", "-", stdin=[widget(color="blue")])
    heading, row = kubectl("get", "wd").splitlines()
    assert heading.split() == ["NAME", "SIZE"] and row.split() == ["a", "1"]
    assert "widget.example.com/a" in kubectl("get", "all")
    assert "color" in kubectl("explain", "widgets.spec")
    kubectl("scale", "widget/a", "--replicas=3")
    assert kubectl.json("get", "widget", "a")["spec"] == {"size": 1, "color": "blue", "replicas": 3}
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "wd", "a", "--subresource=status", "--type=merge", "-p", ready)
    kubectl("wait", "--for=condition=Ready", "widget/a", "--timeout=5s")
    assert "serverside-applied" in kubectl("apply", "--server-side", "--field-manager=me", "-f", "-", stdin=[widget("b")])
    assert 'unknown field "spec.nope"' in kubectl("apply", "-f", "-", stdin=[widget("c", nope=1)], fails=True)
    assert "widget.example.com" in kubectl("delete", "wd", "--all")


@pytest.mark.usefixtures("definition")
def test_owners_of_custom_kinds_are_collected(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[widget("boss")])
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "boss", "blockOwnerDeletion": True}
    owner["uid"] = kubectl.json("get", "wd", "boss")["metadata"]["uid"]
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dependent", "ownerReferences": [owner]}}
    child = widget("child")
    child["metadata"]["ownerReferences"] = [owner]
    kubectl("apply", "-f", "-", stdin=[config, child])
    kubectl("delete", "wd", "boss", "--cascade=foreground")
    assert "NotFound" in kubectl("get", "cm", "dependent", fails=True)
    assert "NotFound" in kubectl("get", "wd", "child", fails=True)


@pytest.mark.usefixtures("definition")
def test_kopf_operates_a_custom_kind(kubectl: Kubectl, kubeconfig: Path, tmp_path: Path) -> None:
    pytest.importorskip("kopf", reason="pip install '.[clients]'")
    (tmp_path / "handlers.py").write_text(OPERATOR)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "kopf", "run", "--namespace", kubectl.namespace, "--standalone", "handlers.py"]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONWARNINGS": "ignore"}
    with log.open("w") as out, subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out) as operator:
        try:
            kubectl("apply", "-f", "-", stdin=[widget(size=4)])
            until(lambda: "created a" in log.read_text())
            until(lambda: kubectl.json("get", "wd", "a").get("status", {}).get("doubled") == 8)
            assert kubectl.json("get", "wd", "a")["metadata"]["finalizers"] == ["kopf.dev/test"]
            kubectl("delete", "wd", "a")
            assert "deleted a" in log.read_text()
        finally:
            operator.terminate()
            operator.wait(30)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("definition")
def test_kr8s_makes_custom_objects(kubectl: Kubectl, kubeconfig: Path) -> None:
    kr8s = pytest.importorskip("kr8s", reason="pip install '.[clients]'")
    api = kr8s.api(kubeconfig=str(kubeconfig), namespace=kubectl.namespace)
    kind = kr8s.objects.new_class("Widget", "example.com/v1", namespaced=True, plural="widgets")
    obj = kind(widget(), api=api, namespace=kubectl.namespace)
    obj.create()
    obj.patch({"spec": {"size": 5}})
    assert [(item.name, item.spec.size) for item in api.get("widgets.example.com")] == [("a", 5)]
    obj.delete()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("definition")
def test_lightkube_makes_custom_objects(kubectl: Kubectl, kubeconfig: Path) -> None:
    lightkube = pytest.importorskip("lightkube", reason="pip install '.[clients]'")
    from lightkube.generic_resource import create_namespaced_resource

    client = lightkube.Client(config=lightkube.KubeConfig.from_file(kubeconfig), namespace=kubectl.namespace)
    verbs = ["delete", "get", "list", "patch", "post", "put"]
    kind = create_namespaced_resource("example.com", "v1", "Widget", "widgets", verbs=verbs)
    created = client.create(kind(metadata={"name": "a"}, spec={"size": 1}))
    created["spec"]["size"] = 2
    assert client.replace(created).spec == {"size": 2, "color": "red"}
    assert [item.metadata.name for item in client.list(kind)] == ["a"]
    client.delete(kind, "a")


@pytest.mark.usefixtures("definition")
def test_dynamic_client_makes_custom_objects(kubectl: Kubectl, kubeconfig: Path) -> None:
    kubernetes = pytest.importorskip("kubernetes", reason="pip install '.[clients]'")
    from kubernetes.dynamic import DynamicClient

    client = DynamicClient(kubernetes.config.new_client_from_config(str(kubeconfig)))
    kind = client.resources.get(api_version="example.com/v1", kind="Widget")
    kind.create(body=widget(), namespace=kubectl.namespace)
    for event in kind.watch(namespace=kubectl.namespace, timeout=1):
        assert (event["type"], event["object"].spec.size) == ("ADDED", 1)
    body = {"spec": {"size": 7}}
    kind.patch(body=body, name="a", namespace=kubectl.namespace, content_type="application/merge-patch+json")
    assert kind.get(name="a", namespace=kubectl.namespace).spec.size == 7
    kind.delete(name="a", namespace=kubectl.namespace)
