"""The framework handle, its read-only view for out-of-tree plugins, pods that wait in Permit, and profiles.

A profile is the set of plugins at each extension point. Plugins are imported, constructed and checked at startup, so that all
configuration errors occur then.
"""

import heapq
import importlib.util
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from pinnace.api.resources import Resource, T
from pinnace.api.wire import ReadOnlyMap, read_only
from pinnace.client.client import Client
from pinnace.client.informer import Index
from pinnace.fit.table import BoolArray
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.cache.table import NodeTable
from pinnace.scheduler.framework import interface
from pinnace.scheduler.framework.filtering import SingleNodeFilter
from pinnace.scheduler.framework.former_name import permit_former_name
from pinnace.scheduler.framework.interface import BatchBindPlugin, Plugin
from pinnace.scheduler.framework.plugin_errors import PluginErrorLog, call_plugin, check_key, is_built_in
from pinnace.scheduler.framework.results import CycleState, Diagnosis, FilterResult, PluginError, PluginRejection

Settle = Callable[["WaitingPod", PluginRejection | None], None]
MAX_TIMEOUT = 15 * 60.0
"""Maximum seconds that a pod waits in Permit, regardless of the plugins' timeouts. Kubernetes has the same limit."""
_TOGETHER = ("reserve", "unreserve")


class WaitingPod:
    """A pod that waits in Permit. After it is settled, `allow` and `reject` have no effect."""

    __slots__ = ("_pending", "_settle", "node", "pod")

    def __init__(self, pod: PodInfo, node: str, plugins: Iterable[str], settle: "Settle") -> None:
        self.pod = pod
        self.node = node
        self._pending = set(plugins)
        self._settle = settle

    @property
    def pending(self) -> frozenset[str]:
        """The plugins that have not allowed the pod."""
        return frozenset(self._pending)

    def allow(self, plugin: str) -> None:
        """Record that `plugin` allows the pod. The pod continues when no plugin is pending."""
        if plugin in self._pending:
            self._pending.discard(plugin)
            if not self._pending:
                self._settle(self, None)

    def reject(self, plugin: str, reason: str) -> None:
        """Reject the pod, so that it is not bound."""
        if self._pending:
            self._pending.clear()
            self._settle(self, PluginRejection(plugin, reason))


class WaitingPods:
    """The pods that wait in Permit. `changed` is called when a pod is added or settled."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pods: dict[str, WaitingPod] = {}
        self._timers: list[tuple[float, int, float, WaitingPod, str]] = []
        """(due time, tie-break, timeout, pod, plugin). Timers of settled pods remain until their due time."""
        self._sequence = count()
        self._settled: list[tuple[WaitingPod, PluginRejection | None]] = []

    def __iter__(self) -> Iterator[WaitingPod]:
        """Iterate over the waiting pods, the longest waiting first. Pods may be allowed and rejected during the iteration."""
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    # --- for the binder

    def add_pod(self, pod: PodInfo, node: str, timeouts: Mapping[str, float], now: float) -> None:
        """Add a pod. `timeouts` has the timeout of at least one plugin, in seconds."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node, timeouts, self._settle)
        for plugin, timeout in timeouts.items():
            seconds = min(timeout, MAX_TIMEOUT)
            heapq.heappush(self._timers, (now + seconds, next(self._sequence), seconds, waiting, plugin))
        self._changed()

    def take_settled(self, now: float) -> list[tuple[WaitingPod, PluginRejection | None]]:
        """Return the pods that were settled since the last call or timed out at `now`, with the rejection or None."""
        while self._timers and self._timers[0][0] <= now:
            _, _, seconds, waiting, plugin = heapq.heappop(self._timers)
            if plugin in waiting.pending:
                waiting.reject(plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}")
        settled, self._settled = self._settled, []
        return settled

    def next_due(self) -> float | None:
        """Return the time of the next timer. The pod of the timer may already be settled."""
        return self._timers[0][0] if self._timers else None

    def drop_all(self) -> None:
        """Drop all pods, settled or not."""
        self._pods.clear()
        self._timers.clear()
        self._settled.clear()

    def _settle(self, waiting: WaitingPod, refused: PluginRejection | None) -> None:
        if self._pods.get(waiting.pod.uid) is waiting:
            del self._pods[waiting.pod.uid]
            self._settled.append((waiting, refused))
            self._changed()


