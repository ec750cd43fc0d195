"""Following objects for a person: the present state, then every change, until cancelled.

    listed --> watching --> lost --> watching ...       (resumes where it was, on any server; says so)
                  |  Expired: lists again, and tells the differences
                  v
               an error that no retry helps, such as Forbidden, is raised

No change is lost or told twice, but for intermediate versions after Expired. Unlike an informer (pinnace.client.informer) it
begins with a list, so that a wrong selector or a missing server fails at once, and it tells about the connection.

How long what is waited for may take: until the session's deadline, or not at all.

Until objects are gone: those very ones, not others that come after them under their names.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pinnace.api.resources import Object, Resource
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli.objects.targets import Selection, reference, some_of
from pinnace.cli.session import Session
from pinnace.cli.terminal import note
from pinnace.client.errors import Conflict, Expired, HistoryChanged, Unavailable
from pinnace.client.informer import Delta, difference
from pinnace.client.resource import ResourceClient
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T", bound=Object)


class _Satisfied(Exception):
    """Ends `until`."""


class Follower(Generic[T]):
    """`store` holds the objects as they were told last, by key; they must not be changed."""

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
        self._history = b""  # of the revision, where it is known
        self._lost = False
        self.store: dict[str, T] = {}

    async def start(self) -> None:
        """Gets the present state into `store`. Raises ApiError."""
        await self._list()

    async def follow(self, changed: Callable[[Sequence[Delta[T]]], None]) -> None:
        """Calls `changed` with the changes after `start`, in order, those of one revision together."""
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
            except (Unavailable, Conflict) as error:  # Conflict: the server found this reader too slow; nothing is lost
                await self._retry(error.message, backoff)

    async def until(self, satisfied: Callable[[], bool]) -> None:
        """Starts, and follows until `satisfied`, which looks at the store, says so."""
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
        """The differences between the store and the present state, which the store then is."""
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
    """As `Follower.until`. Raises TimeoutError when the session looks once and it is not so."""
    if not session.looks_once:
        await follower.until(satisfied)
        return
    await follower.start()
    if not satisfied():
        raise TimeoutError(f"timed out waiting for {session.waiting_for}")


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """One object to delete. `uid`: that very one, not a namesake; empty where a name is all that is known."""

    resource: Resource[Any]
    namespace: str
    name: str
    uid: str = ""


async def wait_until_gone(session: Session, deleted: Sequence[PendingDeletion]) -> None:
    """Of those without a uid nothing is waited for."""
    groups: defaultdict[tuple[Resource[Any], str], list[PendingDeletion]] = defaultdict(list)
    for one in deleted:
        if one.uid:
            groups[one.resource, one.namespace].append(one)
    for (resource, namespace), left in groups.items():
        selection = Selection.named(namespace, [one.name for one in left])
        follower = Follower(session.client.of(resource), selection, note=note)

        def gone(left: list[PendingDeletion] = left, store: Mapping[str, Object] = follower.store) -> bool:
            left[:] = [one for one in left if is_there(one, store)]
            session.waiting_for = f"{some_of([reference(one.resource, one.name) for one in left])} to go"
            return not left

        await until(session, follower, gone)


def is_there(one: PendingDeletion, store: Mapping[str, Object]) -> bool:
    found = store.get(one.resource.key(one.namespace, one.name))
    return found is not None and found.metadata.uid == one.uid
