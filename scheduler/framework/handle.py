"""What a plugin may use beside its arguments. It is given to constructors that name `handle`, which may keep it."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from pinnace.api.resources import Resource, T
from pinnace.client.client import Client
from scheduler.framework.waiting import WaitingPod, WaitingPods


class Waiting(Protocol):
    """The pods that wait in Permit: scheduler.framework.waiting says how."""

    def __iter__(self) -> Iterator[WaitingPod]: ...
    def get(self, uid: str) -> WaitingPod | None: ...


class Handle(Protocol):
    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """All objects of a resource by "namespace/name", or "name": an informer's store, which is always as new as the table
        of nodes when a term begins, and follows by itself. Do not change them. A plugin that wants others than pods and nodes
        names them in its class's attribute `needs`, a tuple of resources. Raises KeyError for one that nobody needs."""
        ...

    @property
    def waiting(self) -> Waiting: ...

    @property
    def client(self) -> Client:
        """The API. Not for the scheduling cycle, which does not wait for anything; and not before the scheduler runs."""
        ...


class Offline:
    """The handle with which a configuration is checked before anything runs: there are no objects, and nobody waits."""

    def __init__(self) -> None:
        self.waiting = WaitingPods(lambda: None)

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return {}

    @property
    def client(self) -> Client:
        raise RuntimeError("`handle.client` cannot be used in a constructor")
