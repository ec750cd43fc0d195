"""The garbage collector: deletes objects whose owners are gone, and completes foreground and orphan deletions.

    owners                                              the object
    at least one stays                                  stays, without the references to the others
    none stays, one waits, the object has dependents    is deleted in the foreground: its dependents are deleted first
    none stays                                          is deleted with the policy of its own finalizers

If the cache does not have an owner, the collector reads it from the API server, once per kind, name and UID. The result applies
only to this combination: a reference with the UID of an existing object, but another name, kind or namespace, does not
affect the dependents of this object. A reference to an owner in another namespace causes an event. If only the API server
has the owner, the collector reads it again until the cache has it, because it would otherwise miss the deletion.

Cycles: an owner is deleted after its dependents. In a cycle of owners, each would wait for the next, so an owner does not wait
for a dependent of its own cycle. Two alternating searches determine whether a dependent waits for the owner:

    up     from the owner, through the owners that wait for it
    down   from the dependent, through the dependents that it waits for

The dependent waits for the owner if `up` finds it. It does not if either search ends without reaching the start of the other.
Cycles are cached for their other members.

Any user who can create objects can create cycles and chains of any size. Therefore each search follows only QUICK references.
Longer searches run one at a time with pauses; in the meantime other owners are kept and synced again later. A search ends after
MOST references. Then the owner does not wait, and the order of deletion is not guaranteed.

Source: https://kubernetes.io/docs/concepts/architecture/garbage-collection/
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from pinnace.api.codec import to_dict
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import COLLECTED, NAMESPACES, PODS, CustomResource, Object, Resource, by_kind, store_key
from pinnace.api.verbs_pb2 import DELETED, DeleteRequest, PatchRequest
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from pinnace.client.errors import NotFound, timed_out
from pinnace.client.informer import Delta
from pinnace.client.resource import delete_request
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.runtime import ControllerContext, WatchedResource
from pinnace.controllers.writes import WriteBatcher
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import TimeSlice

QUICK = 100
"""Maximum number of references per direction of a short search, which takes about a millisecond."""
MOST = 500_000
"""Maximum number of references of one search, which takes several seconds of CPU and yields to other tasks."""
PAUSE = 4.0
"""Minimum pause after a long search, as a multiple of its duration."""
LATER = 1.0
"""Minimum seconds until an owner that needs a long search is synced again."""
RATE = 50.0
"""Maximum number of such syncs per second."""
_EVERY = 64
"""Number of steps between checks of the time slice."""

Edges = Callable[[Object], Iterable[Object | None]]
"""Yields one item per reference of an object: the referenced object if it waits, otherwise None."""


class SearchDeferred(Exception):
    """A long search is required and cannot run now. `seconds` is the delay until the next attempt."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:.0f} s")
        self.seconds = seconds


class OwnerCycles:
    """Finds cycles of owners. `up` yields the owners that wait for an object.

    `down` yields the dependents that a waiting object waits for, if they wait themselves.
    """

    def __init__(self, up: Edges, down: Edges, clock: Clock) -> None:
        self._up = up
        self._down = down
        self._clock = clock
        self._numbers = count()
        self._circle: dict[str, int] = {}
        """The number of an object's cycle, by UID."""
        self._open: dict[str, None] = {}
        """UIDs of owners that need a long search."""
        self._free_at = 0.0  # the earliest start of the next long search, in monotonic seconds

    def forget(self, uid: str) -> None:
        """Drop a deleted object."""
        self._circle.pop(uid, None)
        self._open.pop(uid, None)

    async def all_wait_for_owner(self, owner: Object, dependents: Sequence[Object]) -> bool:
        """Return True if all of these dependents, which are being deleted in the foreground, wait for the owner.

        Raise SearchDeferred.
        """
        circle = self._circle.get(owner.metadata.uid)
        missing = {
            dependent.metadata.uid: dependent
            for dependent in dependents
            if circle is None or not self._is_in_cycle(circle, dependent)
        }
        if not missing:
            return True
        search = _CycleSearch(self._up, self._down, owner, missing)
        turn = TimeSlice(self._clock)
        if (answer := await search.run(QUICK, turn)) is None:
            answer = await self._continue_search(search, owner, turn)
        self._open.pop(owner.metadata.uid, None)
        return answer

    async def _continue_search(self, search: "_CycleSearch", owner: Object, turn: TimeSlice) -> bool:
        began = self._clock.monotonic()
        if began < self._free_at:
            self._open[owner.metadata.uid] = None
            raise SearchDeferred(max(LATER, len(self._open) / RATE))
        self._free_at = float("inf")
        try:
            answer = await search.run(MOST, turn)
            if answer:
                self._circle.update(dict.fromkeys(await search.find_cycle(turn), next(self._numbers)))
        finally:
            now = self._clock.monotonic()
            self._free_at = now + PAUSE * (now - began)
        return answer is not False

    def _is_in_cycle(self, circle: int, obj: Object) -> bool:
        return self._circle.get(obj.metadata.uid) == circle


