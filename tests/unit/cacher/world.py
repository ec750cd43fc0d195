"""What the tests of the watch cache share: a storage whose history the test knows, and a reader that checks what it is told.

The history is kept apart from the code under test: selections are plain Python predicates here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import PodWatchResponse
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.cacher.watcher import CacheWatcher
from pinnace.apiserver.storage.interface import ChangeBatch, Committed, KeyChange, Storage, Write
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage

DEADLINE = 10.0

Predicate = Callable[[Pod], bool]


class Seen(NamedTuple):
    """One event as a client sees it. `app` and `node` are those of the object in the event."""

    revision: int
    kind: str
    name: str
    app: str
    node: str


@dataclass(frozen=True)
class Case:
    """A selection, by its text and by what it means."""

    namespace: str
    labels: str
    fields: str
    predicate: Predicate = field(repr=False)  # else the names of tests would differ from run to run

    @property
    def selection(self) -> SelectionPredicate:
        return SelectionPredicate.parse(PODS, self.namespace, self.labels, self.fields)


CASES = (
    Case("", "", "", lambda pod: True),
    Case("default", "", "", lambda pod: pod.metadata.namespace == "default"),
    Case("", "app=web", "", lambda pod: pod.metadata.labels.get("app") == "web"),
    Case("", "app!=web", "", lambda pod: pod.metadata.labels.get("app") != "web"),
    Case("", "", "spec.nodeName=n1", lambda pod: pod.spec.nodeName == "n1"),
    Case("", "", "spec.nodeName=", lambda pod: pod.spec.nodeName == ""),
    Case("", "", "spec.nodeName in (n1,n2)", lambda pod: pod.spec.nodeName in ("n1", "n2")),
    Case("", "", "spec.nodeName!=n1", lambda pod: pod.spec.nodeName != "n1"),
    Case("", "", "metadata.name=a", lambda pod: pod.metadata.name == "a"),
    Case("", "", "status.phase=Running", lambda pod: pod.status.phase == "Running"),
    Case("", "", "status.phase!=Running,status.phase!=Failed", lambda pod: pod.status.phase not in ("Running", "Failed")),
    Case(
        "other", "app in (web,db)", "spec.nodeName in (n1,n2)",
        lambda pod: pod.metadata.namespace == "other"
        and pod.metadata.labels.get("app") in ("web", "db")
        and pod.spec.nodeName in ("n1", "n2"),
    ),
)  # fmt: skip


def pod(name: str, namespace: str = "default", *, app: str = "", node: str = "", phase: str = "") -> Pod:
    """A pod as it is stored: without a resourceVersion."""
    builder = make_pod(name, namespace).node(node).phase(phase)
    built = (builder.label("app", app) if app else builder).build()
    built.metadata.resourceVersion = ""
    return built


class World:
    """A storage, and all that has happened to pods in it."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage: Storage = storage if storage is not None else MemoryStorage()
        self.log: list[tuple[int, str, Pod | None, Pod | None]] = []
        self._now: dict[str, tuple[int, Pod]] = {}

    async def put(self, *pods: Pod) -> int:
        """One revision in which these are written."""
        return await self.commit({PODS.key_of(item): item for item in pods})

    async def delete(self, name: str, namespace: str = "default") -> int:
        return await self.commit({PODS.key(namespace, name): None})

    async def commit(self, changes: Mapping[str, Pod | None]) -> int:
        """One revision; None deletes."""
        writes = [
            Write(key, None if new is None else new.SerializeToString(), self._now[key][0] if key in self._now else 0)
            for key, new in changes.items()
        ]
        outcome = await self.storage.transact(writes)
        assert isinstance(outcome, Committed)
        for key, new in changes.items():
            old = self._now.pop(key, None)
            self.log.append((outcome.revision, key, old[1] if old else None, new))
            if new is not None:
                self._now[key] = (outcome.revision, new)
        return outcome.revision

    def state(self, revision: int, predicate: Predicate) -> dict[str, int]:
        """The keys of the selected pods at a revision, in order, and the revision of each."""
        result: dict[str, tuple[int, Pod | None]] = {}
        for changed, key, _, new in self.log:
            if changed <= revision:
                result[key] = (changed, new)
        return {key: at for key, (at, new) in sorted(result.items()) if new is not None and predicate(new)}

    def events(self, predicate: Predicate, since: int, until: int) -> list[Seen]:
        """What a watcher must be told of the revisions after `since`, up to `until`."""
        return [event for event in self._events(predicate) if since < event.revision <= until]

    def _events(self, predicate: Predicate) -> Iterator[Seen]:
        for revision, _, old, new in self.log:
            before, after = old is not None and predicate(old), new is not None and predicate(new)
            if new is not None and after:
                yield seen(revision, "MODIFIED" if before else "ADDED", new)
            elif old is not None and before:
                yield seen(revision, "DELETED", old)


