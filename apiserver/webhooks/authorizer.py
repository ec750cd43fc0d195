"""The variables `authorizer` and `authorizer.requestResource` of CEL expressions: what the user of a request may do.

Source: pkg/cel/library/authz.go of k8s.io/apiserver 1.36.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.permissions import ActionTarget, AuthorizationDecision, ResourceAction
from pinnace.apiserver.registry.admission import WriteAttributes
from pinnace.apiserver.webhooks.matching import name_of, namespace_of
from pinnace.cel.libraries import AccessQuestion, AuthorizerValue, Decision, ResourceCheck

Decide = Callable[[User, ResourceAction, ActionTarget], AuthorizationDecision]
"""Decides by the current state of the caches."""
_ACCOUNTS = "system:serviceaccounts"


class RequestAuthorizer:
    """Answers what a user may do. Implements pinnace.cel.libraries.Authorizer."""

    def __init__(self, decide: Decide, user: User) -> None:
        self._decide = decide
        self._user = user

    def check(self, question: AccessQuestion) -> Decision:
        user = self._user
        if question.service_account is not None:
            namespace, name = question.service_account
            groups = (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}", "system:authenticated")
            user = User(f"system:serviceaccount:{namespace}:{name}", groups)
        resource = question.path or (
            f"{question.resource}/{question.subresource}" if question.subresource else question.resource
        )
        target = ActionTarget(question.namespace, question.name, question.label_selector, question.field_selector)
        decision = self._decide(user, ResourceAction(question.verb, resource, question.group), target)
        return Decision(decision.allowed, decision.reason)


def authorizer_bindings(decide: Decide, change: WriteAttributes) -> Mapping[str, Any]:
    """Return the values of the two variables for the user and the object of a write."""
    authorizer = RequestAuthorizer(decide, change.request.user)
    question = AccessQuestion(
        group=change.resource.group,
        resource=change.resource.plural,
        subresource=change.subresource,
        namespace=namespace_of(change),
        name=name_of(change),
    )
    return {
        "authorizer": AuthorizerValue(authorizer),
        "authorizer.requestResource": ResourceCheck(authorizer, question),
    }