class _CycleSearch:
    def __init__(self, up: Edges, down: Edges, owner: Object, missing: dict[str, Object]) -> None:
        """`missing` has the dependents that are not yet known to wait for the owner."""
        self._down = down
        self._owner = owner
        self._missing = missing
        self._above: dict[str, Object] = {}
        self._below: dict[str, Object] = {}
        self._upwards = _walk_references(up, owner, self._above)
        self._downwards = _walk_references(down, next(iter(missing.values())), self._below)

    async def run(self, steps: int, turn: TimeSlice) -> bool | None:
        """Return True if all dependents wait for the owner, or None if more steps are needed."""
        uid = self._owner.metadata.uid
        for step in range(1, steps + 1):
            if (ancestor := next(self._upwards, None)) is None:
                return False
            self._missing.pop(ancestor, None)
            if not self._missing:
                return True
            if uid not in self._below and next(self._downwards, None) is None and uid not in self._below:
                return False
            if step % _EVERY == 0:
                await turn.end()
        return None

    async def find_cycle(self, turn: TimeSlice) -> Iterable[str]:
        """Return the UIDs of the objects in the owner's cycle."""
        members = dict[str, Object]()

        def down(obj: Object) -> Iterable[Object | None]:
            return (item if item is not None and item.metadata.uid in self._above else None for item in self._down(obj))

        for step, _ in enumerate(_walk_references(down, self._owner, members)):
            if step % _EVERY == 0:
                await turn.end()
            if step == MOST:
                break
        return members


def _walk_references(edges: Edges, start: Object, found: dict[str, Object]) -> Iterator[str]:
    """Add all reachable objects to `found`, by UID. Yield the UID of each reference, or "" for None."""
    found[start.metadata.uid] = start
    left = [start]
    yield start.metadata.uid
    while left:
        for edge in edges(left.pop()):
            if edge is None:
                yield ""
                continue
            uid = edge.metadata.uid
            if uid not in found:
                found[uid] = edge
                left.append(edge)
            yield uid


class ObjectLocation(NamedTuple):
    """The location of an object in the informers' stores."""

    resource: Resource[Any]
    key: str
    blocks: bool = False
    """True if one of its references to this owner has blockOwnerDeletion."""


