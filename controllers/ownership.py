"""Ownership of objects by selector and controller reference: which objects to adopt or release (pure), and the Claimer.

    no controller, selected ---adopted---> owned ---labels no longer selected---> released

An object that has another controller is left alone. Adoption and release compare the object's version: if two owners want an
object, one gets it. A replica set does not adopt or release pods that have ended; a job does.

Selectors do not change, and an object of the same version is the same object, so the Claimer checks each version once.

Source: pkg/controller/controller_ref_manager.go of Kubernetes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controllers.informers import anything
from controllers.runtime import Shared, controller_of
from controllers.writes import Expectations
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import Object, Resource
from pinnace.api.selectors import LabelSelector
from pinnace.client.errors import ApiError, Fenced, NotFound, Unavailable

T = TypeVar("T", bound=Object)


def keeper(obj: Object) -> str:
    """For an index: the object's namespace, and the uid of its controller, as `kept_by` has them; empty: it has none.

    Whoever may write to one namespace can name anybody's uid there. An owner manages what is in its own namespace alone."""
    reference = controller_of(obj)
    return f"{obj.metadata.namespace}/{reference.uid}" if reference is not None else ""


def kept_by(owner: Object) -> str:
    """What `keeper` says of the objects that this one manages."""
    return f"{owner.metadata.namespace}/{owner.metadata.uid}"


def ownerless(obj: Object) -> bool:
    """Has it no controller?"""
    return controller_of(obj) is None


def refers_to(resource: Resource[Any], owner: Object) -> OwnerReference:
    """What an object that the owner manages says."""
    metadata = owner.metadata
    return OwnerReference(
        apiVersion=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )


@dataclass(frozen=True, slots=True)
class Claims(Generic[T]):
    own: list[T]
    adopt: list[T]
    release: list[T]


def claims(
    owner: ObjectMeta,
    selector: LabelSelector,
    managed: Iterable[T],
    free: Iterable[T],
    moves: Callable[[T], bool] = anything,
) -> Claims[T]:
    """`managed`: what has the owner as its controller. `free`: what is selected and has none. An owner that is being deleted
    keeps what it has, and no more. `moves`: may it be adopted and released?"""
    leaving = owner.HasField("deletionTimestamp")
    found: Claims[T] = Claims([], [], [])
    for obj in managed:
        if selector.matches(obj.metadata.labels):
            found.own.append(obj)
        elif not leaving and moves(obj):
            found.release.append(obj)
    if not leaving:
        found.adopt.extend(obj for obj in free if not obj.metadata.HasField("deletionTimestamp") and moves(obj))
    return found


def adopted(obj: T, resource: Resource[Any], owner: Object, finalizer: str = "") -> T:
    """A copy that the owner manages, with its finalizer if it has one."""
    changed = _copy(obj)
    if finalizer and finalizer not in obj.metadata.finalizers:
        changed.metadata.finalizers.append(finalizer)
    changed.metadata.ownerReferences.append(refers_to(resource, owner))
    return changed


def released(obj: T, owner: Object, finalizer: str = "") -> T:
    """A copy that has nothing to do with the owner."""
    changed = _copy(obj)
    if finalizer in obj.metadata.finalizers:
        changed.metadata.finalizers.remove(finalizer)
    kept = [each for each in obj.metadata.ownerReferences if each.uid != owner.metadata.uid]
    del changed.metadata.ownerReferences[:]
    changed.metadata.ownerReferences.extend(kept)
    return changed


def _copy(obj: T) -> T:
    changed = type(obj)()
    changed.CopyFrom(obj)
    return changed


class Claimer(Generic[T]):
    """For a controller whose `owners` manage things of one kind."""

    def __init__(
        self,
        shared: Shared,
        owners: Resource[Any],
        things: Resource[T],
        expectations: Expectations,
        *,
        finalizer: str = "",
        moves: Callable[[T], bool] = anything,
    ) -> None:
        """`finalizer`: what the owners' things have; empty: none. `moves`: what may be adopted and released, by the
        object alone."""
        self._owners = owners
        self._owner_client = shared.client.of(owners)
        self._client = shared.client.of(things)
        self._things = shared.informers.index(things, keeper)
        self._free = shared.informers.labelled(things, ownerless)
        self._expectations = expectations
        self._finalizer = finalizer
        self._moves = moves
        self._selected: dict[str, dict[str, T]] = {}

    async def claim(self, key: str, owner: Object, selector: LabelSelector) -> list[T]:
        """What the owner manages, after this. One that may not be moved keeps no other where it is. Raises ApiError, the first
        refusal: a Conflict when somebody else has changed one meanwhile."""
        metadata = owner.metadata
        managed, before = self._things.under(kept_by(owner)), self._selected.get(key, {})
        unsure = [obj for uid, obj in managed.items() if before.get(uid) is not obj]
        free = self._free.select(metadata.namespace, selector.matches)
        found = claims(metadata, selector, unsure, free, self._moves)
        sure = [obj for uid, obj in managed.items() if before.get(uid) is obj]
        self._selected[key] = {obj.metadata.uid: obj for obj in (*sure, *found.own)}
        found.own.extend(sure)
        refused: list[ApiError] = []
        for obj in found.release:
            await self._update(key, released(obj, owner, self._finalizer), refused)
        if found.adopt and await self._stays(owner):
            for obj in found.adopt:
                own = await self._update(key, adopted(obj, self._owners, owner, self._finalizer), refused)
                if own is not None:
                    found.own.append(own)
        if refused:
            raise refused[0]
        return found.own

    def forget(self, key: str) -> None:
        """The owner is gone."""
        self._selected.pop(key, None)

    async def _update(self, key: str, changed: T, refused: list[ApiError]) -> T | None:
        """None: it is gone, or was refused, which is noted."""
        try:
            stored = await self._client.update(changed)
        except NotFound:
            return None
        except (Unavailable, Fenced):
            raise
        except ApiError as error:
            refused.append(error)
            return None
        self._expectations.wrote(key, self._client.resource, stored.metadata.resourceVersion)
        return stored

    async def _stays(self, owner: Object) -> bool:
        """Asks the API server, not the cache: what is adopted by somebody who is being deleted would be lost."""
        metadata = owner.metadata
        try:
            latest = (await self._owner_client.get(metadata.name, metadata.namespace)).metadata
        except NotFound:
            return False
        return bool(latest.uid == metadata.uid and not latest.HasField("deletionTimestamp"))
