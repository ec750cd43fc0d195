"""Ownership of objects by selector and controller reference: the decisions to adopt or release (pure), and the Claimer.

    no controller, selected ---adopted---> owned ---labels no longer selected---> released

An object with another controller is not changed. Adoption and release compare the object's version, so that only one of several
owners can adopt an object. A replica set does not adopt or release terminated pods; a job does.

Selectors are immutable, and an object with an unchanged version is the same Python object, so the Claimer checks each version
once.

Source: pkg/controller/controller_ref_manager.go of Kubernetes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import Object, Resource
from pinnace.api.selectors import LabelSelector
from pinnace.client.errors import ApiError, Fenced, NotFound, Unavailable
from pinnace.controllers.informers import select_all
from pinnace.controllers.runtime import ControllerContext, get_controller_of
from pinnace.controllers.writes import Expectations

T = TypeVar("T", bound=Object)


def controller_key(obj: Object) -> str:
    """Return an index key: the object's namespace and the UID of its controller, as in `owner_key`, or an empty string.

    A user with access to one namespace can set any UID there. Therefore an owner manages only objects of its own namespace.
    """
    reference = get_controller_of(obj)
    return f"{obj.metadata.namespace}/{reference.uid}" if reference is not None else ""


def owner_key(owner: Object) -> str:
    """Return the `controller_key` key of the objects that this owner manages."""
    return f"{owner.metadata.namespace}/{owner.metadata.uid}"


def has_no_controller(obj: Object) -> bool:
    """Return True if the object has no controller."""
    return get_controller_of(obj) is None


def new_controller_ref(resource: Resource[Any], owner: Object) -> OwnerReference:
    """Return the controller reference to the owner."""
    metadata = owner.metadata
    return OwnerReference(
        apiVersion=resource.api_version,
        kind=resource.kind,
        name=metadata.name,
        uid=metadata.uid,
        controller=True,
        blockOwnerDeletion=True,
    )


def accept_any_object(owner: ObjectMeta, obj: Object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ClaimDecisions(Generic[T]):
    own: list[T]
    adopt: list[T]
    release: list[T]


def decide_claims(
    owner: ObjectMeta,
    selector: LabelSelector,
    managed: Iterable[T],
    free: Iterable[T],
    moves: Callable[[T], bool] = select_all,
    is_member: Callable[[ObjectMeta, T], bool] = accept_any_object,
) -> ClaimDecisions[T]:
    """Decide which objects the owner keeps, adopts and releases.

    `managed` are the objects that the owner controls. `free` are the selected objects without a controller. An owner that
    is being deleted neither adopts nor releases. `moves` returns True if an object may be adopted and released. `is_member`
    returns False if an object is not the owner's although it is selected.
    """
    leaving = owner.HasField("deletionTimestamp")
    result: ClaimDecisions[T] = ClaimDecisions([], [], [])
    for obj in managed:
        if selector.matches(obj.metadata.labels) and is_member(owner, obj):
            result.own.append(obj)
        elif not leaving and moves(obj):
            result.release.append(obj)
    if not leaving:
        result.adopt.extend(
            obj for obj in free if not obj.metadata.HasField("deletionTimestamp") and moves(obj) and is_member(owner, obj)
        )
    return result


def adopted_copy(obj: T, resource: Resource[Any], owner: Object, finalizer: str = "") -> T:
    """Return a copy of the object that the owner controls, with the finalizer if there is one."""
    changed = _copy_object(obj)
    if finalizer and finalizer not in obj.metadata.finalizers:
        changed.metadata.finalizers.append(finalizer)
    changed.metadata.ownerReferences.append(new_controller_ref(resource, owner))
    return changed


def released_copy(obj: T, owner: Object, finalizer: str = "") -> T:
    """Return a copy of the object without the reference to the owner and without the finalizer."""
    changed = _copy_object(obj)
    if finalizer in obj.metadata.finalizers:
        changed.metadata.finalizers.remove(finalizer)
    kept = [owner_reference for owner_reference in obj.metadata.ownerReferences if owner_reference.uid != owner.metadata.uid]
    del changed.metadata.ownerReferences[:]
    changed.metadata.ownerReferences.extend(kept)
    return changed


def _copy_object(obj: T) -> T:
    changed = type(obj)()
    changed.CopyFrom(obj)
    return changed


class ControllerRefManager(Generic[T]):
    """Adopts and releases objects of one kind for the `owners` of a controller."""

    def __init__(
        self,
        shared: ControllerContext,
        owners: Resource[Any],
        things: Resource[T],
        expectations: Expectations,
        *,
        finalizer: str = "",
        moves: Callable[[T], bool] = select_all,
        is_member: Callable[[ObjectMeta, T], bool] = accept_any_object,
    ) -> None:
        """`finalizer` is the finalizer of owned objects, or empty. `moves` returns True if an object may be adopted and
        released; it must depend only on the object. `is_member` is as in `decide_claims`."""
        self._owners = owners
        self._owner_client = shared.client.of(owners)
        self._client = shared.client.of(things)
        self._things = shared.informers.index(things, controller_key)
        self._free = shared.informers.labelled(things, has_no_controller)
        self._expectations = expectations
        self._finalizer = finalizer
        self._moves = moves
        self._is_member = is_member
        self._selected: dict[str, dict[str, T]] = {}

    async def claim_objects(self, key: str, owner: Object, selector: LabelSelector) -> list[T]:
        """Adopt and release objects, and return the objects that the owner then controls.

        A failed write does not prevent the others. Raise the first ApiError, for example Conflict if another client
        changed an object.
        """
        metadata = owner.metadata
        managed, before = self._things.under(owner_key(owner)), self._selected.get(key, {})
        unsure = [obj for uid, obj in managed.items() if before.get(uid) is not obj]
        free = self._free.select(metadata.namespace, selector.matches)
        result = decide_claims(metadata, selector, unsure, free, self._moves, self._is_member)
        sure = [obj for uid, obj in managed.items() if before.get(uid) is obj]
        self._selected[key] = {obj.metadata.uid: obj for obj in (*sure, *result.own)}
        result.own.extend(sure)
        refused: list[ApiError] = []
        for obj in result.release:
            await self._write_object(key, released_copy(obj, owner, self._finalizer), refused)
        if result.adopt and await self._owner_exists(owner):
            for obj in result.adopt:
                own = await self._write_object(key, adopted_copy(obj, self._owners, owner, self._finalizer), refused)
                if own is not None:
                    result.own.append(own)
        if refused:
            raise refused[0]
        return result.own

    def forget_owner(self, key: str) -> None:
        """Drop a deleted owner."""
        self._selected.pop(key, None)

    async def _write_object(self, key: str, changed: T, refused: list[ApiError]) -> T | None:
        """Write the object. Return None if it is gone or the write was refused; the error is appended to `refused`."""
        try:
            stored = await self._client.update(changed)
        except NotFound:
            return None
        except (Unavailable, Fenced):
            raise
        except ApiError as error:
            refused.append(error)
            return None
        self._expectations.expect_version(key, self._client.resource, stored.metadata.resourceVersion)
        return stored

    async def _owner_exists(self, owner: Object) -> bool:
        """Return True if the owner exists and is not being deleted, according to the API server.

        The cache is not sufficient, because a deleted owner would leave its adopted objects without an owner.
        """
        metadata = owner.metadata
        try:
            latest = (await self._owner_client.get(metadata.name, metadata.namespace)).metadata
        except NotFound:
            return False
        return bool(latest.uid == metadata.uid and not latest.HasField("deletionTimestamp"))
