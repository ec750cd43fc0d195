"""Discovery: the served groups, versions and resources in plain and aggregated form, and the version of the server.

Documents are made when they are first requested, and again after a change of a definition. The aggregated form has its own
media type and an ETag.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from pinnace.gateway.api_resources import ApiResource, Subresource
from pinnace.gateway.custom_resources import BUILT_IN, ServedResources, storage_version_hash
from pinnace.gateway.http import JSON, PageNotFound, Request, Response, dump_json
from pinnace.gateway.media_types import parse_accept

KUBERNETES_VERSION = "1.36"
"""The version of Kubernetes whose API is served."""
_AGGREGATED = "apidiscovery.k8s.io"
_AGGREGATED_VERSIONS = ("v2", "v2beta1")


def version_info(version: str) -> dict[str, str]:
    """Return the document of /version. `version`: the version of pinnace, for example "0.1.0+73b2091"."""
    major, minor = KUBERNETES_VERSION.split(".")
    release, _, commit = version.partition("+")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}.0+pinnace.{release}",
        "gitCommit": commit,
        "gitTreeState": "dirty" if commit.endswith("-dirty") else "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{platform.machine().lower()}",
    }


class Discovery:
    def __init__(self, served: ServedResources = BUILT_IN, address: str = "") -> None:
        """`address`: the external "host:port", for the legacy list of server addresses."""
        self._served = served
        self._state = -1
        self._core = dump_json(
            {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
            }
        )
        self._bodies: dict[str, bytes] = {}
        self._aggregated: dict[tuple[str, str], _DocumentWithEtag] = {}

    @property
    def paths(self) -> list[str]:
        paths = ["/api", "/apis"]
        for group, versions in self._served.versions_by_group().items():
            paths += [f"/apis/{group}"] if group else []
            paths += [_version_path(group, version) for version in versions]
        return sorted(paths)

    def respond(self, request: Request) -> Response:
        """Return the document of a path. Raises ApiStatus (404) if the path has no document."""
        if self._state != self._served.custom.version:  # documents are made at their first request after a change
            self._bodies.clear()
            self._aggregated.clear()
            self._state = self._served.custom.version
        path = request.path.rstrip("/")
        if path in ("/api", "/apis") and (version := _negotiate_aggregated_version(request.headers.get("accept", ""))):
            tagged = self._aggregated.get((path, version))
            if tagged is None:
                document = _aggregated_document(self._served, path == "/api", version)
                tagged = self._aggregated[path, version] = _DocumentWithEtag(dump_json(document))
            headers = {"ETag": tagged.etag, "Vary": "Accept"}
            content_type = f"{JSON};g={_AGGREGATED};v={version};as=APIGroupDiscoveryList"
            if request.headers.get("if-none-match") == tagged.etag:
                return Response(304, b"", content_type, headers)
            return Response(200, tagged.body, content_type, headers, is_static=True)
        body = self._bodies.get(path)
        if body is None:
            body = self._bodies[path] = self._document_body(path)
        return Response(200, body)

    def _document_body(self, path: str) -> bytes:
        """Raises ApiStatus (404)."""
        if path == "/api":
            return self._core
        groups = self._served.versions_by_group()
        if path == "/apis":
            named = [_group_document(name, versions) for name, versions in groups.items() if name]
            return dump_json({"kind": "APIGroupList", "apiVersion": "v1", "groups": named})
        group, _, version = path.removeprefix("/apis/").removeprefix("/api").partition("/")
        if not version and group in groups and path.startswith("/apis/"):
            return dump_json({"kind": "APIGroup", "apiVersion": "v1", **_group_document(group, groups[group])})
        if version not in groups.get(group, ()) or path != _version_path(group, version):
            raise PageNotFound
        return dump_json(_resource_list_document(group, version, self._served.resources_in_version(group, version)))


def _version_path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


class _DocumentWithEtag:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _negotiate_aggregated_version(accept: str) -> str:
    """Return the version of the aggregated form, or "" for the plain form."""
    for clause in parse_accept(accept):
        if clause.media_type != JSON:
            continue
        parameters = clause.parameters
        if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("g") == _AGGREGATED:
            if parameters.get("v") in _AGGREGATED_VERSIONS:
                return parameters["v"]
        elif not parameters:
            return ""
    return ""


def _group_document(name: str, versions: tuple[str, ...]) -> dict[str, Any]:
    result = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": result, "preferredVersion": result[0]}


def _resource_list_document(group: str, version: str, served: Iterable[ApiResource]) -> dict[str, Any]:
    resources = []
    for api_resource in served:
        resources += [_resource_document(api_resource)] if api_resource.verbs else []
        resources += [_subresource_document(api_resource, sub) for sub in _sorted_subresources(api_resource)]
    group_version = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    return head | {"groupVersion": group_version, "resources": resources}


def _sorted_subresources(api_resource: ApiResource) -> list[Subresource]:
    """Return the subresources in Kubernetes' order, which for custom kinds is: status, scale."""
    subresources = list(api_resource.subresources.values())
    return subresources if api_resource.custom is not None else sorted(subresources, key=lambda sub: sub.name)


def _resource_document(each: ApiResource) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": each.plural,
        "singularName": each.singular_name,
        "namespaced": each.namespaced,
        "kind": each.kind,
        "verbs": each.discovered_verbs,
    }
    if each.short_names:
        result["shortNames"] = list(each.short_names)
    if each.categories:
        result["categories"] = list(each.categories)
    if each.custom is not None and (digest := storage_version_hash(each.custom)):
        result["storageVersionHash"] = digest
    return result


def _subresource_document(each: ApiResource, sub: Subresource) -> dict[str, Any]:
    result: dict[str, Any] = {"name": f"{each.plural}/{sub.name}", "singularName": "", "namespaced": each.namespaced}
    if (sub.group, sub.version) != (each.group, each.version):
        result |= {"group": sub.group, "version": sub.version}
    return result | {"kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated_document(served: ServedResources, core: bool, version: str) -> dict[str, Any]:
    items = []
    for group, versions in served.versions_by_group().items():
        if (group == "") != core:
            continue
        result = [
            {
                "version": item,
                "resources": [_aggregated_resource(resource) for resource in served.resources_in_version(group, item)],
                "freshness": "Current",
            }
            for item in versions
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": result})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{_AGGREGATED}/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(each: ApiResource) -> dict[str, Any]:
    result: dict[str, Any] = {
        "resource": each.plural,
        "responseKind": {"group": each.group, "version": each.version, "kind": each.kind},
        "scope": "Namespaced" if each.namespaced else "Cluster",
        "singularResource": each.singular_name,
        "verbs": each.discovered_verbs,
    }
    optional: Mapping[str, Any] = {"shortNames": list(each.short_names), "categories": list(each.categories)}
    result |= {name: value for name, value in optional.items() if value}
    if each.subresources:
        result["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": list(sub.verbs),
            }
            for sub in _sorted_subresources(each)
        ]
    return result
