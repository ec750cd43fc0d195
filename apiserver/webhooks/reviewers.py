"""The order of reviews by policies and webhooks.

    mutating policies --> mutating webhooks --+--> validation --> validating policies --> validating webhooks
          ^                                   |
          '--- once more, if an object changed: those with the reinvocationPolicy IfNeeded

Nothing reviews objects of admissionregistration.k8s.io, and writes of the API server itself. Otherwise a broken webhook or
policy could not be repaired, or could block the start of a cluster.

Source: pkg/admission/reinvocation.go of k8s.io/apiserver 1.36.
"""

from typing import Any

from pinnace.api.resources import Resource
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.registry.admission import WriteAttributes, WriteRequest
from pinnace.apiserver.webhooks.dispatch import Reinvocation, WebhookAdmission
from pinnace.apiserver.webhooks.evaluation import PolicyAdmission

ROUNDS = 2


class Reviewers:
    """Implements pinnace.apiserver.registry.admission.DynamicAdmission."""

    def __init__(self, policies: PolicyAdmission, webhooks: WebhookAdmission) -> None:
        self._policies = policies
        self._webhooks = webhooks

    def has_reviewers(self, request: WriteRequest, operation: str, resource: Resource[Any], subresource: str = "") -> bool:
        if request.user is SERVER:
            return False
        return self._policies.may_match(request, operation, resource, subresource) or self._webhooks.may_match(
            request, operation, resource, subresource
        )

    async def mutate(self, change: WriteAttributes) -> Any:
        of_policies, of_webhooks = Reinvocation(), Reinvocation()
        for round_number in range(ROUNDS):
            before = change.obj
            if round_number and of_policies.output is not before:
                of_policies.require_previous()
            obj = await self._policies.mutate(change, of_policies, round_number)
            change, of_policies.output = change._replace(obj=obj), obj
            if round_number and of_webhooks.output is not obj:
                of_webhooks.require_previous()
            obj = await self._webhooks.mutate(change, of_webhooks, round_number)
            change, of_webhooks.output = change._replace(obj=obj), obj
            if obj is before:
                break
        return change.obj

    async def validate(self, change: WriteAttributes) -> None:
        await self._policies.validate(change)
        await self._webhooks.validate(change)
