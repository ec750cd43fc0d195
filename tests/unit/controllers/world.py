"""An API server and informers in memory for one controller, whose leader can be killed between two of its writes."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import PODS, Resource, store_key
from pinnace.api.scalars import to_time
from pinnace.api.selectors import LabelSelector
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchItem
from pinnace.client.errors import AlreadyExists, NotFound
from pinnace.client.informer import Delta, Index
from pinnace.controllers.informers import LabelIndex, SelectorIndex, select_all
from pinnace.controllers.pods import PodPropertiesCache

_NOT_FOUND = Refusal(Code.NOT_FOUND, "NotFound", "not found")


class Killed(BaseException):
    """The leader dies."""


class World:
    """`kill(point)` returns whether the leader dies at a point such as "after create pods". `build` makes a controller."""

    def __init__(self, build: Callable[[Any], Any], now: float, *, kill: Callable[[str], bool] = lambda point: False) -> None:
        self.build = build
        self.now = now
        self.kill = kill
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str]] = []
        self.created: list[str] = []
        self.writes = 0
        self.pending: dict[str, None] = {}
        self.controller: Any = None
        self._followers: dict[str, list[Callable[[Sequence[Delta[Any]]], None]]] = {}
        self.elect()

    def elect(self) -> None:
        """Start the controller of a new leader. It handles all objects as added."""
        self._followers.clear()
        informers = SimpleNamespace(
            store=self.of, index=self._index, labelled=self._labelled, selecting=self._selecting, wait_for=self._wait_for,
            pod_properties=PodPropertiesCache(),
        )  # fmt: skip
        client = SimpleNamespace(of=lambda resource: FakeClient(self, resource), pods=FakeClient(self, PODS))
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        self.controller = self.build(SimpleNamespace(informers=informers, client=client, clock=clock, events=self))
        self.pending.clear()
        for resource in [watch.resource for watch in self.controller.watches]:
            for obj in list(self.of(resource).values()):
                self._add_keys(resource, Delta(ADDED, obj, None))

    def of(self, resource: Resource[Any]) -> dict[str, Any]:
        return self.objects.setdefault(resource.plural, {})

    def _follow(self, resource: Resource[Any], handler: Callable[[Sequence[Delta[Any]]], None]) -> None:
        self._followers.setdefault(resource.plural, []).append(handler)

    def _index(self, resource: Resource[Any], by: Callable[[Any], str]) -> Index[Any]:
        index = Index(by, self.of(resource).values())
        self._follow(resource, index.apply_deltas)
        return index

    def _labelled(self, resource: Resource[Any], only: Callable[[Any], bool] = select_all) -> LabelIndex[Any]:
        labelled = LabelIndex(only, self.of(resource).values())
        self._follow(resource, labelled.apply_deltas)
        return labelled

    def _selecting(self, resource: Resource[Any], selector_of: Callable[[Any], LabelSelector]) -> SelectorIndex[Any]:
        selecting = SelectorIndex(selector_of, self.of(resource).values())
        self._follow(resource, selecting.apply_deltas)
        return selecting

    async def _wait_for(self, *args: Any) -> None:
        pass

    def event(self, obj: Any, kind: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]

    def die(self, point: str) -> None:
        if self.kill(point):
            raise Killed

    def put(self, resource: Resource[Any], obj: Any, change: Callable[[Any], object] = lambda obj: None) -> Any:
        """Store a changed copy of an object, and deliver it."""
        stored = type(obj)()
        stored.CopyFrom(obj)
        change(stored)
        self.writes += 1
        metadata: ObjectMeta = stored.metadata
        if not metadata.name:
            metadata.name = f"{metadata.generateName}{self.writes}"
        if not metadata.uid:
            metadata.uid = f"u{self.writes}"
            metadata.creationTimestamp.CopyFrom(to_time(self.now))
        metadata.resourceVersion = str(self.writes)
        key = store_key(stored)
        old = self.of(resource).get(key)
        self.of(resource)[key] = stored
        self._deliver(resource, Delta(ADDED if old is None else MODIFIED, stored, old))
        return stored

    def remove(self, resource: Resource[Any], key: str) -> None:
        old = self.of(resource).pop(key)
        self._deliver(resource, Delta(DELETED, old, old))

    def _deliver(self, resource: Resource[Any], delta: Delta[Any]) -> None:
        for follow in self._followers.get(resource.plural, ()):
            follow([delta])
        self._add_keys(resource, delta)

    def _add_keys(self, resource: Resource[Any], delta: Delta[Any]) -> None:
        for watch in self.controller.watches:
            if watch.resource is resource:
                self.pending |= dict.fromkeys(watch.keys(delta))

    async def settle(self) -> float | None:
        """Sync until no key is pending. A killed leader is replaced. Return what the last sync returned."""
        again = None
        while self.pending:
            key = next(iter(self.pending))
            del self.pending[key]
            try:
                again = await self.controller.sync(key)
            except Killed:
                self.elect()
        return again


class FakeClient:
    def __init__(self, world: World, resource: Resource[Any]) -> None:
        self.world = world
        self.resource = resource

    def _key(self, name: str, namespace: str) -> str:
        key = f"{namespace}/{name}" if self.resource.namespaced else name
        if key not in self.world.of(self.resource):
            raise NotFound(_NOT_FOUND)
        return key

    def _at(self, point: str) -> None:
        self.world.die(f"{point} {self.resource.plural}")

    async def create(self, obj: Any) -> Any:
        if obj.metadata.name and store_key(obj) in self.world.of(self.resource):
            raise AlreadyExists(Refusal(Code.ALREADY_EXISTS, "AlreadyExists", "exists"))
        self._at("before create")
        stored = self.world.put(self.resource, obj)
        self.world.created.append(stored.metadata.name)
        self._at("after create")
        return stored

    async def create_batch(self, objs: Sequence[Any]) -> list[BatchItem]:
        stored = [await self.create(obj) for obj in objs]
        return [BatchItem(name=obj.metadata.name, resourceVersion=obj.metadata.resourceVersion) for obj in stored]

    async def get(self, name: str, namespace: str = "") -> Any:
        return self.world.of(self.resource)[self._key(name, namespace)]

    async def update(self, obj: Any) -> Any:
        self._key(obj.metadata.name, obj.metadata.namespace)
        self._at("before update")
        stored = self.world.put(self.resource, obj)
        self._at("after update")
        return stored

    async def update_status(self, obj: Any) -> Any:
        self._key(obj.metadata.name, obj.metadata.namespace)
        self._at("before status")
        stored = self.world.put(self.resource, obj)
        self._at("after status")
        return stored

    async def delete(self, name: str, namespace: str = "", **options: Any) -> None:
        key = self._key(name, namespace)
        self._at("before delete")
        self.world.remove(self.resource, key)
        self._at("after delete")

    async def delete_batch(self, requests: Sequence[Any]) -> list[BatchItem]:
        outcomes = []
        for request in requests:
            try:
                await self.delete(request.name, request.namespace)
                outcomes.append(BatchItem(name=request.name, resourceVersion=str(self.world.writes)))
            except NotFound:
                outcomes.append(BatchItem(name=request.name, error=encode(_NOT_FOUND)))
        return outcomes
