"""Whose an object is: claimed by a selector, kept by a controller's reference.

    no controller, selected ---adopted---> the owner's ---labels no longer selected---> released: nobody's

An object that has a controller already is left alone, selected or not. Adopting and releasing compare the object's version, so
that of two owners who want it one gets it. A replica set neither adopts nor releases what has ended, a job does.

Source: pkg/controller/controller_ref_manager.go of Kubernetes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controllers.controller import controller_of
from controllers.labelled import anything
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import Object, Resource
from pinnace.api.selectors import LabelSelector

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
