"""Watches for commands: the current objects, then every change until the command is cancelled.

    listed --> watching --> lost --> watching ...       (resumes at its revision on any API server; prints a note)
                  |  Expired: lists again, and reports the differences
                  v
               an error that a retry cannot resolve, such as Forbidden, is raised
Each change is reported once; after Expired, intermediate versions can be missing. Unlike an informer
(pinnace.client.informer), a Follower starts with a list, so that an invalid selector or an unavailable server is an immediate
error, and it reports lost connections.
connections.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pinnace.api.resources import Object, Resource
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli.objects.query import Selection, reference, some_of
from pinnace.cli.session import Session
from pinnace.cli.terminal import note
from pinnace.client.errors import Conflict, Expired, HistoryChanged, Unavailable
from pinnace.client.informer import Delta, difference
from pinnace.client.resource import ResourceClient
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T", bound=Object)


class _Satisfied(Exception):
    """Ends `Follower.until`."""


class Follower(Generic[T]):
    """Lists and watches a selection. `store` contains the last reported objects by key, which must not be modified."""

    def __init__(
        self,
        client: ResourceClient[T],
        selection: Selection,
        *,
        note: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._selection = selection
        self._note = note
        self._clock = clock
        self._revision = 0
        self._history = b""  # identifies etcd's history at the revision, if known
        self._lost = False
        self.store: dict[str, T] = {}

    async def start(self) -> None:
        """List the current objects into `store`. Raises ApiError."""
        await self._list()

    async def follow(self, changed: Callable[[Sequence[Delta[T]]], None]) -> None:
        """Call `changed` with the changes after `start`, in order. Changes of one revision are passed in one call."""
        backoff = Backoff(maximum=1.0)
        while True:
            try:
                await self._watch(changed, backoff)
            except Expired:
                self._note("the watch expired: listing again")
                self._revision = 0
            except HistoryChanged:
                self._note("etcd was restored from a backup or lost history: listing again")
                self._revision, self._lost = 0, False
            except (Unavailable, Conflict) as error:  # Conflict: this client was too slow; no event is lost
                await self._retry(error.message, backoff)

    async def until(self, satisfied: Callable[[], bool]) -> None:
        """List and watch until `satisfied`, a condition on the store, returns true."""
        await self.start()

        def check(_: Sequence[Delta[T]]) -> None:
            if satisfied():
                raise _Satisfied

        with suppress(_Satisfied):
            check(())
            await self.follow(check)

    async def _watch(self, changed: Callable[[Sequence[Delta[T]]], None], backoff: Backoff) -> None:
        if not self._revision:
            changed(await self._list())
        watch = self._client.watch(
            self._selection.namespace,
            labels=self._selection.labels,
            fields=self._selection.fields,
            resource_version=self._revision,
            not_before=self._revision,
            history=self._history,
        )
        async with aclosing(watch) as batches:
            async for batch in batches:
                if self._lost:
                    self._note(f"reconnected; no event was missed since revision {self._revision}")
                    self._lost = False
                backoff.reset()
                self._revision, self._history = batch.resource_version, batch.history
                if batch.events:
                    changed([self._apply(kind, obj) for kind, obj in batch.events])

    async def _retry(self, why: str, backoff: Backoff) -> None:
        if not self._lost:
            self._note(f"connection lost ({why}): retrying")
            self._lost = True
        await self._clock.sleep(backoff.next())

    async def _list(self) -> list[Delta[T]]:
        """List the current objects into the store, and return the differences from its previous content."""
        where = self._selection
        listing = await self._client.list(where.namespace, labels=where.labels, fields=where.fields)
        present = {self._client.resource.key_of(obj): obj for obj in listing.items}
        deltas = difference(self.store, present)
        self.store.clear()
        self.store.update(present)
        self._revision, self._history = listing.resource_version, b""
        return deltas

    def _apply(self, kind: WatchEventType, obj: T) -> Delta[T]:
        key = self._client.resource.key_of(obj)
        if kind == WatchEventType.DELETED:
            return Delta(kind, obj, self.store.pop(key, None))
        old, self.store[key] = self.store.get(key), obj
        return Delta(kind, obj, old)


async def until(session: Session, follower: Follower[Any], satisfied: Callable[[], bool]) -> None:
    """Wait as `Follower.until` does. Raises TimeoutError if the session checks once and the condition is not met."""
    if not session.looks_once:
        await follower.until(satisfied)
        return
    await follower.start()
    if not satisfied():
        raise TimeoutError(f"timed out waiting for {session.waiting_for}")


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """One object to delete. If `uid` is set, an object with the same name and another uid is not deleted."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str = ""


async def wait_until_gone(session: Session, deleted: Sequence[PendingDeletion]) -> None:
    """Wait until the objects with a uid are gone. A recreated object with the same name has another uid."""
    groups: defaultdict[tuple[Resource[Any], str], list[PendingDeletion]] = defaultdict(list)
    for one in deleted:
        if one.uid:
            groups[one.resource, one.namespace].append(one)
    for (resource, namespace), left in groups.items():
        selection = Selection.named(namespace, [one.name for one in left])
        follower = Follower(session.client.of(resource), selection, note=note)

        def gone(left: list[PendingDeletion] = left, store: Mapping[str, Object] = follower.store) -> bool:
            left[:] = [one for one in left if is_there(one, store)]
            session.waiting_for = f"the deletion of {some_of([reference(one.resource, one.name) for one in left])}"
            return not left

        await until(session, follower, gone)


def is_there(one: PendingDeletion, store: Mapping[str, Object]) -> bool:
    found = store.get(one.resource.key(one.namespace, one.name))
    return found is not None and found.metadata.uid == one.uid