class DependentsIndex:
    def __init__(self) -> None:
        self._of: dict[str, dict[str, ObjectLocation]] = {}

    def dependents_of(self, uid: str) -> Mapping[str, ObjectLocation]:
        """Return the dependents of the owner with this UID, by their own UID."""
        return self._of.get(uid, {})

    def apply_deltas(self, resource: Resource[Any], deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            if delta.old is not None:
                self._remove_object(delta.old.metadata)
            if delta.kind != DELETED:
                metadata, key = delta.obj.metadata, store_key(delta.obj)
                for reference in metadata.ownerReferences:
                    dependents, blocks = self._of.setdefault(reference.uid, {}), reference.blockOwnerDeletion
                    before = dependents.get(metadata.uid)
                    dependents[metadata.uid] = ObjectLocation(resource, key, blocks or (before is not None and before.blocks))

    def _remove_object(self, metadata: Any) -> None:
        for reference in metadata.ownerReferences:
            result = self._of.get(reference.uid)
            if result is not None and result.pop(metadata.uid, None) is not None and not result:
                del self._of[reference.uid]


class OwnerState(IntEnum):
    """The state of an owner. If several references have the same UID, the greatest value counts, so that an owner that one
    reference finds exists for all of them."""

    GONE = auto()
    """No object has this UID."""
    STAYS = auto()
    WAITS = auto()
    """The owner is being deleted in the foreground, after its dependents."""


@dataclass(frozen=True, slots=True)
class KeepObject:
    pass


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """The object loses its references to the owners with these UIDs."""

    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeleteObject:
    policy: str
    """Background, Foreground or Orphan."""


DeletionDecision = KeepObject | ReleaseObject | DeleteObject


def decide_action(metadata: ObjectMeta, owners: Mapping[str, OwnerState], has_dependents: bool) -> DeletionDecision:
    """Decide about an object. `owners` has the state of each of its owners, by UID."""
    leaving = frozenset(uid for uid, owner in owners.items() if owner is not OwnerState.STAYS)
    if not leaving:
        return KeepObject()
    if len(leaving) < len(owners):
        return ReleaseObject(leaving)
    if has_dependents and OwnerState.WAITS in owners.values():
        return DeleteObject("Foreground")
    if ORPHAN_FINALIZER in metadata.finalizers:
        return DeleteObject("Orphan")
    return DeleteObject("Foreground" if FOREGROUND_FINALIZER in metadata.finalizers else "Background")


def waits_for_dependent(owner: ObjectMeta, reference: OwnerReference) -> bool:
    """Return True if the owner is deleted only after the object with this reference to it."""
    return reference.blockOwnerDeletion and is_deleting_with_finalizer(owner, FOREGROUND_FINALIZER)


def is_deleting_with_finalizer(metadata: ObjectMeta, finalizer: str) -> bool:
    """Return True if the object is being deleted and has this finalizer."""
    return metadata.HasField("deletionTimestamp") and finalizer in metadata.finalizers


def without_owners(metadata: ObjectMeta, uids: Iterable[str]) -> None:
    """Remove the references to these owners in place."""
    gone = set(uids)
    kept = [owner_reference for owner_reference in metadata.ownerReferences if owner_reference.uid not in gone]
    del metadata.ownerReferences[:]
    metadata.ownerReferences.extend(kept)


WATCHED = {resource.stored_name: resource for resource in COLLECTED}
REMEMBERED = 10_000
"""Maximum number of cached owners that are known to be gone."""
AT_ONCE = 32
"""Maximum number of dependents of an owner that are orphaned concurrently."""
UNSEEN = 5.0
"""Seconds until an object is synced again if one of its owners is missing from the informers."""
INFORMER_TIMEOUT = 10.0
"""Seconds for the informers to reach the revision of a deletion. Kinds with few changes take about two seconds."""


class OwnerKey(NamedTuple):
    """An owner as in a reference."""

    stored_name: str
    place: str
    """The "namespace/name", or "name" for cluster-scoped resources."""
    uid: str


class OwnerLookup(NamedTuple):
    """The state of an owner.

    `seen` is True if the informers report its changes. `elsewhere` is True if another namespace has an owner with this name and
    UID, or if a cluster-scoped object references a namespaced owner.
    """

    state: OwnerState
    seen: bool = True
    elsewhere: bool = False


class GarbageCollector:
    name = "garbage-collector"
    workers = 64
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext) -> None:
        self._client = shared.client
        self._informers = shared.informers
        self._dependents = DependentsIndex()
        self._stores: dict[Resource[Any], Mapping[str, Any]] = {
            resource: shared.informers.store(resource) for resource in WATCHED.values()
        }
        for resource in WATCHED.values():
            shared.informers.add_handler(resource, partial(self._dependents.apply_deltas, resource))
        self._deletions: WriteBatcher[DeleteRequest] = WriteBatcher(shared.client.pods.delete_batch)
        self._events = shared.events
        self._gone: OrderedDict[OwnerKey, OwnerLookup] = OrderedDict()
        self._cycles = OwnerCycles(self._waiting_owners, self._waiting_dependents, shared.clock)
        self._custom = shared.informers.custom
        self._by_name: dict[str, Resource[Any]] = dict(WATCHED)
        self._custom.add_handler(self)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return [self.watch_of(resource) for resource in self._by_name.values()]

    def watch_of(self, resource: Resource[Any]) -> WatchedResource[Any]:
        return WatchedResource(resource, partial(self._keys_of_object, resource))

    def handle_added_kind(self, resource: CustomResource) -> None:
        """Implement CustomHandler."""
        self._by_name[resource.stored_name] = resource
        self._stores[resource] = self._informers.store(resource)
        self._informers.add_handler(resource, partial(self._dependents.apply_deltas, resource))

    def handle_removed_kind(self, resource: CustomResource, objects: Iterable[Any]) -> None:
        """Implement CustomHandler. The dependents of the objects stay: their owners may exist."""
        del self._by_name[resource.stored_name]
        del self._stores[resource]
        self._dependents.apply_deltas(resource, [Delta(DELETED, obj, obj) for obj in objects])

    async def sync(self, key: str) -> float | None:
        name, _, place = key.partition(" ")
        resource = self._by_name.get(name)
        obj = self._stores[resource].get(place) if resource is not None else None
        if resource is None or obj is None:
            return None
        metadata = obj.metadata
        try:
            if is_deleting_with_finalizer(metadata, ORPHAN_FINALIZER):
                await self._wait_for_dependents(obj)
                await self._orphan_dependents(resource, obj)
            elif is_deleting_with_finalizer(metadata, FOREGROUND_FINALIZER):
                await self._wait_for_dependents(obj)
                if not await self._is_blocked(obj):
                    await self._finish_deletion(resource, obj, FOREGROUND_FINALIZER)
            elif metadata.ownerReferences and not metadata.HasField("deletionTimestamp"):
                return await self._process_object(resource, obj)
        except NotFound:
            return None
        except SearchDeferred as later:
            return later.seconds
        return None

    # --- an object and its owners

    async def _process_object(self, resource: Resource[Any], obj: Object) -> float | None:
        """Sync an object with owners. Return the delay until the next sync, or None if the informers report all changes."""
        metadata = obj.metadata
        owners, again = dict[str, OwnerState](), None
        for owner_reference in metadata.ownerReferences:
            result = await self._find_object(owner_reference, metadata.namespace)
            owners[owner_reference.uid] = max(owners.get(owner_reference.uid, OwnerState.GONE), result.state)
            again = again if result.seen else UNSEEN
            if result.elsewhere:
                self._events.event(
                    obj, "Warning", "OwnerRefInvalidNamespace", _is_in_wrong_namespace(owner_reference, metadata.namespace)
                )
        match decide_action(metadata, owners, bool(self._dependents.dependents_of(metadata.uid))):
            case KeepObject():
                pass
            case ReleaseObject(uids):
                await self._remove_owner_references(resource, obj, uids)
            case DeleteObject(policy):
                await self._delete(resource, obj, policy)
        return again

    async def _find_object(self, reference: OwnerReference, namespace: str) -> OwnerLookup:
        resource = self._resource_of(reference)
        if resource is None:
            return OwnerLookup(OwnerState.STAYS)  # an unknown kind counts as existing
        if resource.namespaced and not namespace:
            return OwnerLookup(OwnerState.STAYS, elsewhere=True)
        named = OwnerKey(resource.stored_name, _owner_location(resource, reference, namespace), reference.uid)
        if (gone := self._gone.get(named)) is not None:
            return gone
        owner = self._stores[resource].get(named.place)
        seen = True
        if owner is None or owner.metadata.uid != reference.uid:
            seen = False
            try:
                owner = await self._client.of(resource).get(reference.name, namespace)
            except NotFound:
                owner = None
            if owner is None or owner.metadata.uid != reference.uid:
                return self._cache_missing_owner(named, elsewhere=self._is_elsewhere(resource, reference))
        return OwnerLookup(
            OwnerState.WAITS if is_deleting_with_finalizer(owner.metadata, FOREGROUND_FINALIZER) else OwnerState.STAYS, seen
        )

    def _resource_of(self, reference: OwnerReference) -> Resource[Any] | None:
        """Return the resource of an owner; None if its objects are not watched."""
        resource = by_kind(reference.kind, reference.apiVersion)
        if resource is None:
            return self._custom.by_kind(reference.kind, reference.apiVersion)
        return resource if resource in self._stores else None

    def _is_elsewhere(self, resource: Resource[Any], reference: OwnerReference) -> bool:
        store = self._stores[resource]
        places = [
            _owner_location(resource, reference, namespace) for namespace in self._stores[NAMESPACES] if resource.namespaced
        ]
        return any(owner.metadata.uid == reference.uid for owner in filter(None, map(store.get, places)))

    def _cached_owner(self, reference: OwnerReference, namespace: str) -> Object | None:
        """Return the owner if it is in the cache, else None."""
        resource = self._resource_of(reference)
        if resource is None:
            return None
        owner: Object | None = self._stores[resource].get(_owner_location(resource, reference, namespace))
        return owner if owner is not None and owner.metadata.uid == reference.uid else None

    async def _delete(self, resource: Resource[Any], obj: Object, policy: str) -> None:
        """Delete this version only, because a later version may have another owner."""
        metadata = obj.metadata
        name, namespace, uid, version = metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion
        if resource is PODS:
            request = delete_request(name, namespace, uid=uid, resource_version=version, propagation=policy)
            await self._deletions.write_item(request)
        else:
            client = self._client.of(resource)
            await client.delete(name, namespace, uid=uid, resource_version=version, propagation=policy)

    async def _remove_owner_references(self, resource: Resource[Any], obj: Object, uids: Iterable[str]) -> None:
        changed = _copy_object(resource, obj)
        without_owners(changed.metadata, uids)
        await self._write_metadata(resource, changed)

    # --- an owner and its dependents

    async def _wait_for_dependents(self, owner: Object) -> None:
        """Wait until the informers have all dependents that were created before the deletion of the owner. Raise Timeout."""
        try:
            await self._informers.wait_for(int(owner.metadata.resourceVersion), INFORMER_TIMEOUT, list(self._stores))
        except TimeoutError as error:
            raise timed_out(str(error)) from None

    async def _is_blocked(self, owner: Object) -> bool:
        """Return True if a dependent outside the owner's cycle blocks its deletion. Raise SearchDeferred."""
        waiting: list[Object] = []
        for place, dependent in self._present_dependents(owner):
            if place.blocks:
                if not is_deleting_with_finalizer(dependent.metadata, FOREGROUND_FINALIZER):
                    return True
                waiting.append(dependent)
        return bool(waiting) and not await self._cycles.all_wait_for_owner(owner, waiting)

    def _waiting_owners(self, obj: Object) -> Iterable[Object | None]:
        """Yield the owners that wait for the object."""
        metadata = obj.metadata
        for reference in metadata.ownerReferences:
            owner = self._cached_owner(reference, metadata.namespace)
            yield owner if owner is not None and waits_for_dependent(owner.metadata, reference) else None

    def _waiting_dependents(self, owner: Object) -> Iterable[Object | None]:
        """Yield the dependents that the owner waits for and that wait for their own dependents."""
        for place, dependent in self._present_dependents(owner):
            yield dependent if place.blocks and is_deleting_with_finalizer(dependent.metadata, FOREGROUND_FINALIZER) else None

    async def _orphan_dependents(self, resource: Resource[Any], owner: Object) -> None:
        dependents = list(self._present_dependents(owner))
        for start in range(0, len(dependents), AT_ONCE):
            chunk = dependents[start : start + AT_ONCE]
            outcomes = await asyncio.gather(
                *(self._remove_owner_references(place.resource, each, [owner.metadata.uid]) for place, each in chunk),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException) and not isinstance(outcome, NotFound):
                    raise outcome
        await self._finish_deletion(resource, owner, ORPHAN_FINALIZER)

    async def _finish_deletion(self, resource: Resource[Any], owner: Object, finalizer: str) -> None:
        changed = _copy_object(resource, owner)
        changed.metadata.finalizers.remove(finalizer)
        await self._write_metadata(resource, changed)

    async def _write_metadata(self, resource: Resource[Any], changed: Any) -> None:
        """Write the owners and finalizers of this version of an object. Of custom objects, the informer has nothing else."""
        client, metadata = self._client.of(resource), changed.metadata
        if not isinstance(resource, CustomResource):
            await client.update(changed)
            return
        form = to_dict(metadata)
        names = ("ownerReferences", "finalizers", "uid", "resourceVersion")
        patch = {"metadata": {name: form.get(name) for name in names}}
        await client.patch(metadata.name, metadata.namespace, patch, PatchRequest.MERGE)

    def _present_dependents(self, owner: Object) -> Iterable[tuple[ObjectLocation, Any]]:
        """Yield the dependents of the owner. References from other namespaces are invalid and are ignored."""
        namespace = owner.metadata.namespace
        for place in self._dependents.dependents_of(owner.metadata.uid).values():
            store = self._stores[place.resource].get(place.key)
            if store is not None and namespace in ("", store.metadata.namespace):
                yield place, store

    # --- keys of changed objects

    def _keys_of_object(self, resource: Resource[Any], delta: Delta[Any]) -> Iterable[str]:
        metadata = delta.obj.metadata
        keys = set()
        if delta.kind == DELETED:
            self._cycles.forget(metadata.uid)
            keys |= self._keys_of_dependents(metadata.uid)
            if keys:
                self._cache_missing_owner(OwnerKey(resource.stored_name, store_key(delta.obj), metadata.uid))
        else:
            if is_deleting_with_finalizer(metadata, ORPHAN_FINALIZER) or _owners_changed(delta):
                keys.add(_object_key(resource, delta.obj))
            if is_deleting_with_finalizer(metadata, FOREGROUND_FINALIZER):
                keys |= {_object_key(resource, delta.obj), *self._keys_of_dependents(metadata.uid)}
        for obj in filter(None, (delta.obj, delta.old)):
            keys.update(self._keys_of_waiting_owners(obj))
        return keys

    def _keys_of_dependents(self, uid: str) -> set[str]:
        return {f"{place.resource.stored_name} {place.key}" for place in self._dependents.dependents_of(uid).values()}

    def _keys_of_waiting_owners(self, obj: Object) -> Iterable[str]:
        namespace = obj.metadata.namespace
        for reference in obj.metadata.ownerReferences:
            resource = self._resource_of(reference)
            if resource is None:
                continue
            owner = self._stores[resource].get(_owner_location(resource, reference, namespace))
            if owner is not None and is_deleting_with_finalizer(owner.metadata, FOREGROUND_FINALIZER):
                yield _object_key(resource, owner)

    def _cache_missing_owner(self, owner: OwnerKey, *, elsewhere: bool = False) -> OwnerLookup:
        """Cache that the owner is gone."""
        owner_lookup = self._gone[owner] = OwnerLookup(OwnerState.GONE, elsewhere=elsewhere)
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return owner_lookup


def _owners_changed(delta: Delta[Any]) -> bool:
    """Return True if the object's owners have changed. Most changes of dependents concern only their status."""
    owners = delta.obj.metadata.ownerReferences
    return bool(owners) and (delta.old is None or delta.old.metadata.ownerReferences != owners)


def _owner_location(resource: Resource[Any], owner: OwnerReference, namespace: str) -> str:
    """Return the store key of the owner of an object in this namespace."""
    return f"{namespace}/{owner.name}" if resource.namespaced else owner.name


def _is_in_wrong_namespace(owner: OwnerReference, namespace: str) -> str:
    coordinates = f"{owner.apiVersion}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: {owner.uid}"
    return f'ownerRef [{coordinates}] does not exist in namespace "{namespace}"'


def _object_key(resource: Resource[Any], obj: Object) -> str:
    return f"{resource.stored_name} {store_key(obj)}"


def _copy_object(resource: Resource[Any], obj: Object) -> Any:
    changed = resource.message()
    changed.CopyFrom(obj)
    return changed