class Waiting(Protocol):
    """The waiting pods, as plugins use them. See WaitingPods."""

    def __iter__(self) -> Iterator[WaitingPod]: ...
    def get(self, uid: str) -> WaitingPod | None: ...


class Filters(Protocol):
    """The filters of a profile, as plugins use them. See pinnace.scheduler.framework.runtime."""

    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Diagnosis: ...
    def run_single_filter(self, plugin: str, pod: PodInfo, nodes: NodeTable) -> FilterResult | None: ...
    def curable_nodes(self, diagnosis: Diagnosis) -> BoolArray: ...
    def unresolvable_nodes(self, diagnosis: Diagnosis) -> BoolArray: ...
    def lasting_refusals(self, diagnosis: Diagnosis) -> Sequence[tuple[str, FilterResult]]: ...
    def single_node_filter(self, diagnosis: Diagnosis) -> SingleNodeFilter | None: ...
    def filter_cost_bound(self, pod: PodInfo, nodes: NodeTable) -> float: ...
    def estimate_filter_cost(self, pod: PodInfo, nodes: NodeTable) -> float: ...


class Preemption(Protocol):
    """The interface for plugins that preempt pods."""

    @property
    def cache(self) -> Cache:
        """The cache, for its pods and `what_if`. Plugins must not call other methods that change it."""
        ...

    @property
    def seed(self) -> int: ...

    def filters(self, pod: PodInfo) -> Filters:
        """Return the filters of the pod's profile."""
        ...

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        """Evict the victims without waiting for their deletion.

        `plugin` is the name of the calling plugin. Victims whose bind has not been sent are called off and requeued. The other
        victims are deleted.
        """
        ...

    def is_leaving(self, pod: PlacedPod) -> bool:
        """Return True if the pod was preempted and still exists."""
        ...


class Handle(Protocol):
    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return all objects of a resource by "namespace/name", or by "name" for cluster-scoped resources.

        The map is a read-only live view of an informer's store. At the start of a term it is as recent as the table of nodes. A
        plugin that reads resources other than pods and nodes lists them in the class attribute `needs`, a tuple of resources.
        Raise KeyError for a resource that no plugin lists.
        """
        ...

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return a live index of the same objects by the key that `by` returns. Call it only in constructors."""
        ...

    @property
    def waiting(self) -> Waiting: ...

    def activate(self, uid: str) -> None:
        """Requeue a pod without waiting for an event. An unschedulable pod waits only for its backoff; a gated pod is checked
        again by PreEnqueue."""
        ...

    @property
    def preemption(self) -> Preemption | None:
        """The preemption interface, or None if no scheduler is running."""
        ...

    @property
    def client(self) -> Client:
        """The API client. It must not be used in the scheduling cycle, which is synchronous, or before the scheduler runs.

        Writes commit only while this scheduler is the leader; otherwise calls raise Fenced.
        """
        ...


class Offline:
    """The handle for checking a configuration without a cluster. It has no objects and no waiting pods."""

    def __init__(self) -> None:
        self.waiting = WaitingPods(lambda: None)
        self.preemption: Preemption | None = None

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return {}

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        return Index(by, self.objects(resource).values())

    def activate(self, uid: str) -> None:
        """Do nothing, because there is no queue."""

    @property
    def client(self) -> Client:
        raise RuntimeError("`handle.client` cannot be used in a constructor")


