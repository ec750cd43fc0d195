"""What do roles and bindings allow?"""

from collections.abc import Sequence
from typing import Any

import pytest

from apiserver.auth.attributes import Action, Target
from apiserver.auth.rbac import Rbac
from apiserver.auth.user import User
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from tests.unit.auth.caches import Cache

EVE = User("eve", ("developers",))
GET_PODS = Action("get", "pods")
A_POD = Target("dev", "web")


class World:
    """Roles and bindings."""

    def __init__(self) -> None:
        self.roles, self.cluster_roles = Cache(ROLES), Cache(CLUSTER_ROLES)
        self.bindings, self.cluster_bindings = Cache(ROLE_BINDINGS), Cache(CLUSTER_ROLE_BINDINGS)
        caches: Any = (self.roles, self.cluster_roles, self.bindings, self.cluster_bindings)
        self.rbac = Rbac(*caches)

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

    def may(self, action: Action, target: Target, user: User = EVE) -> bool:
        return self.rbac.reach(user, action).verdict(target).allowed


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


def test_nothing_is_allowed_without_a_rule(world: World) -> None:
    assert not world.may(GET_PODS, A_POD)


def test_a_role_allows_in_its_namespace_only(world: World) -> None:
    world.role("reader", rule())
    world.bind("Role", "reader", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, Target("prod", "web"))
    assert not world.may(GET_PODS, Target("", ""))
    assert not world.may(Action("delete", "pods"), A_POD)


def test_a_cluster_role_bound_in_a_namespace_allows_there_only(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, Target("prod", "web"))


def test_a_cluster_role_bound_for_the_cluster_allows_everywhere(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader")
    assert all(world.may(GET_PODS, target) for target in (A_POD, Target("prod", "web"), Target()))


def test_a_role_of_another_namespace_does_not_count(world: World) -> None:
    world.role("reader", rule(), namespace="prod")
    world.bind("Role", "reader", "dev")
    assert not world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, Target("prod", "web"))


def test_groups_count_as_users_do_and_are_not_confused(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", subject=("Group", "developers"))
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, A_POD, User("developers"))
    assert not world.may(GET_PODS, A_POD, User("mallory", ("operators",)))


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (rule(verbs="*"), Action("delete", "pods")),
        (rule(resources="*"), Action("get", "nodes")),
        (rule(resources="*"), Action("get", "pods/status")),
        (rule(resources="pods/status"), Action("get", "pods/status")),
        (rule(resources="*/status"), Action("get", "pods/status")),
        (rule(groups=["*"]), Action("get", "pods", "metrics.k8s.io")),
        (rule(resources="", groups=[], urls=["/version"]), Action("get", "/version")),
        (rule(resources="", groups=[], urls=["/debug/*"]), Action("get", "/debug/queue")),
        (rule(resources="", groups=[], urls=["*"]), Action("get", "/anything")),
    ],
)
def test_a_rule_allows_what_it_names(world: World, given: PolicyRule, action: Action) -> None:
    world.cluster_role("role", given)
    world.bind("ClusterRole", "role")
    assert world.may(action, Target())


@pytest.mark.parametrize(
    ("given", "action"),
    [
        (rule(), Action("get", "pods/status")),
        (rule(resources="pods/status"), Action("get", "pods")),
        (rule(resources="*/status"), Action("get", "pods/binding")),
        (rule(), Action("get", "pods", "metrics.k8s.io")),
        (rule(resources="*", groups=["*"]), Action("get", "/version")),
        (rule(resources="", groups=[], urls=["/version"]), Action("get", "/versions")),
        (rule(resources="", groups=[], urls=["*"]), Action("get", "pods")),
        (rule(groups=[]), GET_PODS),
    ],
)
def test_a_rule_allows_nothing_else(world: World, given: PolicyRule, action: Action) -> None:
    world.cluster_role("role", given)
    world.bind("ClusterRole", "role")
    assert not world.may(action, Target())


def test_resource_names_confine(world: World) -> None:
    world.cluster_role("one", rule(names=["web"]))
    world.bind("ClusterRole", "one", "dev")
    assert world.may(GET_PODS, A_POD)
    assert not world.may(GET_PODS, Target("dev", "db"))
    assert not world.may(GET_PODS, Target("dev", ""))
    assert not world.may(GET_PODS, Target("prod", "web"))


def test_an_aggregated_role_has_the_rules_of_all_that_it_selects(world: World) -> None:
    both = world.cluster_role("both")
    both.aggregationRule.clusterRoleSelectors.add().matchLabels["to"] = "both"
    world.cluster_role("pods", rule(), labels={"to": "both"})
    world.bind("ClusterRole", "both")
    assert world.may(GET_PODS, A_POD)
    world.cluster_role("nodes", rule(resources="nodes"), labels={"to": "both"})
    assert world.may(Action("get", "nodes"), Target())


def test_what_is_taken_away_counts_no_longer(world: World) -> None:
    world.cluster_role("reader", rule())
    binding = world.bind("ClusterRole", "reader")
    assert world.may(GET_PODS, A_POD)
    world.cluster_bindings.remove(binding)
    assert not world.may(GET_PODS, A_POD)


def test_a_binding_of_a_role_that_is_made_later_counts_from_then_on(world: World) -> None:
    world.bind("ClusterRole", "reader")
    assert not world.may(GET_PODS, A_POD)
    world.cluster_role("reader", rule())
    assert world.may(GET_PODS, A_POD)


def test_the_reason_names_binding_role_and_subject(world: World) -> None:
    world.cluster_role("reader", rule())
    world.bind("ClusterRole", "reader", "dev", ("Group", "developers"))
    reason = world.rbac.reach(EVE, GET_PODS).verdict(A_POD).reason
    assert reason == 'RBAC: allowed by RoleBinding "dev/reader-binding" of ClusterRole "reader" to Group "developers"'
