"""kubectl, daemon sets and cron jobs."""

from typing import Any

import pytest

from tests.clients.conftest import Kubectl, until

pytestmark = pytest.mark.clients

NODES = ["node-0", "node-1", "node-2", "node-3"]


def daemon_set(name: str = "agent", **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "agent:1"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template} | spec
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec}


def nodes_and_images(kubectl: Kubectl) -> list[tuple[str, str]]:
    pods = kubectl.json("get", "pods", "-l", "app=agent")["items"]
    return sorted((pod["spec"].get("nodeName", ""), pod["spec"]["containers"][0]["image"]) for pod in pods)


def test_daemon_set_rolls_out_and_back(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[daemon_set()])
    assert 'daemon set "agent" successfully rolled out' in kubectl("rollout", "status", "ds/agent", "--timeout=40s")
    assert nodes_and_images(kubectl) == [(node, "agent:1") for node in NODES]
    assert kubectl("get", "ds", "agent", "--no-headers").split()[1:7] == ["4", "4", "4", "4", "4", "<none>"]
    kubectl("set", "image", "ds/agent", "main=agent:2")
    kubectl("rollout", "status", "ds/agent", "--timeout=40s")
    assert nodes_and_images(kubectl) == [(node, "agent:2") for node in NODES]
    history = kubectl("rollout", "history", "ds/agent")
    assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
    kubectl("rollout", "undo", "ds/agent")
    kubectl("rollout", "status", "ds/agent", "--timeout=40s")
    assert nodes_and_images(kubectl) == [(node, "agent:1") for node in NODES]
    revisions = kubectl.json("get", "controllerrevisions")["items"]
    assert sorted(revision["revision"] for revision in revisions) == [2, 3]
    assert "SuccessfulCreate" in kubectl("describe", "ds", "agent")


def test_daemon_pods_stay_on_cordoned_nodes_and_go_with_their_set(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=[daemon_set()])
    kubectl("rollout", "status", "ds/agent", "--timeout=40s")
    assert "cannot delete DaemonSet-managed Pods" in kubectl("drain", "node-3", "--timeout=20s", fails=True)
    kubectl("drain", "node-3", "--ignore-daemonsets", "--timeout=20s", "--pod-selector=app=agent")
    kubectl("delete", "pods", "-l", "app=agent", "--field-selector=spec.nodeName=node-3")
    until(lambda: nodes_and_images(kubectl) == [(node, "agent:1") for node in NODES])
    kubectl("uncordon", "node-3")
    kubectl("delete", "ds", "agent")
    until(lambda: not kubectl.json("get", "pods,controllerrevisions")["items"])


def test_cron_job_starts_jobs(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "tick", "--image=busybox", "--schedule=@every 1s", "--", "true")
    job = until(lambda: kubectl.json("get", "jobs")["items"])[0]
    assert job["metadata"]["name"].startswith("tick-") and job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    kubectl("patch", "cj", "tick", "-p", '{"spec": {"suspend": true}}')
    assert kubectl("get", "cj", "tick", "--no-headers").split()[1:6] == ["@every", "1s", "<none>", "True", "1"]
    kubectl("create", "job", "by-hand", "--from=cronjob/tick")
    assert kubectl.json("get", "job", "by-hand")["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] == "manual"
    assert "SuccessfulCreate" in kubectl("describe", "cj", "tick")
    refused = kubectl("create", "cronjob", "x", "--image=busybox", "--schedule=61 * * * *", fails=True)
    assert 'spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61' in refused
    kubectl("delete", "cj", "tick")
    until(lambda: not kubectl.json("get", "jobs")["items"])
