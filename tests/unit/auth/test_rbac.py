"""What do roles and bindings allow?"""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from pinnace.apiserver.auth import rbac
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.auth.rbac import RbacAuthorizer
from tests.unit.auth.caches import Cache

EVE = User("eve", ("developers",))
GET_PODS = ResourceAction("get", "pods")
A_POD = ActionTarget("dev", "web")


class World:
    """Roles and bindings."""

    def __init__(self) -> None:
        self.roles, self.cluster_roles = Cache(ROLES), Cache(CLUSTER_ROLES)
        self.bindings, self.cluster_bindings = Cache(ROLE_BINDINGS), Cache(CLUSTER_ROLE_BINDINGS)
        caches: Any = (self.roles, self.cluster_roles, self.bindings, self.cluster_bindings)
        self.rbac = RbacAuthorizer(*caches)

    def role(self, name: str, *rules: PolicyRule, namespace: str = "dev") -> None:
        role = Role(rules=rules)
        role.metadata.name, role.metadata.namespace = name, namespace
        self.roles.put(role)

    def cluster_role(self, name: str, *rules: PolicyRule, labels: dict[str, str] | None = None) -> ClusterRole:
        role = ClusterRole(rules=rules)
        role.metadata.name = name
        role.metadata.labels.update(labels or {})
        self.cluster_roles.put(role)
        return role

    def bind(self, kind: str, role: str, namespace: str = "", subject: tuple[str, str] = ("User", "eve")) -> Any:
        """To eve; in the namespace, or everywhere."""
        binding: Any = RoleBinding() if namespace else ClusterRoleBinding()
        binding.metadata.name, binding.metadata.namespace = f"{role}-binding", namespace
        binding.roleRef.kind, binding.roleRef.name = kind, role
        binding.subjects.add(kind=subject[0], name=subject[1])
        (self.bindings if namespace else self.cluster_bindings).put(binding)
        return binding

    def may(self, action: ResourceAction, target: ActionTarget, user: User = EVE) -> bool:
        return self.rbac.decisions(user, action).decide(target).allowed


@pytest.fixture
def world() -> World:
    return World()


def rule(
    verbs: str = "get",
    resources: str = "pods",
    groups: Sequence[str] = ("",),
    names: Sequence[str] = (),
    urls: Sequence[str] = (),
) -> PolicyRule:
    """`verbs` and `resources` are separated by blanks."""
    return PolicyRule(
        verbs=verbs.split(), apiGroups=groups, resources=resources.split(), resourceNames=names, nonResourceURLs=urls
    )


def test_request_without_a_matching_rule_is_denied(world: World) -> None:
    assert not world.may(GET_PODS, A_POD)


def test_role_allows_in_its_namespace_only(world: World) -> None:
    world.role("reader", rule())
    world.bind("Role", "reader", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, ActionTarget("prod", "web"))
    assert not world.may(GET_PODS, ActionTarget("", ""))
    assert not world.may(ResourceAction("delete", "pods"), A_POD)


def test_cluster_role_bound_in_a_namespace_allows_there_only(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, ActionTarget("prod", "web"))


def test_cluster_role_bound_for_the_cluster_allows_everywhere(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader")
    assert all(world.may(GET_PODS, target) for target in (A_POD, ActionTarget("prod", "web"), ActionTarget()))


def test_role_of_another_namespace_does_not_count(world: World) -> None:
    world.role("reader", rule(), namespace="prod")
    world.bind("Role", "reader", "dev")
    assert not world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, ActionTarget("prod", "web"))


