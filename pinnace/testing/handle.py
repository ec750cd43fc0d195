"""A running cluster, as a test uses it. Standard library only: it is imported into the process of pytest.

`request` calls the Kubernetes API as an administrator. `apply` needs PyYAML only for files.
"""

import json
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

T = TypeVar("T")
TIMEOUT = 30.0
"""Seconds for a request, and for a condition."""
POLL = 0.02
FIELD_MANAGER = "pinnace-testing"
FLEET, FLEET_LABEL = "kubelet-0", "pinnace.io/fleet"
FIRST_KINDS = ("CustomResourceDefinition", "Namespace")
"""Kinds that are applied before others."""
JSON, APPLY = "application/json", "application/apply-patch+yaml"


def wait_until(condition: Callable[[], T], timeout: float, poll: float) -> T | None:
    """Return the first true value of `condition`; None if there is none within `timeout`. `poll`: seconds between two calls."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            return None
        time.sleep(poll)
    return value


class KubernetesError(Exception):
    """The API server has refused a request. `code`: the HTTP status; `reason`: such as NotFound; `status`: the object."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        super().__init__(status.get("message", ""))
        self.status = status
        self.code = int(status.get("code") or 0)
        self.reason = str(status.get("reason", ""))


@dataclass(frozen=True)
class PinnaceCluster:
    """A cluster. `kubeconfig`: a file for clients; `server`: its URL; `data_dir`: for `pinnace status --data-dir` and others;
    `processes`: the pid of each process, by name."""

    kubeconfig: Path
    server: str
    ca: Path
    cert: Path
    key: Path
    data_dir: Path
    logs: Path
    processes: Mapping[str, int]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> "PinnaceCluster":
        """The cluster that a server describes (pinnace.testing.server)."""
        paths = {name: Path(answer[name]) for name in ("kubeconfig", "ca", "cert", "key", "data_dir", "logs")}
        return cls(server=answer["server"], processes=answer["processes"], **paths)

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = JSON, **query: Any) -> Any:
        """Call the API: `request("GET", "/api/v1/pods", labelSelector="app=web")`. Return the object. Raises KubernetesError,
        and OSError if there is no answer in time."""
        host = urlsplit(self.server)
        connection = HTTPSConnection(host.hostname or "", host.port, timeout=TIMEOUT, context=self._create_tls_context())
        try:
            connection.request(
                method,
                f"{path}?{urlencode(query)}" if query else path,
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": content_type, "Accept": JSON},
            )
            answer = connection.getresponse()
            text = answer.read()
        except HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == JSON
        result = json.loads(text) if is_json and text else text.decode(errors="replace")
        if answer.status >= 400:
            raise KubernetesError(result if isinstance(result, dict) else {"code": answer.status, "message": result})
        return result

    def apply(self, *manifests: Mapping[str, Any] | str | Path, namespace: str = "default") -> list[Any]:
        """Apply objects, or those of YAML files and folders, as `kubectl apply --server-side`. Return them. CRDs come first,
        and are established when this returns. `namespace`: of objects that do not name one. Raises KubernetesError, OSError,
        and ValueError for a manifest that cannot be read."""
        objects = [thing for manifest in manifests for thing in load_manifests(manifest)]
        objects.sort(key=lambda thing: thing["kind"] not in FIRST_KINDS)
        return [self._apply(thing, namespace) for thing in objects]

    def create_namespace(self, name: str) -> None:
        """Create a namespace, and return when pods can be created in it. Raises KubernetesError."""
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.wait_for_account(name)

    def wait_for_account(self, namespace: str) -> None:
        """Return when the namespace has its ServiceAccount `default`, without which no pod can be created."""

        def has_account() -> bool:
            try:
                return bool(self.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
            except KubernetesError as error:
                if error.code != 404:
                    raise
                return False

        self.wait(has_account, f"the namespace {namespace} has its account")

    def add_nodes(self, count: int = 1, **fields: Any) -> list[str]:
        """Add virtual nodes, and return their names when they are Ready. `fields`: of the Node, such as `metadata` with labels,
        or `spec` with taints."""
        metadata = {"generateName": "node-", **fields.pop("metadata", {})}
        metadata["labels"] = {**metadata.get("labels", {}), FLEET_LABEL: FLEET}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, **fields}
        names = [self.request("POST", "/api/v1/nodes", node)["metadata"]["name"] for _ in range(count)]
        for path in [f"/api/v1/nodes/{name}" for name in names]:
            self.wait(partial(self._has_condition, path, "Ready"), f"{path} is Ready")
        return names

    def wait(self, condition: Callable[[], T], what: str = "the condition", timeout: float = TIMEOUT) -> T:
        """Return the first true value of `condition`. Raises TimeoutError."""
        value = wait_until(condition, timeout, POLL)
        if value is None:
            raise TimeoutError(f"not after {timeout:g} s: {what}")
        return value

    def log(self, process: str) -> str:
        """The log of a process, such as `controllers-0`."""
        return (self.logs / f"{process}.log").read_text(errors="replace")

    def _apply(self, thing: Mapping[str, Any], namespace: str) -> Any:
        path = f"{self._resource_path(thing, namespace)}/{thing['metadata']['name']}"
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        result = self.request("PATCH", path, thing, content_type=APPLY, **query)
        if thing["kind"] == FIRST_KINDS[0]:
            self.wait(partial(self._has_condition, path, "Established"), f"{path} is Established")
        return result

    def _has_condition(self, path: str, kind: str) -> bool:
        return has_condition(self.request("GET", path), kind)

    def _resource_path(self, thing: Mapping[str, Any], namespace: str) -> str:
        """The path of the collection of an object. Raises ValueError for an unknown kind. A kind whose CRD was just created
        appears in discovery soon."""
        version, kind = thing["apiVersion"], thing["kind"]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"

        def find_resource() -> Mapping[str, Any] | None:
            try:
                resources = self.request("GET", group)["resources"]
            except KubernetesError as error:
                if error.code != 404:
                    raise
                return None
            return next((entry for entry in resources if entry["kind"] == kind and "/" not in entry["name"]), None)

        try:
            resource = self.wait(find_resource, f"{version} has {kind}", timeout=2.0)
        except TimeoutError:
            raise ValueError(f'the cluster has no kind "{kind}" in {version}: apply its CRD first') from None
        assert resource is not None
        scope = f"/namespaces/{thing['metadata'].get('namespace', namespace)}" if resource["namespaced"] else ""
        return f"{group}{scope}/{resource['name']}"

    def _create_tls_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


def has_condition(thing: Mapping[str, Any], kind: str) -> bool:
    """Return whether the status of an object has this condition, and it is True."""
    conditions: Iterable[Mapping[str, Any]] = thing.get("status", {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def load_manifests(manifest: Mapping[str, Any] | str | os.PathLike[str]) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a manifest: an object, the path of a YAML file, or of a folder of them. Raises OSError and
    ValueError."""
    if isinstance(manifest, Mapping):
        return [manifest]
    path = Path(manifest)
    if path.is_dir():
        files = sorted(file for ending in ("*.yaml", "*.yml", "*.json") for file in path.glob(ending))
        return [thing for file in files for thing in load_manifests(file)]
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from error
    objects: list[Any] = []
    for document in documents:
        is_list = isinstance(document, Mapping) and isinstance(document.get("items"), list)
        objects += document["items"] if is_list else [document]
    for thing in objects:
        if not isinstance(thing, Mapping) or not {"apiVersion", "kind", "metadata"} <= thing.keys():
            raise ValueError(f"{path}: not an object of Kubernetes: apiVersion, kind and metadata are required")
    return objects
