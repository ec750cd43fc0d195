"""An operator that is written with kopf: a Site becomes a Deployment, and its status says whether that is there.

kopf run --all-namespaces sites.py
"""

from typing import Any

import kopf
from kubernetes import client, config


@kopf.on.startup()
def connect(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.level = 30  # events for warnings only
    config.load_kube_config()


@kopf.on.create("example.com", "v1", "sites")
def create_deployment(name: str, namespace: str, spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
    labels = {"site": name}
    deployment = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": spec["image"]}]},
            },
        },
    }
    kopf.adopt(deployment)  # the Deployment is deleted with its Site
    client.AppsV1Api().create_namespaced_deployment(namespace, deployment)
    patch.status["phase"] = "Deployed"


@kopf.on.update("example.com", "v1", "sites", field="spec.replicas")
def scale_deployment(name: str, namespace: str, new: int, **_: Any) -> None:
    client.AppsV1Api().patch_namespaced_deployment_scale(name, namespace, {"spec": {"replicas": new}})
