"""An API server that is a dictionary, as a scheduler's client sees it (pinnace.client.client.Client).

Objects are values: what is given is copied, what is handed out is not to be changed. Every write has a revision of its own, and
watchers hear all of them, in order, each `lag()` seconds late. `weather` decides what becomes of a bind.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from pinnace.api.core_v1_pb2 import Binding, Event, Pod
from pinnace.api.elections_pb2 import Term
from pinnace.api.pods import ended
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import NODES, PODS, Resource
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchItem, DeleteRequest
from pinnace.client.errors import ApiError, from_refusal, unavailable_error
from pinnace.client.resource import WatchBatch

_FENCED = Refusal(Code.FAILED_PRECONDITION, "Fenced", "another leader has been elected")


class Weather(Enum):
    """Of one bind."""

    FAIR = auto()
    REFUSED = auto()
    LOST = auto()
    """The request is."""
    UNHEARD = auto()
    """The answer is: it has happened."""


class FakeElections:
    """No term is remembered."""

    async def list_terms(self, name: str) -> Sequence[Term]:
        return ()


class FakeApi:
    """`connection` is what a LeaderElector is made with."""

    def __init__(self, lag: Callable[[], float] = lambda: 0.01) -> None:
        self.lag = lag
        self.weather: Callable[[], Weather] = lambda: Weather.FAIR
        self.revision = 1
        self.token = 0
        """The leader's."""
        self.binds: list[tuple[str, str]] = []
        """(pod, node), as they happened."""
        self.told: list[str] = []
        """"pod reason: message" of each event."""
        self.on_write: Callable[[Resource[Any], Any, Any], None] = lambda resource, old, new: None
        """Is called with each change, before anybody else hears of it."""
        self.connection = self
        self.pods = FakePods(self)
        self.nodes = FakeResource(self, NODES)
        self.events = FakeEvents(self)
        self.elections = FakeElections()
        self._clients: dict[str, FakeResource] = {PODS.plural: self.pods, NODES.plural: self.nodes}

    def of(self, resource: Resource[Any]) -> "FakeResource":
        return self._clients.setdefault(resource.plural, FakeResource(self, resource))

    def with_fence(self, fence: Callable[[], Fence | None]) -> "Guarded":
        """Only binds and deletes are fenced here."""
        return Guarded(self, fence)

    def put(self, resource: Resource[Any], *objs: Any) -> None:
        """Creates or replaces."""
        for obj in objs:
            self.of(resource).put(obj)

    def remove(self, resource: Resource[Any], key: str) -> None:
        self.of(resource).remove(key)

    def bookmark(self) -> int:
        """Tells all watchers of a new revision, in which nothing has happened."""
        self.revision += 1
        for client in self._clients.values():
            client.tell()
        return self.revision

    def all(self, resource: Resource[Any]) -> Mapping[str, Any]:
        """By the keys of informers."""
        return self.of(resource).objects


