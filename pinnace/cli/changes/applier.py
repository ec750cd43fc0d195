"""Carries out what `apply_decisions` decides, for objects that go together.

Applying is idempotent, so it may be repeated whatever happened: when somebody else was faster, or when an answer was lost, the
object is read again and decided upon again. What may not be done for all at once is done for each: who may get, create and
update may apply.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pinnace.api import names
from pinnace.api.resources import NODES, PODS
from pinnace.api.selectors import one_of
from pinnace.cli.changes.apply_decisions import CONFIGURED, CREATED, UNCHANGED, Desired, merged
from pinnace.cli.objects.query import AT_ONCE
from pinnace.cli.objects.targets import reference
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, OutcomeUnknown, error_of
from pinnace.printers.columns import is_set

BATCHED = (PODS, NODES)
"""Resources whose services create many objects in one call."""
ROUNDS = 5
"""How often an object is tried that somebody else changes at the same time, or whose answer was lost."""

Outcome = str | ApiError


class Preview(NamedTuple):
    """An object before and after it is applied. None: it is not there."""

    before: Any
    after: Any


class Item:
    """One object on its way. `live` is what is there, as far as is known; None: nothing. `after`: what it was made."""

    def __init__(self, desired: Desired) -> None:
        self.desired = desired
        self.live: Any = None
        self.after: Any = None
        self.perhaps = UNCHANGED
        """What an attempt whose answer was lost has perhaps done already."""
        self.outcome: Outcome | None = None
        self.error: ApiError | None = None
        """Why it must be tried again."""

    def settle(self, did: str, error: ApiError | None) -> None:
        """An attempt has ended. Leaves `outcome` None when the object must be read and decided upon again."""
        self.error = error
        match error:
            case None:
                self.outcome = did
            case OutcomeUnknown():
                self.perhaps = did
            case AlreadyExists():
                pass
            case NotFound() if did == CONFIGURED:  # somebody has deleted it meanwhile
                pass
            case Conflict() if not self.desired.obj.metadata.resourceVersion:
                pass
            case _:
                self.outcome = error

    def unread(self, error: ApiError) -> None:
        """What is there is not known, and so nothing can be done: unless an attempt has perhaps done it."""
        self.outcome = self.error if isinstance(self.error, OutcomeUnknown) else error


class Applier:
    def __init__(self, client: Client, *, dry_run: bool, warn: Callable[[str], None] = lambda text: None) -> None:
        """`warn`: is told what will not stay as it was applied."""
        self._client = client
        self._dry_run = dry_run
        self._warn = warn
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def apply(self, chunk: Sequence[Desired]) -> list[Outcome]:
        """The outcome of each, in order; see `apply_decisions.chunks`."""
        items = await self._settled(chunk)
        for item in items:
            if isinstance(item.outcome, str) and item.live is not None and is_set(item.live.metadata.deletionTimestamp):
                name = reference(item.desired.resource, item.live.metadata.name)
                self._warn(f"{name} is being deleted: apply it again once it is gone")
        return [item.outcome or item.error or UNCHANGED for item in items]

    async def preview(self, chunk: Sequence[Desired]) -> list[Preview | ApiError]:
        """The same, of a dry run: what each is, and would be."""
        items = await self._settled(chunk)
        return [
            outcome if isinstance(outcome := item.outcome or item.error, ApiError) else Preview(item.live, item.after)
            for item in items
        ]

    async def _settled(self, chunk: Sequence[Desired]) -> list[Item]:
        items = [Item(desired) for desired in chunk]
        open_ = items
        for _ in range(ROUNDS):
            await self._read(open_)
            open_ = [item for item in open_ if item.outcome is None]
            new = [item for item in open_ if item.live is None]
            await asyncio.gather(self._create(new), *(self._update(item) for item in open_ if item.live is not None))
            open_ = [item for item in open_ if item.outcome is None]
            if not open_:
                break
        return items

    async def _read(self, items: Sequence[Item]) -> None:
        """One list for each namespace. What cannot be read has an outcome."""
        by_namespace: defaultdict[str, list[Item]] = defaultdict(list)
        for item in items:
            item.live = None
            if not names.path_segment(item.desired.obj.metadata.name):  # what no kind takes as a name will be refused
                by_namespace[item.desired.obj.metadata.namespace].append(item)
        for namespace, group in by_namespace.items():
            wanted = one_of("metadata.name", (item.desired.obj.metadata.name for item in group))
            try:
                listing = await self._client.of(group[0].desired.resource).list(namespace, fields=wanted)
            except Forbidden:
                await asyncio.gather(*map(self._read_one, group))
            except ApiError as error:
                for item in group:
                    item.unread(error)
            else:
                found = {obj.metadata.name: obj for obj in listing.items}
                for item in group:
                    item.live = found.get(item.desired.obj.metadata.name)

    async def _read_one(self, item: Item) -> None:
        meta = item.desired.obj.metadata
        async with self._limit:
            try:
                item.live = await self._client.of(item.desired.resource).get(meta.name, meta.namespace)
            except NotFound:
                pass
            except ApiError as error:
                item.unread(error)

    async def _create(self, items: Sequence[Item]) -> None:
        if len(items) < 2 or self._dry_run or items[0].desired.resource not in BATCHED:
            await asyncio.gather(*map(self._create_one, items))
            return
        client = self._client.of(items[0].desired.resource)
        try:
            results = await client.create_batch([item.desired.obj for item in items])
        except Forbidden:  # for one of them: they may be of several namespaces
            await asyncio.gather(*map(self._create_one, items))
            return
        except ApiError as error:
            for item in items:
                item.settle(CREATED, error)
            return
        for item, result in zip(items, results, strict=True):
            item.settle(CREATED, error_of(result))

    async def _create_one(self, item: Item) -> None:
        client = self._client.of(item.desired.resource)
        async with self._limit:
            try:
                item.after = await client.create(item.desired.obj, dry_run=self._dry_run)
            except ApiError as error:
                item.settle(CREATED, error)
            else:
                item.settle(CREATED, None)

    async def _update(self, item: Item) -> None:
        new = merged(item.desired, item.live)
        if new is None:
            item.after = item.live
            item.settle(item.perhaps, None)
            return
        client = self._client.of(item.desired.resource)
        async with self._limit:
            try:
                item.after = await client.update(new, dry_run=self._dry_run)
            except ApiError as error:
                item.settle(CONFIGURED, error)
            else:
                did = UNCHANGED if self._is_same(item.after, item.live) else CONFIGURED
                item.settle(did if item.perhaps == UNCHANGED else item.perhaps, None)

    def _is_same(self, updated: Any, live: Any) -> bool:
        """Whether the update was none: what the manifest leaves out, the server has completed as before."""
        if self._dry_run:  # nothing is written, so there is no new version
            return bool(updated == live)
        return bool(updated.metadata.resourceVersion == live.metadata.resourceVersion)
