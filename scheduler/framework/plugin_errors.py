"""Call plugins, and convert every plugin error into a PluginError.

    call, acall --> the plugin --+-- returns -----> checked by its extension point (`check_*`)
                                 +-- raises ------> PluginError
                                 '-- blocks the event loop --> interrupted by the stall watch: PluginError

Guarantee: an exception of a plugin leaves `call_plugin` and `await_plugin` as a PluginError that names the plugin and the
extension point. This includes CancelledError, GeneratorExit, SystemExit and KeyboardInterrupt, which otherwise end a task or
the process silently. Two exceptions pass unchanged: a cancellation of the task by other code, and Ctrl-C in a program that
Ctrl-C ends.

`plugin_on_stack` finds the plugin that a thread is executing, so that `pinnace.runtime.stalls` can name and interrupt it. Only
code of the plugin itself is interrupted, so that updates of the cache and the queue are never partial.

A plugin that holds the GIL or catches the interruption cannot be stopped. See docs/scheduler-plugins.md, "A plugin that
misbehaves".
"""

import asyncio
import logging
import signal
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol, TypeVar

import numpy as np
from prometheus_client import Counter

from pinnace.fit.table import BoolArray
from pinnace.runtime.logs import PluginFailed
from pinnace.runtime.stalls import Culprit, Stalled
from pinnace.scheduler.cache.cache import Change
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.framework.results import (
    MAX_SCORE,
    SKIP,
    Cost,
    FilterResult,
    NodeReasons,
    Nominated,
    PluginError,
    PluginRejection,
    Proposed,
    Status,
    Wait,
    plugin_failure,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST = 1000
"""Maximum number of messages that are stored to suppress duplicates. At this number, all of them are dropped."""
ROUNDING = 1e-4
"""Tolerated deviation of a score from the range 0 to 100, for example from `100 * x / x.max()` in 32 bits. It is clipped."""
FAILURES = Counter(
    "scheduler_plugin_failures",
    "Plugin calls that raised an exception or returned an invalid value.",
    ["plugin", "extension_point"],
)
STALLS = Counter("scheduler_plugin_stalls", "Plugin calls that blocked the event loop.", ["plugin", "extension_point"])
_OURS = "pinnace."
_ADAPTERS = ("pinnace.scheduler.framework.interface", __name__)
"""These modules have no state that an interruption can leave inconsistent."""
TRUSTED = set[type]()
"""The types of built-in plugins that have been called. The lookup is faster than `is_built_in`."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


class PluginErrorLog:
    """Logs plugin failures: the traceback once per message. Events report the failure for each pod."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def log_error(self, error: PluginError) -> None:
        FAILURES.labels(error.plugin, error.point).inc()
        if self._is_new(message := str(error)):
            failed = PluginFailed(error.plugin, error.point, type(error.problem).__name__).extra
            log.error("%s", message, exc_info=error.problem, extra=failed)

    def log_warning(self, where: str, message: str) -> None:
        """Log a problem that fails no attempt, once per place, such as 'plugin "X" in Score'."""
        if self._is_new(where):
            log.warning("%s: %s", where, message)

    def _is_new(self, message: str) -> bool:
        if message in self._told:
            return False
        if len(self._told) >= MOST:
            self._told.clear()
        self._told.add(message)
        return True


# --- calls


def call_plugin(plugin: Named, point: str, method: Callable[..., T], *arguments: Any) -> T:
    """Call a plugin method and return its result. Raise PluginError. `plugin_on_stack` reads the arguments of this function.

    An out-of-tree plugin cannot access the calling task, so that it cannot cancel the leader's term or an informer.
    """
    task = None if type(plugin) in TRUSTED else _task_of(plugin)
    if task is None:  # built-in plugins, several times per pod
        try:
            return method(*arguments)
        except BaseException as error:
            raise plugin_failure(plugin.name, point, error) from error
    _leave_task(task.get_loop(), task)
    try:
        return method(*arguments)
    except BaseException as error:
        raise plugin_failure(plugin.name, point, error) from error
    finally:
        _enter_task(task.get_loop(), task)


def _task_of(plugin: Named) -> "asyncio.Task[Any] | None":
    """Return the task that calls an out-of-tree plugin. Return None for built-in plugins, or without a task."""
    if is_built_in(type(plugin)):
        TRUSTED.add(type(plugin))
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop is running
        return None


@contextmanager
def bounded_calls(seconds: float) -> Iterator[None]:
    """Interrupt each plugin call that takes longer than about `seconds`, in a program without a stall watch. For the main
    thread."""
    last: FrameType | None = None

    def check(_: int, frame: FrameType | None) -> None:
        nonlocal last
        present = frame
        while present is not None and present.f_code is not call_plugin.__code__:
            present = present.f_back
        same, last = present is not None and present is last, present
        if same and (culprit := plugin_on_stack(frame)) is not None and culprit.may_be_interrupted:
            raise Stalled(f"the code did not return within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def await_plugin(plugin: Named, point: str, method: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Call a coroutine method, as `call_plugin` does. Raise CancelledError only if other code cancels this task."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await method(*arguments)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and task.cancelling() > before:
            raise
        raise plugin_failure(plugin.name, point, error) from error


def is_built_in(plugin: type) -> bool:
    """Return True for a built-in plugin. It receives the original objects, and its results are not checked."""
    return plugin.__module__.startswith("pinnace.scheduler.plugins.")


def plugin_on_stack(frame: FrameType | None) -> Culprit | None:
    """Return the plugin that this stack executes, or None."""
    modules = set[str]()
    while frame is not None:
        if frame.f_code in _CALLS:
            plugin, point = frame.f_locals["plugin"], frame.f_locals["point"]
            kind = plugin if isinstance(plugin, type) else type(plugin)
            ours = any(item.startswith(_OURS) for item in modules.difference(_ADAPTERS, (kind.__module__,)))
            may_be_interrupted = not ours and not is_built_in(kind)
            return Culprit(f'plugin "{plugin.name}" in {point}', may_be_interrupted, STALLS.labels(plugin.name, point).inc)
        modules.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return None


_CALLS = (call_plugin.__code__, await_plugin.__code__)


# --- checks of plugin results; each raises TypeError or ValueError and is called through `call_plugin`


def check_truth(answer: Any) -> bool:
    if not isinstance(answer, bool | np.bool_):
        raise TypeError(f"expected True or False, got {answer!r:.100}")
    return bool(answer)


def hint_changes(hint: Any) -> Change:
    """Return `helped_by` of the hint, which may be a property."""
    awaits = hint.helped_by
    if not isinstance(awaits, Change):
        raise TypeError(f"expected a Change, such as Change.NODE_ADDED | Change.NODE_LABELS, got {awaits!r:.100}")
    return awaits


def check_status(answer: Any) -> Status | None:
    """Return None, the SKIP object, or a Status with a reason."""
    if answer is None or answer is SKIP:
        return answer
    if not isinstance(answer, Status) or not isinstance(answer.reason, str):
        raise TypeError(f"expected None, SKIP or Status(reason), got {answer!r:.100}")
    return answer if answer.reason else SKIP


def check_skip(answer: Any) -> Status | None:
    """Return None or the SKIP object."""
    answer = check_status(answer)
    if answer is not None and answer is not SKIP:
        raise ValueError("expected None or SKIP")
    return answer


def check_permit(answer: Any) -> Wait | Status | None:
    if isinstance(answer, Wait):
        if isinstance(answer.timeout, bool) or not float(answer.timeout) >= 0.0:
            raise ValueError(f"`timeout` must be a number of seconds of 0 or more, got {answer.timeout!r:.100}")
        return answer
    return check_status(answer)


def check_sort_key(answer: Any) -> tuple[float, ...]:
    key = tuple(map(float, answer))
    if any(number != number for number in key):
        raise ValueError("sort keys must not contain NaN")
    return key


def check_key(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"expected a string, got {answer!r:.100}")
    return answer


def check_costs(answer: Any) -> Sequence[Cost]:
    costs = list(answer)
    for cost in costs:
        if not isinstance(cost, Cost) or not float(cost.seconds) >= 0.0:
            raise TypeError(f"expected Cost with `seconds` of 0 or more, got {cost!r:.100}")
    return costs


def check_passed(result: Any, nodes: int) -> FilterResult:
    if not isinstance(result, FilterResult):
        raise TypeError(f"expected a FilterResult, got {result!r:.100}")
    check_booleans("passed", result.passed, nodes)
    return result


def check_booleans(name: str, found: Any, nodes: int) -> BoolArray:
    if not isinstance(found, np.ndarray) or found.shape != (nodes,) or found.dtype != np.bool_:
        raise ValueError(f"`{name}` must be {nodes} booleans")
    return found


def guard_callbacks(plugin: Named, result: FilterResult) -> FilterResult:
    """Return the result of an out-of-tree plugin with its callbacks wrapped in `call_plugin` and checked."""
    nodes, unresolvable = len(result.passed), result.unresolvable

    def explain() -> NodeReasons:
        verdicts = call_plugin(plugin, "Filter", result.explain)
        return call_plugin(plugin, "Filter", _checked_node_reasons, plugin, verdicts, nodes)

    def find_unresolvable() -> BoolArray:
        assert unresolvable is not None
        return call_plugin(plugin, "Filter", lambda: check_booleans("unresolvable", unresolvable(), nodes))

    return replace(result, explain=explain, unresolvable=find_unresolvable if unresolvable is not None else None)


def _checked_node_reasons(plugin: Named, verdicts: Any, nodes: int) -> NodeReasons:
    if not isinstance(verdicts, NodeReasons) or getattr(verdicts.codes, "shape", None) != (nodes,):
        raise TypeError(f"`explain` must return NodeReasons with {nodes} codes, got {verdicts!r:.100}")
    return NodeReasons(
        verdicts.codes, lambda code: call_plugin(plugin, "Filter", lambda: _checked_reasons(verdicts.reasons(code)))
    )


def _checked_reasons(reasons: Any) -> Sequence[str]:
    if isinstance(reasons, str) or not all(isinstance(reason, str) for reason in reasons):
        raise TypeError(f"reasons must be a sequence of strings, got {reasons!r:.100}")
    return tuple(reasons)


def check_scores(scores: Any, feasible: BoolArray) -> FloatArray:
    """Return the scores as 64-bit floats. Only scores of feasible nodes are checked."""
    if not isinstance(scores, np.ndarray) or scores.shape != feasible.shape or np.iscomplexobj(scores):
        array = isinstance(scores, np.ndarray)
        got = f"an array of shape {scores.shape} and type {scores.dtype}" if array else f"{scores!r:.100}"
        raise TypeError(f"scores must be an array of {len(feasible)} real numbers, got {got}")
    return np.asarray(scores, np.float64)


def check_range(scores: FloatArray, feasible: BoolArray) -> tuple[FloatArray, str]:
    """Return scores from 0 to MAX_SCORE, and a message about clipped scores, or an empty string."""
    counted = scores[feasible]
    if not len(counted):
        return scores, ""
    low, high = float(counted.min()), float(counted.max())
    if not (low >= -ROUNDING and high <= MAX_SCORE + ROUNDING):
        raise ValueError(f"scores must be from 0 to {MAX_SCORE:.0f}, got {low} to {high}")
    if low >= 0.0 and high <= MAX_SCORE:
        return scores, ""
    return scores.clip(0.0, MAX_SCORE), f"scores from {low!r} to {high!r} are clipped to the range from 0 to {MAX_SCORE:.0f}"


def check_post_filter(plugin: Named, answer: Any, nodes: NodeTable) -> Nominated | Proposed | Status | None:
    """Check the result of PostFilter. `settle` of a proposal is wrapped in `call_plugin` and checked."""
    if isinstance(answer, Proposed):
        return replace(
            answer, settle=lambda left: call_plugin(plugin, "PostFilter", lambda: check_nominated(answer.settle(left), nodes))
        )
    return check_nominated(answer, nodes) if isinstance(answer, Nominated) else check_status(answer)


def check_nominated(answer: Any, nodes: NodeTable) -> Nominated:
    if not isinstance(answer, Nominated) or not isinstance(answer.reason, str):
        raise TypeError(f"expected Nominated, got {answer!r:.100}")
    if answer.node and nodes.row(answer.node) is None:
        raise ValueError(f'the nominated node "{answer.node}" does not exist')
    return answer


def rejection_from_status(plugin: Named, status: Wait | Status | None) -> PluginRejection | None:
    """Return the plugin's refusal of the selected node, or None."""
    return PluginRejection(plugin.name, status.reason) if isinstance(status, Status) and status is not SKIP else None
