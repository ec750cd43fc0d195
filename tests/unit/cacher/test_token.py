import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.resources import PODS
from pinnace.apiserver.cacher.listing import ContinueToken
from pinnace.apiserver.cacher.store import InvalidContinueToken, SelectionPredicate
from tests.unit.cacher.world import CASES

ALL_PODS = SelectionPredicate.parse(PODS, "", "", "")


@given(st.integers(1, 2**63 - 1), st.text(max_size=30))
def test_token_comes_back_as_it_was(revision: int, name: str) -> None:
    token = ContinueToken(revision, f"/registry/pods/default/{name}")
    assert ContinueToken.decode(token.encode(ALL_PODS), ALL_PODS) == token


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_token_of_another_list_is_refused(case) -> None:
    token = ContinueToken(5, case.selection.prefix + "a")
    with pytest.raises(InvalidContinueToken, match="another list"):
        ContinueToken.decode(token.encode(case.selection), ALL_PODS)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "=",
        "é",
        "a" * 100_000,
        base64.urlsafe_b64encode(b"\xff\xff").decode(),
        base64.urlsafe_b64encode(b"5").decode(),
        ContinueToken(0, "/registry/pods/default/a").encode(ALL_PODS),
        ContinueToken(-1, "/registry/pods/default/a").encode(ALL_PODS),
        ContinueToken(2**63, "/registry/pods/default/a").encode(ALL_PODS),
        ContinueToken(5, "/registry/nodes/a").encode(ALL_PODS),
    ],
)
def test_malformed_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidContinueToken, match="pass the token unchanged"):
        ContinueToken.decode(text, ALL_PODS)


@given(st.text(max_size=40))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with pytest.raises(InvalidContinueToken):
        ContinueToken.decode(text, ALL_PODS)
