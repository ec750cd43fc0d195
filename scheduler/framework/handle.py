"""The framework handle that plugins receive, its read-only view for plugins of users, and the pods that wait in Permit."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import count
from typing import Any, Protocol

from pinnace.api.resources import Resource, T
from pinnace.api.wire import ReadOnlyMap, read_only
from pinnace.client.client import Client
from pinnace.client.informer import Index
from pinnace.fit.table import BoolArray
from scheduler.cache.cache import Cache
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.faults import Faults, call, check_key
from scheduler.framework.filtering import OneByOne
from scheduler.framework.interface import Plugin
from scheduler.framework.results import CycleState, FilterResult, PluginError, Refused

Settle = Callable[["WaitingPod", Refused | None], None]
MAX_TIMEOUT = 15 * 60.0
"""Seconds that a pod may wait at most, whatever plugins ask for; Kubernetes' limit."""


class WaitingPod:
    """As plugins see it. Once it is settled, neither `allow` nor `reject` changes anything."""

    __slots__ = ("_pending", "_settle", "node", "pod")

    def __init__(self, pod: PodInfo, node: str, plugins: Iterable[str], settle: "Settle") -> None:
        self.pod = pod
        self.node = node
        self._pending = set(plugins)
        self._settle = settle

    @property
    def pending(self) -> frozenset[str]:
        """The plugins that have not allowed it yet."""
        return frozenset(self._pending)

    def allow(self, plugin: str) -> None:
        """What `plugin` waited for has happened. The pod goes on when this was the last one."""
        if plugin in self._pending:
            self._pending.discard(plugin)
            if not self._pending:
                self._settle(self, None)

    def reject(self, plugin: str, reason: str) -> None:
        """The pod must not be bound."""
        if self._pending:
            self._pending.clear()
            self._settle(self, Refused(plugin, reason))


class WaitingPods:
    """`changed` is called when a pod is added or settled."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pods: dict[str, WaitingPod] = {}
        self._timers: list[tuple[float, int, float, WaitingPod, str]] = []
        """(when, tie-break, timeout, pod, plugin). Those of pods that do not wait any more stay until their time."""
        self._sequence = count()
        self._settled: list[tuple[WaitingPod, Refused | None]] = []

    def __iter__(self) -> Iterator[WaitingPod]:
        """Those that wait now, the longest waiting first. They may be allowed and rejected meanwhile."""
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    # --- for the owner

    def add(self, pod: PodInfo, node: str, timeouts: Mapping[str, float], now: float) -> None:
        """`timeouts`: seconds, by plugin, at least one."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node, timeouts, self._settle)
        for plugin, timeout in timeouts.items():
            seconds = min(timeout, MAX_TIMEOUT)
            heapq.heappush(self._timers, (now + seconds, next(self._sequence), seconds, waiting, plugin))
        self._changed()

    def settled(self, now: float) -> list[tuple[WaitingPod, Refused | None]]:
        """Takes what has been decided since, and what is due at `now`; None: the pod may go on."""
        while self._timers and self._timers[0][0] <= now:
            _, _, seconds, waiting, plugin = heapq.heappop(self._timers)
            if plugin in waiting.pending:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")
        settled, self._settled = self._settled, []
        return settled

    def next_due(self) -> float | None:
        """When the next timer is over. Now and then for a pod that does not wait any more."""
        return self._timers[0][0] if self._timers else None

    def clear(self) -> None:
        """Forgets all of them, settled or not."""
        self._pods.clear()
        self._timers.clear()
        self._settled.clear()

    def _settle(self, waiting: WaitingPod, refused: Refused | None) -> None:
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
            self._settled.append((waiting, refused))
            self._changed()


class Waiting(Protocol):
    """The pods that wait in Permit: scheduler.framework.handle says how."""

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
    def cost(self, pod: PodInfo, nodes: NodeTable) -> float: ...
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


class Shown:
    """A Handle."""

    def __init__(self, handle: Handle, plugin: type[Plugin]) -> None:
        self._handle = handle
        self._plugin: Any = plugin
        self._faults = Faults()

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return ReadOnlyMap(self._handle.objects(resource))

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Objects of which `by` cannot tell the key have none: informers do not end because of a plugin."""

        def key(obj: T) -> str:
            try:
                return call(self._plugin, "index", check_key, call(self._plugin, "index", by, read_only(obj)))
            except PluginError as error:
                self._faults.note(error)
                return ""

        return _ShownIndex(self._handle.index(resource, key))

    @property
    def waiting(self) -> Waiting:
        return self._handle.waiting

    def activate(self, uid: str) -> None:
        self._handle.activate(uid)

    @property
    def preemption(self) -> Preemption | None:
        return self._handle.preemption

    @property
    def client(self) -> Client:
        return self._handle.client


class _ShownIndex(Index[T]):
    def __init__(self, index: Index[T]) -> None:
        self._index = index

    def under(self, key: str) -> Mapping[str, T]:
        return ReadOnlyMap(self._index.under(key))

    @property
    def keys(self) -> Set[str]:
        return self._index.keys
