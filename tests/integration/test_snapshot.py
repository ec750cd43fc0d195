"""A namespace is saved, deleted and restored on a running cluster: its controllers adopt what was there, and create nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.stories, pytest.mark.timeout(240)]
MANIFESTS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: done}
spec:
  template:
    metadata: {annotations: {pinnace.io/run-seconds: "0.1"}}
    spec: {restartPolicy: Never, containers: [{name: a, image: x, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: runs}
spec:
  parallelism: 2
  template:
    metadata: {annotations: {pinnace.io/run-seconds: "3000"}}
    spec: {restartPolicy: Never, containers: [{name: a, image: x}]}
"""


def run(folder: Path, *arguments: str, code: int = 0, text: str = "") -> str:
    environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pinnace.cli.entry", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False, input=text, cwd=folder
    )
    assert done.returncode == code, (arguments, done)
    return done.stdout + done.stderr


def read_owners(folder: Path) -> dict[str, tuple[str, str]]:
    """Return (UID, UID of the owner) of pods, replica sets, deployments and jobs."""
    items: list[Any] = json.loads(run(folder, "-n", "team", "get", "pods,rs,deploy,job", "-o", "json"))["items"]
    return {
        f"{item['kind']}/{item['metadata']['name']}": (
            item["metadata"]["uid"], *(owner["uid"] for owner in item["metadata"].get("ownerReferences", [{"uid": ""}]))
        )
        for item in items
    }  # fmt: skip


def test_restored_namespace_has_its_pods_again(tmp_path: Path) -> None:
    cluster = str(tmp_path / "cluster")
    try:
        run(tmp_path, "up", "--detach", "--nodes", "3", "--schedulers", "1", "--controllers", "1", "--data-dir", cluster)
        run(tmp_path, "create", "namespace", "team")
        run(tmp_path, "-n", "team", "apply", "-f", "-", text=MANIFESTS)
        run(tmp_path, "-n", "team", "create", "deployment", "web", "--image=nginx", "--replicas=3")
        widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n"
        run(tmp_path, "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=30s")
        run(tmp_path, "-n", "team", "apply", "-f", "-", text=widget)
        run(tmp_path, "-n", "team", "rollout", "status", "deployment/web", "--timeout=60s")
        run(tmp_path, "-n", "team", "wait", "--for=condition=complete", "job/done", "--timeout=60s")
        run(tmp_path, "-n", "team", "wait", "--for=condition=Ready", "pods", "-l", "job-name=runs", "--timeout=60s")
        before = read_owners(tmp_path)
        run(tmp_path, "snapshot", "save", "all.json")
        run(tmp_path, "snapshot", "save", "team.yaml", "-n", "team")
        assert "already exist" in run(tmp_path, "snapshot", "restore", "team.yaml", code=4)

        run(tmp_path, "delete", "namespace", "team", "--timeout=60s")
        run(tmp_path, "delete", "crd", "widgets.example.com", "--timeout=60s")
        assert "Widget in example.com" in run(tmp_path, "snapshot", "restore", "team.yaml", code=5)
        run(tmp_path, "snapshot", "restore", "all.json", "--existing", "skip")
        run(tmp_path, "-n", "team", "rollout", "status", "deployment/web", "--timeout=60s")
        after = read_owners(tmp_path)
        assert after.keys() == before.keys(), "the same pods, and no others"
        uids = {uid for uid, *_ in after.values()}
        assert not uids & {uid for uid, *_ in before.values()}
        assert all(owner in uids for _, *owners in after.values() for owner in owners if owner)
        assert run(tmp_path, "-n", "team", "get", "widget", "w", "-o", "jsonpath={.spec.size}") == "3"

        run(tmp_path, "study", "import", "-o", "study", "--seed", "x")
        assert "team" not in (tmp_path / "study" / "cluster.json").read_text()
        assert "imported" in run(tmp_path, "study", "run", "study/study.yaml", "--seed", "1")
    finally:
        run(tmp_path, "down", "--data-dir", cluster)
