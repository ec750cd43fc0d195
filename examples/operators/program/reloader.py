"""A controller as a program: it restarts a Deployment when the ConfigMap that it names in the annotation `reload-with` changes.

KUBECONFIG=... python reloader.py

The tests know nothing of its language. A program that is written with controller-runtime reads KUBECONFIG, too.
"""

import hashlib
import json
import signal
import sys
from typing import Any

from kubernetes import client, config, watch

ANNOTATION, HASH = "reload-with", "config-hash"


def restart_deployments(configmap: Any) -> None:
    """Write the hash of the ConfigMap to the pod templates that use it. If it is another one, pods are replaced."""
    apps = client.AppsV1Api()
    digest = hashlib.sha256(json.dumps(configmap.data, sort_keys=True).encode()).hexdigest()[:16]
    for deployment in apps.list_namespaced_deployment(configmap.metadata.namespace).items:
        if (deployment.metadata.annotations or {}).get(ANNOTATION) == configmap.metadata.name:
            change = {"spec": {"template": {"metadata": {"annotations": {HASH: digest}}}}}
            apps.patch_namespaced_deployment(deployment.metadata.name, deployment.metadata.namespace, change)
            print("reloaded", deployment.metadata.name, flush=True)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config.load_kube_config()
    core = client.CoreV1Api()
    version = core.list_config_map_for_all_namespaces(limit=1).metadata.resource_version
    print("ready", flush=True)
    for event in watch.Watch().stream(core.list_config_map_for_all_namespaces, resource_version=version):
        if event["type"] in ("ADDED", "MODIFIED"):
            restart_deployments(event["object"])


if __name__ == "__main__":
    main()
