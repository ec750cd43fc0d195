"""Those who make the load. Each takes one step at a time, of one to three calls; a step that fails has been recorded, and is
over.

    Owner   has pods of its own, all alike: creates, reads, relabels and deletes them, so that a bounded number lives
    Rival   one of several who write the same few objects through different API servers, without asking each other
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, NotFound, error_of
from pinnace.client.resource import delete_request

LOAD, CONTESTED, HARM = "load", "contested", "harm"
"""Namespaces: of the pods that are scheduled and run, of the objects that only Rivals write, and of the pods by which faults
harm the scheduler."""
NOBODY = "nobody"
"""A scheduler that does not exist: its pods are never bound, unless by hand."""
LABEL = "chaos"
OBJECTS = 4
"""That the Rivals of the steady load fight over."""
PAGE = 80
BATCH = 5


class Worker(Protocol):
    async def step(self) -> None:
        """Raises ApiError."""
        ...


def pod(namespace: str, name: str, *, scheduler: str = "") -> Pod:
    """One that takes room on a node, unless a scheduler is named that does not exist."""
    made = Pod()
    made.metadata.namespace, made.metadata.name = namespace, name
    made.spec.schedulerName = scheduler
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    if not scheduler:
        container.resources.requests["cpu"].string = "100m"
        container.resources.requests["memory"].string = "500Mi"
    return made


class Owner:
    """`room`: so many pods are alive at most, but for those that are being deleted. A pod whose create or delete had no answer
    counts until a delete of it is answered."""

    def __init__(self, name: str, client: Client, room: int, rng: random.Random) -> None:
        self._name = name
        self._pods = client.pods
        self._room = room
        self._random = rng
        self._created = 0
        self._alive: list[str] = []
        self._read: Pod | None = None

    async def step(self) -> None:
        if len(self._alive) < max(self._room / 4, BATCH):
            await self._create_batch()
        elif len(self._alive) > self._room - BATCH:
            await self._delete()
        else:
            (action,) = self._random.choices(self._actions, self._weights)
            await action(self)

    async def _create(self) -> None:
        (name,) = self._names(1)
        await self._pods.create(pod(LOAD, name))

    async def _create_batch(self) -> None:
        await self._pods.create_batch([pod(LOAD, name) for name in self._names(BATCH)])

    async def _delete(self) -> None:
        name = self._take()
        known = self._read if self._read is not None and self._read.metadata.name == name else None
        try:
            await self._pods.delete(name, LOAD, grace=self._grace(), uid=known.metadata.uid if known else "")
        except NotFound:
            pass
        except ApiError:
            self._alive.append(name)  # perhaps: to be deleted again
            raise

    async def _delete_batch(self) -> None:
        requests = [delete_request(self._take(), LOAD, grace=self._grace()) for _ in range(BATCH)]
        left = [request.name for request in requests]
        try:
            items = await self._pods.delete_batch(requests)
            left = [name for name, item in zip(left, items, strict=True) if not _gone(item)]
        finally:
            self._alive.extend(left)

    async def _get(self) -> None:
        self._read = await self._pods.get(self._random.choice(self._alive), LOAD)

    async def _relabel(self) -> None:
        """Reads, changes, and writes on the condition that nobody else has meanwhile."""
        found = await self._pods.get(self._random.choice(self._alive), LOAD)
        self._relabelled(found)
        await self._pods.update(found)

    async def _relabel_blindly(self) -> None:
        """The same from what was read some time ago: mostly stale, since the kubelet writes too."""
        if self._read is not None:
            self._relabelled(self._read)
            await self._pods.update(self._read)

    async def _list(self) -> None:
        """In pages, each from any server."""
        await self._pods.list(LOAD, page_size=PAGE)

    def _names(self, count: int) -> list[str]:
        """New ones, that count as alive from now on."""
        made = [f"{self._name}-{self._created + i}" for i in range(count)]
        self._created += count
        self._alive.extend(made)
        return made

    def _take(self) -> str:
        """One of the older ones, which counts as gone from now on."""
        return self._alive.pop(self._random.randrange(len(self._alive) // 2 + 1))

    def _grace(self) -> int | None:
        return self._random.choice((None, 0, 1))

    def _relabelled(self, found: Pod) -> None:
        found.metadata.labels[LABEL] = str(self._random.randrange(1000))

    _actions: Sequence[Callable[["Owner"], Awaitable[None]]] = (
        _create, _create_batch, _delete, _delete_batch, _get, _relabel, _relabel_blindly, _list,
    )  # fmt: skip
    _weights = (20, 2, 18, 2, 40, 22, 8, 1)


class Rival:
    """`objects`: how many they fight over."""

    def __init__(self, client: Client, rng: random.Random, objects: int = OBJECTS) -> None:
        self._pods = client.pods
        self._random = rng
        self._objects = objects
        self._last: Pod | None = None

    async def step(self) -> None:
        name = f"{CONTESTED}-{self._random.randrange(self._objects)}"
        (action,) = self._random.choices(self._actions, self._weights)
        await action(self, name)

    async def _create(self, name: str) -> None:
        await self._pods.create(pod(CONTESTED, name, scheduler=NOBODY))

    async def _get(self, name: str) -> None:
        self._last = await self._pods.get(name, CONTESTED)

    async def _increment(self, name: str) -> None:
        """A counter that must not lose a count."""
        found = await self._pods.get(name, CONTESTED)
        found.metadata.labels[LABEL] = str(int(found.metadata.labels[LABEL] or 0) + 1)
        self._last = await self._pods.update(found)

    async def _overwrite(self, name: str) -> None:
        """The last write wins: no condition."""
        found = pod(CONTESTED, name, scheduler=NOBODY)
        found.metadata.labels[LABEL] = str(self._random.randrange(1000))
        await self._pods.update(found)

    async def _write_stale(self, name: str) -> None:
        """On the condition of a version that may be long gone, or of a namesake."""
        if self._last is not None:
            self._last.metadata.labels[LABEL] = str(self._random.randrange(1000))
            await self._pods.update(self._last)

    async def _delete(self, name: str) -> None:
        await self._pods.delete(name, CONTESTED)

    async def _delete_known(self, name: str) -> None:
        """On the condition that it still is what was read."""
        if self._last is not None:
            known = self._last.metadata
            await self._pods.delete(known.name, CONTESTED, uid=known.uid, resource_version=known.resourceVersion)

    async def _list(self, name: str) -> None:
        await self._pods.list(CONTESTED, page_size=1)

    _actions: Sequence[Callable[["Rival", str], Awaitable[None]]] = (
        _create, _get, _increment, _overwrite, _write_stale, _delete, _delete_known, _list,
    )  # fmt: skip
    _weights = (20, 20, 30, 6, 6, 6, 6, 10)


def _gone(deletion: BatchItem) -> bool:
    return isinstance(error_of(deletion), NotFound | None)
