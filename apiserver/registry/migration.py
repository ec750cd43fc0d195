"""Rewrites objects that an earlier version of pinnace stored in a form that this version does not write.

One form so far: quantities were stored as clients wrote them, and are canonical now (`pinnace.api.quantities`). The
migration runs once for each store. The key STORAGE_FORMAT_KEY records the format; a server that finds the current one does
nothing.

Guarantees: an object is rewritten only against the version that was read, so no concurrent write is lost. Neither its
generation nor its meaning changes. Several servers may migrate at the same time. When one dies half way, the next server
completes the migration.

During a rolling upgrade an older server can still store the old form. It is then served in the old form. Nothing else depends
on the form, because comparisons go by value.
"""

import logging
from collections.abc import Mapping
from typing import Any

from apiserver import errors
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import Entry, Selection
from apiserver.errors import Rejected
from apiserver.registry.deletion import copy
from apiserver.registry.mutation import Mutation, Next, Put, Version
from apiserver.registry.store import Store
from apiserver.storage.committer import Conflict
from apiserver.storage.interface import Storage, StorageError, Write
from pinnace.api.quantities import canonicalize, has_quantities
from pinnace.api.resources import STORAGE_FORMAT_KEY, Resource
from pinnace.api.status import Code, Refusal
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices

log = logging.getLogger(__name__)

FORMAT = b"canonical-quantities"
BATCH = 100
"""Objects to a call of the store."""
RETRY_DELAY = 5.0
"""Seconds between two attempts when some objects could not be written."""


class Migration:
    def __init__(self, storage: Storage, stores: Mapping[Resource[Any], Store[Any]], cacher: Cacher, clock: Clock) -> None:
        self._storage = storage
        self._stores = stores
        self._cacher = cacher
        self._clock = clock

    async def run(self) -> None:
        """Returns when the whole store has the current format. Call it when the caches are loaded."""
        while not await self._attempt():
            await self._clock.sleep(RETRY_DELAY)

    async def _attempt(self) -> bool:
        try:
            found = await self._storage.get(STORAGE_FORMAT_KEY)
            if found is not None and found.value == FORMAT:
                return True
            if not all(self._cacher.of(resource).loaded for resource in self._stores):
                return False
            refused = [refusal for resource, store in self._stores.items() for refusal in await self._migrate(resource, store)]
            if refused:
                log.warning(
                    "%d objects are not migrated to the storage format %s yet: %s", len(refused), FORMAT, refused[0].message
                )
                return False
            await self._storage.transact([Write(STORAGE_FORMAT_KEY, FORMAT, found.mod_revision if found else 0)])
        except (Conflict, StorageError) as error:
            log.warning("the migration of stored objects is interrupted: %s", error)
            return False
        return True

    async def _migrate(self, resource: Resource[Any], store: Store[Any]) -> list[Refusal]:
        """Refusals of the objects of one resource that could not be rewritten."""
        if not has_quantities(resource.message.DESCRIPTOR):
            return []
        entries = self._cacher.of(resource).select(Selection.parse(resource, "", "", ""))
        stale = [each for each, due in zip(entries, await in_slices(_is_due, entries, self._clock), strict=True) if due]
        refused: list[Refusal] = []
        for start in range(0, len(stale), BATCH):
            batch = [_rewrite(resource, each) for each in stale[start : start + BATCH]]
            outcomes = await store.mutate(batch)
            refused += [each for each in outcomes if isinstance(each, Refusal) and each.code is not Code.NOT_FOUND]
        if stale:
            log.info(
                "%d of %d %s are migrated to canonical quantities", len(stale) - len(refused), len(entries), resource.plural
            )
        return refused


def _is_due(entry: Entry[Any]) -> bool:
    stored = entry.peek()
    canonical = type(stored)()
    canonical.CopyFrom(stored)
    canonicalize(canonical)
    return bool(canonical != stored)


def _rewrite(resource: Resource[Any], entry: Entry[Any]) -> Mutation[Any]:
    name = entry.peek().metadata.name

    def step(version: Version[Any] | None) -> Next[Any]:
        if version is None:
            raise Rejected(errors.not_found(resource, name))
        new = copy(resource, version.obj)
        canonicalize(new)
        return Put(new)

    return Mutation(entry.key, name, step)
