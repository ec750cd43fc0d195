"""Fences as text."""

import pytest

from pinnace.api import fences
from pinnace.api.pods_pb2 import Fence
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
def test_fence_annotation_is_parsed(text: str, election: str, token: int) -> None:
    assert fences.fence_of(make_pod("a").annotation("pinnace.io/fence", text).build()) == (election, token)


def test_pod_without_an_annotation_has_no_fence() -> None:
    assert fences.fence_of(make_pod("a").build()) == ("", 0)


def test_header_round_trip() -> None:
    fence = Fence(election="scheduler", token=17, secret=bytes(range(32)))
    assert fences.parse(fences.encode_header(fence)) == fence
    assert fences.parse("scheduler/17") == fences.parse("scheduler/17/") == Fence(election="scheduler", token=17)


def test_term_does_not_contain_the_secret() -> None:
    assert fences.format_term(Fence(election="scheduler", token=17, secret=b"secret")) == "scheduler/17"


@pytest.mark.parametrize(
    "text", ["", "scheduler", "scheduler/x/ab", "scheduler/17/abc", "scheduler/17/xy", f"scheduler/17/{'ab' * 65}"]
)
def test_header_error_does_not_contain_the_secret(text: str) -> None:
    with pytest.raises(ValueError, match="pinnace-fence: invalid fence: expected") as caught:
        fences.parse(text)
    assert not text or text.rpartition("/")[2] not in str(caught.value).replace("scheduler/4711", "")
