"""Adopts and releases on the cluster what ownership.py finds.

Selectors do not change, and a version of an object is the same object: what was found to be the owner's is not looked at again.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from controllers.controller import Shared
from controllers.expectations import Expectations
from controllers.labelled import anything
from controllers.ownership import adopted, claims, keeper, kept_by, ownerless, released
from pinnace.api.resources import Object, Resource
from pinnace.api.selectors import LabelSelector
from pinnace.client.errors import ApiError, Fenced, NotFound, Unavailable

T = TypeVar("T", bound=Object)


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