def test_groups_count_as_users_do_and_are_not_confused(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", subject=("Group", "developers"))
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, A_POD, User("developers"))
    assert not world.may(GET_PODS, A_POD, User("mallory", ("operators",)))


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (rule(verbs="*"), ResourceAction("delete", "pods")),
        (rule(resources="*"), ResourceAction("get", "nodes")),
        (rule(resources="*"), ResourceAction("get", "pods/status")),
        (rule(resources="pods/status"), ResourceAction("get", "pods/status")),
        (rule(resources="*/status"), ResourceAction("get", "pods/status")),
        (rule(groups=["*"]), ResourceAction("get", "pods", "metrics.k8s.io")),
        (rule(resources="", groups=[], urls=["/version"]), ResourceAction("get", "/version")),
        (rule(resources="", groups=[], urls=["/debug/*"]), ResourceAction("get", "/debug/queue")),
        (rule(resources="", groups=[], urls=["*"]), ResourceAction("get", "/anything")),
    ],
)
def test_rule_allows_what_it_names(world: World, given: PolicyRule, action: ResourceAction) -> None:
    world.cluster_role("role", given)
    world.bind("ClusterRole", "role")
    assert world.may(action, ActionTarget())


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (rule(), ResourceAction("get", "pods/status")),
        (rule(resources="pods/status"), ResourceAction("get", "pods")),
        (rule(resources="*/status"), ResourceAction("get", "pods/binding")),
        (rule(), ResourceAction("get", "pods", "metrics.k8s.io")),
        (rule(resources="*", groups=["*"]), ResourceAction("get", "/version")),
        (rule(resources="", groups=[], urls=["/version"]), ResourceAction("get", "/versions")),
        (rule(resources="", groups=[], urls=["*"]), ResourceAction("get", "pods")),
        (rule(groups=[]), GET_PODS),
    ],
)
def test_rule_allows_nothing_else(world: World, given: PolicyRule, action: ResourceAction) -> None:
    world.cluster_role("role", given)
    world.bind("ClusterRole", "role")
    assert not world.may(action, ActionTarget())


def test_resource_names_confine(world: World) -> None:
    world.cluster_role("one", rule(names=["web"]))
    world.bind("ClusterRole", "one", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, ActionTarget("dev", "db"))
    assert not world.may(GET_PODS, ActionTarget("dev", ""))
    assert not world.may(GET_PODS, ActionTarget("prod", "web"))


def test_resource_names_allow_no_create_but_of_what_belongs_to_something_named(world: World) -> None:
    world.cluster_role("one", rule("create", "pods pods/eviction", names=["web"]))
    world.bind("ClusterRole", "one", "dev")
    assert not world.may(ResourceAction("create", "pods"), A_POD)
    assert world.may(ResourceAction("create", "pods/eviction"), A_POD)
    assert not world.may(ResourceAction("create", "pods/eviction"), ActionTarget("dev", "db"))


def test_aggregated_role_has_the_rules_of_all_that_it_selects(world: World) -> None:
    both = world.cluster_role("both")
    both.aggregationRule.clusterRoleSelectors.add().matchLabels["to"] = "both"
    world.cluster_role("pods", rule(), labels={"to": "both"})
    world.bind("ClusterRole", "both")
    assert world.may(GET_PODS, A_POD)
    world.cluster_role("nodes", rule(resources="nodes"), labels={"to": "both"})
    assert world.may(ResourceAction("get", "nodes"), ActionTarget())


def test_aggregated_role_has_the_rules_of_selected_roles_and_none_of_its_own(world: World) -> None:
    """Roles can select each other. Own rules were kept (kubernetes#65171)."""
    for name, source in (("outer", "middle"), ("middle", "inner"), ("inner", "outer")):
        world.cluster_role(name, rule(resources=f"of-{name}"), labels={"is": name}).aggregationRule.clusterRoleSelectors.add(
            matchLabels={"is": source}
        )
    world.cluster_role("pods", rule(), labels={"is": "inner"})
    world.bind("ClusterRole", "outer")
    assert world.may(ResourceAction("get", "pods"), A_POD)
    for resource in ("of-outer", "of-middle", "of-inner"):
        assert not world.may(ResourceAction("get", resource), A_POD), resource
    assert not world.may(ResourceAction("get", "nodes"), ActionTarget())


