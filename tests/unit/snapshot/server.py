"""A Kubernetes API in memory, as far as a snapshot uses it: discovery, lists in pages, create, replace and merge patches."""

import json
from collections import Counter
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pinnace.api.merge import merge_json
from pinnace.snapshot.api import ClusterApi

CORE = (
    ("namespaces", "Namespace", False),
    ("nodes", "Node", False),
    ("pods", "Pod", True),
    ("events", "Event", True),
    ("configmaps", "ConfigMap", True),
    ("serviceaccounts", "ServiceAccount", True),
    ("services", "Service", True),
)
APPS = (("deployments", "Deployment", True), ("replicasets", "ReplicaSet", True))
BATCH = (("jobs", "Job", True),)
GROUPS: dict[str, Any] = {"v1": CORE, "apps/v1": APPS, "batch/v1": BATCH}


class FakeServer:
    """`refuse`: answers by (method, path) that are given instead, once for each entry."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        """By path."""
        self.refuse: dict[tuple[str, str], list[tuple[int, str]]] = {}
        self.requests = Counter[str]()
        self.created: list[str] = []
        self._numbers = count(1)
        self.api = ClusterApi(self.send)
        for name in ("default", "kube-system"):
            self.put("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def put(self, collection: str, thing: dict[str, Any]) -> dict[str, Any]:
        metadata = thing.setdefault("metadata", {})
        metadata.setdefault("uid", f"new-{next(self._numbers)}")
        self.objects[f"{collection}/{metadata['name']}"] = thing
        if thing["kind"] == "Namespace":
            account = {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": metadata["name"]},
            }
            self.put(f"/api/v1/namespaces/{metadata['name']}/serviceaccounts", account)
        return thing

    def send(self, method: str, target: str, body: bytes | None, content_type: str) -> tuple[int, bytes]:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.requests[method] += 1
        if refused := self.refuse.get((method, url.path)):
            code, reason = refused.pop(0)
            return _status(code, reason, f"refused: {reason}")
        code, answer = self._answer(method, url.path, query, json.loads(body) if body else None)
        return code, json.dumps(answer).encode() if code < 400 else _status(code, str(answer), str(answer))[1]

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path == "/apis":
            versions = [{"groupVersion": version} for version in GROUPS if "/" in version]
            return 200, {"groups": [{"versions": [item], "preferredVersion": item} for item in versions]}
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version in GROUPS:
            return 200, {"resources": [entry for row in GROUPS[version] for entry in _entries(*row)]}
        subresource = path.endswith("/status")
        path = path.removesuffix("/status")
        if method == "POST":
            if f"{path}/{body['metadata']['name']}" in self.objects:
                return 409, "AlreadyExists"
            self.created.append(f"{body['kind']}/{body['metadata']['name']}")
            return 201, self.put(path, body)
        if method == "GET" and path in self.objects:
            return 200, self.objects[path]
        if method == "GET":
            return self._list(path, query)
        if path not in self.objects:
            return 404, "NotFound"
        old = self.objects[path]
        if method == "PATCH":
            self.objects[path] = merge_json(old, {"status": body["status"]} if subresource else body)
        else:
            self.objects[path] = {**body, "metadata": {**body["metadata"], "uid": old["metadata"]["uid"]}}
        return 200, self.objects[path]

    def _list(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        prefix, _, resource = path.rpartition("/")
        everywhere = "/namespaces/" not in prefix
        found = [
            thing
            for key, thing in self.objects.items()
            if key.rpartition("/")[0].endswith(f"/{resource}")
            and key.startswith(prefix)
            and (everywhere or key.rpartition("/")[0] == path)
        ]
        if selector := query.get("labelSelector"):
            key, _, value = selector.partition("=")
            found = [thing for thing in found if (thing["metadata"].get("labels") or {}).get(key) == value]
        if not found and path.count("/") > 5:
            return 404, "NotFound"
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(found)
        proceed = {"continue": f"{start + limit}"} if start + limit < len(found) else {}
        items = [{key: value for key, value in thing.items() if key not in ("apiVersion", "kind")} for thing in found]
        return 200, {"metadata": proceed, "items": items[start : start + limit]}


def _entries(name: str, kind: str, namespaced: bool) -> list[dict[str, Any]]:
    verbs = ["list", "get"] if kind == "Event" else ["create", "list", "get"]
    return [
        {"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs, "singularName": kind.lower()},
        {"name": f"{name}/status", "kind": kind, "namespaced": namespaced, "verbs": ["get"]},
    ]


def _status(code: int, reason: str, message: str) -> tuple[int, bytes]:
    return code, json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()
