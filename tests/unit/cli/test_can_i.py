"""What the words of `auth can-i` ask."""

import pytest

from pinnace.cli.main import run
from pinnace.cli.outcomes import ExitCode
from pinnace.cli.verbs.auth import attributes


@pytest.mark.parametrize(
    ("word", "plural", "namespace", "name"),
    [
        ("pods", "pods", "", ""),
        ("nodes/n1", "nodes", "", "n1"),
        ("namespaces/team", "namespaces", "team", "team"),
        ("schedulers/cheap", "schedulers", "", "cheap"),
    ],
)
def test_a_namespace_is_asked_about_in_itself(word: str, plural: str, namespace: str, name: str) -> None:
    """A role there may give the right to it; elsewhere the caller's namespace is filled in afterwards."""
    wanted, _ = attributes("get", word, "")
    assert (wanted.resource, wanted.namespace, wanted.name) == (plural, namespace, name)


@pytest.mark.parametrize("verb", ["bind", "escalate"])
def test_the_verbs_that_give_rights_away_can_be_asked_about(verb: str) -> None:
    assert (
        run(["auth", "can-i", verb, "clusterroles/admin", "--server", "127.0.0.1:1", "--timeout", "1s"]) == ExitCode.UNAVAILABLE
    )
