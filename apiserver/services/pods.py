"""Pods: the standard verbs, binding, eviction, and the streams of their containers.

The kubelet of the pod's node serves logs, exec, attach and port-forward. The API server forwards its responses:

    client <--> Pods.Logs, .Exec, .Attach, .PortForward <--> Kubelets (apiserver.services.kubelets) <--> the node's kubelet

The API server does not buffer these streams: a slow client slows the kubelet down, and the call to the kubelet ends when the
client disconnects.

A batch of evictions changes each budget once. See apiserver.registry.eviction for the rules.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pinnace.api.core_v1_pb2 import Binding, Node, Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.pods_pb2 import (
    AttachRequest,
    BindBatchRequest,
    BindRequest,
    EvictBatchRequest,
    EvictRequest,
    ExecRequest,
    ExecStart,
    Fence,
    LogOptions,
    LogsRequest,
    PortForwardRequest,
    PortForwardStart,
    UpdatePodRequest,
)
from pinnace.api.policy_v1_pb2 import Eviction, PodDisruptionBudget
from pinnace.api.resources import (
    DEFAULT_NAMESPACE,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICE_ACCOUNTS,
    election_key,
)
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import BatchItem, BatchResponse, PatchRequest
from pinnace.api.wellknown import DEFAULT_ACCOUNT
from pinnace.apiserver import errors
from pinnace.apiserver.auth.audit import AuditEvent, AuditSink
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.permissions import EXEC, PORT_FORWARD, ActionTarget, ResourceAction
from pinnace.apiserver.cacher.cacher import Cacher, ResourceCache
from pinnace.apiserver.cacher.store import CacheEntry, SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import current_seat, release_current_seat
from pinnace.apiserver.registry import binding
from pinnace.apiserver.registry.admission import CONNECT, CREATE, WriteAttributes, WriteRequest
from pinnace.apiserver.registry.deletion import delete_step
from pinnace.apiserver.registry.eviction import (
    ParsedBudget,
    delete_pod_mutation,
    eviction_refused,
    find_budget,
    needs_disruption,
    needs_disruption_budget,
    parse_budget,
    take_disruptions_mutation,
)
from pinnace.apiserver.registry.fencing import FenceVerifier
from pinnace.apiserver.registry.mutation import EPHEMERAL, Mutation, ObjectVersion, Outcome
from pinnace.apiserver.registry.store import Store, require_single_outcome
from pinnace.apiserver.services import kubelets, methods, metrics
from pinnace.apiserver.services.kubelets import KubeletEndpoint, Kubelets, kubelet_endpoint_of
from pinnace.apiserver.services.methods import Context, read_timeout
from pinnace.apiserver.services.resource import (
    NamedObject,
    ResourceService,
    batch_response,
    is_batch_dry_run,
    object_as_seen_by,
)
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

ACCOUNT_TIMEOUT, ACCOUNT_INTERVAL = 1.5, 0.02
"""Maximum seconds for which a create waits for the default service account of its namespace, and between two looks."""
_LOST = (Code.ABORTED, Code.NOT_FOUND)
"""Status codes of a bind that is too late for its pod."""
FIRST_REQUEST_TIMEOUT = 10.0
"""Seconds to wait for the first request of a stream."""
MAX_PORT = 65535
S = TypeVar("S", ExecRequest, PortForwardRequest)


class DefaultAccounts:
    """The default service accounts of new namespaces, which a controller creates."""

    def __init__(self, cacher: Cacher, clock: Clock) -> None:
        self._accounts = cacher.cache_of(SERVICE_ACCOUNTS)
        self._namespaces = cacher.cache_of(NAMESPACES)
        self._clock = clock

    async def wait_for_account(self, namespace: str) -> None:
        """Return when the account exists, or after ACCOUNT_TIMEOUT. As in Kubernetes, a pod of a new namespace waits."""
        key = SERVICE_ACCOUNTS.key(namespace, DEFAULT_ACCOUNT)
        if self._accounts.get(key) is not None:
            return
        deadline = self._clock.monotonic() + ACCOUNT_TIMEOUT
        while self._accounts.get(key) is None and self._clock.monotonic() < deadline:
            entry = self._namespaces.get(NAMESPACES.key("", namespace))
            if entry is not None and entry.obj.metadata.HasField("deletionTimestamp"):
                return
            await self._clock.sleep(ACCOUNT_INTERVAL)


def uses_default_account(pod: Pod) -> bool:
    return (pod.spec.serviceAccountName or pod.spec.serviceAccount or DEFAULT_ACCOUNT) == DEFAULT_ACCOUNT


class PodService(ResourceService[Pod]):
    def __init__(
        self,
        store: Store[Pod],
        budgets: Store[PodDisruptionBudget],
        cacher: Cacher,
        audit: AuditSink,
        authorizer: Authorizer,
        clock: Clock,
        streaming: ContainerStreams,
        fences: FenceVerifier,
        *,
        requires_accounts: bool = False,
    ) -> None:
        """`requires_accounts`: the service accounts of new pods must exist."""
        super().__init__(store, cacher, audit, authorizer)
        self._accounts = DefaultAccounts(cacher, clock) if requires_accounts else None
        self._evictions = EvictionHandler(store, budgets, cacher, clock)
        self._clock = clock
        self._streaming = streaming
        self._fences = fences

    async def _create(self, objs: Sequence[Pod], request: Any, context: Context) -> Sequence[Outcome]:
        if self._accounts is not None:
            for namespace in {obj.metadata.namespace or DEFAULT_NAMESPACE for obj in objs if uses_default_account(obj)}:
                await self._accounts.wait_for_account(namespace)
        return await super()._create(objs, request, context)

    async def _apply(self, request: PatchRequest, by: WriteRequest) -> Sequence[Outcome]:
        if self._accounts is not None:
            await self._accounts.wait_for_account(request.namespace or DEFAULT_NAMESPACE)
        return await super()._apply(request, by)

    async def bind(self, request: BindRequest, context: Context) -> BatchItem:
        stored = require_single_outcome(await self._bind([request.binding], _fence_of(request), context.user))
        return BatchItem(name=stored.name, uid=stored.uid, resourceVersion=str(stored.revision))

    async def bind_batch(self, request: BindBatchRequest, context: Context) -> BatchResponse:
        return batch_response(await self._bind(request.items, _fence_of(request), context.user))

    async def update_resize(self, request: UpdatePodRequest, context: Context) -> bytes:
        by = self.write_request(request, context)
        updating = self.store.update_resize([request.object], by)
        outcomes = await self.audit_write(by, "update", "resize", [request.object.metadata], updating)
        return object_as_seen_by(outcomes, context.user)

    async def update_ephemeral_containers(self, request: UpdatePodRequest, context: Context) -> bytes:
        by = self.write_request(request, context)
        updating = self.store.update_ephemeral_containers([request.object], by)
        outcomes = await self.audit_write(by, "update", EPHEMERAL, [request.object.metadata], updating)
        return object_as_seen_by(outcomes, context.user)

    async def evict(self, request: EvictRequest, context: Context) -> BatchItem:
        stored = require_single_outcome(await self._evict([request.eviction], context))
        return BatchItem(name=stored.name, uid=stored.uid, resourceVersion=str(stored.revision))

    async def evict_batch(self, request: EvictBatchRequest, context: Context) -> BatchResponse:
        return batch_response(await self._evict(request.items, context))

    async def _evict(self, items: Sequence[Eviction], context: Context) -> Sequence[Outcome]:
        by = WriteRequest(context.user, is_batch_dry_run(item.deleteOptions for item in items))
        await self._cacher.wait_until_fresh(read_timeout(context))

        def request_of(item: Eviction) -> WriteAttributes:
            return WriteAttributes(by, CREATE, PODS, item, None, "eviction", ("policy/v1", "Eviction"))

        evicting = self.store.write_reviewed(
            items, request_of, lambda reviewed: self._evictions.evict(reviewed, dry_run=by.dry_run)
        )
        return await self.audit_write(by, "create", "eviction", (item.metadata for item in items), evicting)

    async def logs(self, request: LogsRequest, context: Context) -> AsyncIterator[bytes]:
        await self._wait_for_version("", context)
        with _count_connection(context.user):
            async with aclosing(self._streaming.logs(request)) as responses:
                async for response in responses:
                    yield response

    async def exec(self, requests: AsyncIterator[ExecRequest], context: Context) -> AsyncIterator[bytes]:
        first = await receive_start_request(requests)
        await self._authorize(EXEC, first.start, context)
        start = first.start
        options: dict[str, Any] = {"stdin": start.stdin, "stdout": True, "stderr": not start.tty, "tty": start.tty}
        options |= {"container": start.container, "command": list(start.command)}
        await self._review_connect(start, "exec", "PodExecOptions", options, context)
        with _count_connection(context.user):
            async with aclosing(self._streaming.exec(first, requests)) as responses:
                async for response in responses:
                    yield response

    async def attach(self, request: AttachRequest, context: Context) -> AsyncIterator[bytes]:
        await self._wait_for_version("", context)
        options = {"stdout": request.stdout, "stderr": request.stderr, "container": request.container}
        await self._review_connect(request, "attach", "PodAttachOptions", options, context)
        with _count_connection(context.user):
            async with aclosing(self._streaming.attach(request)) as responses:
                async for response in responses:
                    yield response

    async def port_forward(self, requests: AsyncIterator[PortForwardRequest], context: Context) -> AsyncIterator[bytes]:
        first = await receive_start_request(requests)
        await self._authorize(PORT_FORWARD, first.start, context)
        options = {"ports": [first.start.port]}
        await self._review_connect(first.start, "portforward", "PodPortForwardOptions", options, context)
        with _count_connection(context.user):
            async with aclosing(self._streaming.port_forward(first, requests)) as responses:
                async for response in responses:
                    yield response

    async def _authorize(self, action: ResourceAction, start: ExecStart | PortForwardStart, context: Context) -> None:
        """Check the permission for a stream whose first request names the pod, and audit it. Raises Rejected."""
        target = ActionTarget(start.namespace or DEFAULT_NAMESPACE, start.name)
        methods.current_authorization().require_access(action, (target,))
        await self._authorizer.authorize(context.user, action, lambda: (target,))
        self._audit.record(context.user, (AuditEvent(action, target.namespace, target.name),))
        await self._wait_for_version("", context)
        release_current_seat()

    async def _review_connect(
        self, named: NamedObject, subresource: str, kind: str, options: Mapping[str, Any], context: Context
    ) -> None:
        """Let webhooks and policies review a connection. `options`: the JSON form of its options. Raises Rejected."""
        by = WriteRequest(context.user)
        if self.store.reviewers.has_reviewers(by, CONNECT, PODS, subresource):
            form = {"kind": kind, "apiVersion": "v1"} | {name: value for name, value in options.items() if value}
            namespace = named.namespace or DEFAULT_NAMESPACE
            await self.store.review_request(
                WriteAttributes(by, CONNECT, PODS, form, None, subresource, ("v1", kind), named.name, namespace)
            )

    async def _bind(self, items: Sequence[Binding], fence: Fence | None, user: User) -> Sequence[Outcome]:
        by = WriteRequest(user)

        def request_of(item: Binding) -> WriteAttributes:
            return WriteAttributes(by, CREATE, PODS, item, None, "binding", ("v1", "Binding"))

        writing = self.store.write_reviewed(items, request_of, lambda reviewed: self._write_bindings(reviewed, fence, user))
        return await self.audit_write(by, "create", "binding", (item.metadata for item in items), writing)

    async def _write_bindings(self, items: Sequence[Binding], fence: Fence | None, user: User) -> Sequence[Outcome]:
        """Write the bindings. A caller that does not lead receives Fenced even if the pod alone would be a reason for a
        refusal, because the leader may have bound the pod."""
        term = await self._fences.verify(fence, user) if fence is not None else None
        if fence is not None and term is None:
            refusal = errors.fenced_term(fence.election, fence.token)
            outcomes: Sequence[Outcome] = [binding.malformed_binding_refusal(item) or refusal for item in items]
        else:
            outcomes = await self.store.run_mutations(binding.build_bind_mutations(items, term, self._clock.time()))
        if fence is not None and term is not None and self._is_deposed(fence):
            refusal = errors.fenced_term(fence.election, fence.token)
            outcomes = [refusal if isinstance(outcome, Refusal) and outcome.code in _LOST else outcome for outcome in outcomes]
        metrics.FENCED.inc(sum(isinstance(outcome, Refusal) and outcome.reason == "Fenced" for outcome in outcomes))
        return outcomes

    def _is_deposed(self, fence: Fence) -> bool:
        """Return whether the cache shows that the fence has ended. The fence may have ended although the cache does not show
        it."""
        record = self._cacher.raw_key(election_key(fence.election))
        return self._cacher.revision >= fence.token > 0 and (record is None or record.create_revision != fence.token)


def _count_connection(user: User) -> AbstractContextManager[None]:
    """Count a connection to a kubelet. Raises Rejected."""
    return current_seat().count_connection(bounded=MASTERS not in user.groups)


def _fence_of(request: BindRequest | BindBatchRequest) -> Fence | None:
    return request.fence if request.HasField("fence") else None


class ContainerStreams:
    """The streams of containers. The caller must have checked permissions and refreshed the caches."""

    def __init__(self, pods: ResourceCache[Pod], nodes: ResourceCache[Node], kubelets: Kubelets) -> None:
        self._pods = pods
        self._nodes = nodes
        self._kubelets = kubelets

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        validate_log_options(request.options)
        pod = self._find_pod(request.namespace, request.name, request.uid)
        forwarded = LogsRequest(
            namespace=pod.metadata.namespace, name=request.name, options=request.options, uid=pod.metadata.uid
        )
        forwarded.options.container = kubelets.choose_container(pod, request.options.container)
        endpoint = self._find_endpoint(pod)
        forwarded.options.previous = kubelets.check_logs_readable(pod, forwarded.options.container, request.options.previous)
        async with aclosing(self._kubelets.logs(endpoint, forwarded)) as responses:
            async for response in responses:
                yield response

    async def exec(self, first: ExecRequest, requests: AsyncIterator[ExecRequest]) -> AsyncGenerator[bytes, None]:
        start = first.start
        if not start.command and not start.check:
            raise Rejected(errors.bad_request("start.command: Required value: exec needs a command"))
        if start.command and start.check:
            raise Rejected(errors.bad_request("start.command: Forbidden: a check starts no command"))
        pod = self._find_pod(start.namespace, start.name, start.uid)
        forwarded = ExecRequest(start=start)
        forwarded.start.uid, forwarded.start.container = pod.metadata.uid, kubelets.choose_container(pod, start.container)
        endpoint = self._find_endpoint(pod)
        kubelets.check_executable(pod, forwarded.start.container)

        async with aclosing(self._kubelets.exec(endpoint, _prepend_request(forwarded, requests))) as responses:
            async for response in responses:
                yield response

    async def attach(self, request: AttachRequest) -> AsyncGenerator[bytes, None]:
        pod = self._find_pod(request.namespace, request.name, request.uid)
        forwarded = AttachRequest()
        forwarded.CopyFrom(request)
        forwarded.uid, forwarded.container = pod.metadata.uid, kubelets.choose_container(pod, request.container)
        endpoint = self._find_endpoint(pod)
        kubelets.check_executable(pod, forwarded.container, "attach to")
        async with aclosing(self._kubelets.attach(endpoint, forwarded)) as responses:
            async for response in responses:
                yield response

    async def port_forward(
        self, first: PortForwardRequest, requests: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[bytes, None]:
        start = first.start
        if not 0 <= start.port <= MAX_PORT:
            raise Rejected(errors.bad_request(f"start.port: Invalid value: {start.port}: must be between 1 and {MAX_PORT}"))
        pod = self._find_pod(start.namespace, start.name, start.uid)
        forwarded = PortForwardRequest(start=start)
        forwarded.start.uid = pod.metadata.uid
        endpoint = self._find_endpoint(pod)
        kubelets.check_forwardable(pod)
        async with aclosing(self._kubelets.port_forward(endpoint, _prepend_request(forwarded, requests))) as responses:
            async for response in responses:
                yield response

    def _find_pod(self, namespace: str, name: str, uid: str) -> Pod:
        entry = self._pods.get(PODS.key(namespace or DEFAULT_NAMESPACE, name))
        if entry is None:
            raise Rejected(errors.not_found(PODS, name))
        if uid and uid != entry.obj.metadata.uid:
            raise Rejected(errors.uid_mismatch(PODS, name, uid, entry.obj.metadata.uid))
        return entry.obj

    def _find_endpoint(self, pod: Pod) -> KubeletEndpoint:
        """Return the endpoint of the pod's kubelet. Raises Rejected."""
        name = pod.spec.nodeName
        if not name:
            hint = f"`kubectl describe pod {pod.metadata.name}` shows the reason"
            raise Rejected(errors.bad_request(f"pod {pod.metadata.name} does not have a host assigned", hint))
        entry = self._nodes.get(NODES.key("", name))
        if entry is None:
            raise Rejected(errors.not_found(NODES, name))
        return kubelet_endpoint_of(entry.obj)


