"""The results and errors of plugins, the victims of a preemption, and the diagnosis of a failed attempt.

The message of a `Diagnosis` is identical to kube-scheduler's: a node counts for the first plugin that refuses it, and
reasons are sorted as text. Source: FitError.Error in k8s.io/kubernetes/pkg/scheduler/framework/types.go
"""

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.table import BoolArray
from pinnace.runtime.stalls import Stalled
from pinnace.scheduler.cache.pod_info import PlacedPod
from pinnace.scheduler.cache.table import FloatArray

Rank = tuple[int, int, int, int, float]
_OFFSET = 1 << 31
"""Makes every priority positive, so that the sum grows with the number of victims."""
MAX_SCORE = 100.0
_ROUNDING = 1e-10
"""Larger than the floating-point error of a score, and smaller than the distance of a true score from an integer."""
_CALLERS = ("pinnace.scheduler.framework", "pinnace.scheduler.explain", "pinnace.scheduler.scheduling_cycle")
_FEW = 256
NO_NODES = "no nodes available to schedule pods"
CycleState = dict[str, Any]
"""Data that the plugins of one cycle share with each other and with their own later methods. Keys start with the name of the
plugin."""
BIND_ANNOTATIONS = "bind annotations"
"""In the state, from Reserve: a dict of annotations that the bind adds to the pod."""


@dataclass(frozen=True)
class Victims:
    """The victims of preemption on one node."""

    node: str
    pods: Sequence[PlacedPod]
    """At least one pod, the most important first."""
    violations: int = 0
    """The number of victims that a PodDisruptionBudget protects."""

    @cached_property
    def rank(self) -> Rank:
        """The sort key. The smallest key is the best."""
        highest = self.pods[0].priority
        started = min(pod.started for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _OFFSET for pod in self.pods)
        return self.violations, highest, total, len(self.pods), -started


def choose_best_victims(candidates: Iterable[Victims]) -> Victims:
    """Return the best candidate, or the first of equal ones. `candidates` must not be empty."""
    return min(candidates, key=lambda candidate: candidate.rank)


def floor_scores(scores: FloatArray) -> FloatArray:
    """Round scores down. kube-scheduler uses integer division, so nodes with nearly equal scores tie."""
    result: FloatArray = np.floor(scores + _ROUNDING)
    return result


class PluginError(Exception):
    """A plugin raised an exception, returned an invalid result, or did not return.

    The message names the plugin, the extension point, and the line of the plugin's file.
    """

    def __init__(self, plugin: str, point: str, problem: BaseException) -> None:
        what = ": ".join(filter(None, (type(problem).__name__, str(problem))))
        super().__init__(f'plugin "{plugin}" failed in {point}: {what}{_line_of_plugin(problem)}')
        self.plugin = plugin
        self.point = point
        self.problem = problem

    @property
    def is_severe(self) -> bool:
        """True if the plugin did not return in time, or raised an exception that ends tasks or processes.

        A leader resigns if all its attempts end this way (scheduler/scheduler.py).
        """
        return isinstance(self.problem, PluginTimeout) or not isinstance(self.problem, Exception)

    @property
    def took_long(self) -> bool:
        """True if the plugin delayed all other pods."""
        return isinstance(self.problem, Stalled)


class PluginTimeout(TimeoutError):
    """A coroutine of a plugin exceeded its timeout."""


def _line_of_plugin(problem: BaseException) -> str:
    """Return the last line of the plugin's own file in the traceback, or an empty string if the plugin had returned."""
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line) for frame, line in walk_tb(problem.__traceback__)
    ]
    own = next((file for module, file, _ in frames if not module.startswith(_CALLERS)), None)
    lines = [line for _, file, line in frames if file == own]
    return f" ({Path(own).name}:{lines[-1]})" if own is not None else ""


@dataclass(frozen=True, slots=True)
class Status:
    """A result for the pod as a whole: skip the next method, or refuse the pod on all nodes."""

    reason: str = ""
    """The reason in the event. An empty reason means skip."""
    unfinished: bool = False
    """From PostFilter: the search is incomplete. The pod is retried after its backoff without waiting for an event."""


