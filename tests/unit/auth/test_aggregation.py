"""Aggregated ClusterRoles: their stored rules are those of the selected roles."""

from typing import Any

import pytest

from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.api.resources import CLUSTER_ROLES
from pinnace.api.users import AUTHENTICATED
from pinnace.api.verbs_pb2 import ListRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import User
from tests.unit.auth.matrix import PEOPLE, Caller, may, serving
from tests.unit.registry.test_creating import asked, call

MONITOR = User("monitor", (AUTHENTICATED,))


def rule(resource: str) -> PolicyRule:
    return PolicyRule(verbs=["list"], apiGroups=[""], resources=[resource])


def role(name: str, *resources: str, selects: str = "", labels: str = "") -> ClusterRole:
    made = ClusterRole(rules=map(rule, resources))
    made.metadata.name = name
    if labels:
        made.metadata.labels["to"] = labels
    if selects:
        made.aggregationRule.clusterRoleSelectors.add(matchLabels={"to": selects})
    return made


async def create(assembly: Assembly, *roles: ClusterRole) -> None:
    for item in roles:
        await call(assembly, "ClusterRoles/Create", asked(assembly, "ClusterRoles/Create", item))


async def stored(assembly: Assembly, name: str) -> ClusterRole:
    method = assembly.methods["/pinnace.v1.ClusterRoles/Get"]
    request: Any = method.parse(b"")
    request.name = name
    return ClusterRole.FromString(await method.call(request, Caller(PEOPLE["admin"])))


async def test_rules_of_aggregated_role_are_replaced() -> None:
    """The role kept its own rules in the check, and `get` showed these rules only (kubernetes#65171)."""
    async with serving() as assembly:
        await create(assembly, role("monitoring", "secrets", selects="monitoring"))
        binding = ClusterRoleBinding()
        binding.metadata.name = "monitoring"
        binding.roleRef.kind, binding.roleRef.name = "ClusterRole", "monitoring"
        binding.subjects.add(kind="User", name=MONITOR.name)
        await call(assembly, "ClusterRoleBindings/Create", asked(assembly, "ClusterRoleBindings/Create", binding))
        secrets, pods = (assembly.methods[f"/pinnace.v1.{kind}/List"] for kind in ("Secrets", "Pods"))
        assert not await may(secrets, MONITOR, ListRequest()) and not await may(pods, MONITOR, ListRequest())
        assert list((await stored(assembly, "monitoring")).rules) == []
        await create(assembly, role("part-b", "nodes", labels="monitoring"), role("part-a", "pods", labels="monitoring"))
        assert not await may(secrets, MONITOR, ListRequest()) and await may(pods, MONITOR, ListRequest())
        assert list((await stored(assembly, "monitoring")).rules) == [rule("pods"), rule("nodes")]


@pytest.mark.parametrize("patch", [b'{"metadata": {"labels": {"to": null}}}', b'{"rules": []}'])
async def test_aggregated_rules_follow_each_change(patch: bytes) -> None:
    async with serving() as assembly:
        await create(
            assembly,
            role("outer", selects="outer"),
            role("inner", selects="inner", labels="outer"),
            role("a", "pods", labels="inner"),
        )
        assert [list((await stored(assembly, name)).rules) for name in ("outer", "inner")] == [[rule("pods")]] * 2
        request = PatchRequest(name="a", type=PatchRequest.MERGE, patch=patch)
        await assembly.methods["/pinnace.v1.ClusterRoles/Patch"].call(request, Caller(PEOPLE["admin"]))
        assert [list((await stored(assembly, name)).rules) for name in ("outer", "inner")] == [[], []]


async def test_own_rules_of_aggregated_role_cannot_be_added() -> None:
    async with serving() as assembly:
        request = PatchRequest(name="view", type=PatchRequest.MERGE, patch=b'{"rules": []}')
        before = list((await stored(assembly, "view")).rules)
        await assembly.methods["/pinnace.v1.ClusterRoles/Patch"].call(request, Caller(PEOPLE["admin"]))
        assert before and list((await stored(assembly, "view")).rules) == before


async def test_default_roles_show_their_aggregated_rules() -> None:
    async with serving() as assembly:
        roles = {name: (await stored(assembly, name)).rules for name in ("view", "edit", "admin")}
        parts = [(await stored(assembly, f"system:aggregate-to-{name}")).rules for name in ("admin", "edit", "view")]
        assert list(roles["view"]) == list(parts[2])
        assert list(roles["edit"]) == [*parts[1], *parts[2]]
        assert list(roles["admin"]) == [rule for part in parts for rule in part]
        assert assembly.cacher.cache_of(CLUSTER_ROLES).loaded
