"""Pods: the standard verbs, binding, eviction, and what their containers have to say."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, aclosing

from apiserver import errors
from apiserver.auth.audit import Audit, Deed
from apiserver.auth.authentication import MASTERS, User
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.permissions import EXEC, Target
from apiserver.cacher.cacher import Cacher
from apiserver.flow.control import own, stand_up
from apiserver.registry import binding
from apiserver.registry.admission import Request
from apiserver.registry.fencing import Fences
from apiserver.registry.mutation import Outcome
from apiserver.registry.store import Store, single
from apiserver.services import metrics, tenure
from apiserver.services.context import Context, patience
from apiserver.services.evictions import Evictions
from apiserver.services.resource import ResourceService, all_or_none, batch
from apiserver.services.streaming import Streaming, first_of
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import (
    BindBatchRequest,
    BindRequest,
    EvictBatchRequest,
    EvictRequest,
    ExecRequest,
    Fence,
    LogsRequest,
)
from pinnace.api.policy_v1_pb2 import Eviction, PodDisruptionBudget
from pinnace.api.resources import DEFAULT_NAMESPACE, election_key
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import BatchItem, BatchResponse
from pinnace.runtime.clock import Clock

_LOST = (Code.ABORTED, Code.NOT_FOUND)
"""How a bind ends that comes too late for its pod."""


class PodService(ResourceService[Pod]):
    def __init__(
        self,
        store: Store[Pod],
        budgets: Store[PodDisruptionBudget],
        cacher: Cacher,
        audit: Audit,
        clock: Clock,
        streaming: Streaming,
        authorizer: Authorizer,
        fences: Fences,
    ) -> None:
        super().__init__(store, cacher, audit)
        self._evictions = Evictions(store, budgets, cacher, clock)
        self._clock = clock
        self._streaming = streaming
        self._authorizer = authorizer
        self._fences = fences

    async def bind(self, request: BindRequest, context: Context) -> BatchItem:
        stored = single(await self._bind([request.binding], _fence(request), context.user))
        return BatchItem(name=stored.name, uid=stored.uid, resourceVersion=str(stored.revision))

    async def bind_batch(self, request: BindBatchRequest, context: Context) -> BatchResponse:
        return batch(await self._bind(request.items, _fence(request), context.user))

    async def evict(self, request: EvictRequest, context: Context) -> BatchItem:
        stored = single(await self._evict([request.eviction], context))
        return BatchItem(name=stored.name, uid=stored.uid, resourceVersion=str(stored.revision))

    async def evict_batch(self, request: EvictBatchRequest, context: Context) -> BatchResponse:
        return batch(await self._evict(request.items, context))

    async def _evict(self, items: Sequence[Eviction], context: Context) -> Sequence[Outcome]:
        by = Request(context.user, all_or_none(each.deleteOptions for each in items))
        await self._cacher.fresh(patience(context))
        evicting = self._evictions.evict(items, dry_run=by.dry_run)
        return await self.noted(by, "create", "eviction", (each.metadata for each in items), evicting)

    async def logs(self, request: LogsRequest, context: Context) -> AsyncIterator[bytes]:
        await self._reach("", context)
        with _connection(context.user):
            async with aclosing(self._streaming.logs(request)) as responses:
                async for response in responses:
                    yield response

    async def exec(self, requests: AsyncIterator[ExecRequest], context: Context) -> AsyncIterator[bytes]:
        first = await first_of(requests)
        target = Target(first.start.namespace or DEFAULT_NAMESPACE, first.start.name)
        tenure.own().ask(EXEC, (target,))
        await self._authorizer.check(context.user, EXEC, lambda: (target,))
        self._audit.note(context.user, (Deed(EXEC, target.namespace, target.name),))
        await self._reach("", context)
        stand_up()
        with _connection(context.user):
            async with aclosing(self._streaming.exec(first, requests)) as responses:
                async for response in responses:
                    yield response

    async def _bind(self, items: Sequence[Binding], fence: Fence | None, user: User) -> Sequence[Outcome]:
        writing = self._write_bindings(items, fence, user)
        return await self.noted(Request(user), "create", "binding", (each.metadata for each in items), writing)

    async def _write_bindings(self, items: Sequence[Binding], fence: Fence | None, user: User) -> Sequence[Outcome]:
        """A caller that does not lead is told Fenced also where the pod alone would be reason enough: the leader may have bound
        it already."""
        term = await self._fences.term(fence, user) if fence is not None else None
        if fence is not None and term is None:
            refusal = errors.fenced(fence.election, fence.token)
            outcomes: Sequence[Outcome] = [binding.refusal_of(each) or refusal for each in items]
        else:
            outcomes = await self.store.mutate(binding.bind(items, term, self._clock.time()))
        if fence is not None and term is not None and self._is_deposed(fence):
            refusal = errors.fenced(fence.election, fence.token)
            outcomes = [refusal if isinstance(each, Refusal) and each.code in _LOST else each for each in outcomes]
        metrics.FENCED.inc(sum(isinstance(each, Refusal) and each.reason == "Fenced" for each in outcomes))
        return outcomes

    def _is_deposed(self, fence: Fence) -> bool:
        """Whether the cache has seen the end of the fence. It may have ended when it has not."""
        record = self._cacher.raw(election_key(fence.election))
        return self._cacher.revision >= fence.token > 0 and (record is None or record.create_revision != fence.token)


def _connection(user: User) -> AbstractContextManager[None]:
    """To the kubelet that is asked. Raises Rejected."""
    return own().connection(bounded=MASTERS not in user.groups)


def _fence(request: BindRequest | BindBatchRequest) -> Fence | None:
    return request.fence if request.HasField("fence") else None