SKIP = Status()
"""From PreFilter: this plugin's filter passes every node. From PreScore: its score is the same for all nodes. From Reserve,
PreFlight or Bind: the plugin does not handle the pod."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one kind of item of a pod's spec in one decision."""

    seconds: float
    """An upper bound of the CPU time."""
    number: int
    what: str
    """The kind of item, such as "tolerations", for messages."""


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: the pod waits until a plugin allows or rejects it. It is rejected after `timeout` seconds."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Nominated:
    """From PostFilter: victims are being evicted from this node. The pod is retried and may be placed on another node."""

    node: str
    reason: str = ""
    """Appended to the message. It may be empty."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """From PostFilter: preemption on each of these nodes would help. No pod has been deleted.

    Extenders may remove candidates or change victims. Then `settle` is called with the remaining candidates, at least one.
    """

    plugin: str
    candidates: Sequence[Victims]
    settle: Callable[[Sequence[Victims]], Nominated]
    """Preempts on the best candidate."""


@dataclass(frozen=True, slots=True)
class PluginRejection:
    """A plugin refused the selected node."""

    plugin: str
    reason: str

    @property
    def message(self) -> str:
        """The message in kube-scheduler's words."""
        return f"0/1 nodes are available: 1 {self.reason}."


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """The reasons for refused nodes: one code per node, and one or more reasons for each code except 0, which passes the node.

    Reasons are counted over the nodes, as in "3 Insufficient cpu", so equal problems need equal reasons.
    """

    codes: NDArray[Any]
    reasons: Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class FilterResult:
    """The nodes that pass, and the reasons for the others. `explain` is called only if no node is feasible."""

    passed: BoolArray
    explain: Callable[[], NodeReasons]
    unresolvable: Callable[[], BoolArray] | None = None
    """Returns the nodes that remain refused if any of their pods are removed. It is called only before preemption. None
    means no node, or all refused nodes if the plugin does not list POD_FREED."""
    needs_pods: bool = False
    """True if nodes pass because of their pods. Such a node may be refused after its pods are removed."""

    def reasons_at(self, row: int) -> tuple[str, ...]:
        """Return the reasons for a refused node."""
        verdicts = self.explain()
        return tuple(verdicts.reasons(verdicts.codes[row]))

    @classmethod
    def refusing(cls, refused: BoolArray, reason: str) -> "FilterResult":
        """Create the result of a filter with a single reason."""
        passed = ~refused
        return cls(passed, lambda: NodeReasons(~passed, lambda _: (reason,)))

    @classmethod
    def coded(
        cls,
        codes: NDArray[Any],
        reasons: Sequence[str],
        unresolvable: Callable[[], BoolArray] | None = None,
        *,
        needs_pods: bool = False,
    ) -> "FilterResult":
        """Create the result of a filter with a fixed list of reasons. Code n means `reasons[n]`, and 0 means that the
        node passes."""
        return cls(codes == 0, lambda: NodeReasons(codes, lambda code: (reasons[code],)), unresolvable, needs_pods)


def plugin_failure(plugin: str, point: str, problem: BaseException) -> PluginError:
    """Return the PluginError for an exception. A PluginError of a nested plugin call is returned unchanged.

    Raise KeyboardInterrupt if the user pressed Ctrl-C.
    """
    if isinstance(problem, PluginError):
        return problem
    if isinstance(problem, KeyboardInterrupt) and _interrupts_raise():
        raise problem
    return PluginError(plugin, point, problem)


def _interrupts_raise() -> bool:
    """Return True if Ctrl-C raises KeyboardInterrupt. In a component the event loop handles the signal instead
    (runtime/process.py)."""
    handler = signal.getsignal(signal.SIGINT)
    return callable(handler) and getattr(handler, "__module__", "") != "asyncio.unix_events"