class FakeResource:
    """The verbs that schedulers use."""

    def __init__(self, api: FakeApi, resource: Resource[Any]) -> None:
        self.resource = resource
        self.objects: dict[str, Any] = {}
        self._api = api
        self._streams: list[asyncio.Queue[tuple[float, WatchBatch[Any]]]] = []

    def put(self, obj: Any) -> Any:
        key, old = self.key(obj), self.objects.get(self.key(obj))
        new = self.resource.message()
        new.CopyFrom(obj)
        self._api.revision += 1
        new.metadata.resourceVersion = str(self._api.revision)
        self._api.on_write(self.resource, old, new)
        self.objects[key] = new
        seen, shown = old is not None and self.shows(old), self.shows(new)
        if seen or shown:
            self.tell((DELETED if not shown else MODIFIED if seen else ADDED, new))
        return new

    def remove(self, key: str) -> None:
        old = self.objects.pop(key)
        self._api.revision += 1
        self._api.on_write(self.resource, old, None)
        if self.shows(old):
            self.tell((DELETED, old))

    def shows(self, obj: Any) -> bool:
        """To watchers."""
        return True

    def key(self, obj: Any) -> str:
        meta = obj.metadata
        return f"{meta.namespace}/{meta.name}" if self.resource.namespaced else str(meta.name)

    def tell(self, *events: tuple[Any, Any]) -> None:
        """Without any it is a bookmark."""
        at = asyncio.get_running_loop().time() + self._api.lag()
        for stream in self._streams:
            stream.put_nowait((at, WatchBatch(list(events), self._api.revision)))

    async def watch(self, **options: Any) -> AsyncGenerator[WatchBatch[Any], None]:
        """Without a revision to resume from: streams do not break here."""
        stream: asyncio.Queue[tuple[float, WatchBatch[Any]]] = asyncio.Queue()
        self._streams.append(stream)
        yield WatchBatch([(ADDED, obj) for obj in self.objects.values() if self.shows(obj)], self._api.revision)
        while True:
            at, batch = await stream.get()
            await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))
            yield batch

    async def update(self, obj: Any) -> Any:
        await asyncio.sleep(self._api.lag())
        return self.write(obj)

    async def update_status(self, obj: Any) -> Any:
        await asyncio.sleep(self._api.lag())
        return self._write_status(obj)

    async def update_status_batch(self, objs: Sequence[Any]) -> list[BatchItem]:
        await asyncio.sleep(self._api.lag())
        return [self._item(lambda obj=obj: self._write_status(obj)) for obj in objs]

    def _write_status(self, obj: Any) -> Any:
        """Looks at nothing of the object but its status, and which it is."""
        whole = self.resource.message()
        whole.CopyFrom(self.objects.get(self.key(obj), obj))
        whole.status.CopyFrom(obj.status)
        whole.metadata.uid, whole.metadata.resourceVersion = obj.metadata.uid, obj.metadata.resourceVersion
        return self.write(whole)

    def write(self, obj: Any) -> Any:
        """A compare-and-swap. Raises ApiError."""
        old = self.objects.get(self.key(obj))
        if old is None or old.metadata.uid != obj.metadata.uid:
            raise from_refusal(Refusal(Code.NOT_FOUND, "NotFound", "no such object"))
        if old.metadata.resourceVersion != obj.metadata.resourceVersion:
            raise from_refusal(Refusal(Code.ABORTED, "Conflict", "the object has been modified"))
        return self.put(obj)

    @staticmethod
    def _item(act: Callable[[], Any]) -> BatchItem:
        try:
            act()
        except ApiError as error:
            return BatchItem(error=encode(error.refusal))
        return BatchItem()


