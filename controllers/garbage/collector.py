"""The garbage collector: looks at objects that have owners, and at owners that wait for their dependents.

An owner that is not in the cache may only not be there yet: whether it is gone the API is asked, once for each owner as it is
named: kind, place and uid. The answer holds for that name alone. A reference with the uid of somebody who lives, but another
name, kind or namespace, says nothing about that one's own dependents; of the namespace an event tells.

One that only the API has is asked about again until the cache has it: of who goes before that nobody hears.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from controllers.controller import Shared, Watch
from controllers.garbage.cycles import Cycles, Later
from controllers.garbage.dependents import Dependents, Place
from controllers.garbage.fate import Delete, Keep, Owner, Release, deleting, fate, waits_for, without_owners
from controllers.workqueue import MAX_BACKOFF
from controllers.writes import Batcher
from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.resources import COLLECTED, NAMESPACES, PODS, Object, Resource, by_kind, store_key
from pinnace.api.verbs_pb2 import DELETED, DeleteRequest
from pinnace.api.wellknown import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from pinnace.client.errors import NotFound, timed_out
from pinnace.client.informer import Delta
from pinnace.client.resource import delete_request

WATCHED = {resource.plural: resource for resource in COLLECTED}
REMEMBERED = 10_000
"""Owners that are known to be gone."""
AT_ONCE = 32
"""Dependents of one owner that are made ownerless at once."""
UNSEEN = 5.0
"""Seconds after which an object is looked at again that has an owner whom no informer has shown yet."""
PATIENCE = 10.0
"""Seconds for an informer to know of an owner's deletion; of kinds that seldom change it hears after some two seconds."""


class Named(NamedTuple):
    """An owner, as a reference names it."""

    plural: str
    place: str
    """ "namespace/name", or "name" where there are no namespaces."""
    uid: str


class Found(NamedTuple):
    """What is known of an owner. `seen`: it will be heard of if that changes. `elsewhere`: another
    namespace has one of that name and uid, or the object is in none and its owner must be in one."""

    state: Owner
    seen: bool = True
    elsewhere: bool = False


