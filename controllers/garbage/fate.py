"""What becomes of an object because of its owners. Pure.

owners                                              the object
one at least stays                                  stays, without the references to those that do not
none stays, one waits, it has dependents            is deleted, foreground: they go before it
none stays                                          is deleted, as its own finalizers say
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, auto

from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER


class Owner(IntEnum):
    """What one reference finds. Where several have the same uid, the greatest counts: an owner that one of them finds is there,
    whatever the others call it."""

    GONE = auto()
    """There is none with that uid."""
    STAYS = auto()
    WAITS = auto()
    """It is being deleted in the foreground, after its dependents: also after those that would not keep it."""


@dataclass(frozen=True, slots=True)
class Keep:
    pass


@dataclass(frozen=True, slots=True)
class Release:
    """The object loses its references to these owners, by uid."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Delete:
    policy: str
    """Background, Foreground or Orphan."""


Fate = Keep | Release | Delete


def fate(metadata: ObjectMeta, owners: Mapping[str, Owner], has_dependents: bool) -> Fate:
    """`owners`: by uid, each that the object names."""
    leaving = frozenset(uid for uid, owner in owners.items() if owner is not Owner.STAYS)
    if not leaving:
        return Keep()
    if len(leaving) < len(owners):
        return Release(leaving)
    if has_dependents and Owner.WAITS in owners.values():
        return Delete("Foreground")
    if ORPHAN_FINALIZER in metadata.finalizers:
        return Delete("Orphan")
    return Delete("Foreground" if FOREGROUND_FINALIZER in metadata.finalizers else "Background")


def waits_for(owner: ObjectMeta, reference: OwnerReference) -> bool:
    """Does this owner go only after the object with this reference to it?"""
    return reference.blockOwnerDeletion and deleting(owner, FOREGROUND_FINALIZER)


def deleting(metadata: ObjectMeta, finalizer: str) -> bool:
    """Is it being deleted, and held by this finalizer?"""
    return metadata.HasField("deletionTimestamp") and finalizer in metadata.finalizers


def without_owners(metadata: ObjectMeta, uids: Iterable[str]) -> None:
    """Takes the references to these owners out, in place."""
    gone = set(uids)
    kept = [each for each in metadata.ownerReferences if each.uid not in gone]
    del metadata.ownerReferences[:]
    metadata.ownerReferences.extend(kept)
