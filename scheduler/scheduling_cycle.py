"""The scheduling cycle: selects a node for one pod. It is synchronous, so that the table cannot change during a cycle.

    pop -> [cost] -> PreFilter -> Filter -> no node is feasible: PostFilter -> Unschedulable
                          |
                          +-> [PreScore -> Score -> select] -> assume -> Reserve -> Permit -> Placed, to the binder
                                                                  |         |
                                                                  '---------'--> Unreserve, forget -> Unschedulable

A nominated pod that fits on its nominated node is placed there without scoring. A pod whose decision exceeds the cost limit is
refused first (`pinnace.scheduler.framework.filtering`).

`NodeSelector` selects the node (`pinnace.scheduler.node_selector`). An `ExtenderResult` adds the responses of extenders.

A pod that is managed by extenders is scheduled in steps, because extenders may be slow:

    filters --feasible nodes--> [filter, prioritize] --> filters again, with the extender result: a node --> as above
       |                                                               |
       '----- no node -------> PostFilter <------- no node ------------'
                                   '--> candidates --> [preempt] --> evict the victims on the best remaining candidate

* During extender calls the event loop is free: heartbeats and informers continue. Cycles are serial, so all other pods wait.
* After the response, the filters run again on the current table, and a preemption candidate is dropped if its node has changed.
  The decision is dropped if the pod was bound, deleted or changed in the meantime, or if the term has ended.
* If an extender fails during preemption, or all candidates have changed, the pod keeps its nomination and is retried.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.extenders.extender import Extender, PreemptionQuery, query_extenders
from pinnace.scheduler.extenders.interface import ExtenderError
from pinnace.scheduler.framework import CycleState, NodeTable, PodInfo
from pinnace.scheduler.framework.results import (
    Diagnosis,
    Nominated,
    PluginError,
    PluginRejection,
    Proposed,
    Victims,
    plugin_failure,
)
from pinnace.scheduler.framework.runtime import BindingCycle, Framework
from pinnace.scheduler.node_selector import BudgetExceeded, NodeSelector
from pinnace.scheduler.queue import QueuedPod, SchedulingQueue

TOO_MANY_NOMINATED = "too many nodes are reserved for nominated pods, the pod is retried."
NO_CANDIDATE = "no candidate node for preemption"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod is assumed on the node."""

    node: str
    cycle: BindingCycle | None = None
    """The binding cycle, or None if no plugin takes part."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits the pod."""

    refused_by: frozenset[str]
    message: str
    nominated: str = ""
    """The nominated node, on which victims are evicted."""
    outdated: bool = False
    """True if the result may be outdated or incomplete. The pod is retried after its backoff without waiting for an event."""


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A plugin or an extender failed."""

    error: PluginError | ExtenderError


@dataclass(frozen=True, slots=True)
class PreemptionProposal:
    """No node fits the pod. Preemption may help and has not begun."""

    refused_by: frozenset[str]
    message: str
    proposed: Proposed

    def preempt_best(self, candidates: Sequence[Victims]) -> Unschedulable | AttemptFailed:
        """Preempt on the best of the candidates, if there is one."""
        if not candidates:
            return self.with_rejection(NO_CANDIDATE)
        try:
            nominated = self.proposed.settle(candidates)
        except BaseException as error:
            return AttemptFailed(plugin_failure(self.proposed.plugin, "PostFilter", error))
        message = f"{self.message} {nominated.reason}" if nominated.reason else self.message
        return Unschedulable(self.refused_by, message, nominated.node)

    def with_rejection(self, reason: str) -> Unschedulable:
        return Unschedulable(self.refused_by, f"{self.message} preemption: {reason}")

    def postponed(self, reason: str, nominated: str) -> Unschedulable:
        """Return a result that keeps the nomination to `nominated` and retries the pod, because the effect of preemption is
        unknown."""
        return Unschedulable(self.refused_by, f"{self.message} preemption: {reason}", nominated, outdated=True)


CycleResult = Placed | Unschedulable | AttemptFailed


def schedule_one(pod: PodInfo, selector: NodeSelector) -> CycleResult:
    """Select a node for the pod, assume it there and start its binding cycle. Evict victims if preemption helps."""
    outcome = schedule_pod(pod, selector)
    return outcome.preempt_best(outcome.proposed.candidates) if isinstance(outcome, PreemptionProposal) else outcome


def schedule_pod(pod: PodInfo, selector: NodeSelector) -> CycleResult | PreemptionProposal:
    """Schedule the pod as `schedule_one` does, but return a preemption proposal instead of evicting victims."""
    cache, framework = selector.cache, selector.framework
    state: CycleState = {}
    nodes = cache.nodes
    try:
        costly = framework.reject_too_costly(pod, nodes)
        if costly is not None:
            return Unschedulable(costly.plugins, costly.message)
        row = selector.select_node(pod, state)
        if isinstance(row, Diagnosis):
            return _run_post_filter(state, pod, nodes, framework, row)
        node = nodes.names[row]
    except PluginError as error:
        return AttemptFailed(error)
    except BudgetExceeded:
        return Unschedulable(frozenset(), f"0/{len(nodes)} nodes are available: {TOO_MANY_NOMINATED}", outdated=True)
    cache.assume_pod(pod, node)
    if framework.binding.has_no_plugins:
        return Placed(node)
    try:
        started = framework.binding.run_reserve_and_permit(state, pod, node)
    except PluginError as error:
        cache.forget_pod(pod.uid)
        return AttemptFailed(error)
    if isinstance(started, PluginRejection):
        cache.forget_pod(pod.uid)
        return Unschedulable(frozenset([started.plugin]), started.message)
    return Placed(node, started)


def _run_post_filter(
    state: CycleState, pod: PodInfo, nodes: NodeTable, framework: Framework, diagnosis: Diagnosis
) -> Unschedulable | PreemptionProposal:
    """Run PostFilter. Raise PluginError."""
    answer = framework.post_filter(state, pod, nodes, diagnosis) if diagnosis.nodes else (Nominated(""), False)
    awaited = framework.awaited_plugins(pod, diagnosis)
    if isinstance(answer, Proposed):
        return PreemptionProposal(awaited, diagnosis.message, answer)
    nominated, unfinished = answer
    message = f"{diagnosis.message} {nominated.reason}" if nominated.reason else diagnosis.message
    return Unschedulable(awaited, message, nominated.node, outdated=unfinished)


def requeue_pod(
    queued: QueuedPod, outcome: Unschedulable | AttemptFailed, cache: Cache, queue: SchedulingQueue, now: float
) -> None:
    """Return a popped pod that was not placed to the queue, and nominate it."""
    if isinstance(outcome, Unschedulable):
        _nominate_pod(queued.info, outcome.nominated, cache, queue, now)
        queue.add_unschedulable(queued, outcome.refused_by, now, missed=outcome.outdated)
    else:
        queue.add_failed(queued, now, rarely=isinstance(outcome.error, PluginError) and outcome.error.took_long)


def move_pods_after_nomination(pod: PodInfo, before: str, cache: Cache, queue: SchedulingQueue, now: float) -> None:
    """Move the pods that may use the node to which the pod was nominated before an attempt that chose another node."""
    if before not in ("", cache.nodes.nominated.node_of(pod.uid), cache.node_of(pod.uid)):
        queue.move_pods_on_event(ClusterEvent(Change.POD_FREED, before), cache.nodes, now)


def _nominate_pod(info: PodInfo, node: str, cache: Cache, queue: SchedulingQueue, now: float) -> None:
    """Nominate the pod to a node, or to none if `node` is empty. Nominated pods of lower priority there are requeued."""
    events = [cache.nominate_pod(info, node)]
    for other in cache.nodes.nominated.pods_on(node):
        if other.priority < info.priority:
            events.append(cache.nominate_pod(other, ""))
            queue.activate_pod(other.uid, now)
    for event in events:
        if event is not None:
            queue.move_pods_on_event(event, cache.nodes, now)


@dataclass(frozen=True, slots=True)
class Decision:
    """A pod that a leader with this token has assumed on a node."""

    queued: QueuedPod
    node: str
    token: int
    cycle: BindingCycle | None = None
    """The binding cycle, or None if no plugin takes part."""


class BindingObserver(Protocol):
    """Receives the result of each bind, exactly once per decision unless the term ends first."""

    def on_bound(self, decision: Decision) -> None: ...

    def on_bind_failed(self, decision: Decision, problem: str | PluginError, *, retry: bool) -> None:
        """Handle a pod that is not bound and will not be bound. `retry` is True if it still needs a node."""
        ...

    def on_bind_rejected(self, decision: Decision, refused: PluginRejection) -> None:
        """Handle a pod that a plugin refused. It is not bound and will not be bound."""
        ...

    def on_bind_superseded(self, decision: Decision) -> None:
        """Handle a pod that another client bound or deleted, according to the informer."""
        ...

    def on_binds_fenced(self, token: int, binds: int) -> None:
        """Handle a number of binds that the API server refused because their token is stale. It may be an earlier term's
        token."""
        ...

    def on_term_fenced(self, token: int) -> None:
        """Handle a stale token: another leader has been elected."""
        ...


class ExtenderScheduling:
    def __init__(self, cache: Cache, queue: SchedulingQueue, pods: Mapping[str, Pod], seed: int) -> None:
        """`pods` is the store of the informer."""
        self._cache = cache
        self._queue = queue
        self._pods = pods
        self._seed = seed

    async def schedule_with_extenders(
        self, queued: QueuedPod, framework: Framework, extenders: Sequence[Extender], leads: Callable[[], bool]
    ) -> CycleResult | None:
        """Schedule a popped pod. `leads` returns False after the end of the term.

        Return None if the decision is no longer needed. A pod that still needs a node is then in the queue.
        """
        try:
            nodes = self._list_feasible_nodes(queued.info, framework)
            extender_result = (
                await self.hold_while(queued, query_extenders(extenders, queued.info, nodes), leads) if nodes else None
            )
            selector = NodeSelector(self._cache, framework, self._seed, extender_result=extender_result)
            outcome = schedule_pod(queued.info, selector)
            return (
                await self._settle_with_extenders(outcome, queued, extenders, leads)
                if isinstance(outcome, PreemptionProposal)
                else outcome
            )
        except (ExtenderError, PluginError) as error:
            return AttemptFailed(error)
        except Superseded:
            return None

    def _list_feasible_nodes(self, pod: PodInfo, framework: Framework) -> list[Node]:
        """Return the nodes that pass the filters, or an empty list if the decision exceeds the cost limit."""
        nodes = self._cache.nodes
        if framework.reject_too_costly(pod, nodes) is not None:
            return []
        feasible = framework.run_filters({}, pod, nodes.subtract_reserved(pod.priority, pod.uid)).feasible
        return [nodes.raw[row] for row in np.flatnonzero(feasible).tolist()]

    async def _settle_with_extenders(
        self, proposal: PreemptionProposal, queued: QueuedPod, extenders: Sequence[Extender], leads: Callable[[], bool]
    ) -> Unschedulable | AttemptFailed:
        """Let the extenders select among the preemption candidates. Raise Superseded."""
        proposed, cache = list(proposal.proposed.candidates), self._cache
        if not any(extender.preempts for extender in extenders):
            return proposal.preempt_best(proposed)
        versions = {victims.node: cache.node_version(victims.node) for victims in proposed}
        lower = {
            node: {pod.uid: pod for pod in cache.pods_on(node) if pod.priority < queued.info.priority} for node in versions
        }
        asking = PreemptionQuery(proposed, lower, self._pods).query_victims(extenders, queued.info)
        try:
            left = await self.hold_while(queued, asking, leads)
        except ExtenderError as error:
            return proposal.postponed(str(error), cache.nodes.nominated.node_of(queued.info.uid))
        still = [victims for victims in left if cache.node_version(victims.node) == versions[victims.node]]
        if still or not left:
            return proposal.preempt_best(still)
        return proposal.postponed(NO_CANDIDATE, cache.nodes.nominated.node_of(queued.info.uid))

    async def hold_while(self, queued: QueuedPod, asking: Coroutine[Any, Any, T], leads: Callable[[], bool]) -> T:
        """Await the response while the queue holds the popped pod. Raise Superseded and the errors of `asking`."""
        self._queue.hold_pod(queued)
        answer: T | BaseException
        over = True
        try:
            (answer,) = await asyncio.gather(asking, return_exceptions=True)
            over = isinstance(answer, asyncio.CancelledError) or not leads()
        finally:  # also runs when this task is cancelled at the end of the term
            waits = self._queue.release_held_pod(queued)
            if waits and over:
                self._queue.add_pod(queued.info, queued.since)
        if over or not waits:
            raise Superseded
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Superseded(Exception):
    """The decision is no longer needed."""
