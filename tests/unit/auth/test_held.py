"""Do rules cover another one?"""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.rbac_v1_pb2 import PolicyRule
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction
from pinnace.apiserver.auth.rbac import RuleCover
from tests.unit.auth.test_rbac import EVE, World, rule


@pytest.mark.parametrize(
    ("held", "wanted", "covered"),
    [
        ([rule("get list")], rule("get"), True),
        ([rule("get")], rule("get list"), False),
        ([rule("get"), rule("list")], rule("get list"), True),
        ([rule("get", "pods"), rule("get", "nodes")], rule("get", "pods nodes"), True),
        ([rule("*", "*", ["*"])], rule("*", "*", ["*"]), True),
        ([rule("*", "pods")], rule("*", "*"), False),
        ([rule(names=["a", "b"])], rule(names=["a"]), True),
        ([rule(names=["a"]), rule(names=["b"])], rule(names=["a", "b"]), True),
        ([rule(names=["a"])], rule(), False),
        ([rule()], rule(names=["a"]), True),
        ([rule(urls=["/debug/*"])], rule(resources="", groups=[], urls=["/debug/queue"]), True),
        ([rule()], rule(resources="", groups=[], urls=["/version"]), False),
        ([rule("*", resources="*/status")], rule("get", resources="pods/status"), True),
        ([rule("*", resources="*/status")], rule("get", resources="pods"), False),
        ([rule("get", "pods"), rule("list", "nodes")], rule("get", "nodes"), False),
        ([rule("get", "pods", [""]), rule("get", "nodes", ["apps"])], rule("get", "pods", ["apps"]), False),
        ([rule(names=["a"]), rule("list", names=["b"])], rule(names=["a", "b"]), False),
        ([], rule(), False),
        ([], rule(verbs=""), True),
    ],
)
def test_rules_cover_what_they_allow_together(held: list[PolicyRule], wanted: PolicyRule, covered: bool) -> None:
    assert RuleCover(held).covers(wanted) is covered


def words(*some: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(some), max_size=2)


VERBS, GROUPS, RESOURCES, NAMES = ("get", "list", "*"), ("", "apps", "*"), ("pods", "pods/status", "*/status", "*"), ("a", "b")
RULES = st.builds(
    lambda verbs, groups, resources, names: PolicyRule(
        verbs=verbs, apiGroups=groups, resources=resources, resourceNames=names
    ),
    words(*VERBS), words(*GROUPS), words(*RESOURCES), words(*NAMES),
)  # fmt: skip


@given(st.lists(RULES, max_size=4), RULES)
def test_cached_permissions_equal_single_checks(held: list[PolicyRule], wanted: PolicyRule) -> None:
    world = World()
    world.cluster_role("held", *held)
    world.bind("ClusterRole", "held")
    actions = [
        ResourceAction(verb, what, group) for verb, what, group in product(wanted.verbs, wanted.resources, wanted.apiGroups)
    ]
    targets = [ActionTarget("", name) for name in wanted.resourceNames or [""]]
    assert RuleCover(held).covers(wanted) is all(world.may(action, target, EVE) for action in actions for target in targets)


def test_many_combinations_are_not_gone_through_one_by_one() -> None:
    """There are a thousand million."""
    wanted = PolicyRule(verbs=["get"] * 1000, apiGroups=[""] * 1000, resources=[f"r{number}" for number in range(1000)])
    assert RuleCover([rule("*", "*", ["*"])]).covers(wanted)
    assert not RuleCover([rule("*", "pods")]).covers(wanted)