def test_aggregated_rules_are_computed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a ClusterRole changes: with many of them it takes long, and each denial tells who might."""
    world.cluster_role("both").aggregationRule.clusterRoleSelectors.add(matchLabels={"to": "both"})
    read = Mock(side_effect=rbac.from_message)
    monkeypatch.setattr(rbac, "from_message", read)
    for count in (1, 2):
        world.cluster_role(f"pods-{count}", rule(), labels={"to": "both"})
        assert world.rbac.roles_allowing(GET_PODS, "") == world.rbac.roles_allowing(GET_PODS, "")
        assert read.call_count == count


def test_denial_looks_at_the_rules_once(world: World) -> None:
    """Each of them did, for as long as the rest of a denied call together: a caller without rights paid for none of it."""
    world.cluster_role("reader", rule())
    world.cluster_role("one", rule(names=["a"]))
    assert world.rbac.roles_allowing(GET_PODS, "") == ["reader"]
    world.cluster_roles.read.clear()
    assert world.rbac.roles_allowing(GET_PODS, "") == ["reader"]
    assert world.rbac.roles_allowing(GET_PODS, "a") == world.rbac.roles_allowing(GET_PODS, None) == ["one", "reader"]
    assert world.cluster_roles.read == []
    world.cluster_role("writer", rule())
    assert world.rbac.roles_allowing(GET_PODS, "") == ["reader", "writer"]


def test_only_so_many_actions_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A review may be about any."""
    monkeypatch.setattr(rbac, "MAX_ACTIONS", 3)
    world.cluster_role("reader", rule())
    for number in range(10):
        assert world.rbac.roles_allowing(ResourceAction(f"verb-{number}", "pods"), "") == []
    assert world.rbac.roles_allowing(GET_PODS, "") == ["reader"]
    assert len(world.rbac._askable[1]) <= 3


def test_removed_permission_is_denied(world: World) -> None:
    world.cluster_role("reader", rule())
    binding = world.bind("ClusterRole", "reader")
    assert world.may(GET_PODS, A_POD)
    world.cluster_bindings.remove(binding)
    assert not world.may(GET_PODS, A_POD)


def test_binding_of_a_role_that_is_made_later_counts_from_then_on(world: World) -> None:
    world.bind("ClusterRole", "reader")
    assert not world.may(GET_PODS, A_POD)
    world.cluster_role("reader", rule())
    assert world.may(GET_PODS, A_POD)


def test_in_a_namespace_too_and_so_do_its_roles(world: World) -> None:
    world.role("reader", rule())
    binding = world.bind("Role", "reader", "dev")
    assert world.may(GET_PODS, A_POD)
    world.role("reader", rule(verbs="list"))
    assert not world.may(GET_PODS, A_POD)
    world.role("reader", rule())
    assert world.may(GET_PODS, A_POD)
    world.bindings.remove(binding)
    assert not world.may(GET_PODS, A_POD)
    world.bind("ClusterRole", "reader", "dev")
    assert not world.may(GET_PODS, A_POD)
    world.cluster_role("reader", rule())
    assert world.may(GET_PODS, A_POD)


def looked_into(world: World) -> list[str]:
    """The keys of roles and bindings that were looked into since it was asked last."""
    caches = (world.roles, world.cluster_roles, world.bindings, world.cluster_bindings)
    keys = [key for cache in caches for key in cache.read]
    for cache in caches:
        cache.read.clear()
    return keys


def test_changes_in_other_namespaces_invalidate_nothing(world: World) -> None:
    """Its admin may change bindings of thousands of subjects, again and again, with one call about each change."""
    world.role("reader", rule())
    world.bind("Role", "reader", "dev")
    world.bind("ClusterRole", "other")
    assert world.may(GET_PODS, A_POD)
    looked_into(world)
    world.bind("Role", "reader", "prod")
    world.role("reader", rule(), namespace="prod")
    assert world.may(GET_PODS, A_POD)
    assert looked_into(world) == []


