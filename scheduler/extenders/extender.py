"""Call an extender, check its responses, and bind pods through it.

`Extenders` holds the extenders of a scheduler; all profiles share them. `ExtenderBinder` is the first Bind plugin of every
profile. It skips pods that its extender does not manage. `query_extenders` and `PreemptionQuery` call the extenders that manage
a pod. A failure of an ignorable extender is skipped; any other extender fails the attempt with ExtenderError.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import ApiError, from_refusal, outcome_unknown, unavailable_error
from pinnace.runtime.logs import ExtenderIgnored
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.extenders.client import SCHEME, HttpTransport, RpcTransport
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderError,
    ExtenderRejections,
    ExtenderResult,
    ExtenderTransport,
    NodeVictims,
    NotSent,
    ResponseLost,
    VictimUids,
    requests_managed_resource,
)
from pinnace.scheduler.framework.results import MAX_SCORE, SKIP, CycleState, Status, Victims
from pinnace.scheduler.preemption import sort_by_importance

log = logging.getLogger(__name__)

MAX_PRIORITY = 10
"""The highest score of an extender."""


class Extender:
    """One extender. `filter`, `prioritize`, `preempt` and `bind` require the verb in its configuration. They raise
    ExtenderError."""

    def __init__(self, configuration: ExtenderConfiguration, transport: ExtenderTransport) -> None:
        self.name = configuration.url_prefix
        self.ignorable = configuration.ignorable
        self.filters, self.prioritizes, self.preempts, self.binds = (
            verb in configuration.verbs for verb in (FILTER, PRIORITIZE, PREEMPT, BIND)
        )
        self.timeout = len(configuration.verbs) * configuration.timeout
        """Maximum seconds for all calls about one pod."""
        self._weight = configuration.weight
        self._managed = frozenset(configuration.managed_resources)
        self._transport = transport
        self._failing: set[str] = set()
        """Verbs whose last call failed and was ignored."""

    def is_interested_in(self, pod: PodInfo) -> bool:
        return requests_managed_resource(self._managed, pod.raw)

    async def filter(self, pod: PodInfo, nodes: Mapping[str, Node]) -> ExtenderRejections:
        """Filter the remaining nodes, given by name."""
        answer = await self._transport.filter(pod.raw, list(nodes.values()))
        for name in answer.left:
            if name not in nodes:
                raise self._invalid_response(
                    FILTER, f'it claims a filtered node "{name}" which is not found in the input node list'
                )
        reasons = dict.fromkeys(nodes.keys() - set(answer.left), f"node(s) were filtered out by extender {self.name}")
        for told in (answer.failed, answer.unresolvable):
            reasons |= {name: reason for name, reason in told.items() if name in reasons and reason}
        self._failing.discard(FILTER)
        return ExtenderRejections(self.name, reasons, frozenset(answer.unresolvable) & reasons.keys())

    async def prioritize(self, pod: PodInfo, nodes: Mapping[str, Node]) -> dict[str, float]:
        """Return the scores by node, weighted to the same scale as the scores of plugins."""
        answer = await self._transport.prioritize(pod.raw, list(nodes.values()))
        for name, score in answer:
            if not 0 <= score <= MAX_PRIORITY:
                raise self._invalid_response(
                    PRIORITIZE, f"scores must be from 0 to {MAX_PRIORITY}, got {score} for node {name}"
                )
        self._failing.discard(PRIORITIZE)
        return {name: self._weight * score * (MAX_SCORE / MAX_PRIORITY) for name, score in answer}

    async def preempt(self, pod: PodInfo, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        """Return the victims by node. An ignorable extender may return a node without victims; such nodes are omitted."""
        answer = dict(await self._transport.preempt(pod.raw, victims))
        for node, demanded in list(answer.items()):
            if node not in victims:
                raise self._invalid_response(PREEMPT, f'it claims node "{node}" which is not found in the input node list')
            if not demanded.uids:
                if not self.ignorable:
                    raise self._invalid_response(PREEMPT, f'expected at least one victim pod on node "{node}"')
                del answer[node]
        self._failing.discard(PREEMPT)
        return answer

    async def bind(self, pod: PodInfo, node: str, fence: Fence) -> None:
        binding = Binding()
        metadata, target = binding.metadata, binding.target
        metadata.namespace, metadata.name, metadata.uid = pod.namespace, pod.name, pod.uid
        target.kind, target.name = "Node", node
        await self._transport.bind(binding, fence)
        self._failing.discard(BIND)

    def ignore_failure(self, error: ExtenderError) -> None:
        """Log a failure that is ignored. Repeated failures of a verb are logged at debug level."""
        if error.verb in self._failing:
            log.debug("%s; it is ignored", error)
        else:
            log.warning("%s; it is ignored", error, extra=ExtenderIgnored(error.verb, str(error)).extra)
        self._failing.add(error.verb)

    async def close(self) -> None:
        await self._transport.close()

    def _invalid_response(self, verb: str, problem: str) -> ExtenderError:
        return ExtenderError(verb, self.name, f": {problem}")


def create_extender(configuration: ExtenderConfiguration) -> Extender:
    """Create an extender. Raise OSError if a file of its configuration cannot be used."""
    over_rpc = configuration.url_prefix.startswith(SCHEME)
    return Extender(configuration, RpcTransport(configuration) if over_rpc else HttpTransport(configuration))


class ExtenderBinder:
    """The Bind plugin of an extender.

    The extender receives the fence, so that the API server rejects its binds after the leader is deposed. If the extender
    reports that a pod is not bound, the scheduler reads the pod to verify it
    (`pinnace.scheduler.framework.interface.BindPlugin`).
    """

    def __init__(self, extender: Extender) -> None:
        self.name = extender.name
        self._extender = extender

    def pre_flight(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None if self._extender.is_interested_in(pod) else SKIP

    async def bind(self, state: CycleState, pod: PodInfo, node: str, fence: Fence) -> Status | None:
        try:
            await self._extender.bind(pod, node, fence)
        except ExtenderError as error:
            if self._extender.ignorable:  # the next binder uses the same node, so at most one of the two binds commits
                self._extender.ignore_failure(error)
                return SKIP
            if isinstance(error, NotSent):
                raise
            raise _as_api_error(error) from error
        return None


def _as_api_error(error: ExtenderError) -> ApiError:
    if isinstance(error, ResponseLost):
        return outcome_unknown(unavailable_error(str(error)))
    return from_refusal(Refusal(Code.ABORTED, "", str(error)))


class Extenders:
    """All extenders of a scheduler. The constructor raises OSError if a file of a configuration cannot be used."""

    def __init__(self, configurations: Iterable[ExtenderConfiguration]) -> None:
        self._extenders = [create_extender(configuration) for configuration in configurations]

    @property
    def binders(self) -> Sequence[ExtenderBinder]:
        """The Bind plugins of the extenders, at most one."""
        return [ExtenderBinder(extender) for extender in self._extenders if extender.binds]

    def extenders_of(self, pod: PodInfo) -> Sequence[Extender]:
        """Return the extenders that manage the pod, in call order."""
        return [extender for extender in self._extenders if extender.is_interested_in(pod)] if self._extenders else ()

    async def close(self) -> None:
        for extender in self._extenders:
            await extender.close()


async def query_extenders(extenders: Sequence[Extender], pod: PodInfo, nodes: Sequence[Node]) -> ExtenderResult:
    """Call the extenders' filters one after another, each with the nodes that remain, then all prioritize verbs concurrently.

    The prioritize verbs are skipped if at most one node remains. Their failures are always ignored.
    """
    left = {node.metadata.name: node for node in nodes}
    asked, objections = frozenset(left), list[ExtenderRejections]()
    for extender in extenders:
        if extender.filters and left:
            try:
                extender_rejections = await extender.filter(pod, left)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                extender.ignore_failure(error)
                continue
            objections.append(extender_rejections)
            left = {name: node for name, node in left.items() if name not in extender_rejections.reasons}
    return ExtenderResult(asked, objections, await _sum_extender_scores(extenders, pod, left) if len(left) > 1 else {})


async def _sum_extender_scores(extenders: Sequence[Extender], pod: PodInfo, nodes: Mapping[str, Node]) -> Mapping[str, float]:
    async def of(extender: Extender) -> Mapping[str, float]:
        try:
            return await extender.prioritize(pod, nodes)
        except ExtenderError as error:
            extender.ignore_failure(error)
            return {}

    total = dict[str, float]()
    for scores in await asyncio.gather(*(of(extender) for extender in extenders if extender.prioritizes)):
        for name, score in scores.items():
            total[name] = total.get(name, 0.0) + score
    return total


class PreemptionQuery:
    """Lets extenders review preemption candidates.

    `lower` maps node and UID to the possible victims. `pods` maps keys to all pods.
    """

    def __init__(
        self, candidates: Sequence[Victims], lower: Mapping[str, Mapping[str, PlacedPod]], pods: Mapping[str, Pod]
    ) -> None:
        self._candidates = candidates
        self._lower = lower
        self._pods = pods

    async def query_victims(self, extenders: Sequence[Extender], pod: PodInfo) -> Sequence[Victims]:
        """Return the remaining candidates in order, with the victims that the extenders selected."""
        left = self._candidates
        for extender in extenders:
            if extender.preempts and left:
                try:
                    demanded = await extender.preempt(pod, {victims.node: self._existing_victims(victims) for victims in left})
                    left = [
                        self._parse_victims(extender, victims, demanded[victims.node])
                        for victims in left
                        if victims.node in demanded
                    ]
                except ExtenderError as error:
                    if not extender.ignorable:
                        raise
                    extender.ignore_failure(error)
        return left

    def _existing_victims(self, victims: Victims) -> NodeVictims:
        """Return the victims that still exist."""
        result = [(placed_pod, self._pods.get(placed_pod.key)) for placed_pod in victims.pods]
        there = [pod for each, pod in result if pod is not None and pod.metadata.uid == each.uid]
        return NodeVictims(there, victims.violations)

    def _parse_victims(self, extender: Extender, candidate: Victims, demanded: VictimUids) -> Victims:
        lower = self._lower[candidate.node]
        for uid in demanded.uids:
            if uid not in lower:
                problem = (
                    f"it claims to preempt pod (UID: {uid}) on node: {candidate.node}, but no such pod of a lower priority"
                )
                raise ExtenderError(PREEMPT, extender.name, f": {problem} is found on that node")
        return Victims(candidate.node, sort_by_importance(lower[uid] for uid in set(demanded.uids)), demanded.violations)
