"""The results of plugins, their errors, and the victims of a preemption.

Why a pod has no place: every plugin's verdict on every node, and the sentence that people read.

The sentence is kube-scheduler's, to the letter: a node counts for the first plugin that refuses it, reasons are sorted as
text. Source: FitError.Error in k8s.io/kubernetes/pkg/scheduler/framework/types.go
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
from scheduler.cache.pod_info import PlacedPod
from scheduler.cache.table import FloatArray

Rank = tuple[int, int, int, int, float]
_OFFSET = 1 << 31
"""Makes every priority positive, so that more victims have a larger sum."""


@dataclass(frozen=True)
class Victims:
    """The victims of preemption on one node."""

    node: str
    pods: Sequence[PlacedPod]
    """At least one; the most important first."""
    violations: int = 0
    """The number of them that a PodDisruptionBudget protects."""

    @cached_property
    def rank(self) -> Rank:
        """The sort key; the smallest is the best."""
        highest = self.pods[0].priority
        started = min(pod.started for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _OFFSET for pod in self.pods)
        return self.violations, highest, total, len(self.pods), -started


def choose(candidates: Iterable[Victims]) -> Victims:
    """The best of the candidates, of which there must be one; of equal ones the first."""
    return min(candidates, key=lambda each: each.rank)


MAX_SCORE = 100.0
_ROUNDING = 1e-10
"""Larger than the floating-point errors of a score, smaller than the distance of a true score from a whole number."""


def whole(scores: FloatArray) -> FloatArray:
    """Rounds scores down: kube-scheduler uses integer division, so nodes with nearly equal scores tie."""
    found: FloatArray = np.floor(scores + _ROUNDING)
    return found


CycleState = dict[str, Any]
"""Data that the plugins of one cycle share with each other and with their own later methods. Keys start with the plugin's
name."""


class PluginError(Exception):
    """A plugin raised, returned an invalid result, or did not return. The message names the plugin, the extension point, and
    the line of its file."""

    def __init__(self, plugin: str, point: str, problem: BaseException) -> None:
        what = ": ".join(filter(None, (type(problem).__name__, str(problem))))
        super().__init__(f'plugin "{plugin}" failed in {point}: {what}{_place(problem)}')
        self.plugin = plugin
        self.point = point
        self.problem = problem

    @property
    def severe(self) -> bool:
        """Whether the plugin did not return in time, or raised an exception that ends tasks or processes. A leader all of
        whose attempts end this way resigns (scheduler/scheduler.py)."""
        return isinstance(self.problem, Overdue) or not isinstance(self.problem, Exception)

    @property
    def took_long(self) -> bool:
        """Whether it delayed all other pods."""
        return isinstance(self.problem, Stalled)


class Overdue(TimeoutError):
    """A coroutine of a plugin exceeded its timeout."""


def _place(problem: BaseException) -> str:
    """The last line of the plugin's own file in the traceback; empty if the plugin had returned."""
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line) for frame, line in walk_tb(problem.__traceback__)
    ]
    own = next((file for module, file, _ in frames if not module.startswith(_CALLERS)), None)
    lines = [line for _, file, line in frames if file == own]
    return f" ({Path(own).name}:{lines[-1]})" if own is not None else ""


_CALLERS = ("scheduler.framework", "scheduler.explain", "scheduler.scheduling_cycle")


@dataclass(frozen=True, slots=True)
class Status:
    """A result for the pod as a whole: skip the next method, or refuse the pod on all nodes."""

    reason: str = ""
    """Why no node fits, as shown in the event. Empty: skip."""
    unfinished: bool = False
    """From PostFilter: the search is incomplete. The pod is tried again after its backoff, without waiting for an event."""


SKIP = Status()
"""From PreFilter: this plugin's filter passes every node. From PreScore: its score is the same for all nodes. From Reserve,
PreFlight or Bind: the plugin does not handle the pod."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one kind of item of a pod's spec in one decision."""

    seconds: float
    """Estimated CPU time; an upper bound."""
    number: int
    what: str
    """The kind, such as "tolerations", as it follows the number in messages."""


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: the pod waits until a plugin allows or rejects it; after `timeout` seconds it is rejected."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Nominated:
    """From PostFilter: room for the pod is being made on this node. The pod is tried again; it may be placed elsewhere."""

    node: str
    reason: str = ""
    """Appended to the message; may be empty."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """From PostFilter: preemption on each of these nodes would make room. Nothing has been deleted: extenders may remove
    candidates or change victims. Then `settle` is called with the remaining ones, at least one."""

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
        """In kube-scheduler's words."""
        return f"0/1 nodes are available: 1 {self.reason}."


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """Why nodes are refused: a code per node, and for each code except 0 (the node passes) one or more reasons.

    Reasons are counted over the nodes and shown as "3 Insufficient cpu", so equal problems must have equal reasons."""

    codes: NDArray[Any]
    reasons: Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which nodes pass, and why the others do not; `explain` is called only if no node is feasible."""

    passed: BoolArray
    explain: Callable[[], NodeReasons]
    unresolvable: Callable[[], BoolArray] | None = None
    """The nodes that it refuses whichever pods are removed from them; called before preemption only. None: no node, or all
    refused nodes if the plugin does not list POD_FREED."""
    needs_pods: bool = False
    """It passes nodes because of pods on them: it may refuse these nodes after the pods are removed."""

    @classmethod
    def refusing(cls, refused: BoolArray, reason: str) -> "FilterResult":
        """For a filter with a single reason."""
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
        """For a filter with a fixed list of reasons: code n stands for `reasons[n]`, and 0 for passing."""
        return cls(codes == 0, lambda: NodeReasons(codes, lambda code: (reasons[code],)), unresolvable, needs_pods)


def failure(plugin: str, point: str, problem: BaseException) -> PluginError:
    """The PluginError for an exception. A PluginError of another plugin, which this one has called, is returned unchanged.
    Raises KeyboardInterrupt if the user has caused it."""
    if isinstance(problem, PluginError):
        return problem
    if isinstance(problem, KeyboardInterrupt) and _interrupts_raise():
        raise problem
    return PluginError(plugin, point, problem)


def _interrupts_raise() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt. In a component the event loop handles the signal instead
    (runtime/process.py)."""
    handler = signal.getsignal(signal.SIGINT)
    return callable(handler) and getattr(handler, "__module__", "") != "asyncio.unix_events"


