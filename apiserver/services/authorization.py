"""The service Authorization: who one is, and what somebody may do."""

from apiserver import errors
from apiserver.auth.authentication import User
from apiserver.auth.authorizer import Policy
from apiserver.auth.permissions import Action, Target
from apiserver.errors import Rejected
from apiserver.services.context import Context
from pinnace.api.authorization_pb2 import (
    AccessReview,
    ResourceAttributes,
    RulesReview,
    SelfSubjectAccessReviewRequest,
    SelfSubjectReviewRequest,
    SelfSubjectRulesReviewRequest,
    SubjectAccessReviewRequest,
    UserInfo,
)
from pinnace.api.status import Refusal

MAX_QUESTION = 4096
"""Bytes of who is asked about, and of what: answers are remembered, and everybody may ask."""


class AuthorizationService:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def self_subject_review(self, request: SelfSubjectReviewRequest, context: Context) -> UserInfo:
        user: User = context.user
        return UserInfo(username=user.name, groups=user.groups, nodes=user.nodes.patterns)

    async def self_subject_access_review(self, request: SelfSubjectAccessReviewRequest, context: Context) -> AccessReview:
        return await self._review(context.user, request.attributes)

    async def subject_access_review(self, request: SubjectAccessReviewRequest, context: Context) -> AccessReview:
        if not request.user:
            raise Rejected(errors.bad_request("user: about whom?"))
        if request.ByteSize() > MAX_QUESTION:
            raise Rejected(_too_long())
        return await self._review(User(request.user, tuple(request.groups)), request.attributes)

    async def self_subject_rules_review(self, request: SelfSubjectRulesReviewRequest, context: Context) -> RulesReview:
        rules = await self._policy.rules(context.user, request.namespace)
        return RulesReview(rules=rules)

    async def _review(self, user: User, wanted: ResourceAttributes) -> AccessReview:
        if not wanted.verb or not wanted.resource:
            raise Rejected(errors.bad_request("attributes: a verb and a resource are needed"))
        if wanted.ByteSize() > MAX_QUESTION:
            raise Rejected(_too_long())
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        action = Action(wanted.verb, resource, wanted.group)
        allowed, reason = await self._policy.review(user, action, Target(wanted.namespace, wanted.name))
        return AccessReview(allowed=allowed, reason=reason)


def _too_long() -> Refusal:
    return errors.bad_request(f"more than {MAX_QUESTION} bytes: who is asked about, and what, has a name")
