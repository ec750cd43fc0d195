"""Paths that are not resources: exact public paths, RBAC for all others, health checks, and their reviews."""

from typing import Any

import pytest

from pinnace.gateway.http import ANONYMOUS, User
from tests.unit.gateway.serving import ADMIN, Gateway, gateway

EVE = User("eve", ("system:authenticated",))
MONITOR = User("prometheus", ("system:monitoring", "system:authenticated"))
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_REVIEWS = "/apis/authorization.k8s.io/v1"


async def test_public_paths_are_exact() -> None:
    """A prefix of a path was public: anonymous clients received 200 for /versionfoo and /readyz/nonexistent."""
    public = ("/version", "/version/", "/healthz", "/livez", "/readyz")
    others = ("/versionfoo", "/version/x", "/livezzz", "/readyz/nonexistent", "/readyz/ping", "/healthz/", "/metrics", "/")
    async with gateway() as served:
        assert {(await served.ask("GET", path, user=ANONYMOUS)).code for path in public} == {200}
        assert {(await served.ask("GET", path, user=ANONYMOUS)).code for path in others} == {401}
        assert (await served.ask("POST", "/healthz", user=ANONYMOUS)).code == 401


@pytest.mark.parametrize(
    ("user", "path", "code"),
    [
        (EVE, "/api", 200),
        (EVE, "/api/v1", 200),
        (EVE, "/apis/apps/v1", 200),
        (EVE, "/openapi/v3", 200),
        (EVE, "/apis/nope.example.com", 404),
        (EVE, "/", 403),
        (EVE, "/versionfoo", 403),
        (EVE, "/readyz/ping", 403),
        (EVE, "/readyz/nonexistent", 403),
        (MONITOR, "/readyz/ping", 200),
        (MONITOR, "/readyz/etcd", 200),
        (MONITOR, "/readyz/nonexistent", 404),
        (MONITOR, "/livez/etcd", 404),
        (ADMIN, "/", 200),
        (ADMIN, "/versionfoo", 404),
        (ADMIN, "/livezzz", 404),
        (ADMIN, "/readyz/", 404),
        (ADMIN, "/version/x", 404),
    ],
)
async def test_other_paths_require_a_role(user: User, path: str, code: int) -> None:
    async with gateway() as served:
        answer = await served.ask("GET", path, user=user)
        assert answer.code == code, answer.body
        if code == 403:
            assert answer.json["message"] == f'forbidden: User "{user.name}" cannot get path "{path}"'
            assert (answer.json["reason"], answer.json["details"]) == ("Forbidden", {})


async def test_methods_of_paths() -> None:
    async with gateway() as served:
        assert (await served.ask("POST", "/api", user=EVE)).code == 403
        assert (await served.ask("POST", "/api")).code == 405


async def test_discovery_ends_with_its_role() -> None:
    async with gateway() as served:
        assert (await served.ask("DELETE", f"{_RBAC}/clusterrolebindings/system:discovery")).code == 200
        assert (await served.ask("GET", "/apis", user=EVE)).code == 403


async def test_failed_check_withholds_its_reason() -> None:
    """The reason of a failure was sent to everybody."""
    async with gateway() as served:
        served.dispatcher._ready = lambda: "10.0.0.1:7443 does not respond"
        answer = await served.ask("GET", "/readyz", user=ANONYMOUS)
        assert (answer.code, answer.content_type) == (500, "text/plain; charset=utf-8")
        text = "[+]ping ok\n[-]apiserver failed: reason withheld\n[-]etcd failed: reason withheld\nreadyz check failed\n"
        assert answer.body.decode() == text
        excluding = await served.ask("GET", "/readyz?exclude=etcd&exclude=apiserver&verbose", user=ANONYMOUS)
        text = "[+]ping ok\n[+]apiserver excluded: ok\n[+]etcd excluded: ok\nreadyz check passed\n"
        assert (excluding.code, excluding.body.decode()) == (200, text)
        assert (await served.ask("GET", "/livez")).body == b"ok"
        named = await served.ask("GET", "/readyz/apiserver", user=MONITOR)
        assert named.body == b"internal server error: 10.0.0.1:7443 does not respond\n"


async def can(served: Gateway, verb: str, path: str, user: User) -> bool:
    spec = {"nonResourceAttributes": {"verb": verb, "path": path}}
    answer = await served.ask("POST", f"{_REVIEWS}/selfsubjectaccessreviews", {"spec": spec}, user=user)
    assert answer.code == 201, answer.body
    return bool(answer.json["status"]["allowed"])


async def test_reviews_of_paths_ask_rbac() -> None:
    """Reviews were answered from a list of prefixes: `get /metrics` no for the administrator, `delete /healthz` yes for all."""
    async with gateway() as served:
        assert await can(served, "get", "/metrics", ADMIN) and await can(served, "get", "/metrics", MONITOR)
        assert not await can(served, "get", "/metrics", EVE) and not await can(served, "delete", "/healthz", EVE)
        assert await can(served, "get", "/healthz", EVE) and await can(served, "get", "/openapi/v3/api/v1", EVE)
        assert not await can(served, "get", "/healthzz", EVE)
        assert not await can(served, "get", "healthz", EVE) and await can(served, "get", "healthz", ADMIN)
        other = {"user": "ada", "groups": ["system:unauthenticated"]}
        for path, allowed in (("/version", True), ("/api", False)):
            spec = other | {"nonResourceAttributes": {"verb": "get", "path": path}}
            answer = await served.ask("POST", f"{_REVIEWS}/subjectaccessreviews", {"spec": spec})
            assert answer.json["status"]["allowed"] is allowed


@pytest.mark.parametrize(
    ("review", "spec", "field"),
    [
        ("selfsubjectaccessreviews", {}, "spec.resourceAttributes"),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"verb": "get", "resource": "pods"}, "nonResourceAttributes": {"verb": "get", "path": "/a"}},
            "spec.nonResourceAttributes",
        ),
        ("subjectaccessreviews", {"resourceAttributes": {"verb": "get", "resource": "pods"}}, "spec.user"),
    ],
)
async def test_incomplete_review_is_invalid(review: str, spec: dict[str, Any], field: str) -> None:
    async with gateway() as served:
        answer = await served.ask("POST", f"{_REVIEWS}/{review}", {"spec": spec})
        assert (answer.code, [cause["field"] for cause in answer.json["details"]["causes"]]) == (422, [field])


async def test_rules_review_contains_the_rules_for_paths() -> None:
    async with gateway() as served:
        answer = await served.ask("POST", f"{_REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, user=EVE)
        urls = {url for rule in answer.json["status"]["nonResourceRules"] for url in rule["nonResourceURLs"]}
        assert {"/api/*", "/version"} <= urls and "/metrics" not in urls


@pytest.mark.parametrize(
    ("path", "content_type", "code"),
    [
        ("/api", "application/octet-stream", 415),
        ("/apis/apps/v1", "application/octet-stream", 415),
        ("/version", "application/yaml", 415),
        ("/api", "application/yaml; charset=utf-8", 200),
        ("/version", "application/json", 200),
        ("/api/v1/namespaces", "application/octet-stream", 200),
    ],
)
async def test_discovery_restricts_the_content_type_of_reads(path: str, content_type: str, code: int) -> None:
    async with gateway() as served:
        answer = await served.ask("GET", path, "{}", content_type=content_type)
        assert answer.code == code
        if code == 415:
            assert (answer.json["reason"], answer.json["message"]) == ("UnsupportedMediaType", "415: Unsupported Media Type")
