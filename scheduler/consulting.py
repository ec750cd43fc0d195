"""Scheduling cycles of pods that interest extenders. They are made in steps, since extenders may take their time:

    filters --some nodes are left--> [ask: filter, prioritize] --> filters again, with the opinion: a node --> as other pods
       |                                                                  |
       '----- none is left ------> PostFilter <--------- none is left ----'
                                       '--> candidates --> [ask: preempt] --> make room on the best that is left

* While extenders are asked the event loop is free: heartbeats are answered, informers go on. No other decision is made, cycles
  are serial; so the time that extenders take is the time that all pods wait.
* What has changed meanwhile counts. The filters are asked again, so the pod fits where it goes; a candidate whose node has
  changed is left out. A pod that is bound, deleted or changed by then is left alone, and so are all once the term is over.
* When an extender cannot say whether room can be made, or all candidates have changed, nothing has been found out: the pod
  stays nominated where it was, and is tried again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pinnace.api.core_v1_pb2 import Node, Pod
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.cycle import NO_CANDIDATE, Broken, Outcome, Proposal, Unschedulable, attempt
from scheduler.extenders.asking import Candidates, ask_about_nodes
from scheduler.extenders.extender import Extender
from scheduler.extenders.interface import ExtenderError
from scheduler.framework.results import PluginError
from scheduler.framework.runtime import Framework
from scheduler.queue import QueuedPod, SchedulingQueue

T = TypeVar("T")


class Consulting:
    def __init__(self, cache: Cache, queue: SchedulingQueue, pods: Mapping[str, Pod], seed: int) -> None:
        """`pods`: the informer's store."""
        self._cache = cache
        self._queue = queue
        self._pods = pods
        self._seed = seed

    async def schedule(
        self, queued: QueuedPod, framework: Framework, extenders: Sequence[Extender], leads: Callable[[], bool]
    ) -> Outcome | None:
        """Of a pod that was popped. `leads`: is the term, for which this is done, still on? None: there is nothing to decide
        any more, and the queue has the pod if it still needs a node."""
        try:
            nodes = self._left(queued.info, framework)
            opinion = await self.held(queued, ask_about_nodes(extenders, queued.info, nodes), leads) if nodes else None
            outcome = attempt(queued.info, self._cache, framework, self._seed, opinion=opinion)
            return await self._settled(outcome, queued, extenders, leads) if isinstance(outcome, Proposal) else outcome
        except (ExtenderError, PluginError) as error:
            return Broken(error)
        except Overtaken:
            return None

    def _left(self, pod: PodInfo, framework: Framework) -> list[Node]:
        """By the filters; none of a pod about which a decision would take too long."""
        nodes = self._cache.nodes
        if framework.too_costly(pod, nodes) is not None:
            return []
        feasible = framework.judge({}, pod, nodes.seen_at(pod.priority, pod.uid)).feasible
        return [nodes.raw[row] for row in np.flatnonzero(feasible).tolist()]

    async def _settled(
        self, proposal: Proposal, queued: QueuedPod, extenders: Sequence[Extender], leads: Callable[[], bool]
    ) -> Unschedulable | Broken:
        """Raises Overtaken."""
        proposed, cache = list(proposal.proposed.candidates), self._cache
        if not any(extender.preempts for extender in extenders):
            return proposal.settled(proposed)
        versions = {each.node: cache.version(each.node) for each in proposed}
        lower = {
            node: {pod.uid: pod for pod in cache.pods_on(node) if pod.priority < queued.info.priority} for node in versions
        }
        asking = Candidates(proposed, lower, self._pods).ask(extenders, queued.info)
        try:
            left = await self.held(queued, asking, leads)
        except ExtenderError as error:
            return proposal.put_off(str(error), cache.nodes.nominated.node_of(queued.info.uid))
        still = [each for each in left if cache.version(each.node) == versions[each.node]]
        if still or not left:
            return proposal.settled(still)
        return proposal.put_off(NO_CANDIDATE, cache.nodes.nominated.node_of(queued.info.uid))

    async def held(self, queued: QueuedPod, asking: Coroutine[Any, Any, T], leads: Callable[[], bool]) -> T:
        """The answer, for which a pod that was popped waits. Raises what asking raises, and Overtaken."""
        self._queue.hold(queued)
        answer: T | BaseException
        over = True
        try:
            (answer,) = await asyncio.gather(asking, return_exceptions=True)
            over = isinstance(answer, asyncio.CancelledError) or not leads()
        finally:  # also when this is cancelled, since the term is over
            waits = self._queue.resume(queued)
            if waits and over:
                self._queue.add(queued.info, queued.since)
        if over or not waits:
            raise Overtaken
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Overtaken(Exception):
    """There is nothing to decide any more."""