@dataclass(frozen=True)
class Diagnosis:
    """The reasons for a failed attempt. `refusals` are in call order of the plugins."""

    nodes: int
    refusals: Sequence[tuple[str, FilterResult]] = ()
    """(plugin, result for all nodes)."""
    pre_filter: tuple[str, str] | None = None
    """(plugin, reason) if a PreFilter refused the pod on all nodes."""
    unresolvable: BoolArray | None = None
    """Nodes on which removing pods does not help, in addition to the nodes that plugins report."""
    awaited: dict[bool, frozenset[str]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Cache of the plugins whose results must change, keyed by whether the pod may preempt."""

    @cached_property
    def feasible(self) -> BoolArray:
        """The nodes that no plugin refuses."""
        if self.pre_filter or not self.refusals:
            return np.full(self.nodes, self.pre_filter is None)
        return reduce(np.logical_and, [result.passed for _, result in self.refusals])

    def passes(self, row: int) -> bool:
        """Return True if no plugin refuses the node."""
        return self.pre_filter is None and all(result.passed[row] for _, result in self.refusals)

    def refusals_at(self, row: int) -> list[tuple[str, FilterResult]]:
        """Return the refusals of one node. All other nodes pass. Raise PluginError.

        The reasons are computed immediately, so that the table may change afterwards.
        """
        if self.pre_filter:
            plugin, reason = self.pre_filter
            return [(plugin, FilterResult.refusing(np.arange(self.nodes) == row, reason))]
        found = []
        for plugin, result in self.refusals:
            if not result.passed[row]:
                with _errors_of(plugin):
                    found.append((plugin, _result_for_row(row, result.explain())))
        return found

    def first_reasons(self, row: int) -> tuple[str, ...]:
        """Return the reasons of the first plugin that refuses the node. Raise PluginError."""
        if self.pre_filter:
            return (self.pre_filter[1],)
        for plugin, result in self.refusals:
            if not result.passed[row]:
                with _errors_of(plugin):
                    return result.reasons_at(row)
        return ()

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """The number of refused nodes by plugin and reason. Raises PluginError."""
        found: dict[str, Counter[str]] = {}
        left = np.ones(self.nodes, np.bool_)
        for plugin, result in self.refusals:
            first = left & ~result.passed
            if not first.any():
                continue
            with _errors_of(plugin):
                counter = _count(result.explain(), first)
            if counter:
                found.setdefault(plugin, Counter()).update(counter)
                left &= result.passed
        return found

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins whose results must change before the pod fits: for each node, the first plugin that refuses it."""
        return frozenset([self.pre_filter[0]] if self.pre_filter else self.counts)

    @cached_property
    def message(self) -> str:
        """The message, for example "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {gpu:
        true}."."""
        if not self.nodes:
            return NO_NODES
        if self.pre_filter:
            return f"0/{self.nodes} nodes are available: {self.pre_filter[1]}."
        total = sum(self.counts.values(), Counter[str]())
        reasons = sorted(f"{number} {reason}" for reason, number in total.items())
        return f"0/{self.nodes} nodes are available: {', '.join(reasons)}."


@contextmanager
def _errors_of(plugin: str) -> Iterator[None]:
    """Convert exceptions into errors of the plugin."""
    try:
        yield
    except BaseException as error:
        raise plugin_failure(plugin, "Filter", error) from error


def _result_for_row(row: int, verdicts: NodeReasons) -> FilterResult:
    """Return the result for one node. All other nodes pass."""
    codes = np.zeros(len(verdicts.codes), np.int64)
    codes[row] = 1
    reasons = verdicts.reasons(verdicts.codes[row])
    return FilterResult(codes == 0, lambda: NodeReasons(codes, lambda _: reasons))


def _count(verdicts: NodeReasons, nodes: BoolArray) -> Counter[str]:
    """Return the number of these nodes by reason."""
    counter = Counter[str]()
    for code, number in _count_codes(verdicts.codes[nodes]):
        counter.update(dict.fromkeys(verdicts.reasons(code), number))
    return counter


def _count_codes(codes: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield each code and its count in ascending order. Small codes are counted without sorting."""
    if len(codes) and codes.min() >= 0 and codes.max() < _FEW:
        numbers = np.bincount(codes)
        result = np.flatnonzero(numbers)
        yield from zip(result.tolist(), numbers[result].tolist(), strict=True)
    else:
        unique, numbers = np.unique(codes, return_counts=True)
        yield from zip(unique.tolist(), numbers.tolist(), strict=True)
