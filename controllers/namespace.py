"""The namespace controller: deletes the contents of terminating namespaces, and then the namespaces.

    Terminating --delete its pods, repeatedly--> no pods --delete other objects, repeatedly--> empty --delete--> gone

An empty namespace loses the finalizer `kubernetes` of its spec. Other finalizers there keep it until clients remove them.

Objects with a grace period or a finalizer take time. The API server rejects new objects in the namespace. Other objects
are kept until all pods are gone, because pods may need them, even if etcd or a webhook delays the deletion of pods. After
that, a failed delete of one kind does not block other kinds.

Source: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/#deleting-a-namespace, and for the order
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5080-ordered-namespace-deletion
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, NAMESPACES, PODS, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import NAMESPACE_FINALIZER
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound, Unavailable, from_refusal, from_status
from pinnace.controllers.runtime import ControllerContext, WatchedResource, key_of_object

LOOK_AGAIN, LONGEST = 0.5, 8.0
"""Minimum and maximum seconds between syncs of a terminating namespace. Kubernetes retries after 8 s if there are finalizers.
Each sync deletes all remaining objects again, which audit logs and webhooks also receive."""
SHARE = 0.1
"""The delay as a share of the time since the deletion timestamp."""
OTHERS = tuple(resource for resource in ALL if resource.namespaced and resource is not PODS)


def seconds_until_retry(namespace: Namespace, now: float) -> float:
    """Return the seconds until the next sync of a terminating namespace. `now` is Unix time."""
    return min(max(LOOK_AGAIN, SHARE * (now - to_seconds(namespace.metadata.deletionTimestamp))), LONGEST)


class NamespaceController:
    name = "namespace"
    workers = 10
    max_backoff = 60.0
    """The same limit as in Kubernetes."""

    def __init__(self, shared: ControllerContext) -> None:
        self._client = shared.client
        self._clock = shared.clock
        self._namespaces = shared.informers.store(NAMESPACES)
        self._custom = shared.informers.custom

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (WatchedResource(NAMESPACES, key_of_object),)

    async def sync(self, key: str) -> float | None:
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.HasField("deletionTimestamp") or await self._is_gone(namespace):
            return None
        if NAMESPACE_FINALIZER not in namespace.spec.finalizers:
            return None
        pods, refused = await self._delete_content(PODS, key)
        for resource in () if pods else (*OTHERS, *self._custom.resources):
            if not resource.namespaced:
                continue
            refused += (await self._delete_content(resource, key))[1]
        if refused:
            raise refused[0]
        return seconds_until_retry(namespace, self._clock.time()) if pods or not await self._finalize(namespace) else None

    async def _delete_content(self, resource: Resource[Any], namespace: str) -> tuple[bool, list[ApiError]]:
        """Delete all objects of a kind. Return True if there may be remaining objects, and the errors of individual deletes.

        Raise ApiError for an error that concerns all kinds.
        """
        try:
            items = await self._client.of(resource).delete_collection(namespace)
        except (Unavailable, Fenced):
            raise
        except ApiError as error:
            return True, [error]
        errors = [_item_error(resource, item) for item in items if item.HasField("error")]
        refused = [api_error for api_error in errors if not isinstance(api_error, NotFound)]
        return len(items) > len(errors) or bool(refused), refused

    async def _finalize(self, namespace: Namespace) -> bool:
        """Delete the namespace. The API server rejects the request unless it is empty. Return True if the namespace is gone."""
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


def _item_error(resource: Resource[Any], item: BatchItem) -> ApiError:
    """Return the error with the name of the object, which the message of a webhook may not contain."""
    error = from_status(item.error)
    return from_refusal(replace(error.refusal, message=f'{resource.plural} "{item.name}": {error.message}'))
