"""Waiting for those very objects to go."""

from pinnace.api.resources import PODS
from pinnace.cli.waiting import PendingDeletion, is_there
from tests.builders import make_pod


def test_a_namesake_is_not_it() -> None:
    it, namesake = make_pod("a").uid("1").build(), make_pod("a").uid("2").build()
    doomed = PendingDeletion(PODS, "default", "a", "1")
    assert is_there(doomed, {PODS.key_of(it): it})
    assert not is_there(doomed, {PODS.key_of(namesake): namesake}) and not is_there(doomed, {})
