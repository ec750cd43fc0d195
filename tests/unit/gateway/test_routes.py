"""Request paths of Kubernetes' clients."""

import pytest

from pinnace.gateway.http import ApiStatus, Request
from pinnace.gateway.routes import resolve_route


def route(method: str, target: str) -> tuple[str, str, str, str, str]:
    path, _, query = target.partition("?")
    parsed = dict(part.split("=") for part in query.split("&")) if query else {}
    result = resolve_route(Request(method, path, {name: [value] for name, value in parsed.items()}, {}))
    return result.verb, result.resource.qualified_name, result.namespace, result.name, result.subresource


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/b", ("get", "pods", "a", "b", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=1", ("watch", "pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods?watch=True", ("watch", "pods", "a", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods", ("watch", "pods", "a", "", "")),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", ("create", "deployments.apps", "a", "", "")),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/scale", ("patch", "deployments.apps", "a", "b", "scale")),
        ("DELETE", "/api/v1/namespaces/a/pods", ("deletecollection", "pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a", ("get", "namespaces", "", "a", "")),
        ("PUT", "/api/v1/namespaces/a/status", ("update", "namespaces", "", "a", "status")),
        ("GET", "/api/v1/nodes/n", ("get", "nodes", "", "n", "")),
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", ("create", "pods", "a", "b", "eviction")),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", (
            "create", "selfsubjectaccessreviews.authorization.k8s.io", "", "", "",
        )),
    ],
)  # fmt: skip
def test_paths_map_to_requests(method: str, target: str, expected: tuple[str, ...]) -> None:
    assert route(method, target) == expected


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("GET", "/api/v1/widgets", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/apis/apps/v1/pods", 404),
        ("GET", "/api/v1/pods/b", 404),
        ("GET", "/api/v1/namespaces/a/nodes", 404),
        ("GET", "/api/v1/namespaces/a/pods/b/nothing", 404),
        ("GET", "/api/v1/namespaces/a/pods/b/log/c", 404),
        ("GET", "/api/v1//pods", 404),
        ("PUT", "/api/v1/namespaces/a/pods", 405),
        ("POST", "/api/v1/namespaces/a/pods/b", 405),
        ("GET", "/api/v1/namespaces/a/pods/b/eviction", 405),
        ("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/x", 405),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
    ],
)
def test_unknown_path_or_method_is_refused(method: str, target: str, code: int) -> None:
    with pytest.raises(ApiStatus) as refused:
        route(method, target)
    assert refused.value.code == code