def test_binding_is_looked_into_once_and_each_role_once_a_question(world: World) -> None:
    world.role("reader", rule(verbs="watch"))
    for number in range(3):
        binding = world.bind("Role", "reader", "dev")
        binding.metadata.name = f"b{number}"
        world.bindings.put(binding)
    assert not world.may(GET_PODS, A_POD)
    read = looked_into(world)
    assert len(read) == len(set(read)) == 5
    binding.metadata.annotations["a"] = "b"
    world.bindings.put(binding)
    assert not world.may(GET_PODS, A_POD)
    assert looked_into(world) == [ROLES.key("dev", "reader"), ROLE_BINDINGS.key("dev", "b2")]


def test_cached_decisions_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its names as well, and whatever namespaces are asked about."""
    monkeypatch.setattr(rbac, "MAX_NAMES", 100)
    world.role("all", rule(verbs="*", names=[f"n{number}" for number in range(50)]))
    world.bind("Role", "all", "dev")
    for number in range(20):
        assert world.may(ResourceAction(f"v{number}", "pods"), ActionTarget("dev", "n7"))
        assert not world.may(GET_PODS, ActionTarget(f"there is none {number}", "web"))
    assert len(vars(world.rbac)["_extents"]) <= 2 and list(vars(world.rbac)["_scopes"]) == ["dev"]


@pytest.mark.parametrize("seed", range(20))
def test_authorizer_agrees_with_a_scan_of_all_bindings(world: World, seed: int) -> None:
    """However they change between two questions."""
    rng = random.Random(seed)
    for _ in range(150):
        namespace, name = rng.choice(["", "dev", "prod"]), rng.choice("ab")
        rules = [rule(rng.choice(["get", "*"]), rng.choice(["pods", "nodes"]), names=rng.choice([(), ("x",), ("x", "y")]))]
        match rng.randrange(4):
            case 0 if namespace:
                world.role(name, *rules, namespace=namespace)
            case 0:
                world.cluster_role(name, *rules)
            case 1:
                subject = rng.choice([("User", "eve"), ("Group", "developers"), ("User", "developers"), ("Group", "others")])
                kind = rng.choice(["Role", "ClusterRole"]) if namespace else "ClusterRole"
                world.bind(kind, name, namespace, subject)
            case 2:
                cache = rng.choice([world.roles, world.cluster_roles, world.bindings, world.cluster_bindings])
                if result := cache.select(SimpleNamespace(prefix="")):
                    cache.remove(rng.choice(result).obj)
        action = ResourceAction("get", rng.choice(["pods", "nodes"]))
        target = ActionTarget(rng.choice(["", "dev", "prod", "gone"]), rng.choice(["", "x", "y"]))
        assert world.may(action, target) is plainly(world, action, target), (action, target)


def plainly(world: World, action: ResourceAction, target: ActionTarget) -> bool:
    """May eve?"""
    everything: Any = SimpleNamespace(prefix="")
    for entry in (*world.cluster_bindings.select(everything), *world.bindings.select(everything)):
        binding = entry.obj
        namespace = binding.metadata.namespace
        if namespace not in ("", target.namespace):
            continue
        if all((subject.kind, subject.name) not in (("User", "eve"), ("Group", "developers")) for subject in binding.subjects):
            continue
        roles = world.roles if binding.roleRef.kind == "Role" else world.cluster_roles
        resource = ROLES if binding.roleRef.kind == "Role" else CLUSTER_ROLES
        role = roles.get(resource.key(namespace, binding.roleRef.name))
        for item in role.obj.rules if role is not None else ():
            if action.resource in item.resources and (not item.resourceNames or target.name in item.resourceNames):
                return True
    return False


def test_reason_names_binding_role_and_subject(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", "dev", ("Group", "developers"))
    reason = world.rbac.decisions(EVE, GET_PODS).decide(A_POD).reason
    assert reason == 'RBAC: allowed by RoleBinding "dev/reader-binding" of ClusterRole "reader" to Group "developers"'
