"""kubectl and the kinds around workloads: config maps, secrets, service accounts, elections; and bearer tokens."""

import base64
import json
from pathlib import Path

import pytest
import yaml

from tests.clients.conftest import TOKEN, Kubectl, pod, until

pytestmark = pytest.mark.clients

VALUE = "hunter2"
EMPTY = (
    "replicationcontrollers", "csidrivers", "csistoragecapacities", "volumeattachments", "resourceslices",
    "resourceclaims", "deviceclasses",
)  # fmt: skip


def test_config_maps(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "app.conf").write_text("level = info\n")
    kubectl("create", "configmap", "settings", "--from-literal=color=blue", f"--from-file={tmp_path}/app.conf")
    assert kubectl("get", "cm", "settings", "--no-headers").split()[:2] == ["settings", "2"]
    assert "level = info" in kubectl("describe", "cm", "settings")
    kubectl("patch", "cm", "settings", "-p", '{"immutable": true}')
    refused = kubectl("patch", "cm", "settings", "-p", '{"data": {"color": "red"}}', fails=True)
    assert "field is immutable when `immutable` is set" in refused
    kubectl("delete", "cm", "settings")


def test_secrets_do_not_show_their_values(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "login", f"--from-literal=password={VALUE}")
    assert kubectl("get", "secrets", "--no-headers").split()[:3] == ["login", "Opaque", "1"]
    assert kubectl.json("get", "secret", "login")["data"]["password"] == base64.b64encode(VALUE.encode()).decode()
    described = kubectl("describe", "secret", "login")
    assert "7 bytes" in described and VALUE not in described
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "more"}, "stringData": {"a": VALUE}}
    assert "created" in kubectl("apply", "-f", "-", stdin=[manifest])
    assert list(kubectl.json("get", "secret", "more")["data"]) == ["a"]
    refused = kubectl("create", "secret", "tls", "cert", "--cert=/dev/null", "--key=/dev/null", fails=True)
    assert "tls" in refused


def test_service_accounts(kubectl: Kubectl) -> None:
    assert "created" in kubectl("create", "serviceaccount", "builder")
    assert kubectl("get", "sa", "--no-headers").split()[0] == "builder"


def test_viewers_cannot_read_secrets(kubectl: Kubectl) -> None:
    kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--user=vera")
    kubectl("create", "rolebinding", "editors", "--clusterrole=edit", "--user=eve")
    until(lambda: kubectl.run("auth", "can-i", "get", "configmaps", "--as=vera").code == 0)
    assert "Forbidden" in kubectl("get", "secrets", "--as=vera", fails=True)
    until(lambda: kubectl.run("auth", "can-i", "get", "secrets", "--as=eve").code == 0)


def test_bearer_token_names_the_user(program: str, kubeconfig: Path, tmp_path: Path) -> None:
    config = yaml.safe_load(kubeconfig.read_text())

    def as_token(token: str) -> Kubectl:
        folder = tmp_path / "a" / token
        folder.mkdir(parents=True)
        config["users"] = [{"name": item["name"], "user": {"token": token}} for item in config["users"]]
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        return Kubectl(program, folder / "kubeconfig", "default")

    result = json.loads(as_token(TOKEN)("auth", "whoami", "-o", "json"))
    assert result["status"]["userInfo"] == {"username": "tess", "groups": ["system:authenticated"]}
    for token in (TOKEN[:-1], f"{TOKEN}x"):
        assert "You must be logged in to the server" in as_token(token)("get", "pods", fails=True)


@pytest.mark.parametrize("plural", EMPTY)
def test_empty_kinds_are_known(kubectl: Kubectl, plural: str) -> None:
    assert "No resources found" in kubectl.run("get", plural, "-A").err
    assert "NotFound" in kubectl("get", plural, "x", fails=True)


def test_elections(kubectl: Kubectl) -> None:
    result = kubectl("get", "elections").splitlines()
    assert result[0].split()[:4] == ["NAME", "HOLDER", "TOKEN", "AGE"]
    assert {line.split()[0] for line in result[1:]} >= {"scheduler", "controllers"}
    status = kubectl.json("get", "election", "scheduler")["status"]
    assert status["terms"][-1]["token"] == status["token"]
    raw = json.loads(kubectl("get", "--raw", "/apis/pinnace.io/v1/elections"))
    assert raw["kind"] == "ElectionList"
    watched = kubectl("get", "elections", "-w", "--no-headers", "--request-timeout=3s")
    assert sorted(line.split()[0] for line in watched.splitlines()) == sorted(item["metadata"]["name"] for item in raw["items"])


def test_why(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[pod("big", nodeSelector={"disk": "none"})])
    result = json.loads(kubectl("get", "--raw", f"/apis/pinnace.io/v1/namespaces/{kubectl.namespace}/pods/big/why"))
    assert (result["kind"], result["nodes"], result["feasible"]) == ("Why", 4, 0)
    assert result["refusals"][0]["plugin"] == "NodeAffinity"
