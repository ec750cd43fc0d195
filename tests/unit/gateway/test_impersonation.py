"""Impersonation at the gateway: the permission that it requires, the groups of the user, and repeated headers."""

from typing import Any

import pytest

from pinnace.api.users import MAX_GROUPS, Impersonation
from pinnace.gateway.authentication import parse_impersonation
from pinnace.gateway.http import ApiStatus, User
from tests.unit.gateway.serving import Gateway, gateway

EVE = User("eve", ("system:authenticated",))
BUILDER = "system:serviceaccount:ci:builder"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def grant(served: Gateway, resource: str, namespace: str = "", name: str = "", user: str = "eve") -> None:
    """Grant the verb impersonate on a resource, in one namespace or cluster-wide."""
    kind, place = ("Role", f"{_RBAC}/namespaces/{namespace}/roles") if namespace else ("ClusterRole", f"{_RBAC}/clusterroles")
    rule: dict[str, Any] = {"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"]}
    rule |= {"resourceNames": [name]} if name else {}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": f"impersonate-{resource}"}}
    role = await served.ask("POST", place, head | {"kind": kind, "rules": [rule]})
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"impersonate-{resource}"}
    binding = head | {"kind": f"{kind}Binding", "subjects": subjects, "roleRef": reference}
    bound = await served.ask("POST", place.removesuffix("s") + "bindings", binding)
    assert (role.code, bound.code) == (201, 201), (role.body, bound.body)


async def create_namespace(served: Gateway, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert (await served.ask("POST", "/api/v1/namespaces", body)).code == 201


async def test_service_account_requires_permission_in_its_namespace() -> None:
    """With `impersonate users`, any service account could be taken, and with `impersonate serviceaccounts` none."""
    async with gateway() as served:
        for name in ("ci", "other"):
            await create_namespace(served, name)
        await grant(served, "serviceaccounts", "ci", "builder")
        answer = await served.ask("POST", REVIEW, {}, user=EVE, impersonation=Impersonation(BUILDER))
        assert answer.code == 201
        assert answer.json["status"]["userInfo"] == {
            "username": BUILDER,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"],
        }
        refused = await served.ask(
            "POST", REVIEW, {}, user=EVE, impersonation=Impersonation("system:serviceaccount:other:builder")
        )
        assert refused.json["message"] == (
            'serviceaccounts "builder" is forbidden: User "eve" cannot impersonate resource "serviceaccounts" in API group ""'
            ' in the namespace "other"'
        )
        assert refused.json["details"] == {"name": "builder", "kind": "serviceaccounts"}


async def test_permission_on_users_does_not_include_service_accounts_and_groups() -> None:
    async with gateway() as served:
        await grant(served, "users")
        asked = [Impersonation("ada"), Impersonation(BUILDER), Impersonation("ada", ["dev"])]
        answers = [await served.ask("POST", REVIEW, {}, user=EVE, impersonation=item) for item in asked]
        assert [answer.code for answer in answers] == [201, 403, 403]
        assert answers[2].json["message"] == (
            'groups "dev" is forbidden: User "eve" cannot impersonate resource "groups" in API group "" at the cluster scope'
        )


async def test_impersonated_anonymous_user_is_not_authenticated() -> None:
    async with gateway() as served:
        answer = await served.ask("POST", REVIEW, {}, impersonation=Impersonation("system:anonymous"))
        assert answer.code == 403 and 'User "system:anonymous" cannot create' in answer.json["message"]


@pytest.mark.parametrize(
    ("names", "users", "groups"),
    [
        (["impersonate-user"], ["ada", "bob"], []),
        (["impersonate-user"], ["ada", "ada"], []),
        (["impersonate-group"], [], ["dev"]),
        (["impersonate-group"], [""], ["dev"]),
        (["impersonate-uid"], ["ada"], []),
        (["impersonate-user"], ["ada"], ["dev"] * (MAX_GROUPS + 1)),
    ],
)
def test_ambiguous_headers_are_bad_requests(names: list[str], users: list[str], groups: list[str]) -> None:
    """Of two users, the last one was impersonated, and a proxy may have checked the first one."""
    with pytest.raises(ApiStatus) as caught:
        parse_impersonation(names, users, groups)
    assert caught.value.code == 400


def test_empty_user_header_is_no_impersonation() -> None:
    assert parse_impersonation(["impersonate-user"], [""], []) is None
    assert parse_impersonation(["impersonate-user"], ["ada"], ["dev"]) == Impersonation("ada", ["dev"])