async def _prepend_request(first: S, requests: AsyncIterator[S]) -> AsyncIterator[S]:
    """Yield the first request, and the later ones without `start`."""
    yield first
    async for request in requests:
        if not request.HasField("start"):
            yield request


async def receive_start_request(requests: AsyncIterator[S]) -> S:
    """Return the first request, which must contain `start`. Raises Rejected."""
    try:
        async with asyncio.timeout(FIRST_REQUEST_TIMEOUT):
            first = await anext(requests, None)
    except TimeoutError:
        first = None
    if first is None or not first.HasField("start"):
        raise Rejected(errors.bad_request("start: Required value: the first request must contain it"))
    return first


def validate_log_options(options: LogOptions) -> None:
    """Validate the options. Raises Rejected."""
    for field, least in (("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)):
        if options.HasField(field) and getattr(options, field) < least:
            raise Rejected(errors.bad_request(f"options.{field}: must be greater than or equal to {least}"))
    if options.HasField("sinceSeconds") and options.HasField("sinceTime"):
        raise Rejected(errors.bad_request("options: at most one of sinceTime or sinceSeconds may be specified"))


class _ValidEviction(NamedTuple):
    """A valid eviction of a pod in the cache."""

    pod: Pod
    options: DeleteOptions
    budget: PodDisruptionBudget | None
    """The budget that must allow the eviction; None if no budget is needed."""
    spared: bool
    """Whether the eviction needs no budget because of the pod's status."""


@dataclass(frozen=True, slots=True)
class _BudgetRequest:
    """The evictions that need one budget."""

    budget: PodDisruptionBudget
    names: dict[str, None]
    """The names of the pods, in the order of the evictions."""
    granted: set[str]


class _BudgetFinder:
    """Finds the budget of a pod, once per version of the pod, even if several evictions name it."""

    def __init__(self, protections: Mapping[str, Sequence[ParsedBudget]]) -> None:
        """`protections`: all budgets by namespace."""
        self._protections = protections
        self._found: dict[tuple[str, int], PodDisruptionBudget | Refusal | None] = {}

    def budget_of(self, entry: CacheEntry[Pod]) -> PodDisruptionBudget | None:
        """Return the budget of the pod. Raises Rejected."""
        version = entry.key, entry.mod_revision
        if version not in self._found:
            try:
                self._found[version] = find_budget(entry.obj, self._protections.get(entry.obj.metadata.namespace, ()))
            except Rejected as rejected:
                self._found[version] = rejected.refusal
        disruption_budget = self._found[version]
        if isinstance(disruption_budget, Refusal):
            raise Rejected(disruption_budget)
        return disruption_budget


class EvictionHandler:
    def __init__(self, pods: Store[Pod], budgets: Store[PodDisruptionBudget], cacher: Cacher, clock: Clock) -> None:
        self._pods = pods
        self._budgets = budgets
        self._cached_pods = cacher.cache_of(PODS)
        self._cached_budgets = cacher.cache_of(POD_DISRUPTION_BUDGETS)
        self._clock = clock

    async def evict(self, items: Sequence[Eviction], *, dry_run: bool) -> list[Outcome]:
        """Evict pods and return the outcome of each, in order. The caller must have refreshed the caches."""
        now = self._clock.time()
        finder = _BudgetFinder(await self._budgets_in_namespaces({item.metadata.namespace for item in items}))
        evictions = await apply_in_slices(lambda item: self._validate_eviction(item, finder, now), items, self._clock)
        refusals = await self._take_disruptions(
            [eviction for eviction in evictions if isinstance(eviction, _ValidEviction)], now, dry_run
        )
        deletions = [
            eviction if isinstance(eviction, Refusal) else self._build_deletion(eviction, refusals, now)
            for eviction in evictions
        ]
        return await self._pods.run_mutations(deletions, dry_run=dry_run)

    async def _budgets_in_namespaces(self, namespaces: Iterable[str]) -> Mapping[str, Sequence[ParsedBudget]]:
        selections = [
            SelectionPredicate.parse(POD_DISRUPTION_BUDGETS, namespace, "", "") for namespace in namespaces if namespace
        ]
        budgets = [entry.obj for selection in selections for entry in self._cached_budgets.select(selection)]
        protections = defaultdict[str, list[ParsedBudget]](list)
        for result in await apply_in_slices(parse_budget, budgets, self._clock):
            protections[result.budget.metadata.namespace].append(result)
        return protections

    def _validate_eviction(self, item: Eviction, finder: _BudgetFinder, now: float) -> _ValidEviction | Refusal:
        """Validate an eviction, so that an eviction whose delete would be refused does not change a budget."""
        name, namespace = item.metadata.name, item.metadata.namespace
        if not name or not namespace:
            return errors.bad_request(
                "metadata.namespace, metadata.name: Required value: an eviction needs the name of its pod"
            )
        entry = self._cached_pods.get(PODS.key(namespace, name))
        if entry is None:
            return errors.not_found(PODS, name)
        try:
            version = ObjectVersion(entry.obj, entry.mod_revision, entry.value)
            delete_step(self._pods.strategy, name, item.deleteOptions, version, now)
            budget = finder.budget_of(entry) if needs_disruption_budget(entry.obj) else None
        except Rejected as rejected:
            return rejected.refusal
        forwarded = budget if budget is not None and needs_disruption(entry.obj, budget) else None
        spared = entry.obj.status.phase == "Pending" or budget is not forwarded
        return _ValidEviction(entry.obj, item.deleteOptions, forwarded, spared)

    async def _take_disruptions(self, evictions: Iterable[_ValidEviction], now: float, dry_run: bool) -> dict[str, Refusal]:
        """Take disruptions and return the refusals by the keys of the pods."""
        budget_requests: dict[str, _BudgetRequest] = {}
        for pod, _, budget, _ in evictions:
            if budget is not None:
                budget_request = budget_requests.setdefault(
                    POD_DISRUPTION_BUDGETS.key_of(budget), _BudgetRequest(budget, {}, set())
                )
                budget_request.names[pod.metadata.name] = None
        mutations = [
            take_disruptions_mutation(item.budget, list(item.names), item.granted, now) for item in budget_requests.values()
        ]
        outcomes = await self._budgets.run_mutations(mutations, dry_run=dry_run)
        refusals: dict[str, Refusal] = {}
        for each, outcome in zip(budget_requests.values(), outcomes, strict=True):
            refusal = outcome if isinstance(outcome, Refusal) else eviction_refused(each.budget)
            left = each.names if isinstance(outcome, Refusal) else (name for name in each.names if name not in each.granted)
            refusals.update((PODS.key(each.budget.metadata.namespace, name), refusal) for name in left)
        return refusals

    def _build_deletion(self, eviction: _ValidEviction, refusals: Mapping[str, Refusal], now: float) -> Mutation[Pod] | Refusal:
        refusal = refusals.get(PODS.key_of(eviction.pod)) if eviction.budget is not None else None
        return refusal or delete_pod_mutation(
            self._pods.strategy, eviction.pod, eviction.options, spared=eviction.spared, now=now
        )
