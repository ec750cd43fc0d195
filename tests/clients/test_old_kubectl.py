"""kubectl 1.20, as Debian 12 has it: it validates by OpenAPI v2 in protobuf, and reads no OpenAPI v3."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Kubectl, deployment, pod

pytestmark = pytest.mark.clients
NEWEST = 26
"""The last minor version that does not need OpenAPI v3."""
INSTALLED = Path("/usr/bin/kubectl")


def _minor(program: Path) -> int | None:
    if not program.exists():
        return None
    done = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, check=False, timeout=30)
    try:
        return int(json.loads(done.stdout)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError):
        return None


def _from_debian(folder: Path) -> Path | None:
    """kubectl of the package kubernetes-client, not installed."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    subprocess.run(["apt-get", "download", "kubernetes-client"], cwd=folder, capture_output=True, check=False, timeout=90)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], capture_output=True, check=False, timeout=60)
    return folder / "usr/bin/kubectl"


@pytest.fixture(scope="module")
def old_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    for program in (INSTALLED, _from_debian(tmp_path_factory.mktemp("debian"))):
        if program is not None and (minor := _minor(program)) is not None and minor <= NEWEST:
            return str(program)
    pytest.skip(f"there is no kubectl of version 1.{NEWEST} or older: apt-get install kubernetes-client")


@pytest.fixture
def old(old_program: str, kubeconfig: Path, namespace: str) -> Iterator[Kubectl]:
    yield Kubectl(old_program, kubeconfig, namespace)


def test_apply_and_rollout(old: Kubectl) -> None:
    assert "created" in old("apply", "-f", "-", stdin=[deployment("web", 2)])
    assert "unchanged" in old("apply", "-f", "-", stdin=[deployment("web", 2)])
    assert "configured" in old("apply", "-f", "-", stdin=[deployment("web", 3, image="nginx:2")])
    assert "successfully rolled out" in old("rollout", "status", "deployment/web", "--timeout=40s")
    assert old("get", "deployment", "web", "--no-headers").split()[1] == "3/3"
    assert "rolled back" in old("rollout", "undo", "deployment/web")
    assert "scaled" in old("scale", "deployment/web", "--replicas=1")
    assert "deleted" in old("delete", "deployment", "web")


def test_fields_are_validated_and_explained(old: Kubectl) -> None:
    web: dict[str, Any] = deployment("web", 1)
    web["spec"]["replcas"] = 2
    assert 'unknown field "replcas"' in old("apply", "-f", "-", stdin=[web], fails=True)
    web = deployment("web", 1)
    web["spec"]["replicas"] = "two"
    assert "invalid type for io.k8s.api.apps.v1.DeploymentSpec.replicas" in old("create", "-f", "-", stdin=[web], fails=True)
    assert "creationTimestamp\t<string>" in old("explain", "deployment", "--recursive")
    assert "limits" in old("explain", "pod.spec.containers.resources")


def test_pods(old: Kubectl) -> None:
    assert "created" in old("create", "-f", "-", stdin=[pod("a")])
    assert "condition met" in old("wait", "--for=condition=Ready", "pod/a", "--timeout=40s")
    assert old("get", "pods").split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "labeled" in old("label", "pod", "a", "x=y")
    assert "patched" in old("patch", "pod", "a", "-p", '{"metadata": {"labels": {"x": "z"}}}')
    assert "Successfully assigned" in old("describe", "pod", "a")
    assert "pods" in old("api-resources")
    assert old("auth", "can-i", "list", "pods").strip() == "yes"
    assert "exec over SPDY is not supported: use WebSockets" in old("exec", "a", "--", "true", fails=True)
    assert "container main of pod" in old("logs", "a")
    assert "deleted" in old("delete", "pod", "a", "--timeout=40s")
