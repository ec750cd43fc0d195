"""Permissions of writes, asked before their body is read."""

from typing import Any

import pytest

from pinnace.api.authorization_pb2 import AccessReview, SelfSubjectAccessReviewRequest
from pinnace.gateway.access import ALLOWED_FOR, AccessChecker
from pinnace.gateway.http import ApiStatus, Request, User
from pinnace.gateway.routes import resolve_route

EVE = User("eve", ("system:authenticated",))


class Reviews:
    """Allows the questions whose name is in `names`; "" is all names."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[str] = []

    async def call(self, request: Request, method: str, message: SelfSubjectAccessReviewRequest, *, retry: bool) -> bytes:
        name = message.attributes.name
        self.asked.append(name)
        return AccessReview(allowed=name in self.names).SerializeToString()


class Checked:
    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.reviews = Reviews(*names)
        backend: Any = self.reviews
        self.access = AccessChecker(backend, lambda: self.now)

    async def check(self, method: str, path: str, user: User = EVE) -> None:
        request = Request(method, path, {}, {}, user=user)
        await self.access.check(request, resolve_route(request))


async def test_allowed_write_is_asked_once_for_all_names() -> None:
    checked = Checked("")
    for name in ("a", "b"):
        await checked.check("PUT", f"/api/v1/namespaces/x/pods/{name}")
    assert checked.reviews.asked == [""]
    checked.now += ALLOWED_FOR
    await checked.check("PUT", "/api/v1/namespaces/x/pods/a")
    assert checked.reviews.asked == ["", ""]


async def test_permission_for_a_name_is_not_one_for_others() -> None:
    checked = Checked("a")
    await checked.check("PUT", "/api/v1/namespaces/x/pods/a")
    with pytest.raises(ApiStatus):
        await checked.check("PUT", "/api/v1/namespaces/x/pods/b")
    assert checked.reviews.asked == ["", "a", "", "b"]


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        (
            "POST",
            "/api/v1/namespaces/x/pods",
            'pods is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "x"',
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/x/deployments",
            'deployments.apps is forbidden: User "eve" cannot create resource "deployments" in API group "apps" '
            'in the namespace "x"',
        ),
        (
            "PATCH",
            "/api/v1/nodes/n/status",
            'nodes "n" is forbidden: User "eve" cannot patch resource "nodes/status" in API group "" at the cluster scope',
        ),
        (
            "DELETE",
            "/api/v1/namespaces/x",
            'namespaces "x" is forbidden: User "eve" cannot delete resource "namespaces" in API group "" in the namespace "x"',
        ),
    ],
)
async def test_denied_write_has_kubernetes_message(method: str, path: str, message: str) -> None:
    with pytest.raises(ApiStatus) as caught:
        await Checked().check(method, path)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (403, "Forbidden", message)


async def test_denial_is_not_kept() -> None:
    checked = Checked()
    with pytest.raises(ApiStatus):
        await checked.check("POST", "/api/v1/namespaces/x/pods")
    checked.reviews.names = ("",)
    await checked.check("POST", "/api/v1/namespaces/x/pods")


async def test_masters_are_not_asked() -> None:
    checked = Checked()
    await checked.check("POST", "/api/v1/namespaces/x/pods", User("admin", ("system:masters",)))
    assert checked.reviews.asked == []
