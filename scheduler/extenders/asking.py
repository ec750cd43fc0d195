"""Asking the extenders that a pod interests. Those whose failure counts raise ExtenderError; others are left out."""

import asyncio
from collections.abc import Mapping, Sequence

from pinnace.api.core_v1_pb2 import Node, Pod
from scheduler.cache.placed_pod import PlacedPod
from scheduler.cache.pod_info import PodInfo
from scheduler.extenders.extender import Extender
from scheduler.extenders.interface import PREEMPT, Demanded, ExtenderError, Objections, Opinion, Sacrifice
from scheduler.framework.results import Victims
from scheduler.preemption.candidates import by_importance


async def ask_about_nodes(extenders: Sequence[Extender], pod: PodInfo, nodes: Sequence[Node]) -> Opinion:
    """Each filters what those before it have left; then all that prioritize are asked at once, unless only one node is left.
    A failure to prioritize never counts."""
    left = {node.metadata.name: node for node in nodes}
    asked, objections = frozenset(left), list[Objections]()
    for extender in extenders:
        if extender.filters and left:
            try:
                found = await extender.filter(pod, left)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                extender.excuse(error)
                continue
            objections.append(found)
            left = {name: node for name, node in left.items() if name not in found.reasons}
    return Opinion(asked, objections, await _scores(extenders, pod, left) if len(left) > 1 else {})


async def _scores(extenders: Sequence[Extender], pod: PodInfo, nodes: Mapping[str, Node]) -> Mapping[str, float]:
    async def of(extender: Extender) -> Mapping[str, float]:
        try:
            return await extender.prioritize(pod, nodes)
        except ExtenderError as error:
            extender.excuse(error)
            return {}

    total = dict[str, float]()
    for scores in await asyncio.gather(*(of(extender) for extender in extenders if extender.prioritizes)):
        for name, score in scores.items():
            total[name] = total.get(name, 0.0) + score
    return total


class Candidates:
    """Where preemption could make room, as extenders see it. `lower`: by candidate's node and uid, the pods there that may go;
    `pods`: by key, all pods."""

    def __init__(
        self, candidates: Sequence[Victims], lower: Mapping[str, Mapping[str, PlacedPod]], pods: Mapping[str, Pod]
    ) -> None:
        self._candidates = candidates
        self._lower = lower
        self._pods = pods

    async def ask(self, extenders: Sequence[Extender], pod: PodInfo) -> Sequence[Victims]:
        """Those that are left, in their order, with the victims that the extenders demand."""
        left = self._candidates
        for extender in extenders:
            if extender.preempts and left:
                try:
                    demanded = await extender.preempt(pod, {each.node: self._sacrifice(each) for each in left})
                    left = [self._victims(extender, each, demanded[each.node]) for each in left if each.node in demanded]
                except ExtenderError as error:
                    if not extender.ignorable:
                        raise
                    extender.excuse(error)
        return left

    def _sacrifice(self, victims: Victims) -> Sacrifice:
        """Pods that are gone by now are left out."""
        found = [(each, self._pods.get(each.key)) for each in victims.pods]
        there = [pod for each, pod in found if pod is not None and pod.metadata.uid == each.uid]
        return Sacrifice(there, victims.violations)

    def _victims(self, extender: Extender, candidate: Victims, demanded: Demanded) -> Victims:
        lower = self._lower[candidate.node]
        for uid in demanded.uids:
            if uid not in lower:
                problem = (
                    f"it claims to preempt pod (UID: {uid}) on node: {candidate.node}, but no such pod of a lower priority"
                )
                raise ExtenderError(PREEMPT, extender.name, f": {problem} is found on that node")
        return Victims(candidate.node, by_importance(lower[uid] for uid in set(demanded.uids)), demanded.violations)
