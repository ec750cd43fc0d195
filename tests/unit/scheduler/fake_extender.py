"""An extender without a network: a Transport that answers as the test says."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.scheduler.extenders.extender import Extender
from pinnace.scheduler.extenders.interface import (
    BIND,
    FILTER,
    PREEMPT,
    PRIORITIZE,
    ExtenderConfiguration,
    ExtenderError,
    FilterResponse,
    NodeVictims,
    VictimUids,
)

URL = "http://extender"


class FakeTransport:
    """Verbs without an answer are not supported. An exception is raised, a function asked, all else answered. While `gate` is
    closed nothing is answered."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterResponse:
        answer = await self._answer(FILTER, [node.metadata.name for node in nodes])
        return answer if isinstance(answer, FilterResponse) else FilterResponse(answer)

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        scores: Mapping[str, int] = await self._answer(PRIORITIZE, [node.metadata.name for node in nodes])
        return list(scores.items())

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, VictimUids]:
        said = {node: [pod.metadata.name for pod in each.pods] for node, each in victims.items()}
        answer: Mapping[str, Sequence[str]] = await self._answer(PREEMPT, said)
        return {node: VictimUids(uids, 0) for node, uids in answer.items()}

    async def bind(self, binding: Binding, fence: Fence) -> None:
        await self._answer(BIND, (binding.metadata.name, binding.target.name, fence.token))

    async def close(self) -> None:
        pass

    async def _answer(self, verb: str, args: Any) -> Any:
        self.asked.append((verb, args))
        self.called.set()
        await self.gate.wait()
        answer = self.answers[verb]
        if isinstance(answer, Exception):
            raise answer
        return answer(args) if callable(answer) else answer

    def extender(self, *, managed: Sequence[str] = (), ignorable: bool = False, weight: int = 1, url: str = URL) -> Extender:
        configuration = ExtenderConfiguration(
            url,
            {verb: verb for verb in self.answers},
            weight=weight,
            managed_resources=dict.fromkeys(managed, False),
            ignorable=ignorable,
        )
        return Extender(configuration, self)


def failing(verb: str) -> ExtenderError:
    return ExtenderError(verb, f"{URL}/{verb}", ", code 500")
