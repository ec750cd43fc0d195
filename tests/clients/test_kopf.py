"""An operator that is written with kopf, for kinds that are built in: handlers, finalizers and events."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.conftest import Kubectl, deployment, until

pytestmark = pytest.mark.clients
pytest.importorskip("kopf", reason="pip install '.[clients]'")
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "kopf.dev/test"
    settings.scanning.disabled = True

@kopf.on.create("apps", "v1", "deployments", labels={"watched": "yes"})
def created(name, body, patch, **_):
    print("created", name, flush=True)
    patch.metadata.annotations["seen"] = "created"
    kopf.event(body, type="Normal", reason="Seen", message="the operator has seen it")

@kopf.on.update("apps", "v1", "deployments", labels={"watched": "yes"}, field="spec.replicas")
def updated(name, old, new, **_):
    print("updated", name, old, new, flush=True)

@kopf.on.delete("apps", "v1", "deployments", labels={"watched": "yes"})
def deleted(name, **_):
    print("deleted", name, flush=True)
"""


def test_handlers_finalizers_and_events(kubectl: Kubectl, kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(OPERATOR)
    log = tmp_path / "log"
    command = [sys.executable, "-m", "kopf", "run", "--namespace", kubectl.namespace, "--standalone", "handlers.py"]
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONWARNINGS": "ignore"}
    with log.open("w") as out, subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out) as operator:
        try:
            _play(kubectl, log)
        finally:
            operator.terminate()
            operator.wait(30)


def _play(kubectl: Kubectl, log: Path) -> None:
    def logged(line: str) -> None:
        until(lambda: line in log.read_text())

    web = deployment("web", 1)
    web["metadata"]["labels"]["watched"] = "yes"
    kubectl("apply", "-f", "-", stdin=[web])
    logged("created web")
    until(lambda: kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.annotations.seen}") == "created")
    assert "kopf.dev/test" in kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.finalizers}")
    until(lambda: "the operator has seen it" in kubectl("get", "events"))
    kubectl("scale", "deployment/web", "--replicas=2")
    logged("updated web 1 2")
    kubectl("delete", "deployment", "web", "--timeout=40s")
    logged("deleted web")
    assert "not found" in kubectl("get", "deployment", "web", fails=True)
    assert "Traceback" not in log.read_text()
