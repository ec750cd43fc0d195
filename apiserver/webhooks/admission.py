"""MutatingAdmissionWebhook and ValidatingAdmissionWebhook: whoever outside the server is concerned has a say.

Those that change objects are asked one after the other, in the order of the configuration, each about what the one before has
made of it; once, not again when a later one has changed something. Those that judge are asked all at once; of several that
refuse, the first of the configuration is told.

Nobody is asked about what the API server does of its own accord: a webhook that is away could keep a cluster from starting. A
call that waits for a webhook has no seat (apiserver.flow): it keeps nobody out who asks something else.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from apiserver.auth.authentication import SERVER
from apiserver.cacher.resource import ResourceCache
from apiserver.flow.control import stand_up
from apiserver.registry.admission import Change, Operation, Request
from apiserver.webhooks.webhook import Webhook
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import NAMESPACES, Resource


class WebhookAdmission:
    """An apiserver.registry.admission.Webhooks."""

    def __init__(self, webhooks: Sequence[Webhook], namespaces: ResourceCache[Namespace]) -> None:
        self._mutating = [webhook for webhook in webhooks if webhook.configuration.mutating]
        self._validating = [webhook for webhook in webhooks if not webhook.configuration.mutating]
        self._concerns = frozenset(concern for webhook in webhooks for concern in webhook.configuration.concerns)
        self._namespaces = namespaces

    def concerned(self, request: Request, operation: Operation, resource: Resource[Any]) -> bool:
        return bool(self._concerns) and (operation, resource) in self._concerns and request.user is not SERVER

    async def mutate(self, change: Change) -> Any:
        for webhook in self._mutating:
            if self._selects(webhook, change):
                stand_up()
                change = change._replace(obj=await webhook.ask(change))
        return change.obj

    async def validate(self, change: Change) -> None:
        asked = [webhook.ask(change) for webhook in self._validating if self._selects(webhook, change)]
        if asked:
            stand_up()
            for verdict in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(verdict, BaseException):
                    raise verdict

    def _selects(self, webhook: Webhook, change: Change) -> bool:
        configuration = webhook.configuration
        if (change.operation, change.resource) not in configuration.concerns:
            return False
        versions = [each.metadata for each in (change.obj, change.old) if each is not None]
        if not any(configuration.objects.matches(each.labels) for each in versions):
            return False
        if change.resource is NAMESPACES:
            return configuration.namespaces.matches(versions[0].labels)
        if not change.resource.namespaced:
            return True
        entry = self._namespaces.get(NAMESPACES.key("", versions[0].namespace))
        return configuration.namespaces.matches(entry.obj.metadata.labels if entry is not None else {})
