from collections.abc import Sequence

import pytest

from pinnace.api.resources import (
    ABSENT,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    JOBS,
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    by_name,
)
from pinnace.cli.objects.query import Target, parse, reference
from pinnace.cli.outcomes import ExitCode, Failure


@pytest.mark.parametrize(
    ("words", "targets"),
    [
        (["pods"], [Target(PODS)]),
        (["po,no"], [Target(PODS), Target(NODES)]),
        (["pods,pod"], [Target(PODS)]),
        (["pod", "a", "b", "a"], [Target(PODS, ("a", "b"))]),
        (["Pod/a", "pods/b", "node/c"], [Target(PODS, ("a", "b")), Target(NODES, ("c",))]),
        (["pc.scheduling.k8s.io", "x"], [Target(PRIORITY_CLASSES, ("x",))]),
        (["priorityclasses.v1.scheduling.k8s.io"], [Target(PRIORITY_CLASSES)]),
        (["pods.v1"], [Target(PODS)]),
        (["clusterrole/system:node"], [Target(CLUSTER_ROLES, ("system:node",))]),
        (["quota,limits"], [Target(RESOURCE_QUOTAS), Target(LIMIT_RANGES)]),
        (["all"], [Target(kind) for kind in (PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, JOBS)]),
        (["all,no"], [Target(kind) for kind in (PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, JOBS, NODES)]),
        (["no,jobs,all"], [Target(kind) for kind in (NODES, JOBS, PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS)]),
    ],
)
def test_parse(words: Sequence[str], targets: list[Target]) -> None:
    assert parse(words) == targets


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "you must specify the type of resource"),
        ([","], '"," is not a resource'),
        (["podz"], 'unknown resource "podz"; did you mean "pod"?'),
        (["pods.v2"], 'unknown resource "pods.v2"'),
        (["pod", "a/b"], '"a/b": a name cannot contain a slash'),
        (["pod/a", "b"], '"b": expected KIND/NAME'),
        (["pod/"], '"pod/": expected KIND/NAME'),
        (["all", "web"], '"all" is a category of kinds'),
        (["pods,all", "web"], '"all" is a category of kinds'),
        (["all/web"], '"all" is a category of kinds'),
    ],
)
def test_mistakes_are_usage_errors(words: list[str], message: str) -> None:
    with pytest.raises(Failure) as caught:
        parse(words)
    assert caught.value.report.lines[0].startswith(message)
    assert caught.value.report.code is ExitCode.USAGE and caught.value.report.hint


def test_missing_kind_error_shows_the_syntax() -> None:
    with pytest.raises(Failure) as caught:
        parse(["web"])
    assert "KIND/NAME" in caught.value.report.hint


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("DaemonSet", "pinnace has no DaemonSets", "a Deployment"),
        ("statefulsets.apps", "pinnace has no StatefulSets", "a Deployment"),
        ("ingress/web", "pinnace has no Ingresses", "traffic is not routed"),
        ("netpol", "pinnace has no NetworkPolicies", "traffic is not routed"),
        ("pods,endpoints", "pinnace has no Endpoints", "endpointslices"),
    ],
)
def test_unknown_kind_error_lists_kinds(word: str, message: str, hint: str) -> None:
    with pytest.raises(Failure) as caught:
        parse([word])
    assert caught.value.report.lines == (message,) and hint in caught.value.report.hint


def test_absent_kind_is_not_found() -> None:
    assert [each.kind for each in ABSENT for name in (each.plural, each.kind, *each.short_names) if by_name(name)] == []


def test_a_reference_can_be_typed_again() -> None:
    for resource in (PODS, PRIORITY_CLASSES):
        assert parse([reference(resource, "a")]) == [Target(resource, ("a",))]
    assert reference(PODS, "a") == "pod/a"


def test_a_name_of_others_sends_the_terminal_no_commands() -> None:
    assert reference(CLUSTER_ROLES, "a\x1b[2J\nb") == "clusterrole.rbac.authorization.k8s.io/a[2J b"