class GarbageCollector:
    name = "garbage-collector"
    workers = 64
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: Shared) -> None:
        self._client = shared.client
        self._informers = shared.informers
        self._dependents = Dependents()
        self._stores: Mapping[Resource[Any], Mapping[str, Any]] = {
            resource: shared.informers.store(resource) for resource in WATCHED.values()
        }
        for resource in WATCHED.values():
            shared.informers.add_handler(resource, partial(self._dependents.follow, resource))
        self._deletions: Batcher[DeleteRequest] = Batcher(shared.client.pods.delete_batch)
        self._events = shared.events
        self._gone: OrderedDict[Named, Found] = OrderedDict()
        self._cycles = Cycles(self._waiting_owners, self._waiting_dependents, shared.clock)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return [Watch(resource, partial(self._keys, resource)) for resource in WATCHED.values()]

    async def sync(self, key: str) -> float | None:
        plural, _, place = key.partition(" ")
        resource = WATCHED[plural]
        obj = self._stores[resource].get(place)
        if obj is None:
            return None
        metadata = obj.metadata
        try:
            if deleting(metadata, ORPHAN_FINALIZER):
                await self._know_dependents(obj)
                await self._orphan(resource, obj)
            elif deleting(metadata, FOREGROUND_FINALIZER):
                await self._know_dependents(obj)
                if not await self._blocked(obj):
                    await self._free(resource, obj, FOREGROUND_FINALIZER)
            elif metadata.ownerReferences and not metadata.HasField("deletionTimestamp"):
                return await self._judge(resource, obj)
        except NotFound:
            return None
        except Later as later:
            return later.seconds
        return None

    # --- an object and its owners

    async def _judge(self, resource: Resource[Any], obj: Object) -> float | None:
        """Seconds after which it is to be judged again; None: whatever becomes of its owners will be heard of."""
        metadata = obj.metadata
        owners, again = dict[str, Owner](), None
        for each in metadata.ownerReferences:
            found = await self._find(each, metadata.namespace)
            owners[each.uid] = max(owners.get(each.uid, Owner.GONE), found.state)
            again = again if found.seen else UNSEEN
            if found.elsewhere:
                self._events.event(obj, "Warning", "OwnerRefInvalidNamespace", _misplaced(each, metadata.namespace))
        match fate(metadata, owners, bool(self._dependents.of(metadata.uid))):
            case Keep():
                pass
            case Release(uids):
                await self._release(resource, obj, uids)
            case Delete(policy):
                await self._delete(resource, obj, policy)
        return again

    async def _find(self, reference: OwnerReference, namespace: str) -> Found:
        resource = by_kind(reference.kind, reference.apiVersion)
        if resource is None or resource not in self._stores:
            return Found(Owner.STAYS)  # what we do not know we do not judge
        if resource.namespaced and not namespace:
            return Found(Owner.STAYS, elsewhere=True)
        named = Named(resource.plural, _place(resource, reference, namespace), reference.uid)
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
                return self._remember(named, elsewhere=self._is_elsewhere(resource, reference))
        return Found(Owner.WAITS if deleting(owner.metadata, FOREGROUND_FINALIZER) else Owner.STAYS, seen)

    def _is_elsewhere(self, resource: Resource[Any], reference: OwnerReference) -> bool:
        store = self._stores[resource]
        places = [_place(resource, reference, namespace) for namespace in self._stores[NAMESPACES] if resource.namespaced]
        return any(owner.metadata.uid == reference.uid for owner in filter(None, map(store.get, places)))

    def _known(self, reference: OwnerReference, namespace: str) -> Object | None:
        """The owner, if it is in the cache."""
        resource = by_kind(reference.kind, reference.apiVersion)
        if resource is None or resource not in self._stores:
            return None
        owner: Object | None = self._stores[resource].get(_place(resource, reference, namespace))
        return owner if owner is not None and owner.metadata.uid == reference.uid else None

    async def _delete(self, resource: Resource[Any], obj: Object, policy: str) -> None:
        """This version only: it may have found another owner meanwhile."""
        metadata = obj.metadata
        name, namespace, uid, version = metadata.name, metadata.namespace, metadata.uid, metadata.resourceVersion
        if resource is PODS:
            request = delete_request(name, namespace, uid=uid, resource_version=version, propagation=policy)
            await self._deletions.write(request)
        else:
            client = self._client.of(resource)
            await client.delete(name, namespace, uid=uid, resource_version=version, propagation=policy)

    async def _release(self, resource: Resource[Any], obj: Object, uids: Iterable[str]) -> None:
        changed = _copy(resource, obj)
        without_owners(changed.metadata, uids)
        await self._client.of(resource).update(changed)

    # --- an owner and its dependents

    async def _know_dependents(self, owner: Object) -> None:
        """Those that were made before its deletion was asked for, of whatever kind: none may be overlooked. Raises Timeout."""
        try:
            await self._informers.wait_for(int(owner.metadata.resourceVersion), PATIENCE, WATCHED.values())
        except TimeoutError as error:
            raise timed_out(str(error)) from None

    async def _blocked(self, owner: Object) -> bool:
        """Does a dependent keep it? Not one that is waiting for this owner in turn: neither would ever go. Raises Later."""
        waiting: list[Object] = []
        for place, dependent in self._present(owner):
            if place.blocks:
                if not deleting(dependent.metadata, FOREGROUND_FINALIZER):
                    return True
                waiting.append(dependent)
        return bool(waiting) and not await self._cycles.wait_in_turn(owner, waiting)

    def _waiting_owners(self, obj: Object) -> Iterable[Object | None]:
        """Its owners that go only after it."""
        metadata = obj.metadata
        for reference in metadata.ownerReferences:
            owner = self._known(reference, metadata.namespace)
            yield owner if owner is not None and waits_for(owner.metadata, reference) else None

    def _waiting_dependents(self, owner: Object) -> Iterable[Object | None]:
        """Its dependents that it goes only after, and that wait for their own."""
        for place, dependent in self._present(owner):
            yield dependent if place.blocks and deleting(dependent.metadata, FOREGROUND_FINALIZER) else None

    async def _orphan(self, resource: Resource[Any], owner: Object) -> None:
        dependents = list(self._present(owner))
        for start in range(0, len(dependents), AT_ONCE):
            chunk = dependents[start : start + AT_ONCE]
            outcomes = await asyncio.gather(
                *(self._release(place.resource, each, [owner.metadata.uid]) for place, each in chunk), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException) and not isinstance(outcome, NotFound):
                    raise outcome
        await self._free(resource, owner, ORPHAN_FINALIZER)

    async def _free(self, resource: Resource[Any], owner: Object, finalizer: str) -> None:
        changed = _copy(resource, owner)
        changed.metadata.finalizers.remove(finalizer)
        await self._client.of(resource).update(changed)

    def _present(self, owner: Object) -> Iterable[tuple[Place, Any]]:
        """Its dependents. What names it from another namespace is none: there is no such owner there, and it goes for that."""
        namespace = owner.metadata.namespace
        for place in self._dependents.of(owner.metadata.uid).values():
            found = self._stores[place.resource].get(place.key)
            if found is not None and namespace in ("", found.metadata.namespace):
                yield place, found

    # --- what changes concern

    def _keys(self, resource: Resource[Any], delta: Delta[Any]) -> Iterable[str]:
        metadata = delta.obj.metadata
        keys = set()
        if delta.kind == DELETED:
            self._cycles.forget(metadata.uid)
            keys |= self._of_dependents(metadata.uid)
            if keys:
                self._remember(Named(resource.plural, store_key(delta.obj), metadata.uid))
        else:
            if deleting(metadata, ORPHAN_FINALIZER) or _has_other_owners(delta):
                keys.add(_key(resource, delta.obj))
            if deleting(metadata, FOREGROUND_FINALIZER):
                keys |= {_key(resource, delta.obj), *self._of_dependents(metadata.uid)}
        for obj in filter(None, (delta.obj, delta.old)):
            keys.update(self._of_waiting_owners(obj))
        return keys

    def _of_dependents(self, uid: str) -> set[str]:
        return {f"{place.resource.plural} {place.key}" for place in self._dependents.of(uid).values()}

    def _of_waiting_owners(self, obj: Object) -> Iterable[str]:
        namespace = obj.metadata.namespace
        for reference in obj.metadata.ownerReferences:
            resource = by_kind(reference.kind, reference.apiVersion)
            if resource is None or resource not in self._stores:
                continue
            owner = self._stores[resource].get(_place(resource, reference, namespace))
            if owner is not None and deleting(owner.metadata, FOREGROUND_FINALIZER):
                yield _key(resource, owner)

    def _remember(self, owner: Named, *, elsewhere: bool = False) -> Found:
        """That it is gone."""
        found = self._gone[owner] = Found(Owner.GONE, elsewhere=elsewhere)
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return found


def _has_other_owners(delta: Delta[Any]) -> bool:
    """Than before: most changes of dependents are of their status, and none of the collector's business."""
    owners = delta.obj.metadata.ownerReferences
    return bool(owners) and (delta.old is None or delta.old.metadata.ownerReferences != owners)


def _place(resource: Resource[Any], owner: OwnerReference, namespace: str) -> str:
    """Where the owner of an object of this namespace is."""
    return f"{namespace}/{owner.name}" if resource.namespaced else owner.name


def _misplaced(owner: OwnerReference, namespace: str) -> str:
    coordinates = f"{owner.apiVersion}/{owner.kind}, namespace: {namespace}, name: {owner.name}, uid: {owner.uid}"
    return f'ownerRef [{coordinates}] does not exist in namespace "{namespace}"'


def _key(resource: Resource[Any], obj: Object) -> str:
    return f"{resource.plural} {store_key(obj)}"


def _copy(resource: Resource[Any], obj: Object) -> Any:
    changed = resource.message()
    changed.CopyFrom(obj)
    return changed
