"""Answers about permissions are remembered, and everybody may ask: so a question cannot be long, nor what a call asks."""

from typing import Any

import pytest

from pinnace.api.authorization_pb2 import SelfSubjectAccessReviewRequest, SubjectAccessReviewRequest, TokenReviewRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.discovery import MAX_QUESTION, AuthorizationService
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller, serving


def own(verb: str) -> SelfSubjectAccessReviewRequest:
    request = SelfSubjectAccessReviewRequest()
    request.attributes.verb, request.attributes.resource = verb, "pods"
    return request


def of_others(groups: list[str]) -> SubjectAccessReviewRequest:
    request = SubjectAccessReviewRequest(user="eve", groups=groups)
    request.attributes.verb, request.attributes.resource = "get", "pods"
    return request


@pytest.mark.parametrize(
    ("method", "person", "request_"),
    [
        ("SelfSubjectAccessReview", "nobody", own("v" * MAX_QUESTION)),
        ("SubjectAccessReview", "admin", of_others(["g" * MAX_QUESTION])),
        ("SubjectAccessReview", "admin", of_others([""] * MAX_QUESTION)),
    ],
)
async def test_long_questions_are_refused(method: str, person: str, request_: Any) -> None:
    async with serving() as assembly:
        with pytest.raises(Rejected, match=f"more than {MAX_QUESTION} bytes"):
            await assembly.methods[f"/pinnace.v1.Authorization/{method}"].call(request_, Caller(PEOPLE[person]))


def test_attributes_of_a_call_contain_no_text_of_the_caller() -> None:
    """Whatever the caller's: a subresource or resource that there is not, of megabytes, was remembered of each call."""
    long = "x" * 1000
    for path, method in Assembly(MemoryStorage()).methods.items():
        request = method.parse(b"")
        for field in request.DESCRIPTOR.fields:
            if field.type == field.TYPE_STRING and not field.is_repeated:
                setattr(request, field.name, long)
        for action in method.permission.actions(request):
            assert long not in action.resource, f"{path} asks for {action.resource[:20]}"


class Known:
    def user(self, token: str) -> User | None:
        return User("eve", ("developers",)) if token == "s3cret" else None


async def test_token_review_names_the_user_of_a_valid_token_only() -> None:
    policy: Any = None
    service, caller = AuthorizationService(policy, Known()), Caller(PEOPLE["admin"])
    context: Any = caller
    review = await service.token_review(TokenReviewRequest(token="s3cret"), context)
    assert (review.user.username, list(review.user.groups), review.error) == ("eve", ["developers"], "")
    for token in ("other", "s3cret " * MAX_QUESTION):
        review = await service.token_review(TokenReviewRequest(token=token), context)
        assert not review.HasField("user") and review.error == "invalid bearer token"
    with pytest.raises(Rejected, match="token is required"):
        await service.token_review(TokenReviewRequest(), context)
