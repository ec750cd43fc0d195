"""An API server without a transport, and webhooks that are functions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from pinnace.api.admission_pb2 import AdmissionRequest, AdmissionResponse, ReviewRequest, ReviewResponse
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import BatchResponse
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.registry.admission import AdmissionOperation
from pinnace.apiserver.webhooks.webhook import Webhook, WebhookConfiguration, WebhookError
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PATIENCE, Caller

Judge = Callable[[AdmissionRequest], AdmissionResponse]


def allow(patch: str = "", **more: Any) -> Judge:
    return lambda item: AdmissionResponse(uid=item.uid, allowed=True, patch=patch.encode(), **more)


def deny(message: str = "", code: int = 0) -> Judge:
    def judge(item: AdmissionRequest) -> AdmissionResponse:
        answer = AdmissionResponse(uid=item.uid)
        answer.status.message, answer.status.code = message, code
        return answer

    return judge


class FakeTransport:
    """A Transport. `asked`: the messages; it answers while `gate` is open."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.asked: list[ReviewRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.problem: str | None = None

    async def review(self, request: ReviewRequest, timeout: float) -> ReviewResponse:
        self.asked.append(request)
        await self.gate.wait()
        if self.problem is not None:
            raise WebhookError(self.problem)
        return ReviewResponse(items=map(self.judge, request.items))

    async def close(self) -> None:
        return

    @property
    def items(self) -> list[AdmissionRequest]:
        return [item for message in self.asked for item in message.items]


class FakeMeter:
    """A Meter. `counted`: kind, operation, and how it went."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, str, str]] = []

    def answered(self, name: str, kind: str, operation: str, allowed: bool, seconds: float) -> None:
        self.counted.append((kind, operation, "allowed" if allowed else "denied"))

    def failed(self, name: str, kind: str, operation: str, ignored: bool, seconds: float) -> None:
        self.counted.append((kind, operation, "ignored" if ignored else "failed"))

    def crowded(self, name: str, kind: str, operation: str) -> None:
        self.counted.append((kind, operation, "crowded"))


def webhook(
    judge: Judge, *operations: AdmissionOperation, name: str = "a.example.com", meter: FakeMeter | None = None, **more: Any
) -> tuple[Webhook, FakeTransport]:
    """About pods; about creates, when no operations are named."""
    concerns = frozenset((operation, PODS) for operation in operations or (AdmissionOperation.CREATE,))
    transport = FakeTransport(judge)
    configuration = WebhookConfiguration(name, "nowhere:1", concerns, **more)
    return Webhook(configuration, transport, meter or FakeMeter(), SYSTEM_CLOCK), transport


class Server:
    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    async def call(self, method: str, **fields: Any) -> bytes:
        """Raises Rejected."""
        called = self._assembly.methods[f"/pinnace.v1.{method}"]
        request: Any = called.parse(b"")
        options = fields.pop("options", {})
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(request, name).extend(value)
            elif isinstance(value, str | bytes | int):
                setattr(request, name, value)
            else:
                getattr(request, name).CopyFrom(value)
        for name, value in options.items():
            getattr(request.options, name).extend(value)
        async with asyncio.timeout(PATIENCE):
            return await called.call(request, Caller(UNSECURED))

    async def create(self, pod: Pod, **fields: Any) -> Pod:
        return Pod.FromString(await self.call("Pods/Create", object=pod, **fields))

    async def create_batch(self, pods: Iterable[Pod]) -> BatchResponse:
        return BatchResponse.FromString(await self.call("Pods/CreateBatch", items=[*pods]))

    async def get(self, name: str) -> Pod:
        return Pod.FromString(await self.call("Pods/Get", namespace="default", name=name))


@asynccontextmanager
async def serving(*webhooks: Webhook, **more: Any) -> AsyncIterator[Server]:
    assembly = Assembly(MemoryStorage(), ServerSettings(webhooks=webhooks, **more))
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
        yield Server(assembly)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
