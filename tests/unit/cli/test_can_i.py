"""The attributes of a review that `auth can-i` sends."""

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
def test_review_of_a_namespace_is_within_this_namespace(word: str, plural: str, namespace: str, name: str) -> None:
    """A role in the namespace may permit the request. For other resources, the caller adds its namespace afterwards."""
    wanted, _ = attributes("get", word, "")
    assert (wanted.resource, wanted.namespace, wanted.name) == (plural, namespace, name)


@pytest.mark.parametrize("verb", ["bind", "escalate"])
def test_bind_and_escalate_are_accepted(verb: str) -> None:
    assert (
        run(["auth", "can-i", verb, "clusterroles/admin", "--server", "127.0.0.1:1", "--timeout", "1s"]) == ExitCode.UNAVAILABLE
    )
