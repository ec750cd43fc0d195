"""The namespace controller: deletes the contents of namespaces that are being deleted, and then the namespaces.

    Terminating --delete its pods, repeatedly--> no pods --delete all else, repeatedly--> empty --delete--> gone

Objects with a grace period or a finalizer take time. The API server refuses new objects. Other objects are kept until the pods
have ended, because pods may need them, also if etcd or a webhook keeps the pods. Then a refused delete does not block other
kinds.

Source: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/#deleting-a-namespace, and for the order
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5080-ordered-namespace-deletion
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from controllers.runtime import Shared, Watch, itself
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, NAMESPACES, PODS, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound, Unavailable, from_refusal, from_status

LOOK_AGAIN, LONGEST = 0.5, 8.0
"""Seconds between two looks at a namespace that is not empty yet, at least and at most; Kubernetes looks again after 8 s where
there are finalizers. Each look deletes all that is left once more, for the audit log and for webhooks, too."""
SHARE = 0.1
"""Of the time for which it has been ending: what has taken a minute may take some seconds more."""
OTHERS = tuple(resource for resource in ALL if resource.namespaced and resource is not PODS)


def patience(namespace: Namespace, now: float) -> float:
    """Seconds until the next look at one that is ending. `now` is Unix time."""
    return min(max(LOOK_AGAIN, SHARE * (now - to_seconds(namespace.metadata.deletionTimestamp))), LONGEST)


class NamespaceController:
    name = "namespace"
    workers = 10
    max_backoff = 60.0
    """As in Kubernetes."""

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._clock = shared.clock
        self._namespaces = shared.informers.store(NAMESPACES)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(NAMESPACES, itself),)

    async def sync(self, key: str) -> float | None:
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.HasField("deletionTimestamp") or await self._is_gone(namespace):
            return None
        pods, refused = await self._empty(PODS, key)
        for resource in () if pods else OTHERS:
            refused += (await self._empty(resource, key))[1]
        if refused:
            raise refused[0]
        return patience(namespace, self._clock.time()) if pods or not await self._end(namespace) else None

    async def _empty(self, resource: Resource[Any], namespace: str) -> tuple[bool, list[ApiError]]:
        """Were there any of this kind, as far as one can tell? And what of it was not deleted. Raises ApiError when it is no
        matter of the kind."""
        try:
            items = await self._client.of(resource).delete_collection(namespace)
        except (Unavailable, Fenced):
            raise
        except ApiError as error:
            return True, [error]
        errors = [_refusal(resource, each) for each in items if each.HasField("error")]
        refused = [each for each in errors if not isinstance(each, NotFound)]
        return len(items) > len(errors) or bool(refused), refused

    async def _end(self, namespace: Namespace) -> bool:
        """The API server looks whether it is empty, and knows better than any cache. Is it gone?"""
        metadata = namespace.metadata
        try:
            await self._client.namespaces.delete(metadata.name, uid=metadata.uid)
        except (NotFound, Conflict):
            return True
        return await self._is_gone(namespace)

    async def _is_gone(self, namespace: Namespace) -> bool:
        try:
            there = await self._client.namespaces.get(namespace.metadata.name)
        except NotFound:
            return True
        return there.metadata.uid != namespace.metadata.uid


def _refusal(resource: Resource[Any], item: BatchItem) -> ApiError:
    """It says of what: a webhook's own words need not."""
    error = from_status(item.error)
    return from_refusal(replace(error.refusal, message=f'{resource.plural} "{item.name}": {error.message}'))
