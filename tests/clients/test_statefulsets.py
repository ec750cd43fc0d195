"""kubectl and stateful sets: a set of three is rolled out, updated, rolled back and scaled."""

from typing import Any

import pytest

from tests.clients.conftest import Kubectl, until

pytestmark = pytest.mark.clients


def stateful_set(name: str, replicas: int, image: str = "nginx:1", **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": image, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
            **spec,
        },
    }


def volume_class(name: str, namespace: str) -> list[dict[str, Any]]:
    """A class with volumes for three pods."""
    of_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return [
        {**of_class, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
        *(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{namespace}-{number}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": name,
                    "hostPath": {"path": f"/data/{number}"},
                },
            }
            for number in range(4)
        ),
    ]


def images(kubectl: Kubectl) -> set[str]:
    pods = kubectl.json("get", "pods", "-l", "app=web")["items"]
    return {pod["spec"]["containers"][0]["image"] for pod in pods}


def test_rollout_of_stateful_set(kubectl: Kubectl) -> None:
    web = stateful_set("web", 3)
    web["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = kubectl.namespace
    kubectl("apply", "-f", "-", stdin=volume_class(kubectl.namespace, kubectl.namespace))
    assert "statefulset.apps/web created" in kubectl("apply", "-f", "-", stdin=[web])
    until(lambda: kubectl("get", "sts", "web", "--no-headers").split()[1] == "3/3")
    assert kubectl("get", "pods", "-l", "app=web", "-o", "name").split() == [f"pod/web-{number}" for number in range(3)]
    pod = kubectl.json("get", "pod", "web-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-1", "web")
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    claims = kubectl.json("get", "pvc")["items"]
    assert [claim["metadata"]["name"] for claim in claims] == [f"data-web-{number}" for number in range(3)]
    assert all(claim["spec"]["volumeName"] for claim in claims)
    described = kubectl("describe", "sts", "web")
    assert "create Pod web-0 in StatefulSet web successful" in described and "Volume Claims:" in described

    kubectl("set", "image", "sts/web", "main=nginx:2")
    assert "roll out complete: 3 new pods have been updated" in kubectl("rollout", "status", "sts/web", "--timeout=60s")
    assert images(kubectl) == {"nginx:2"}
    history = kubectl("rollout", "history", "sts/web").strip().splitlines()
    assert [line.split()[0] for line in history[2:]] == ["1", "2"]
    assert "nginx:1" in kubectl("rollout", "history", "sts/web", "--revision=1")
    assert "statefulset.apps/web rolled back" in kubectl("rollout", "undo", "sts/web")
    kubectl("rollout", "status", "sts/web", "--timeout=60s")
    assert images(kubectl) == {"nginx:1"}
    history = kubectl("rollout", "history", "sts/web").strip().splitlines()
    assert [line.split()[0] for line in history[2:]] == ["2", "3"]
    assert "statefulset.apps/web restarted" in kubectl("rollout", "restart", "sts/web")
    kubectl("rollout", "status", "sts/web", "--timeout=60s")
    assert len(kubectl("get", "controllerrevisions", "--no-headers").splitlines()) == 3

    assert "statefulset.apps/web scaled" in kubectl("scale", "sts/web", "--replicas=1")
    until(lambda: kubectl("get", "pods", "-l", "app=web", "-o", "name").split() == ["pod/web-0"])
    assert len(kubectl("get", "pvc", "--no-headers").splitlines()) == 3, "claims are retained"
    refused = kubectl("patch", "sts", "web", "-p", '{"spec": {"serviceName": "other"}}', fails=True)
    assert "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template'" in refused
    assert "OrderedReady" in kubectl("explain", "statefulset.spec.podManagementPolicy")
    assert "accessModes" in kubectl("explain", "statefulset.spec.volumeClaimTemplates.spec")
    kubectl("delete", "sts", "web")
    until(lambda: not kubectl("get", "pods", "-l", "app=web", "-o", "name"))
