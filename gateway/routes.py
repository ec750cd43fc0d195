"""Resolution of a path to a resource, object and verb.

    /api/v1/namespaces/NS/pods/NAME/log         /apis/apps/v1/deployments         /api/v1/namespaces/NAME

Source: https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/request/requestinfo.go
"""

from dataclasses import dataclass
from urllib.parse import unquote

from pinnace.gateway.api_resources import ApiResource
from pinnace.gateway.custom_resources import BUILT_IN, ServedResources
from pinnace.gateway.http import PageNotFound, Request, method_not_allowed, method_not_supported, not_found, path_not_found

_OF_NAMESPACE = ("status", "finalize")
"""Path segments after the name of a namespace that are not resources."""
_OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}


@dataclass(frozen=True, slots=True)
class Route:
    verb: str
    resource: ApiResource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def resolve_route(request: Request, served: ServedResources = BUILT_IN) -> Route:
    """Resolve a request. Raises ApiStatus: 404 for an unknown resource, 405 for an unsupported method."""
    path = request.path.strip("/")
    segments = [unquote(part) for part in path.split("/")] if "%" in path else path.split("/")
    if segments[0] == "api":
        group, rest = "", segments[1:]
    else:
        group, rest = (segments[1] if len(segments) > 1 else ""), segments[2:]
    if len(rest) < 2 or "" in rest or not served.is_version(group, rest[0]):
        raise PageNotFound
    version, *rest = rest
    deprecated_watch = rest[0] == "watch" and len(rest) > 1
    if deprecated_watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACE:
        namespace, rest = rest[1], rest[2:]
    resource = served.find_resource(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        raise path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    everywhere = resource.namespaced and not namespace
    if everywhere and (name or "list" not in resource.verbs):
        raise path_not_found()
    if everywhere and request.method not in ("GET", "HEAD"):  # across namespaces, objects are only listed and watched
        raise method_not_allowed()
    return Route(_find_verb(request, resource, name, subresource, deprecated_watch), resource, namespace, name, subresource)


def find_custom_resource(request: Request) -> tuple[str, str]:
    """Return the group and plural of the custom resource that a path may be of; ("", "") if it cannot be of one."""
    segments = [unquote(part) for part in request.path.strip("/").split("/")]
    if segments[0] != "apis" or "." not in "".join(segments[1:2]):
        return "", ""
    group, *rest = segments[1:]
    rest = rest[1:]
    if rest and rest[0] == "watch":
        rest = rest[1:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return (group, rest[0]) if rest else ("", "")


def _qualified(resource: ApiResource) -> str:
    return f"{resource.plural}.{resource.group}"


def _find_verb(request: Request, resource: ApiResource, name: str, subresource: str, deprecated_watch: bool) -> str:
    verb = (_OBJECT_VERBS if name else _COLLECTION_VERBS).get(request.method)
    if verb is None:
        raise method_not_allowed()
    if subresource:
        result = resource.subresources.get(subresource)
        if result is None:
            raise path_not_found() if resource.custom is None else not_found(_qualified(resource), name)
        if verb not in result.verbs:
            raise method_not_allowed() if resource.custom is None else method_not_supported(_qualified(resource), verb)
        return verb
    if verb == "create" and name:
        raise method_not_allowed()
    if verb in ("list", "get") and (deprecated_watch or request.flag("watch")):
        verb = "watch"
    if verb not in resource.verbs:
        raise method_not_allowed()
    return verb
