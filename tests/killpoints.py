"""Controllers that are killed between two of their writes.

`KillableCluster` is an API server in memory, with the informers of one controller. Each write is a point with a name, such as
"create pods web-0". `run_killed_everywhere` runs a scenario once without a kill, and then again for each of its points, killed
before and after the write. After a kill, the other parts work without a controller, and then a new controller continues with
the stored objects, as a new leader does.

    points = await run_killed_everywhere(scenario, StatefulSetController)
    assert points["create pods web-0"] == 2        # killed before it, and after it

Informers lag: they receive writes when the controller waits for them (`Informers.wait_for`), and between syncs.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pinnace.api.resources import PODS, Resource, store_key
from pinnace.api.scalars import to_time
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchItem, DeleteRequest
from pinnace.client.errors import ApiError, from_refusal
from pinnace.client.informer import Delta
from pinnace.controllers.informers import Informers
from pinnace.controllers.runtime import ControllerContext, PartialSyncError
from tests.clock import FakeClock

MAX_ROUNDS = 2_000
"""Maximum number of rounds until nothing changes."""
Build = Callable[[ControllerContext], Any]


class Killed(BaseException):
    """The process ends here. No controller can handle it."""


def _refused(code: Code, reason: str, obj: str) -> ApiError:
    return from_refusal(Refusal(code, reason, f"{obj}: {reason}"))


def _copy(obj: Any) -> Any:
    copied = type(obj)()
    copied.CopyFrom(obj)
    return copied


class _StaticInformer:
    """An informer that gets its changes from `deliver`."""

    def __init__(self) -> None:
        self.store: dict[str, Any] = {}
        self.revision = 1
        self._handlers: list[Callable[[Sequence[Delta[Any]]], None]] = []

    def add_handler(self, handler: Callable[[Sequence[Delta[Any]]], None]) -> None:
        self._handlers.append(handler)

    def deliver(self, deltas: Sequence[Delta[Any]]) -> None:
        for delta in deltas:
            if delta.kind == DELETED:
                self.store.pop(store_key(delta.obj), None)
            else:
                self.store[store_key(delta.obj)] = delta.obj
        for handler in self._handlers:
            handler(deltas)


class _LateInformers(Informers):
    """The informers of one term. They begin with all that is stored."""

    def __init__(self, cluster: "KillableCluster") -> None:
        client: Any = None
        super().__init__(client)
        self._cluster = cluster
        self._pending: list[tuple[Resource[Any], Delta[Any]]] = []

    def _informer_of(self, resource: Resource[Any]) -> Any:
        if resource not in self._informers:
            informer: Any = _StaticInformer()
            informer.store.update(self._cluster.stores.get(resource, {}))
            self._informers[resource] = informer
        return self._informers[resource]

    def receive(self, resource: Resource[Any], delta: Delta[Any]) -> None:
        self._pending.append((resource, delta))

    def deliver_all(self) -> None:
        pending, self._pending = self._pending, []
        for resource, delta in pending:
            informer: Any = self._informer_of(resource)
            informer.deliver([delta])

    async def wait_for(self, revision: int, timeout: float, among: Iterable[Resource[Any]] = ()) -> None:
        self.deliver_all()


class _Client:
    def __init__(self, cluster: "KillableCluster", resource: Resource[Any]) -> None:
        self.resource = resource
        self._cluster = cluster

    async def get(self, name: str, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        return _copy(self._cluster.find(self.resource, f"{namespace}/{name}"))

    async def create(self, obj: Any) -> Any:
        await asyncio.sleep(0)
        return self._cluster.write("create", self.resource, obj, lambda: self._cluster.create(self.resource, obj))

    async def update(self, obj: Any) -> Any:
        await asyncio.sleep(0)
        return self._cluster.write("update", self.resource, obj, lambda: self._cluster.update(self.resource, obj))

    async def update_status(self, obj: Any) -> Any:
        await asyncio.sleep(0)
        return self._cluster.write(
            "update status of", self.resource, obj, lambda: self._cluster.update(self.resource, obj, status=True)
        )

    async def delete(self, name: str, namespace: str = "", *, uid: str = "", **options: object) -> Any:
        await asyncio.sleep(0)
        obj = self._cluster.find(self.resource, f"{namespace}/{name}")
        if uid and obj.metadata.uid != uid:
            raise _refused(Code.ABORTED, "Conflict", name)
        return self._cluster.write("delete", self.resource, obj, lambda: self._cluster.delete(self.resource, obj))

    async def create_batch(self, objs: Sequence[Any]) -> list[BatchItem]:
        return [await self._item(self.create(obj)) for obj in objs]

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        return [
            await self._item(self.delete(request.name, request.namespace, uid=request.options.preconditions.uid))
            for request in requests
        ]

    async def _item(self, call: Awaitable[Any]) -> BatchItem:
        item = BatchItem()
        try:
            metadata = (await call).metadata
        except ApiError as error:
            item.error.CopyFrom(encode(error.refusal))
        else:
            item.name, item.resourceVersion, item.uid = metadata.name, metadata.resourceVersion, metadata.uid
        return item

    async def list(self, *args: object, **options: object) -> Any:
        return SimpleNamespace(resource_version=str(self._cluster.revision))


class KillableCluster:
    """`kill`: the number of the write to be killed at, from 0, and whether the write is stored."""

    def __init__(self, build: Build, *, kill: tuple[int, bool] | None = None) -> None:
        self.stores: dict[Resource[Any], dict[str, Any]] = {}
        self.revision = 1
        self.clock = FakeClock()
        self.points: list[str] = []
        """The names of the writes, in order."""
        self.killed: list[str] = []
        """The names of the writes at which a controller was killed."""
        self.events: list[str] = []
        self.checks: list[Callable[[str, Resource[Any], Any], None]] = []
        """Invariants. Each is called before a write with its verb, resource and object."""
        self.between: list[Callable[[], bool]] = []
        """What others do between syncs: kubelets, the garbage collector. Each returns whether it changed something."""
        self._build = build
        self._kill = kill
        self._start()

    def _start(self) -> None:
        """Start a controller with all that is stored."""
        self.informers = _LateInformers(self)
        client: Any = SimpleNamespace(of=lambda resource: _Client(self, resource), pods=_Client(self, PODS))
        recorder: Any = SimpleNamespace(
            for_component=lambda name: SimpleNamespace(event=lambda obj, type_, reason, message: self.events.append(message))
        )
        self._controller = self._build(ControllerContext(client, self.informers, recorder, self.clock, "test"))
        self._queue: dict[str, None] = {}
        for watch in self._controller.watches:
            for obj in list(self.informers.store(watch.resource).values()):
                self._queue.update(dict.fromkeys(watch.keys(Delta(ADDED, obj, None))))
            self.informers.add_handler(watch.resource, self._handler(watch.keys))

    def _handler(self, keys: Callable[[Any], Iterable[str]]) -> Callable[[Sequence[Delta[Any]]], None]:
        def handle(deltas: Sequence[Delta[Any]]) -> None:
            for delta in deltas:
                self._queue.update(dict.fromkeys(keys(delta)))

        return handle

    async def settle(self) -> None:
        """Let the controller and the others work until nothing changes."""
        for _ in range(MAX_ROUNDS):
            self.informers.deliver_all()
            if self._queue:
                await self._sync(next(iter(self._queue)))
                continue
            if not self._let_others_work():
                return
        raise AssertionError(f"it does not come to rest: {self.points[-20:]}")

    def _let_others_work(self) -> bool:
        changes = [step() for step in self.between]
        return any(changes)

    async def _sync(self, key: str) -> None:
        del self._queue[key]
        try:
            wait = await self._controller.sync(key)
        except (ApiError, PartialSyncError):
            wait = 0.0
        except Killed:
            while self._let_others_work():
                pass
            self._start()
            return
        if wait is not None:
            self.clock.stall(wait)
            self._queue[key] = None

    def write(self, verb: str, resource: Resource[Any], obj: Any, apply: Callable[[], Any]) -> Any:
        name = f"{verb} {resource.plural} {obj.metadata.name}"
        here = self._kill is not None and self._kill[0] == len(self.points)
        self.points.append(name)
        if here:
            self.killed.append(name)
            if not (self._kill or (0, False))[1]:
                raise Killed(name)
        for check in self.checks:
            check(verb, resource, obj)
        result = apply()
        if here:
            raise Killed(name)
        return result

    def of(self, resource: Resource[Any]) -> Iterator[Any]:
        yield from list(self.stores.get(resource, {}).values())

    def find(self, resource: Resource[Any], key: str) -> Any:
        obj = self.stores.get(resource, {}).get(key)
        if obj is None:
            raise _refused(Code.NOT_FOUND, "NotFound", key)
        return obj

    def create(self, resource: Resource[Any], obj: Any) -> Any:
        key = store_key(obj)
        if key in self.stores.get(resource, {}):
            raise _refused(Code.ALREADY_EXISTS, "AlreadyExists", key)
        stored = _copy(obj)
        metadata = stored.metadata
        metadata.uid, metadata.generation = f"uid-{resource.plural}-{metadata.name}-{self.revision}", 1
        metadata.creationTimestamp.CopyFrom(to_time(self.clock.time()))
        if resource is PODS:
            stored.status.phase = stored.status.phase or "Pending"
        return self._store(resource, stored, ADDED, None)

    def update(self, resource: Resource[Any], obj: Any, *, status: bool = False) -> Any:
        old = self.find(resource, store_key(obj))
        if obj.metadata.resourceVersion not in ("", old.metadata.resourceVersion):
            raise _refused(Code.ABORTED, "Conflict", store_key(obj))
        stored = _copy(old if status else obj)
        if status:
            stored.status.CopyFrom(obj.status)
        elif hasattr(stored, "spec") and stored.spec != old.spec:
            stored.metadata.generation += 1
        return self._store(resource, stored, MODIFIED, old)

    def change(self, resource: Resource[Any], key: str, change: Callable[[Any], object]) -> None:
        """A user, or another component, changes an object."""
        obj = _copy(self.find(resource, key))
        change(obj)
        self.update(resource, obj)

    def delete(self, resource: Resource[Any], obj: Any) -> Any:
        """Delete an object. Pods terminate until `remove`."""
        old = self.find(resource, store_key(obj))
        if resource is PODS:
            if old.metadata.HasField("deletionTimestamp"):
                return old
            stored = _copy(old)
            stored.metadata.deletionTimestamp.CopyFrom(to_time(self.clock.time()))
            return self._store(resource, stored, MODIFIED, old)
        return self.remove(resource, old)

    def remove(self, resource: Resource[Any], obj: Any) -> Any:
        old = self.find(resource, store_key(obj))
        del self.stores[resource][store_key(obj)]
        self.revision += 1
        self.informers.receive(resource, Delta(DELETED, old, old))
        return old

    def _store(self, resource: Resource[Any], stored: Any, kind: Any, old: Any) -> Any:
        self.revision += 1
        stored.metadata.resourceVersion = str(self.revision)
        self.stores.setdefault(resource, {})[store_key(stored)] = stored
        self.informers.receive(resource, Delta(kind, stored, old))
        return stored

    def run_pods(self) -> bool:
        """Let kubelets start pending pods, and end terminating ones. A step for `between`."""
        changed = False
        for pod in self.of(PODS):
            if pod.metadata.HasField("deletionTimestamp"):
                self.remove(PODS, pod)
                changed = True
            elif pod.status.phase == "Pending":

                def start(started: Any) -> None:
                    started.status.phase = "Running"
                    ready = started.status.conditions.add(type="Ready", status="True")
                    ready.lastTransitionTime.CopyFrom(to_time(self.clock.time()))

                self.change(PODS, store_key(pod), start)
                changed = True
        return changed

    def collect_garbage(self) -> bool:
        """Delete the objects whose owners are all gone. A step for `between`."""
        uids = {obj.metadata.uid for store in self.stores.values() for obj in store.values()}
        changed = False
        for resource, store in self.stores.items():
            for obj in list(store.values()):
                references = obj.metadata.ownerReferences
                if references and not any(reference.uid in uids for reference in references):
                    self.delete(resource, obj) if not obj.metadata.HasField("deletionTimestamp") else None
                    changed = True
        return changed


Scenario = Callable[[KillableCluster], Awaitable[None]]


async def run_killed_everywhere(scenario: Scenario, build: Build) -> Mapping[str, int]:
    """Run the scenario without a kill, then killed before and after each of its writes. The scenario asserts its result.

    Return the number of kills for each name of a write. Raise AssertionError if a point was not reached.
    """
    whole = KillableCluster(build)
    await scenario(whole)
    reached: Counter[str] = Counter()
    for number, name in enumerate(whole.points):
        for stored in (False, True):
            cluster = KillableCluster(build, kill=(number, stored))
            await scenario(cluster)
            assert cluster.killed == [name], f"write {number} is {cluster.killed}, not {name}"
            reached[name] += 1
    assert set(reached) == set(whole.points)
    return reached
