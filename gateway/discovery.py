"""Discovery: the served groups, versions and resources in plain and aggregated form, and the version of the server.

Documents are generated once. The aggregated form has its own media type and an ETag.

Source: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

import hashlib
import platform
from collections.abc import Mapping
from typing import Any

from pinnace.gateway import api_resources
from pinnace.gateway.api_resources import ApiResource, Subresource
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
    def __init__(self, address: str = "") -> None:
        """`address`: the external "host:port", for the legacy list of server addresses."""
        self._documents: dict[str, Any] = {
            "/api": {
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
            },
            "/apis": {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [
                    _group_document(name, versions) for name, versions in api_resources.versions_by_group().items() if name
                ],
            },
        }
        for group, versions in api_resources.versions_by_group().items():
            if group:
                single = {"kind": "APIGroup", "apiVersion": "v1", **_group_document(group, versions)}
                self._documents[f"/apis/{group}"] = single
            for version in versions:
                path = f"/apis/{group}/{version}" if group else f"/api/{version}"
                self._documents[path] = _resource_list_document(group, version)
        self._bodies = {path: dump_json(result) for path, result in self._documents.items()}
        self._aggregated = {
            (path, version): _TaggedDocument(dump_json(_aggregated_document(path == "/api", version)))
            for path in ("/api", "/apis")
            for version in _AGGREGATED_VERSIONS
        }

    @property
    def paths(self) -> list[str]:
        return sorted(self._documents)

    def respond(self, request: Request) -> Response:
        """Return the document of a path. Raises ApiStatus (404) if the path has no document."""
        path = request.path.rstrip("/")
        if path in ("/api", "/apis") and (version := _aggregated_version(request.headers.get("accept", ""))):
            tagged = self._aggregated[path, version]
            headers = {"ETag": tagged.etag, "Vary": "Accept"}
            content_type = f"{JSON};g={_AGGREGATED};v={version};as=APIGroupDiscoveryList"
            if request.headers.get("if-none-match") == tagged.etag:
                return Response(304, b"", content_type, headers)
            return Response(200, tagged.body, content_type, headers, is_static=True)
        body = self._bodies.get(path)
        if body is None:
            raise PageNotFound
        return Response(200, body)


class _TaggedDocument:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _aggregated_version(accept: str) -> str:
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


def _resource_list_document(group: str, version: str) -> dict[str, Any]:
    resources = []
    for api_resource in api_resources.resources_in_version(group, version):
        resources += [_resource_document(api_resource)] if api_resource.verbs else []
        resources += [
            _subresource_document(api_resource, sub)
            for sub in sorted(api_resource.subresources.values(), key=lambda sub: sub.name)
        ]
    group_version = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    return head | {"groupVersion": group_version, "resources": resources}


def _resource_document(each: ApiResource) -> dict[str, Any]:
    result: dict[str, Any] = {
        "name": each.plural,
        "singularName": each.singular,
        "namespaced": each.namespaced,
        "kind": each.kind,
        "verbs": list(each.verbs),
    }
    if each.short_names:
        result["shortNames"] = list(each.short_names)
    if each.categories:
        result["categories"] = list(each.categories)
    return result


def _subresource_document(each: ApiResource, sub: Subresource) -> dict[str, Any]:
    result: dict[str, Any] = {"name": f"{each.plural}/{sub.name}", "singularName": "", "namespaced": each.namespaced}
    if (sub.group, sub.version) != (each.group, each.version):
        result |= {"group": sub.group, "version": sub.version}
    return result | {"kind": sub.kind, "verbs": list(sub.verbs)}


def _aggregated_document(core: bool, version: str) -> dict[str, Any]:
    items = []
    for group, versions in api_resources.versions_by_group().items():
        if (group == "") != core:
            continue
        result = [
            {
                "version": item,
                "resources": [_aggregated_resource(resource) for resource in api_resources.resources_in_version(group, item)],
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
        "singularResource": each.singular,
        "verbs": list(each.verbs),
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
            for sub in sorted(each.subresources.values(), key=lambda sub: sub.name)
        ]
    return result
