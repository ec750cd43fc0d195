"""The namespace controller: deletes the contents of terminating namespaces, and then the namespaces.

    Terminating --delete its pods, repeatedly--> no pods --delete other objects, repeatedly--> empty --delete--> gone

An empty namespace loses the finalizer `kubernetes` of its spec. Other finalizers there keep it until clients remove them.

Objects with a grace period or a finalizer take time. The API server rejects new objects in the namespace. Other objects
are kept until all pods are gone, because pods may need them, even if etcd or a webhook delays the deletion of pods. After
that, a failed delete of one kind does not block other kinds.

The conditions of a namespace that remains say why: errors, the number of remaining objects, and their finalizers. A namespace
that is emptied in one sync gets none.

Source: https://kubernetes.io/docs/tasks/administer-cluster/namespaces/#deleting-a-namespace, pkg/controller/namespace of
Kubernetes 1.36, and for the order
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5080-ordered-namespace-deletion
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, NAMESPACES, PODS, Object, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import NAMESPACE_FINALIZER
from pinnace.client.errors import ApiError, Conflict, Fenced, NotFound, Unavailable, from_refusal, from_status
from pinnace.client.informer import Delta
from pinnace.controllers.pods import object_namespace
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


DISCOVERY_FAILURE, PARSING_FAILURE = "NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"
CONTENT_FAILURE = "NamespaceDeletionContentFailure"
CONTENT_REMAINING, FINALIZERS_REMAINING = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"
_FINE: Mapping[str, tuple[str, str]] = {
    DISCOVERY_FAILURE: ("ResourcesDiscovered", "All resources successfully discovered"),
    PARSING_FAILURE: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    CONTENT_FAILURE: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    CONTENT_REMAINING: ("ContentRemoved", "All content successfully removed"),
    FINALIZERS_REMAINING: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""The reason and the message of each condition that is False."""
MAX_ERRORS = 20
"""Maximum number of errors in a message."""


@dataclass(slots=True)
class RemainingContent:
    """What one sync has left in a namespace."""

    errors: list[ApiError] = field(default_factory=list)
    objects: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of objects by plural and group."""
    finalizers: Counter[str] = field(default_factory=Counter)
    """The number of objects with each finalizer."""

    def count(self, resource: Resource[Any], objects: Iterable[Object]) -> None:
        for obj in objects:
            self.objects[resource.plural, resource.group] += 1
            self.finalizers.update(obj.metadata.finalizers)


def set_conditions(namespace: Namespace, content: RemainingContent, now: float) -> Namespace | None:
    """Return the terminating namespace with its conditions, or None if they are unchanged. `now` is Unix time."""
    said = {type_: ("False", *text) for type_, text in _FINE.items()}
    if content.errors:
        shown = ", ".join(sorted(error.message for error in content.errors)[:MAX_ERRORS])
        message = f"Failed to delete all resource types, {len(content.errors)} remaining: {shown}"
        said[CONTENT_FAILURE] = ("True", "ContentDeletionFailed", message)
    if content.objects:
        parts = sorted(f"{plural}.{group} has {count} resource instances" for (plural, group), count in content.objects.items())
        said[CONTENT_REMAINING] = ("True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(parts)}")
    if content.finalizers:
        parts = sorted(f"{finalizer} in {count} resource instances" for finalizer, count in content.finalizers.items())
        message = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
        said[FINALIZERS_REMAINING] = ("True", "SomeFinalizersRemain", message)
    changed = Namespace()
    changed.CopyFrom(namespace)
    for type_, (status, reason, message) in said.items():
        conditions.set_condition(changed.status.conditions, type_, status, reason, message, now)
    return changed if changed != namespace else None


class NamespaceController:
    name = "namespace"
    workers = 10
    max_backoff = 60.0
    """The same limit as in Kubernetes."""

    def __init__(self, shared: ControllerContext) -> None:
        self._client = shared.client
        self._clock = shared.clock
        self._pods = shared.informers.index(PODS, object_namespace)
        self._namespaces = shared.informers.store(NAMESPACES)
        self._custom = shared.informers.custom

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (WatchedResource(NAMESPACES, _key_of_changed_spec),)

    async def sync(self, key: str) -> float | None:
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.metadata.HasField("deletionTimestamp") or await self._is_gone(namespace):
            return None
        if NAMESPACE_FINALIZER not in namespace.spec.finalizers:
            return None
        content = RemainingContent()
        pods = await self._delete_content(PODS, key, content)
        for resource in () if pods else (*OTHERS, *self._custom.resources):
            if resource.namespaced:
                await self._delete_content(resource, key, content)
        if not pods and not content.errors and await self._finalize(namespace):
            return None
        if (changed := set_conditions(namespace, content, self._clock.time())) is not None:
            await self._write_status(changed)
        if content.errors:
            raise content.errors[0]
        return seconds_until_retry(namespace, self._clock.time())

    async def _delete_content(self, resource: Resource[Any], namespace: str, content: RemainingContent) -> bool:
        """Delete all objects of a kind, and count the objects and errors that remain. Return True if objects may remain.

        Raise ApiError for an error that concerns all kinds.
        """
        try:
            items = await self._client.of(resource).delete_collection(namespace)
        except (Unavailable, Fenced):
            raise
        except ApiError as error:
            content.errors.append(error)
            return True
        errors = [_item_error(resource, item) for item in items if item.HasField("error")]
        refused = [api_error for api_error in errors if not isinstance(api_error, NotFound)]
        content.errors += refused
        remains = len(items) > len(errors) or bool(refused)
        if remains:
            content.count(resource, await self._list(resource, namespace))
        return remains

    async def _list(self, resource: Resource[Any], namespace: str) -> Iterable[Object]:
        """Return the remaining objects of a kind. Thousands of pods may take minutes to end, and the informer has them."""
        if resource is PODS:
            return self._pods.under(namespace).values()
        try:
            return (await self._client.of(resource).list(namespace)).items
        except (Unavailable, Fenced):
            raise
        except ApiError:
            return ()

    async def _write_status(self, namespace: Namespace) -> None:
        """Write the conditions. A conflict is no error: the next sync writes them."""
        try:
            await self._client.namespaces.update_status(namespace)
        except (NotFound, Conflict):
            return

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


def _key_of_changed_spec(delta: Delta[Namespace]) -> Iterable[str]:
    """Return the namespace, unless only its status has changed, which each sync may write."""
    before, obj = delta.old, delta.obj
    same = before is not None and before.spec == obj.spec
    if same and before is not None and before.metadata.deletionTimestamp == obj.metadata.deletionTimestamp:
        return ()
    return key_of_object(delta)


def _item_error(resource: Resource[Any], item: BatchItem) -> ApiError:
    """Return the error with the name of the object, which the message of a webhook may not contain."""
    error = from_status(item.error)
    return from_refusal(replace(error.refusal, message=f'{resource.plural} "{item.name}": {error.message}'))
