"""A client of any Kubernetes API server. `kubectl proxy` connects to it, so that every kubeconfig works that kubectl accepts:
certificates, tokens, plugins for credentials.

    ClusterApi --HTTP over a socket in a folder of this user--> kubectl proxy --HTTPS--> API server

A refusal of the API server is an ApiError. A failure of the connection is ApiUnavailable. Each request has a deadline.
"""

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

Object = dict[str, Any]
"""An API object as JSON."""
START_TIMEOUT, REQUEST_TIMEOUT = 20.0, 60.0
"""Seconds until kubectl listens, and for one request."""
PAGE = 500
POLL = 0.02
GONE = 410
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class ApiUnavailable(Exception):
    """The API server cannot be reached. The message says why."""


class ApiError(Exception):
    """The API server has refused a request. `code`: the HTTP status; `reason`: such as AlreadyExists."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that the API server serves. `resource` is its plural name in lower case."""

    version: str
    """apiVersion: "v1", or "apps/v1"."""
    resource: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]
    names: frozenset[str] = frozenset()
    """The singular and short names."""
    subresources: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """Such as "pods", or "deployments.apps"."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection in a namespace, or of an object."""
        prefix = f"/apis/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        tail = "".join(f"/{quote(part, safe=':')}" for part in (name, subresource) if part)
        return f"{prefix}{scope}/{self.resource}{tail}"

    def is_named(self, text: str) -> bool:
        """Return whether kubectl would accept the text for this kind: pods, pod, po, deployments.apps, Deployment."""
        name, _, group = text.lower().partition(".")
        if group and group not in (self.group, f"{self.version.rpartition('/')[2]}.{self.group}"):
            return False
        return name in (self.resource, self.kind.lower(), *self.names)


class _SocketConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=REQUEST_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REQUEST_TIMEOUT)
        self.sock.connect(self._path)


Send = Callable[[str, str, bytes | None, str], tuple[int, bytes]]
"""(method, path with query, body, content type) -> (status, body). Raises ApiUnavailable."""


class ClusterApi:
    """One API server. Not for several threads."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def request(
        self, method: str, path: str, body: Object | None = None, *, merge: bool = False, query: Mapping[str, str] | None = None
    ) -> Object:
        """Send a request, and return the object of the answer. Raises ApiError and ApiUnavailable."""
        data = None if body is None else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        status, content = self._send(method, target, data, _MERGE if merge else _JSON)
        try:
            answer = json.loads(content) if content else {}
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = content.decode(errors="replace").strip()
            raise ApiUnavailable(f"{method} {path}: {text[:300] or f'status {status}'}")
        if status >= 400:
            raise ApiError(status, str(answer.get("reason", "")), str(answer.get("message") or f"status {status}"))
        return answer

    def discover_kinds(self) -> list[Kind]:
        """Return each kind once, in its preferred version. Groups whose server does not answer are omitted."""
        kinds = {kind.full_name: kind for kind in self._kinds_of("v1")}
        for group in self.request("GET", "/apis").get("groups", []):
            preferred = group["preferredVersion"]["groupVersion"]
            for version in (preferred, *(item["groupVersion"] for item in group["versions"])):
                try:
                    served = self._kinds_of(version)
                except (ApiError, ApiUnavailable):
                    continue
                for kind in served:
                    kinds.setdefault(kind.full_name, kind)
        return list(kinds.values())

    def _kinds_of(self, version: str) -> list[Kind]:
        listed = self.request("GET", f"/apis/{version}" if "/" in version else f"/api/{version}").get("resources", [])
        parts: dict[str, set[str]] = {}
        for entry in listed:
            name, _, subresource = entry["name"].partition("/")
            parts.setdefault(name, set()).add(subresource)
        return [
            Kind(
                version,
                entry["name"],
                entry["kind"],
                bool(entry["namespaced"]),
                frozenset(entry.get("verbs") or ()),
                frozenset((entry.get("singularName") or entry["kind"].lower(), *(entry.get("shortNames") or ()))),
                frozenset(parts[entry["name"]] - {""}),
            )
            for entry in listed
            if "/" not in entry["name"]
        ]

    def list_objects(self, kind: Kind, namespace: str = "", selector: str = "") -> Iterator[Object]:
        """Yield the objects of a kind, with apiVersion and kind, in pages. If a page expires, the list is read again at once,
        and objects that were already read are omitted."""
        query = {"labelSelector": selector} if selector else {}
        path, seen, proceed = kind.path(namespace), set[str](), {"limit": f"{PAGE}"}
        while proceed:
            try:
                page = self.request("GET", path, query=query | proceed)
            except ApiError as error:
                if error.code != GONE or "continue" not in proceed:
                    raise
                proceed = {"limit": "0"}
                continue
            for item in page.get("items") or []:
                uid = item["metadata"].get("uid", "")
                if uid not in seen or not uid:
                    seen.add(uid)
                    yield {"apiVersion": kind.version, "kind": kind.kind, **item}
            token = page.get("metadata", {}).get("continue", "")
            proceed = {"limit": f"{PAGE}", "continue": token} if token else {}


@contextmanager
def connect(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[ClusterApi]:
    """Run kubectl's proxy, and yield a client. `command`: kubectl with its flags and the verb `proxy`. Raises
    ApiUnavailable."""
    with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
        path = str(Path(folder) / "socket")
        with (Path(folder) / "stderr").open("w+b") as errors:
            process = subprocess.Popen(
                [*command, f"--unix-socket={path}"], env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
            try:
                _await_socket(process, path, Path(folder) / "stderr")
                connection = _SocketConnection(path)
                try:
                    yield ClusterApi(_sender(connection))
                finally:
                    connection.close()
            finally:
                process.kill()
                process.wait()


def _await_socket(process: "subprocess.Popen[bytes]", path: str, errors: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not Path(path).exists():
        if process.poll() is not None:
            lines = errors.read_text(errors="replace").strip().splitlines() or [f"kubectl exits with {process.returncode}"]
            raise ApiUnavailable(lines[-1].removeprefix("error: "))
        if time.monotonic() > deadline:
            raise ApiUnavailable(f"kubectl does not listen within {START_TIMEOUT:g} s")
        time.sleep(POLL)


def _sender(connection: HTTPConnection) -> Send:
    def send(method: str, path: str, body: bytes | None, content_type: str) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, {"Content-Type": content_type, "Accept": _JSON})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (HTTPException, OSError) as error:
            connection.close()
            raise ApiUnavailable(f"{method} {path.partition('?')[0]}: {str(error) or repr(error)}") from error

    return send
