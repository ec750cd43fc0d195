"""What a plugin may use beside its arguments. It is given to constructors that name `handle`, which may keep it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from pinnace.api.resources import Resource, T
from pinnace.client.client import Client
from pinnace.client.index import Index
from pinnace.fit.table import BoolArray
from scheduler.cache.cache import Cache
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.filtering import OneByOne
from scheduler.framework.results import CycleState, FilterResult
from scheduler.framework.waiting import WaitingPod, WaitingPods


class Waiting(Protocol):
    """The pods that wait in Permit: scheduler.framework.waiting says how."""

    def __iter__(self) -> Iterator[WaitingPod]: ...
    def get(self, uid: str) -> WaitingPod | None: ...


class Filters(Protocol):
    """The filters of a profile: scheduler.framework.runtime says how."""

    def judge(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Diagnosis: ...
    def ask(self, plugin: str, pod: PodInfo, nodes: NodeTable) -> FilterResult | None: ...
    def curable(self, diagnosis: Diagnosis) -> BoolArray: ...
    def unresolvable(self, diagnosis: Diagnosis) -> BoolArray: ...
    def lasting(self, diagnosis: Diagnosis) -> Sequence[tuple[str, FilterResult]]: ...
    def one_by_one(self, diagnosis: Diagnosis) -> OneByOne | None: ...
    def estimate(self, pod: PodInfo, nodes: NodeTable) -> float: ...


class Preemption(Protocol):
    """For plugins that make room for a pod."""

    @property
    def cache(self) -> Cache:
        """The pods on the nodes, and `what_if`. Nothing else of it is to be called that changes it."""
        ...

    @property
    def seed(self) -> int: ...

    def filters(self, pod: PodInfo) -> Filters:
        """Those of the pod's profile."""
        ...

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        """Has these pods leave the node, without waiting for it. `plugin`: who wants it. Those for which no bind has been sent
        are called off, and need another node; the others are deleted."""
        ...

    def is_leaving(self, pod: PlacedPod) -> bool:
        """Has it been preempted, and is not gone yet?"""
        ...


class Handle(Protocol):
    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """All objects of a resource by "namespace/name", or "name": an informer's store, which is always as new as the table
        of nodes when a term begins, and follows by itself. To read. A plugin that wants others than pods and nodes
        names them in its class's attribute `needs`, a tuple of resources. Raises KeyError for one that nobody needs."""
        ...

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """The same objects by a key that `by` makes of each. For constructors: it is made once, and follows by itself."""
        ...

    @property
    def waiting(self) -> Waiting: ...

    def activate(self, uid: str) -> None:
        """A pod that waits for an event need not wait for one any longer: it is tried when its backoff is over. PreEnqueue is
        asked again about one that is gated."""
        ...

    @property
    def preemption(self) -> Preemption | None:
        """None where nothing runs."""
        ...

    @property
    def client(self) -> Client:
        """The API. Not for the scheduling cycle, which does not wait for anything; and not before the scheduler runs. What is
        written commits only while this scheduler leads; when it does not, calls raise Fenced."""
        ...


class Offline:
    """The handle with which a configuration is checked before anything runs: there are no objects, and nobody waits."""

    def __init__(self) -> None:
        self.waiting = WaitingPods(lambda: None)
        self.preemption: Preemption | None = None

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return {}

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        return Index(by, self.objects(resource).values())

    def activate(self, uid: str) -> None:
        """There is no queue."""

    @property
    def client(self) -> Client:
        raise RuntimeError("`handle.client` cannot be used in a constructor")
