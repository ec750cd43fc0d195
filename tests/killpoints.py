"""Controllers that are killed between two of their writes.

`KillableCluster` is an API server in memory, with the informers of one controller. Each write is a point with a name, such as
"create pods web-0". `run_killed_everywhere` runs a scenario once without a kill, and then again for each of its points, killed
before and after the write. After a kill, the other parts work without a controller, and then a new controller continues with
the stored objects, as a new leader does.

    points = await run_killed_everywhere(scenario, StatefulSetController)
    assert points["create pods web-0"] == 2        # killed before it, and after it

Informers lag: they receive writes when the controller waits for them (`Informers.wait_for`), and between syncs. Time passes
only if nothing else is to do, up to the next sync that the controller has asked for. Deleted pods stay until a kubelet has
ended them, and objects with finalizers until the last one is removed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.metrics_v1beta1_pb2 import PodMetricsList
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

    def _find(self, name: str, namespace: str) -> Any:
        return self._cluster.find(self.resource, f"{namespace}/{name}" if self.resource.namespaced else name)

    async def get(self, name: str, namespace: str = "") -> Any:
        await asyncio.sleep(0)
        return _copy(self._find(name, namespace))

    async def get_scale(self, name: str, namespace: str) -> Scale:
        obj = self._find(name, namespace)
        labels = ",".join(f"{key}={value}" for key, value in obj.spec.selector.matchLabels.items())
        scale = Scale(metadata=obj.metadata)
        scale.spec.replicas = scale.status.replicas = obj.spec.replicas
        scale.status.selector = labels
        return scale

    async def update_scale(self, scale: Scale) -> Scale:
        obj = _copy(self._find(scale.metadata.name, scale.metadata.namespace))
        obj.spec.replicas = scale.spec.replicas
        self._cluster.write("update scale of", self.resource, obj, lambda: self._cluster.update(self.resource, obj))
        return scale

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

    async def delete(
        self, name: str, namespace: str = "", *, uid: str = "", resource_version: str = "", **options: object
    ) -> Any:
        await asyncio.sleep(0)
        obj = self._find(name, namespace)
        metadata = obj.metadata
        if uid not in ("", metadata.uid) or resource_version not in ("", metadata.resourceVersion):
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

    async def list(self, namespace: str = "", **options: object) -> Any:
        items = [obj for obj in self._cluster.of(self.resource).values() if namespace in ("", obj.metadata.namespace)]
        return SimpleNamespace(items=items, resource_version=str(self._cluster.revision))


class KillableCluster:
    """`kill`: the numbers of the writes to be killed at, from 0, and whether the write is stored. `now`: in Unix seconds."""

    def __init__(self, build: Build, *, kill: Mapping[int, bool] | None = None, now: float = 1_000_000.0) -> None:
        self.stores: dict[Resource[Any], dict[str, Any]] = {}
        self.revision = 1
        self.clock = FakeClock(now)
        self.points: list[str] = []
        """The names of the writes, in order."""
        self.killed: list[str] = []
        """The names of the writes at which a controller was killed."""
        self.created: list[str] = []
        """The names of the objects that the controller has created, in order."""
        self.events: list[tuple[str, str]] = []
        """The reasons and messages of events."""
        self.usage = "100m"
        """The cpu usage of each pod."""
        self.checks: list[Callable[[str, Resource[Any], Any], None]] = []
        """Invariants. Each is called before a write with its verb, resource and object."""
        self.between: list[Callable[[], bool]] = []
        """What others do between syncs: kubelets, the garbage collector. Each returns whether it changed something."""
        self._build = build
        self._kill = kill or {}
        self.elect()

    def elect(self) -> None:
        """Start the controller of a new leader, with all that is stored."""
        self.informers = _LateInformers(self)
        usage = SimpleNamespace(pods=self._read_usage)
        client: Any = SimpleNamespace(of=lambda resource: _Client(self, resource), pods=_Client(self, PODS), usage=usage)
        reporter = SimpleNamespace(event=lambda obj, type_, reason, message: self.events.append((reason, message)))
        recorder: Any = SimpleNamespace(for_component=lambda name: reporter)
        self.controller = self._build(ControllerContext(client, self.informers, recorder, self.clock, "test"))
        self._queue: dict[str, None] = {}
        self._due: dict[str, float] = {}
        for watch in self.controller.watches:
            for obj in list(self.informers.store(watch.resource).values()):
                self._queue.update(dict.fromkeys(watch.keys(Delta(ADDED, obj, None))))
            self.informers.add_handler(watch.resource, self._handler(watch.keys))

    @property
    def now(self) -> float:
        return self.clock.time()

    @property
    def reasons(self) -> list[str]:
        """The reasons of the events, in order."""
        return [reason for reason, _ in self.events]

    async def _read_usage(self, namespace: str, *, labels: str) -> PodMetricsList:
        listed = PodMetricsList()
        for pod in self.of(PODS).values():
            item = listed.items.add()
            item.metadata.name = pod.metadata.name
            item.timestamp.CopyFrom(to_time(self.now))
            item.containers.add(name=pod.spec.containers[0].name).usage["cpu"].string = self.usage
        return listed

    def _handler(self, keys: Callable[[Any], Iterable[str]]) -> Callable[[Sequence[Delta[Any]]], None]:
        def handle(deltas: Sequence[Delta[Any]]) -> None:
            for delta in deltas:
                self._queue.update(dict.fromkeys(keys(delta)))

        return handle

    async def settle(self, seconds: float | None = None) -> float | None:
        """Let the controller and the others work until nothing changes, for at most these seconds of the clock, which then
        have passed. Return the seconds until the next sync that the controller has asked for, or None."""
        end = None if seconds is None else self.now + seconds
        for _ in range(MAX_ROUNDS):
            self.informers.deliver_all()
            due = min(self._due.values(), default=None)
            if self._queue:
                await self._sync(next(iter(self._queue)))
            elif self._let_others_work():
                continue
            elif due is not None and (end is None or due <= end):
                self.clock.stall(max(0.0, due - self.now))
                ready = [key for key, at in self._due.items() if at <= due]
                self._queue.update(dict.fromkeys(ready))
            else:
                self.clock.stall(end - self.now if end is not None else 0.0)
                return due - self.now if due is not None else None
        raise AssertionError(f"it does not come to rest: {self.points[-20:]}")

    def deliver(self) -> list[str]:
        """Deliver all changes to the informers. Return the keys that wait for a sync."""
        self.informers.deliver_all()
        return list(self._queue)

    def _let_others_work(self) -> bool:
        changes = [step() for step in self.between]
        return any(changes)

    async def _sync(self, key: str) -> None:
        self._queue.pop(key, None)
        self._due.pop(key, None)
        try:
            wait = await self.controller.sync(key)
        except (ApiError, PartialSyncError):
            wait = 0.0
        except Killed:
            while self._let_others_work():
                pass
            self.elect()
            return
        if wait is not None:
            self._due[key] = self.now + wait

    def write(self, verb: str, resource: Resource[Any], obj: Any, apply: Callable[[], Any]) -> Any:
        name = f"{verb} {resource.plural} {obj.metadata.name or obj.metadata.generateName}"
        stored = self._kill.get(len(self.points))
        self.points.append(name)
        if stored is not None:
            self.killed.append(name)
            if not stored:
                raise Killed(name)
        for check in self.checks:
            check(verb, resource, obj)
        result = apply()
        if verb == "create":
            self.created.append(result.metadata.name)
        if stored:
            raise Killed(name)
        return result

    def of(self, resource: Resource[Any]) -> dict[str, Any]:
        return self.stores.setdefault(resource, {})

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
        metadata.name = metadata.name or f"{metadata.generateName}{self.revision}"
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
        metadata = stored.metadata
        ended = resource is not PODS or stored.status.phase in ("Succeeded", "Failed")
        if metadata.HasField("deletionTimestamp") and not metadata.finalizers and ended:
            self.remove(resource, old)
            return stored
        return self._store(resource, stored, MODIFIED, old)

    def change(self, resource: Resource[Any], key: str, change: Callable[[Any], object]) -> None:
        """A user, or another component, changes an object."""
        obj = _copy(self.find(resource, key))
        change(obj)
        self.update(resource, obj)

    def delete(self, resource: Resource[Any], obj: Any) -> Any:
        """Delete an object. Pods terminate until `remove`, and objects with finalizers until the last one is removed."""
        old = self.find(resource, store_key(obj))
        if resource is PODS or old.metadata.finalizers:
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
        changed = self.end_pods()
        for pod in list(self.of(PODS).values()):
            if pod.status.phase == "Pending" and not pod.metadata.HasField("deletionTimestamp"):

                def start(started: Any) -> None:
                    started.status.phase = "Running"
                    started.status.startTime.CopyFrom(to_time(self.now))
                    ready = started.status.conditions.add(type="Ready", status="True")
                    ready.lastTransitionTime.CopyFrom(to_time(self.now))

                self.change(PODS, store_key(pod), start)
                changed = True
        return changed

    def end_pods(self) -> bool:
        """Let kubelets end terminating pods. A step for `between`."""
        changed = False
        for pod in list(self.of(PODS).values()):
            if not pod.metadata.HasField("deletionTimestamp"):
                continue
            if not pod.metadata.finalizers:
                self.remove(PODS, pod)
            elif pod.status.phase in ("Pending", "Running"):
                self.change(PODS, store_key(pod), lambda ended: setattr(ended.status, "phase", "Failed"))
            else:
                continue
            changed = True
        return changed

    def finish_pods(self) -> bool:
        """Let running pods succeed. A step for `between`, after `run_pods`."""
        running = [pod for pod in self.of(PODS).values() if pod.status.phase == "Running"]
        for pod in running:
            self.change(PODS, store_key(pod), lambda ended: setattr(ended.status, "phase", "Succeeded"))
        return bool(running)

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
    """Run the scenario without a kill, then killed before each of its writes, and after it; at every fifth write, also after
    it and the next one. The scenario asserts its result.

    Return the number of kills for each name of a write, without those of next ones. Raise AssertionError if a point was not
    reached.
    """
    whole = KillableCluster(build)
    await scenario(whole)
    reached: Counter[str] = Counter()
    for number, name in enumerate(whole.points):
        twice = [{number: True, number + 1: True}] if number % 5 == 0 else []
        for kills in ({number: False}, {number: True}, *twice):
            cluster = KillableCluster(build, kill=kills)
            await scenario(cluster)
            assert cluster.killed[:1] == [name], f"write {number} is {cluster.killed}, not {name}"
            if len(kills) == 1:
                reached[name] += 1
    assert set(reached) == set(whole.points)
    return reached
