"""The results of plugins, their errors, and the victims of a preemption."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinnace.fit.table import BoolArray
from pinnace.runtime.stalls import Stalled
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.table import FloatArray

Rank = tuple[int, int, int, int, float]
_OFFSET = 1 << 31
"""Makes every priority positive, so that more victims have a larger sum."""


@dataclass(frozen=True)
class Victims:
    """What preemption on one node would take."""

    node: str
    pods: Sequence[PlacedPod]
    """At least one; the most important first."""
    violations: int = 0
    """How many of them a PodDisruptionBudget protects."""

    @cached_property
    def rank(self) -> Rank:
        """The least is the best."""
        highest = self.pods[0].priority
        started = min(pod.started for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _OFFSET for pod in self.pods)
        return self.violations, highest, total, len(self.pods), -started


def choose(candidates: Iterable[Victims]) -> Victims:
    """The best of them, at least one; of equals the first."""
    return min(candidates, key=lambda each: each.rank)


MAX_SCORE = 100.0
_ROUNDING = 1e-10
"""More than floating-point errors of a score, less than what keeps a true score from a whole number."""


def whole(scores: FloatArray) -> FloatArray:
    """Scores without their fractions: kube-scheduler divides integers, and so nodes tie that nearly tie."""
    found: FloatArray = np.floor(scores + _ROUNDING)
    return found


CycleState = dict[str, Any]
"""What the plugins of one cycle tell each other, or themselves at a later point. Keys begin with the plugin's name."""


class PluginError(Exception):
    """A plugin raised, answered nonsense, or did not return. The message names the plugin, the point, and the line of its
    file."""

    def __init__(self, plugin: str, point: str, problem: BaseException) -> None:
        what = ": ".join(filter(None, (type(problem).__name__, str(problem))))
        super().__init__(f'plugin "{plugin}" failed in {point}: {what}{_place(problem)}')
        self.plugin = plugin
        self.point = point
        self.problem = problem

    @property
    def severe(self) -> bool:
        """No plugin should do this: it did not return in time, or raised what ends tasks and processes. A leader all of whose
        attempts end so gives the election up (scheduler/progress.py)."""
        return isinstance(self.problem, Overdue) or not isinstance(self.problem, Exception)

    @property
    def took_long(self) -> bool:
        """It held up all other pods."""
        return isinstance(self.problem, Stalled)


class Overdue(TimeoutError):
    """A coroutine of a plugin did not end within its time."""


def _place(problem: BaseException) -> str:
    """The last line of the plugin's own file that led there; empty: the plugin had returned."""
    frames = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line) for frame, line in walk_tb(problem.__traceback__)
    ]
    own = next((file for module, file, _ in frames if not module.startswith(_CALLERS)), None)
    lines = [line for _, file, line in frames if file == own]
    return f" ({Path(own).name}:{lines[-1]})" if own is not None else ""


_CALLERS = ("scheduler.framework", "scheduler.explain", "scheduler.cycle")


@dataclass(frozen=True, slots=True)
class Status:
    """An answer about the pod as a whole: there is nothing to do at the next point, or the pod is refused everywhere."""

    reason: str = ""
    """Why no node will do, in the words of an event. Empty: skip."""
    unfinished: bool = False
    """From PostFilter: not all has been tried. The pod is tried again after its backoff, whatever happens."""


SKIP = Status()
"""From PreFilter: this plugin's filter would pass every node. From PreScore: its score would be the same everywhere. From
Reserve, a pre-flight or Bind: this plugin has nothing to do with the pod."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What something that a pod states costs in one decision."""

    seconds: float
    """Of CPU, estimated: rather too much than too little."""
    number: int
    what: str
    """Such as "tolerations", after the number."""


@dataclass(frozen=True, slots=True)
class Wait:
    """From Permit: somebody will allow or reject the pod, or else it is rejected after `timeout` seconds."""

    timeout: float


@dataclass(frozen=True, slots=True)
class Nominated:
    """From PostFilter: room for the pod is being made on this node. It is tried again; the node is not promised to it."""

    node: str
    reason: str = ""
    """What is to be said of it, if anything."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """From PostFilter: room for the pod could be made on each of these nodes. Nothing is done yet: extenders may object, or
    want other victims. Then `settle` is called with what is left, at least one."""

    plugin: str
    candidates: Sequence[Victims]
    settle: Callable[[Sequence[Victims]], Nominated]
    """Makes room on the best."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What a plugin said about the one node that was chosen."""

    plugin: str
    reason: str

    @property
    def message(self) -> str:
        """As kube-scheduler tells it."""
        return f"0/1 nodes are available: 1 {self.reason}."


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Why nodes are refused: a code for each node, and for each code but 0 (the node passes) one or more reasons.

    Reasons are counted over the nodes and shown as "3 Insufficient cpu": nodes that are refused for the same thing must have
    the same words.
    """

    codes: NDArray[Any]
    reasons: Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Which nodes pass; and why the others do not, which is only asked when no node is left."""

    passed: BoolArray
    explain: Callable[[], Verdicts]
    hopeless: Callable[[], BoolArray] | None = None
    """The nodes that it would refuse whatever pods of their own left them, which is only asked before preemption looks at them.
    None: there are none, or all are if the plugin does not await POD_FREED."""
    needs_pods: bool = False
    """It passes nodes because of pods that are there: once those have left, it may refuse them."""

    @classmethod
    def refusing(cls, refused: BoolArray, reason: str) -> "FilterResult":
        """For a filter that has but one reason."""
        passed = ~refused
        return cls(passed, lambda: Verdicts(~passed, lambda _: (reason,)))

    @classmethod
    def coded(
        cls,
        codes: NDArray[Any],
        reasons: Sequence[str],
        hopeless: Callable[[], BoolArray] | None = None,
        *,
        needs_pods: bool = False,
    ) -> "FilterResult":
        """For a filter with a fixed list of reasons: code n stands for `reasons[n]`, and 0 for passing."""
        return cls(codes == 0, lambda: Verdicts(codes, lambda code: (reasons[code],)), hopeless, needs_pods)