_FEW = 256
NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True)
class Diagnosis:
    """Why an attempt failed. `refusals` are in the order in which the plugins ran."""

    nodes: int
    refusals: Sequence[tuple[str, FilterResult]] = ()
    """(plugin, result for all nodes)."""
    pre_filter: tuple[str, str] | None = None
    """(plugin, reason) when a PreFilter refused the pod for all nodes."""
    unresolvable: BoolArray | None = None
    """Nodes on which removing pods does not help, in addition to those that plugins report."""
    awaited: dict[bool, frozenset[str]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The plugins whose results must change, by whether the pod may preempt; cached for equivalent pods."""

    @cached_property
    def feasible(self) -> BoolArray:
        """The nodes that no plugin refuses."""
        if self.pre_filter or not self.refusals:
            return np.full(self.nodes, self.pre_filter is None)
        return reduce(np.logical_and, [result.passed for _, result in self.refusals])

    def passes(self, row: int) -> bool:
        """Whether no plugin refuses the node."""
        return self.pre_filter is None and all(result.passed[row] for _, result in self.refusals)

    def at(self, row: int) -> list[tuple[str, FilterResult]]:
        """The refusals of one node, with reasons computed now, so the table may change afterwards. They pass all other nodes.
        Raises PluginError."""
        if self.pre_filter:
            plugin, reason = self.pre_filter
            return [(plugin, FilterResult.refusing(np.arange(self.nodes) == row, reason))]
        found = []
        for plugin, result in self.refusals:
            if not result.passed[row]:
                with _named(plugin):
                    found.append((plugin, _only(row, result.explain())))
        return found

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """For each plugin the number of refused nodes by reason. Raises PluginError."""
        found: dict[str, Counter[str]] = {}
        left = np.ones(self.nodes, np.bool_)
        for plugin, result in self.refusals:
            with _named(plugin):
                counter = _count(result.explain(), left & ~result.passed)
            if counter:
                found.setdefault(plugin, Counter()).update(counter)
                left &= result.passed
        return found

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins whose results must change before the pod fits: for each node the first that refuses it."""
        return frozenset([self.pre_filter[0]] if self.pre_filter else self.counts)

    @cached_property
    def message(self) -> str:
        """Such as "0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {gpu: true}."."""
        if not self.nodes:
            return NO_NODES
        if self.pre_filter:
            return f"0/{self.nodes} nodes are available: {self.pre_filter[1]}."
        total = sum(self.counts.values(), Counter[str]())
        reasons = sorted(f"{number} {reason}" for reason, number in total.items())
        return f"0/{self.nodes} nodes are available: {', '.join(reasons)}."


@contextmanager
def _named(plugin: str) -> Iterator[None]:
    """Turns exceptions into errors of the plugin."""
    try:
        yield
    except BaseException as error:
        raise failure(plugin, "Filter", error) from error


def _only(row: int, verdicts: NodeReasons) -> FilterResult:
    """The result for one node; it passes all others."""
    codes = np.zeros(len(verdicts.codes), np.int64)
    codes[row] = 1
    reasons = verdicts.reasons(verdicts.codes[row])
    return FilterResult(codes == 0, lambda: NodeReasons(codes, lambda _: reasons))


def _count(verdicts: NodeReasons, nodes: BoolArray) -> Counter[str]:
    """The number of these nodes by reason."""
    counter = Counter[str]()
    for code, number in _occurrences(verdicts.codes[nodes]):
        counter.update(dict.fromkeys(verdicts.reasons(code), number))
    return counter


def _occurrences(codes: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Each code in ascending order, and its count. Small codes are counted without sorting."""
    if len(codes) and codes.min() >= 0 and codes.max() < _FEW:
        numbers = np.bincount(codes)
        found = np.flatnonzero(numbers)
        yield from zip(found.tolist(), numbers[found].tolist(), strict=True)
    else:
        unique, numbers = np.unique(codes, return_counts=True)
        yield from zip(unique.tolist(), numbers.tolist(), strict=True)
