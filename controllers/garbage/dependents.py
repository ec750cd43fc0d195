"""Who names whom as an owner, over all kinds. It hears of changes as an informer's handlers do."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api.resources import Resource, store_key
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta


class Place(NamedTuple):
    """Where an object is in the informers' stores."""

    resource: Resource[Any]
    key: str
    blocks: bool = False
    """One of its references to this owner has blockOwnerDeletion."""


class Dependents:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, Place]] = {}

    def of(self, uid: str) -> Mapping[str, Place]:
        """Those that name the object with this uid as an owner, by their own uid."""
        return self._of.get(uid, {})

    def follow(self, resource: Resource[Any], deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            if delta.old is not None:
                self._drop(delta.old.metadata)
            if delta.kind != DELETED:
                metadata, key = delta.obj.metadata, store_key(delta.obj)
                for reference in metadata.ownerReferences:
                    dependents, blocks = self._of.setdefault(reference.uid, {}), reference.blockOwnerDeletion
                    before = dependents.get(metadata.uid)
                    dependents[metadata.uid] = Place(resource, key, blocks or (before is not None and before.blocks))

    def _drop(self, metadata: Any) -> None:
        for reference in metadata.ownerReferences:
            found = self._of.get(reference.uid)
            if found is not None and found.pop(metadata.uid, None) is not None and not found:
                del self._of[reference.uid]
