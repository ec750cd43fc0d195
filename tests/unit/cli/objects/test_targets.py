import pytest

from pinnace.api.resources import CLUSTER_ROLES, LIMIT_RANGES, NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from pinnace.cli.objects.targets import Target, parse, reference
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
    ],
)
def test_parse(words: list[str], targets: list[Target]) -> None:
    assert parse(words) == targets


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which resource?"),
        ([","], '"," names no resource'),
        (["podz"], 'unknown resource "podz"; did you mean "pod"?'),
        (["pods.v2"], 'unknown resource "pods.v2"'),
        (["pod", "a/b"], '"a/b": a name has no slash'),
        (["pod/a", "b"], '"b": expected KIND/NAME'),
        (["pod/"], '"pod/": expected KIND/NAME'),
    ],
)
def test_mistakes_are_usage_errors(words: list[str], message: str) -> None:
    with pytest.raises(Failure) as caught:
        parse(words)
    assert caught.value.report.lines[0].startswith(message)
    assert caught.value.report.code is ExitCode.USAGE and caught.value.report.hint


@pytest.mark.parametrize(("word", "hint"), [("all", "pods,deployments"), ("web", "KIND/NAME")])
def test_who_names_no_kind_is_told_how(word: str, hint: str) -> None:
    with pytest.raises(Failure) as caught:
        parse([word])
    assert hint in caught.value.report.hint


def test_a_reference_can_be_typed_again() -> None:
    for resource in (PODS, PRIORITY_CLASSES):
        assert parse([reference(resource, "a")]) == [Target(resource, ("a",))]
    assert reference(PODS, "a") == "pod/a"


def test_a_name_of_others_sends_the_terminal_no_commands() -> None:
    assert reference(CLUSTER_ROLES, "a\x1b[2J\nb") == "clusterrole.rbac.authorization.k8s.io/a[2J b"
