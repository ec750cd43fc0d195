"""Can somebody give away, or take, what he does not have?"""

from typing import Any

import pytest

from pinnace.api.meta_v1_pb2 import ManagedFieldsEntry, ObjectMeta, OwnerReference
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.apiserver.admission.authorization import RoleEscalation
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from tests.unit.auth.test_rbac import EVE, World, rule


@pytest.fixture
def world() -> World:
    """Eve may read pods in "dev"."""
    world = World()
    world.cluster_role("reader", rule("get list"))
    world.cluster_role("writer", rule("get list delete"))
    world.bind("ClusterRole", "reader", "dev")
    return world


def refused(world: World, obj: Any, user: User = EVE, old: Any = None) -> str:
    """What is said of it; empty: it is let through."""
    operation = AdmissionOperation.CREATE if old is None else AdmissionOperation.UPDATE
    try:
        RoleEscalation(world.rbac).validate(WriteRequest(user), operation, obj, old)
    except Rejected as rejected:
        return rejected.refusal.message
    return ""


def role(*rules: PolicyRule, namespace: str = "dev") -> Role:
    made = Role(rules=rules)
    made.metadata.name, made.metadata.namespace = "mine", namespace
    return made


def binding(kind: str, name: str, namespace: str = "dev") -> RoleBinding:
    made = RoleBinding()
    made.metadata.name, made.metadata.namespace = "mine", namespace
    made.roleRef.kind, made.roleRef.name = kind, name
    return made


def test_held_permissions_can_be_granted(world: World) -> None:
    assert not refused(world, role(rule("get")))
    assert not refused(world, binding("ClusterRole", "reader"))


def test_role_with_more_permissions_cannot_be_granted(world: World) -> None:
    said = refused(world, role(rule("get"), rule("delete")))
    assert 'roles "mine" is forbidden: user "eve"' in said and "delete pods" in said and "get pods" not in said
    assert 'rolebindings "mine" is forbidden' in refused(world, binding("ClusterRole", "writer"))


def test_missing_permissions_are_summarized(world: World) -> None:
    """A name may have megabytes, and each group has it once more."""
    groups = [f"g{number}" for number in range(1000)]
    said = refused(world, role(PolicyRule(verbs=["get"] * 1000, apiGroups=groups, resources=["x" * 100_000])))
    assert f"get, ... {'x' * 64}....g0, " in said and len(said) < 5_000


def test_namespaced_permission_cannot_be_granted_elsewhere(world: World) -> None:
    assert refused(world, role(rule("get"), namespace="prod"))
    assert refused(world, binding("ClusterRole", "reader", "prod"))
    everywhere = ClusterRoleBinding()
    everywhere.roleRef.kind, everywhere.roleRef.name = "ClusterRole", "reader"
    assert refused(world, everywhere)
    assert refused(world, ClusterRole(rules=[rule("get")]))


def test_role_that_is_made_later_cannot_be_given_now(world: World) -> None:
    assert "does not exist" in refused(world, binding("Role", "later"))


def test_role_that_gathers_others_takes_everything(world: World) -> None:
    world.cluster_role("all", rule("*", "*", ["*"]))
    gathering = ClusterRole()
    gathering.aggregationRule.clusterRoleSelectors.add().matchLabels["any"] = "thing"
    assert refused(world, gathering)


def test_removing_an_aggregation_rule_requires_its_permissions(world: World) -> None:
    """Who may write ClusterRoles could take from everybody what the roles `admin`, `edit` and `view` give."""
    gathering, plain = ClusterRole(), ClusterRole()
    gathering.aggregationRule.clusterRoleSelectors.add().matchLabels["any"] = "thing"
    assert "* *.*" in refused(world, plain, old=gathering)
    world.cluster_role("all", rule("*", "*", ["*"]), rule("*", "", urls=["*"]))
    world.bind("ClusterRole", "all")
    assert not refused(world, plain, old=gathering)


def test_verbs_bind_and_escalate_allow_it(world: World) -> None:
    world.cluster_role("granter", rule("bind", "clusterroles", ["rbac.authorization.k8s.io"], ["writer"]))
    world.bind("ClusterRole", "granter", "dev")
    assert not refused(world, binding("ClusterRole", "writer"))
    assert refused(world, role(rule("delete")))
    world.cluster_role("lord", rule("escalate", "roles", ["rbac.authorization.k8s.io"]))
    world.bind("ClusterRole", "lord", "dev")
    assert not refused(world, role(rule("delete")))


def test_to_escalate_one_role_is_not_to_make_it(world: World) -> None:
    """What is new has no name yet, as with any other rule; which role a binding gives is known."""
    world.cluster_role("lord", rule("escalate bind", "roles", ["rbac.authorization.k8s.io"], ["mine"]))
    world.bind("ClusterRole", "lord", "dev")
    world.role("mine", rule("delete"))
    assert "delete pods" in refused(world, role(rule("delete")))
    assert not refused(world, role(rule("delete")), old=role())
    assert not refused(world, binding("Role", "mine"))


@pytest.mark.parametrize("old", [role(rule("delete")), binding("ClusterRole", "writer")])
def test_to_see_to_what_others_gave_gives_nothing_away(world: World, old: Role | RoleBinding) -> None:
    """Who takes his finalizer away need not hold what is in the role."""
    old.metadata.resourceVersion = "7"
    new: Any = type(old)()

    def changed(**fields: Any) -> Any:
        new.CopyFrom(old)
        new.metadata.resourceVersion = ""
        new.metadata.MergeFrom(ObjectMeta(**fields))
        return new

    assert not refused(world, changed(finalizers=["orphan"]), old=old)
    assert not refused(world, changed(ownerReferences=[OwnerReference(name="x")]), old=old)
    assert not refused(world, changed(managedFields=[ManagedFieldsEntry(manager="x")]), old=old)
    assert refused(world, changed(labels={"a": "b"}), old=old)
    if isinstance(old, Role):
        changed(finalizers=["orphan"]).rules.append(rule("get"))
    else:
        changed(finalizers=["orphan"]).subjects.add(kind="User", name="adam")
    assert refused(world, new, old=old)
    assert refused(world, old), "anew"


def test_masters_give_anything(world: World) -> None:
    assert not refused(world, role(rule("*", "*", ["*"])), User("root", (MASTERS,)))