def seen(revision: int, kind: str, obj: Pod) -> Seen:
    metadata = obj.metadata
    return Seen(revision, kind, f"{metadata.namespace}/{metadata.name}", metadata.labels.get("app", ""), obj.spec.nodeName)


class Reader:
    """Reads a watch as a client does, and checks that responses keep their promises: whole revisions, in order."""

    def __init__(self, watcher: CacheWatcher, since: int = 0) -> None:
        self.watcher = watcher
        self.events: list[Seen] = []
        self.initial: list[str] = []
        self.revision = since
        self.snapshot = since
        """The revision that it began with: the initial state's, where it began with that."""
        self.responses = 0
        self._in_initial_state = since == 0

    async def read(self) -> None:
        """One response. Raises TimeoutError when there is none."""
        async with asyncio.timeout(DEADLINE):
            response = PodWatchResponse.FromString(await anext(self.watcher))
        self.responses += 1
        told = [
            seen(int(event.object.metadata.resourceVersion), WatchEventType.Name(event.type), event.object)
            for event in response.events
        ]
        if self._in_initial_state:
            self.initial += [PODS.key_of(event.object) for event in response.events]
            assert {item.kind for item in told} <= {"ADDED"}
            self._in_initial_state = not response.resourceVersion
            self.snapshot = int(response.resourceVersion or 0)
        else:
            assert response.resourceVersion, "only parts of the initial state may lack it"
            assert all(self.revision < item.revision <= int(response.resourceVersion) for item in told)
            self.events += told
        if response.resourceVersion:
            assert int(response.resourceVersion) >= self.revision, "a revision went back"
            self.revision = int(response.resourceVersion)

    async def until(self, revision: int) -> None:
        """Reads until everything up to `revision` was told."""
        while self.revision < revision:
            await self.read()


@asynccontextmanager
async def running(cacher: Cacher) -> AsyncIterator[Cacher]:
    """The cacher, running and loaded."""
    task = asyncio.create_task(cacher.run())
    try:
        await cacher.wait_until_fresh(DEADLINE)
        yield cacher
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=DEADLINE)
        if not task.cancelled() and (error := task.exception()):
            raise error


def pod_change(revision: int, obj: Pod, created: int = 0) -> KeyChange:
    """A put; a create unless `created` says since when it is there."""
    return KeyChange(PODS.key_of(obj), obj.SerializeToString(), created or revision, revision)


def changes(*each: KeyChange) -> ChangeBatch:
    return ChangeBatch(each[-1].mod_revision, each)


async def eventually(condition: Callable[[], bool]) -> None:
    """Returns when the condition holds."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 (plain values of the code under test: there is no event to wait for)
            await asyncio.sleep(0.001)


class TimeMachine:
    """Makes the running event loop believe that it is later: what is due then happens at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._skipped = 0.0
        loop = asyncio.get_running_loop()
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._skipped)

    async def skip(self, seconds: float) -> None:
        self._skipped += seconds
        for _ in range(20):
            await asyncio.sleep(0)