class ReadOnlyHandle:
    """The handle of out-of-tree plugins, whose objects are read-only."""

    def __init__(self, handle: Handle, plugin: type[Plugin]) -> None:
        self._handle = handle
        self._plugin: Any = plugin
        self._faults = PluginErrorLog()

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return ReadOnlyMap(self._handle.objects(resource))

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return an index. Objects for which `by` fails have no key, so that a plugin error does not end the informer."""

        def key(obj: T) -> str:
            try:
                return call_plugin(self._plugin, "index", check_key, call_plugin(self._plugin, "index", by, read_only(obj)))
            except PluginError as error:
                self._faults.log_error(error)
                return ""

        return _ReadOnlyIndex(self._handle.index(resource, key))

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


class _ReadOnlyIndex(Index[T]):
    def __init__(self, index: Index[T]) -> None:
        self._index = index

    def under(self, key: str) -> Mapping[str, T]:
        return ReadOnlyMap(self._index.under(key))

    @property
    def keys(self) -> Set[str]:
        return self._index.keys


class Point(StrEnum):
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


METHODS: Mapping[Point, tuple[type, str]] = {
    Point.PRE_ENQUEUE: (interface.PreEnqueuePlugin, "pre_enqueue"),
    Point.QUEUE_SORT: (interface.QueueSortPlugin, "sort_key"),
    Point.PRE_FILTER: (interface.PreFilterPlugin, "pre_filter"),
    Point.FILTER: (interface.FilterPlugin, "filter"),
    Point.POST_FILTER: (interface.PostFilterPlugin, "post_filter"),
    Point.PRE_SCORE: (interface.PreScorePlugin, "pre_score"),
    Point.SCORE: (interface.ScorePlugin, "score"),
    Point.RESERVE: (interface.ReservePlugin, "reserve"),
    Point.PERMIT: (interface.PermitPlugin, "permit"),
    Point.PRE_BIND: (interface.PreBindPlugin, "pre_bind"),
    Point.BIND: (interface.BindPlugin, "bind"),
    Point.POST_BIND: (interface.PostBindPlugin, "post_bind"),
}
"""The method that implements each extension point, and the protocol that declares it."""

PREPARED_BY: Mapping[Point, Point] = {Point.FILTER: Point.PRE_FILTER, Point.SCORE: Point.PRE_SCORE}
"""A plugin that implements both points must be enabled at both, because the second reads the state of the first."""


def implements_point(plugin: object, point: Point) -> bool:
    """Return True if a plugin or plugin class implements the extension point."""
    if point is Point.BIND and getattr(plugin, "in_batches", False):
        return True
    return hasattr(plugin, METHODS[point][1])


@dataclass(frozen=True, slots=True)
class Enabled:
    """An enabled plugin of a profile. A weight of 0 excludes it from scoring."""

    plugin: Plugin
    weight: float = 1.0


Profile = Mapping[Point, Sequence[Enabled]]
"""The enabled plugins of each extension point in call order."""


def profile_of(enabled: Iterable[Enabled]) -> Profile:
    """Return a profile with these plugins in this order, each at all extension points that it implements."""
    plugins = list(enabled)
    return {point: [plugin for plugin in plugins if implements_point(plugin.plugin, point)] for point in Point}


def check_profile(profile: Profile) -> None:
    """Raise ValueError if the plugins do not form a valid profile."""
    names = {point: [enabled.plugin.name for enabled in profile.get(point, ())] for point in Point}
    _reject_duplicate_plugins(profile, names)
    if len(sorters := names[Point.QUEUE_SORT]) != 1:
        result = ", ".join(sorters) or "none"
        raise ValueError(f"exactly one plugin must sort the queue, found {result}; the default is PrioritySort")
    for point, preparing in PREPARED_BY.items():
        for enabled in profile.get(point, ()):
            if implements_point(enabled.plugin, preparing) and enabled.plugin.name not in names[preparing]:
                raise ValueError(f"{enabled.plugin.name} is enabled at {point}, but not at {preparing}, which it requires")
    batches = [isinstance(enabled.plugin, BatchBindPlugin) for enabled in profile.get(Point.BIND, ())]
    if not batches:
        raise ValueError("at least one plugin must bind; the default is DefaultBinder")
    if any(batches[:-1]):
        unheard = ", ".join(names[Point.BIND][batches.index(True) + 1 :])
        raise ValueError(f"{unheard} would never be called to bind: DefaultBinder precedes it and binds every pod")


def _reject_duplicate_plugins(profile: Profile, names: Mapping[Point, Sequence[str]]) -> None:
    different = {id(item.plugin): item.plugin.name for enabled in profile.values() for item in enabled}
    counts = [Counter(different.values()), *map(Counter, names.values())]
    if twice := {name for counter in counts for name, number in counter.items() if number > 1}:
        raise ValueError(f"plugins are enabled twice: {', '.join(sorted(twice))}")


@dataclass(frozen=True, slots=True)
class _MethodSignature:
    """The expected signature of a plugin method."""

    parameters: Sequence[str]
    waits: bool

    @classmethod
    def from_method(cls, method: Callable[..., Any]) -> "_MethodSignature":
        named = [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
        return cls(named, inspect.iscoroutinefunction(method))


_METHODS = {
    method: _MethodSignature.from_method(getattr(protocol, method))
    for protocol, method in (
        *METHODS.values(),
        (interface.NormalizePlugin, "normalize"),
        (interface.EnqueueHint, "helps"),
        (interface.ReservePlugin, "unreserve"),
        (interface.PreFlightPlugin, "pre_flight"),
    )
}


class PluginLoadError(Exception):
    """The plugin cannot be used. The message names the plugin and the problem."""


def load_plugin_class(spec: str) -> type[Plugin]:
    """Import a plugin's class. Raise PluginLoadError."""
    where, colon, class_name = spec.rpartition(":")
    if not colon or not where or not class_name.isidentifier():
        raise PluginLoadError(f'plugin "{spec}": expected module:Class or path/to/file.py:Class')
    if where.endswith(".py") and not Path(where).is_file():
        raise PluginLoadError(f'plugin "{spec}": there is no file {where}; paths in a configuration file begin at its folder')
    permit_former_name()
    try:
        module = _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may call sys.exit()
        raise PluginLoadError(f'plugin "{spec}": cannot import {where}: {type(error).__name__}: {error}') from error
    result = getattr(module, class_name, None)
    if not inspect.isclass(result):
        raise PluginLoadError(f'plugin "{spec}": {where} has no class {class_name}')
    name = getattr(result, "name", None)
    if not isinstance(name, str) or not name:
        raise PluginLoadError(f'plugin "{spec}": needs an attribute `name`, a string')
    return cast("type[Plugin]", result)


