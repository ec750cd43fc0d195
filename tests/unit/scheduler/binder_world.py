"""A binder before an API server that is a fake, on a clock of ours."""

import asyncio
from collections.abc import Callable, Sequence

from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import Fence
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import from_refusal
from pinnace.scheduler.binding_cycle import RESOLVE_DELAY, Binder
from pinnace.scheduler.framework.results import PluginError, PluginRejection
from pinnace.scheduler.queue import QueuedPod
from pinnace.scheduler.scheduling_cycle import Decision
from tests.builders import PodBuilder, make_node, make_pod
from tests.clock import FakeClock
from tests.unit.scheduler.pods import cache_of, info

TOKEN = 7


def refusal(code: Code, reason: str = "", message: str = "no") -> Refusal:
    return Refusal(code, reason, message)


CONFLICT = refusal(Code.ABORTED, "AlreadyBound", 'pod "a" is already assigned')
FENCED = refusal(Code.FAILED_PRECONDITION, "Fenced")
NOT_FOUND = refusal(Code.NOT_FOUND)
UNKNOWN = refusal(Code.UNAVAILABLE, "OutcomeUnknown")
Answer = Refusal | None


class Api:
    """Answers binds by `answer`, holds them back while `gate` is closed, and reads from `pods`."""

    def __init__(self) -> None:
        self.pods: dict[str, PodBuilder] = {}
        self.batches: list[tuple[list[str], Fence | None]] = []
        self.reads: list[str] = []
        self.answer: Callable[[Binding], Answer] = lambda binding: None
        self.whole: Refusal | None = None
        self.read_error: Refusal | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        self.batches.append(([f"{binding.metadata.name}>{binding.target.name}" for binding in bindings], fence))
        answers = [self.answer(binding) for binding in bindings]
        await self.gate.wait()
        if self.whole is not None:
            raise from_refusal(self.whole)
        return [BatchItem(error=encode(answer)) if answer else BatchItem() for answer in answers]

    async def get(self, name: str, namespace: str = "") -> Pod:
        self.reads.append(f"{namespace}/{name}")
        if self.read_error is not None:
            raise from_refusal(self.read_error)
        if name not in self.pods:
            raise from_refusal(NOT_FOUND)
        return self.pods[name].build()


class World:
    """A binder, and what it said. Pods are assumed in the cache, as the cycle leaves them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = Api()
        self.cache = cache_of(make_node("n"), make_node("m"))
        self.binder = Binder(
            self.api, self.cache, self, lambda token: Fence(election="scheduler", token=token), clock=self.clock
        )
        self.told: list[str] = []
        self.refused_binds = 0
        self.binder.begin_term(TOKEN)

    def on_bound(self, decision: Decision) -> None:
        self.told.append(f"bound {decision.queued.info.name}")

    def on_bind_failed(self, decision: Decision, problem: str | PluginError, *, retry: bool) -> None:
        self.cache.forget_pod(decision.queued.info.uid)
        self.told.append(f"failed {decision.queued.info.name}: {problem}{', retry' if retry else ''}")

    def on_bind_rejected(self, decision: Decision, refused: PluginRejection) -> None:
        self.cache.forget_pod(decision.queued.info.uid)
        self.told.append(f"refused {decision.queued.info.name}: {refused.reason}")

    def on_bind_superseded(self, decision: Decision) -> None:
        self.told.append(f"superseded {decision.queued.info.name}")

    def on_binds_fenced(self, token: int, binds: int) -> None:
        self.refused_binds += binds

    def on_term_fenced(self, token: int) -> None:
        self.told.append(f"fenced {token}")
        self.binder.end_term()

    def submit(self, *names: str, node: str = "n") -> None:
        for name in names:
            pod = info(make_pod(name))
            self.cache.assume_pod(pod, node)
            self.binder.submit_decision(Decision(QueuedPod(pod, 0.0), node, TOKEN))

    async def settle(self) -> None:
        await self.clock.advance(0)

    async def resolve(self) -> None:
        await self.clock.advance(RESOLVE_DELAY)

    def assumed(self) -> list[str]:
        return [pod.name for pod in self.cache.assumed_pods()]