class FakePods(FakeResource):
    def __init__(self, api: FakeApi) -> None:
        super().__init__(api, PODS)

    def shows(self, obj: Any) -> bool:
        """Schedulers watch those that are not finished."""
        return not ended(obj)

    async def get(self, name: str, namespace: str = "") -> Pod:
        await asyncio.sleep(self._api.lag())
        return self._get(f"{namespace}/{name}")

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        assert fence is not None
        weather = self._api.weather()
        await asyncio.sleep(self._api.lag())
        if weather is Weather.LOST:
            raise unavailable_error("lost")
        items = [self._item(lambda item=binding: self._bind(item, fence)) for binding in bindings]
        await asyncio.sleep(self._api.lag())
        if weather is Weather.UNHEARD:
            raise unavailable_error("lost")
        return items

    async def delete_batch(
        self, requests: Sequence[DeleteRequest], leads: Callable[[], bool] = lambda: True
    ) -> list[BatchItem]:
        await asyncio.sleep(self._api.lag())
        if not leads():
            raise from_refusal(_FENCED)
        return [self._item(lambda item=request: self._delete(item)) for request in requests]

    def _get(self, key: str) -> Pod:
        if key not in self.objects:
            raise from_refusal(Refusal(Code.NOT_FOUND, "NotFound", f'pods "{key}" not found'))
        obj: Pod = self.objects[key]
        return obj

    def _bind(self, binding: Binding, fence: Fence) -> None:
        key = f"{binding.metadata.namespace}/{binding.metadata.name}"
        if fence.token != self._api.token:
            raise from_refusal(_FENCED)
        pod = self._get(key)
        if pod.metadata.uid != binding.metadata.uid:
            raise from_refusal(Refusal(Code.NOT_FOUND, "NotFound", "another pod of that name"))
        if pod.spec.nodeName or pod.metadata.HasField("deletionTimestamp") or self._api.weather() is Weather.REFUSED:
            raise from_refusal(Refusal(Code.ABORTED, "Conflict", f'pod "{key}" cannot be bound'))
        bound = Pod()
        bound.CopyFrom(pod)
        bound.spec.nodeName = binding.target.name
        self._api.binds.append((key, binding.target.name))
        self.put(bound)

    def _delete(self, request: DeleteRequest) -> None:
        """Gracefully: whoever plays the kubelet removes it."""
        pod = self._get(f"{request.namespace}/{request.name}")
        if pod.metadata.uid != request.options.preconditions.uid:
            raise from_refusal(Refusal(Code.ABORTED, "Conflict", "another pod of that name"))
        going = Pod()
        going.CopyFrom(pod)
        going.metadata.deletionTimestamp.seconds = 1
        if request.HasField("disruption"):
            why = request.disruption
            going.status.conditions.add(type="DisruptionTarget", status="True", reason=why.reason, message=why.message)
        self.put(going)


class Guarded:
    """The same API for one who leads."""

    def __init__(self, api: FakeApi, fence: Callable[[], Fence | None]) -> None:
        self.pods = GuardedPods(api, fence)
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)


class GuardedPods:
    def __init__(self, api: FakeApi, fence: Callable[[], Fence | None]) -> None:
        self._api = api
        self._fence = fence

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api.pods, name)

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        fence = self._fence()
        return await self._api.pods.delete_batch(requests, lambda: fence is not None and fence.token == self._api.token)


class FakeEvents:
    def __init__(self, api: FakeApi) -> None:
        self._api = api

    async def record(self, events: Sequence[Event]) -> list[BatchItem]:
        self._api.told += [f"{event.involvedObject.name} {event.reason}: {event.message}" for event in events]
        return [BatchItem() for _ in events]


class FakeCandidate:
    """Takes the place of pinnace.client.election.LeaderElector. Leads when it is told to."""

    def __init__(
        self,
        connection: FakeApi,
        election: str,
        holder: str,
        *,
        on_elected: Any,
        on_lost: Any,
        scheduler_names: Any,
        configuration: str,
        clock: Any,
    ) -> None:
        self._api = connection
        self._on_elected = on_elected
        self._on_lost = on_lost
        self.holder = holder
        self.token: int | None = None
        self.healthy = None
        self.running = False

    @property
    def fence(self) -> Fence | None:
        return self.fence_of(self.token) if self.token is not None else None

    def fence_of(self, token: int) -> Fence:
        return Fence(election="scheduler", token=token)

    def abandon_term(self, token: int, reason: str) -> None:
        if self.token == token:
            self.token = None
            self._on_lost(reason)

    async def run(self) -> None:
        """Until cancelled."""
        self.running = True
        if self.token is not None:
            self._on_elected(self.token)
        await asyncio.get_running_loop().create_future()

    def elect(self) -> None:
        """The token is a revision, as etcd's is. Before it stands: as soon as it does."""
        self._api.token = self.token = self._api.bookmark()
        if self.running:
            self._on_elected(self.token)

    def depose(self) -> None:
        self._api.token = 0
        if self.token is not None:
            self.token = None
            self._on_lost("deposed")

    async def release(self) -> None:
        self.depose()