def create_plugin(plugin: type[Plugin], spec: str, args: Mapping[str, Any], handle: Handle) -> Plugin:
    """Construct a plugin with the arguments that its constructor names, and check its methods. Raise PluginLoadError."""
    wanted = inspect.signature(plugin).parameters
    offered: dict[str, Any] = {"args": args, "handle": handle if is_built_in(plugin) else ReadOnlyHandle(handle, plugin)}
    if args and "args" not in wanted:
        raise PluginLoadError(f'plugin "{spec}": accepts no args')
    try:
        made = plugin(**{name: value for name, value in offered.items() if name in wanted})
    except ValueError as error:
        raise PluginLoadError(f'plugin "{spec}": {error}') from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginLoadError(f'plugin "{spec}": {plugin.__name__}() failed: {type(error).__name__}: {error}') from error
    _check_signatures(made, spec)
    return made


def _check_signatures(plugin: Plugin, spec: str) -> None:
    present = [method for method in _METHODS if hasattr(plugin, method)]
    if not present and not isinstance(plugin, interface.BatchBindPlugin):
        raise PluginLoadError(f'plugin "{spec}": has none of the methods {", ".join(_METHODS)}')
    if len(half := [method for method in _TOGETHER if method in present]) == 1:
        raise PluginLoadError(f'plugin "{spec}": has {half[0]}, but {" and ".join(_TOGETHER)} must be implemented together')
    for method in present:
        wanted, bound = _METHODS[method], getattr(plugin, method)
        try:
            inspect.signature(bound).bind(*wanted.parameters)
        except TypeError:
            raise PluginLoadError(f'plugin "{spec}": {method} must take ({", ".join(wanted.parameters)})') from None
        if wanted.waits is not inspect.iscoroutinefunction(bound):
            kind = "a coroutine" if wanted.waits else "an ordinary function"
            raise PluginLoadError(f'plugin "{spec}": {method} must be {kind}')


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
