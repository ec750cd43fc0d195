"""What a controller is: it says what it watches, and looks at one key at a time.

    change of an object --Watch.keys--> keys --queue, each once--> sync(key) --> writes, by what the informers' stores say
                                          ^                          |
                                          +--- again after ... ------+--- an ApiError: again, after the key's back-off

A key says what to look at, never what has happened: `sync` compares what there is with what there should be, so that it does
not matter which changes it has missed. What it decides is a function of objects, apart from it: tests need no cluster.

Only the leader's controllers work. Where a term begins, every object counts as added; where it ends, what is under way is
cancelled, wherever it waits. Nothing but its informers is left to the next leader, so a controller keeps no state that matters.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from controllers.informers import Informers
from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.resources import Object, Resource, store_key
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.client.events import Recorder, Reporter
from pinnace.client.informer import Delta
from pinnace.runtime.clock import Clock

T = TypeVar("T", bound=Object)

Keys = Callable[[Delta[T]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """`keys`: what is to be looked at after a change. It must not raise, nor wait."""

    resource: Resource[T]
    keys: Keys[T]


class Controller(Protocol):
    @property
    def name(self) -> str:
        """As kube-controller-manager calls it, such as "replicaset"."""
        ...

    @property
    def workers(self) -> int:
        """Keys that are looked at at once."""
        ...

    @property
    def max_backoff(self) -> float:
        """Seconds between two looks at a key that fails, at most: so long may it take to notice that nothing is in its way any
        more."""
        ...

    @property
    def watches(self) -> Sequence[Watch[Any]]: ...

    async def sync(self, key: str) -> float | None:
        """Looks at one key. The seconds after which it is to be looked at again even if nothing changes; None: never. Raises
        ApiError, or Unfinished: it is looked at again after its back-off."""
        ...


class Unfinished(Exception):
    """All of a key is done that could be. `cause`: why the rest could not be; `again`: what `sync` would have returned. The
    key is looked at again after its back-off, or after `again` seconds if that is sooner."""

    def __init__(self, cause: ApiError, again: float | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class Shared:
    """What all controllers are made from. Indices and informers are asked for in the constructor, before anything runs."""

    client: Client
    informers: Informers
    recorder: Recorder
    clock: Clock
    component: str
    """In whose name events are reported."""

    @property
    def events(self) -> Reporter:
        return self.recorder.of(self.component)

    def reporting(self, component: str) -> "Shared":
        """The same for a controller whose events have its own name."""
        return replace(self, component=component)


def itself(delta: Delta[T]) -> Iterable[str]:
    """A Watch's `keys`: the object that has changed."""
    return (store_key(delta.obj),)


def its_controller(owner: Resource[Any]) -> Callable[[Delta[Any]], Iterable[str]]:
    """A Watch's `keys`: the object of this kind that manages the one that has changed, now or before."""

    def keys(delta: Delta[Any]) -> Iterable[str]:
        found = set()
        for obj in filter(None, (delta.obj, delta.old)):
            reference = controller_of(obj)
            if reference is not None and (reference.kind, reference.apiVersion) == (owner.kind, owner.api_version):
                namespace = obj.metadata.namespace
                found.add(f"{namespace}/{reference.name}" if owner.namespaced else reference.name)
        return found

    return keys


def controller_of(obj: Object) -> OwnerReference | None:
    """Who manages it: at most one."""
    return next((reference for reference in obj.metadata.ownerReferences if reference.controller), None)
