"""Accounts of pods: tokens of kubectl, credentials of process pods, and an operator that runs as a pod."""

import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Kubectl, cluster, pod, until

pytestmark = pytest.mark.clients
BIN = Path(sys.executable).parent
CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"
OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.scanning.disabled = True

@kopf.on.create("", "v1", "configmaps", annotations={"greet": kopf.PRESENT})
def greet(name, patch, **_):
    patch.metadata.setdefault("annotations", {})["greeted"] = f"hello {name}"
"""
PYTHON_CLIENT = """
import kubernetes
kubernetes.config.load_incluster_config()
print(*(pod.metadata.name for pod in kubernetes.client.CoreV1Api().list_namespaced_pod("default").items))
"""


@pytest.fixture(scope="module")
def processes(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A cluster whose pods are processes, with the account `robot`, which may do everything in the namespace default."""
    with cluster(tmp_path_factory.mktemp("accounts"), "--nodes", "1", "--runtime", "process") as kubeconfig:
        kubectl = Kubectl(program, kubeconfig, "default")
        kubectl("create", "serviceaccount", "robot")
        kubectl("create", "rolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot")
        yield kubectl


def python_pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "python", "command": [sys.executable, "-c", script]}]
    return pod(name, containers=containers, serviceAccountName="robot", **spec)


def shell_pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    return pod(name, containers=[{"name": "main", "image": "busybox", "command": ["sh", "-c", script]}], **spec)


def output(kubectl: Kubectl, name: str) -> str:
    """The log of a pod that ends well."""
    until(lambda: kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}") in ("Succeeded", "Failed"))
    log = kubectl("logs", name)
    assert kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}") == "Succeeded", log
    return log


def who_am_i(kubectl: Kubectl, token: str) -> tuple[int, Any]:
    """The status of a SelfSubjectReview with a token, and its user."""
    server = kubectl("config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.server}")
    request = urllib.request.Request(
        f"{server}/apis/authentication.k8s.io/v1/selfsubjectreviews",
        b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=kubectl.kubeconfig.parent / "pki/ca.crt")
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            return answer.status, json.load(answer)["status"]["userInfo"]
    except urllib.error.HTTPError as error:
        return error.code, None


def test_new_namespace_has_an_account_and_the_root_ca(kubectl: Kubectl) -> None:
    until(lambda: "default" in kubectl("get", "serviceaccounts", "-o", "name"))
    until(lambda: "kube-root-ca.crt" in kubectl("get", "configmaps", "-o", "name"))
    kubectl("delete", "serviceaccount/default", "configmap/kube-root-ca.crt")
    until(lambda: kubectl("get", "serviceaccounts,configmaps", "-o", "name").count("/") == 2)


def test_pod_of_a_new_namespace_waits_for_its_account(kubectl: Kubectl) -> None:
    kubectl("run", "a", "--image=nginx")
    assert kubectl("get", "pod", "a", "-o", "jsonpath={.spec.serviceAccountName}") == "default"
    refused = kubectl("run", "b", "--image=nginx", '--overrides={"spec": {"serviceAccountName": "ghost"}}', fails=True)
    assert "error looking up service account" in refused and 'serviceaccount "ghost" not found' in refused


def test_token_of_an_account_authenticates_its_user(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "bot")
    code, user = who_am_i(kubectl, kubectl("create", "token", "bot", "--duration=10m"))
    name = f"system:serviceaccount:{kubectl.namespace}:bot"
    assert (code, user["username"]) == (200, name) or (code, user["username"]) == (201, name)
    assert "system:serviceaccounts" in user["groups"] and user["uid"]
    assert user["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")
    assert "may not specify a duration less than 10 minutes" in kubectl("create", "token", "bot", "--duration=1m", fails=True)
    assert who_am_i(kubectl, kubectl("create", "token", "bot", "--audience=vault"))[0] == 401


def test_token_ends_with_its_pod(kubectl: Kubectl) -> None:
    kubectl("run", "a", "--image=nginx")
    token = kubectl("create", "token", "default", "--bound-object-kind=Pod", "--bound-object-name=a")
    code, user = who_am_i(kubectl, token)
    assert code == 201 and user["extra"]["authentication.kubernetes.io/pod-name"] == ["a"]
    kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    until(lambda: who_am_i(kubectl, token)[0] == 401, timeout=20)


def test_clients_in_a_pod_need_no_configuration(processes: Kubectl) -> None:
    who = f"{BIN}/kubectl auth whoami -o jsonpath={{.status.userInfo.username}}"
    script = f"cat {CREDENTIALS}/namespace; echo; unset KUBECONFIG; exec {who}"
    processes("apply", "-f", "-", stdin=[shell_pod("kubectl", script, serviceAccountName="robot", restartPolicy="Never")])
    assert output(processes, "kubectl").splitlines() == ["default", "system:serviceaccount:default:robot"]
    processes("apply", "-f", "-", stdin=[python_pod("client", PYTHON_CLIENT, restartPolicy="Never")])
    assert "client" in output(processes, "client").split()


def test_pod_can_do_without_credentials(processes: Kubectl) -> None:
    script = f"ls {CREDENTIALS} 2>/dev/null || echo none"
    processes("apply", "-f", "-", stdin=[shell_pod("bare", script, automountServiceAccountToken=False, restartPolicy="Never")])
    assert output(processes, "bare").endswith("none\n")


def test_operator_runs_as_a_pod(processes: Kubectl) -> None:
    pytest.importorskip("kopf", reason="pip install '.[clients]'")
    script = (
        f"cat > $TMPDIR/operator.py <<'EOF'\n{OPERATOR}\nEOF\nexec {BIN}/kopf run --standalone -n default $TMPDIR/operator.py"
    )
    processes("apply", "-f", "-", stdin=[shell_pod("operator", script, serviceAccountName="robot")])
    until(lambda: "Initial authentication has finished" in processes.run("logs", "operator").out)
    processes("create", "configmap", "world")
    processes("annotate", "configmap", "world", "greet=yes")
    until(lambda: processes("get", "configmap", "world", "-o", "jsonpath={.metadata.annotations.greeted}") == "hello world")
    assert "Traceback" not in processes("logs", "operator")
