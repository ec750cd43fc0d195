"""An operator with webhooks, as kubebuilder makes them: a Backup copies a ConfigMap, in two versions of its API.

* a mutating webhook sets `keep`, a validating one refuses to reduce it, a conversion webhook converts v1 and v2
* the controller creates a copy with an owner reference, reports it in the status, and cleans up before a Backup is deleted

It acts as a service account, by its token.
"""

import base64
import copy
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kubernetes import client

GROUP, PLURAL, FINALIZER = "example.com", "backups", "example.com/clean-up"


def set_defaults(request: dict[str, Any]) -> dict[str, Any]:
    if "keep" in request["object"]["spec"]:
        return {"allowed": True}
    patch = base64.b64encode(json.dumps([{"op": "add", "path": "/spec/keep", "value": 3}]).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def validate(request: dict[str, Any]) -> dict[str, Any]:
    before, after = (request.get("oldObject") or {}).get("spec", {}), request["object"]["spec"]
    if after["keep"] < before.get("keep", 0):
        return {"allowed": False, "status": {"code": 403, "message": "spec.keep must not be reduced"}}
    return {"allowed": True, "warnings": ["spec.keep above 10 is expensive"] if after["keep"] > 10 else []}


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """v1 has `spec.configMap`, v2 has `spec.source.configMap`."""
    objects = copy.deepcopy(request["objects"])
    for form in objects:
        form["apiVersion"], spec = request["desiredAPIVersion"], form["spec"]
        if form["apiVersion"] == f"{GROUP}/v2":
            spec["source"] = {"configMap": spec.pop("configMap")}
        else:
            spec["configMap"] = spec.pop("source")["configMap"]
    return {"result": {"status": "Success"}, "convertedObjects": objects}


class Webhooks(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review.pop("request")
        handle = {"/default": set_defaults, "/validate": validate, "/convert": convert}[self.path.partition("?")[0]]
        body = json.dumps(review | {"response": {"uid": request["uid"]} | handle(request)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def serve_webhooks(certificate: Path, key: Path) -> ThreadingHTTPServer:
    """Return a server that listens at `server_port` of 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Webhooks)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def reconcile(api: client.ApiClient, namespace: str, name: str) -> None:
    """Bring the copy of a Backup up to date."""
    backups, core = client.CustomObjectsApi(api), client.CoreV1Api(api)
    place = (GROUP, "v2", namespace, PLURAL, name)
    backup = backups.get_namespaced_custom_object(*place)
    metadata, finalizers = backup["metadata"], backup["metadata"].get("finalizers", [])
    if "deletionTimestamp" in metadata:
        if FINALIZER in finalizers:
            core.delete_collection_namespaced_config_map(namespace, label_selector=f"pins={name}")
            backups.patch_namespaced_custom_object(*place, {"metadata": {"finalizers": None}})
        return
    if FINALIZER not in finalizers:
        backups.patch_namespaced_custom_object(*place, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
    source = core.read_namespaced_config_map(backup["spec"]["source"]["configMap"], namespace)
    owner = client.V1OwnerReference(
        api_version=backup["apiVersion"], kind="Backup", name=name, uid=metadata["uid"], controller=True
    )
    copied = client.V1ObjectMeta(name=f"{name}-copy", owner_references=[owner])
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=copied, data=source.data))
    pinned = client.V1ObjectMeta(name=f"{name}-pin", labels={"pins": name})
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=pinned))
    status = {"copy": copied.name, "observedGeneration": metadata["generation"]}
    backups.patch_namespaced_custom_object_status(*place, {"status": status})
