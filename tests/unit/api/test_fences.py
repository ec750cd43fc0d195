"""Fences in words."""

import pytest

from pinnace.api import fences
from tests.builders import make_pod


@pytest.mark.parametrize(
    ("text", "election", "token"),
    [
        ("scheduler/17", "scheduler", 17),
        ("scheduler/9223372036854775807", "scheduler", 2**63 - 1),
        ("a/b/17", "a/b", 17),
        ("", "", 0),
        ("hello", "", 0),
        ("17", "", 0),
        ("scheduler/", "", 0),
        ("scheduler/hello", "", 0),
        ("scheduler/-1", "", 0),
        ("scheduler/²", "", 0),
        ("scheduler/" + "9" * 5000, "", 0),
    ],
)
def test_what_is_no_fence_is_none(text: str, election: str, token: int) -> None:
    assert fences.of(make_pod("a").annotation("pinnace.io/fence", text).build()) == (election, token)


def test_a_pod_that_says_nothing_was_bound_under_no_fence() -> None:
    assert fences.of(make_pod("a").build()) == ("", 0)
