"""A cluster is saved while it is written to, and restored beside itself under another machine name: every object is there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.stories, pytest.mark.timeout(240)]


def run(folder: Path, *arguments: str, before: tuple[str, ...] = ()) -> str:
    """Run a verb with the kubeconfig in this folder."""
    environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig"), "NO_COLOR": "1"}
    command = [*before, sys.executable, "-m", "pinnace.cli.entry", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def list_uids(folder: Path) -> dict[str, str]:
    items = json.loads(run(folder, "get", "deployments,pods,secrets,nodes", "-A", "-o", "json"))["items"]
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["uid"] for item in items}


def test_restored_cluster_has_every_object_under_another_machine_name(tmp_path: Path) -> None:
    saved, restored, file = tmp_path / "saved", tmp_path / "restored", tmp_path / "backup.tar.gz"
    other_host = ("unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh") if os.geteuid() == 0 else ()
    try:
        run(tmp_path, "up", "--detach", "--nodes", "3", "--etcd-members", "3", "--schedulers", "2", "--controllers", "1",
            "--data-dir", str(saved))  # fmt: skip
        run(tmp_path, "create", "deployment", "web", "--image=nginx", "--replicas=3")
        run(tmp_path, "create", "secret", "generic", "token", "--from-literal=a=b")
        run(tmp_path, "rollout", "status", "deployment/web", "--timeout=60s")
        before = list_uids(tmp_path)
        run(tmp_path, "backup", "--data-dir", str(saved), str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        run(tmp_path, "create", "deployment", "later", "--image=nginx")
        run(tmp_path, "kill", "--data-dir", str(saved), "etcd-0")

        run(tmp_path, "restore", "--data-dir", str(restored), str(file), before=other_host)
        run(tmp_path, "start", "--data-dir", str(restored), before=other_host)
        assert list_uids(restored) == before
        run(restored, "scale", "deployment/web", "--replicas=5")
        run(restored, "rollout", "status", "deployment/web", "--timeout=60s")
    finally:
        for folder in (restored, saved):
            run(tmp_path, "down", "--data-dir", str(folder))
