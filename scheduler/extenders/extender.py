"""One extender: what it is asked, and whether its answers make sense."""

import logging
from collections.abc import Mapping

from pinnace.api.core_v1_pb2 import Binding, Node
from pinnace.api.pods_pb2 import Fence
from pinnace.runtime.logs import ExtenderIgnored
from scheduler.cache.pod_info import PodInfo
from scheduler.extenders.http import HttpTransport
from scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    Demanded,
    ExtenderConfiguration,
    ExtenderError,
    Objections,
    Sacrifice,
    Transport,
    interested,
)
from scheduler.extenders.rpc import SCHEME, RpcTransport
from scheduler.framework.results import MAX_SCORE

log = logging.getLogger(__name__)

MAX_PRIORITY = 10
"""The best score that an extender gives."""


class Extender:
    """`filter`, `prioritize`, `preempt` and `bind` are only for those that have the verb. They raise ExtenderError."""

    def __init__(self, configuration: ExtenderConfiguration, transport: Transport) -> None:
        self.name = configuration.url_prefix
        self.ignorable = configuration.ignorable
        self.filters, self.prioritizes, self.preempts, self.binds = (
            verb in configuration.verbs for verb in (FILTER, PRIORITIZE, PREEMPT, BIND)
        )
        self.patience = len(configuration.verbs) * configuration.timeout
        """Seconds for all that it is asked about one pod, at most."""
        self._weight = configuration.weight
        self._managed = frozenset(configuration.managed_resources)
        self._transport = transport
        self._failing: set[str] = set()
        """Verbs."""

    def interested(self, pod: PodInfo) -> bool:
        return interested(self._managed, pod.raw)

    async def filter(self, pod: PodInfo, nodes: Mapping[str, Node]) -> Objections:
        """`nodes`: by name, those that are left."""
        answer = await self._transport.filter(pod.raw, list(nodes.values()))
        for name in answer.left:
            if name not in nodes:
                raise self._wrong(FILTER, f'it claims a filtered node "{name}" which is not found in the input node list')
        reasons = dict.fromkeys(nodes.keys() - set(answer.left), f"node(s) were filtered out by extender {self.name}")
        for told in (answer.failed, answer.unresolvable):
            reasons |= {name: reason for name, reason in told.items() if name in reasons and reason}
        self._failing.discard(FILTER)
        return Objections(self.name, reasons, frozenset(answer.unresolvable) & reasons.keys())

    async def prioritize(self, pod: PodInfo, nodes: Mapping[str, Node]) -> dict[str, float]:
        """By node, as much as its plugins' weighted scores."""
        answer = await self._transport.prioritize(pod.raw, list(nodes.values()))
        for name, score in answer:
            if not 0 <= score <= MAX_PRIORITY:
                raise self._wrong(PRIORITIZE, f"scores must be from 0 to {MAX_PRIORITY}, got {score} for node {name}")
        self._failing.discard(PRIORITIZE)
        return {name: self._weight * score * (MAX_SCORE / MAX_PRIORITY) for name, score in answer}

    async def preempt(self, pod: PodInfo, victims: Mapping[str, Sacrifice]) -> Mapping[str, Demanded]:
        """By node. Those where it demands nothing are left out if its failures are ignored."""
        answer = dict(await self._transport.preempt(pod.raw, victims))
        for node, demanded in list(answer.items()):
            if node not in victims:
                raise self._wrong(PREEMPT, f'it claims node "{node}" which is not found in the input node list')
            if not demanded.uids:
                if not self.ignorable:
                    raise self._wrong(PREEMPT, f'expected at least one victim pod on node "{node}"')
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

    def excuse(self, error: ExtenderError) -> None:
        """Goes on without an answer. That is logged, but not for each pod."""
        if error.verb in self._failing:
            log.debug("%s; it is ignored", error)
        else:
            log.warning("%s; it is ignored", error, extra=ExtenderIgnored(error.verb, str(error)).extra)
        self._failing.add(error.verb)

    async def close(self) -> None:
        await self._transport.close()

    def _wrong(self, verb: str, problem: str) -> ExtenderError:
        return ExtenderError(verb, self.name, f": {problem}")


def make(configuration: ExtenderConfiguration) -> Extender:
    """Raises OSError when a file that the configuration names cannot be used."""
    over_rpc = configuration.url_prefix.startswith(SCHEME)
    return Extender(configuration, RpcTransport(configuration) if over_rpc else HttpTransport(configuration))
