"""Typed clients for the whole API: resources, elections, authorization, resource usage, and the keys of the
store (read-only and without secrets).
"""

from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from pinnace.api.authentication_v1_pb2 import TokenRequest
from pinnace.api.authorization_pb2 import (
    AccessReview,
    ResourceAttributes,
    RulesReview,
    SelfSubjectAccessReviewRequest,
    SelfSubjectReviewRequest,
    SelfSubjectRulesReviewRequest,
    SubjectAccessReviewRequest,
    UserInfo,
)
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Binding, Event, Namespace, Node, Pod
from pinnace.api.elections_pb2 import (
    Election,
    ElectionHistoryRequest,
    ElectionHistoryResponse,
    ElectionWatchResponse,
    GetElectionRequest,
    ListElectionsRequest,
    ListElectionsResponse,
    Term,
    TransferElectionRequest,
    TransferElectionResponse,
    WatchElectionsRequest,
)
from pinnace.api.keys_pb2 import KeyVersion, ListKeysRequest, ListKeysResponse, WatchKeysRequest, WatchKeysResponse
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.metrics_v1beta1_pb2 import NodeMetricsList, PodMetricsList
from pinnace.api.pods_pb2 import (
    BindBatchRequest,
    EvictBatchRequest,
    ExecRequest,
    ExecResponse,
    Fence,
    LogsRequest,
    LogsResponse,
)
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.rbac_v1_pb2 import PolicyRule
from pinnace.api.resources import EVENTS, LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Object, Resource
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.tokens_pb2 import CreateTokenRequest
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.client.channel import Caller, Duplex, FencedCaller, PresentFence, Stream
from pinnace.client.resource import BatchOutcomes, ResourceClient

LIST_TIMEOUT = 10.0
"""Seconds for one page of keys."""
L = TypeVar("L", NodeMetricsList, PodMetricsList)
PAGE = 1000
T = TypeVar("T", bound=Object)
M = TypeVar("M", bound=Message)


class KeysClient:
    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def list(self, request: ListKeysRequest) -> ListKeysResponse:
        """Return one page. Raises ApiError."""
        method = "/pinnace.v1.Keys/List"
        keys_response: ListKeysResponse = await self._connection.call(
            method, request, ListKeysResponse, timeout=LIST_TIMEOUT, retry=True
        )
        return keys_response

    async def pages(
        self, prefix: str, revision: int = 0, *, keys_only: bool = False, leases: bool = False
    ) -> AsyncGenerator[ListKeysResponse, None]:
        """Yield all keys with a prefix at one revision (0: the current one), in order. Raises ApiError."""
        after, more = "", True
        while more:
            page = await self.list(
                ListKeysRequest(prefix=prefix, after=after, revision=revision, keys_only=keys_only, leases=leases)
            )
            yield page
            revision, more = page.revision, page.more and bool(page.items)
            after = page.items[-1].key if page.items else ""

    async def get(self, key: str, revision: int = 0, *, keys_only: bool = False, leases: bool = False) -> KeyVersion | None:
        """Return a key at a revision (0: the current one), or None if it does not exist. Raises ApiError."""
        request = ListKeysRequest(prefix=key, limit=1, revision=revision, keys_only=keys_only, leases=leases)
        page = await self.list(request)  # the key sorts before all longer keys that begin with it
        return next((item for item in page.items if item.key == key), None)

    async def watch(
        self, prefixes: Sequence[str], start_revision: int, silence: float, *, keys_only: bool = False
    ) -> AsyncGenerator[WatchKeysResponse, None]:
        """Yield the changes from a revision on (0: from the next one), until the server ends the stream. Raises ApiError:
        Expired if the start was compacted, Unavailable after `silence` seconds without a response."""
        request = WatchKeysRequest(prefixes=prefixes, start_revision=start_revision, keys_only=keys_only)
        stream = await self._connection.stream("/pinnace.v1.Keys/Watch", request, WatchKeysResponse)
        try:
            while (response := await stream.read(silence)) is not None:
                yield response
        finally:
            stream.cancel()


class UsageClient:
    """Reads the resource usage of nodes and pods. Lists contain all pages; duplicate warnings are removed."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def nodes(self, *, labels: str = "", fields: str = "") -> NodeMetricsList:
        return await self._list("NodeMetrics", NodeMetricsList, "", labels, fields)

    async def pods(self, namespace: str = "", *, labels: str = "", fields: str = "") -> PodMetricsList:
        """List the usage of pods in a namespace, or in all namespaces if `namespace` is empty."""
        return await self._list("PodMetrics", PodMetricsList, namespace, labels, fields)

    async def _list(self, service: str, response: type[L], namespace: str, labels: str, fields: str) -> L:
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=PAGE)
        request, metrics_list, warnings = ListRequest(namespace=namespace, options=options), response(), dict[str, None]()
        while True:
            page = await self._connection.call(f"/pinnace.v1.{service}/List", request, response)
            metrics_list.items.extend(page.items)
            warnings.update(dict.fromkeys(page.warnings))
            token = getattr(page.metadata, "continue")
            if not token:
                metrics_list.warnings.extend(warnings)
                return metrics_list
            setattr(request.options, "continue", token)


class PodClient(ResourceClient[Pod]):
    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> BatchOutcomes:
        """Bind at most 1,000 pods to nodes. Each item succeeds or fails separately. An invalid fence fails all items with
        Fenced."""
        return await self._batch("BindBatch", BindBatchRequest(items=bindings, fence=fence), retry=False)

    async def evict_batch(self, evictions: Sequence[Eviction]) -> BatchOutcomes:
        """Evict at most 1,000 pods. Pods that are protected by a disruption budget fail with Exhausted."""
        return await self._batch("EvictBatch", EvictBatchRequest(items=evictions), retry=False)

    async def logs(self, request: LogsRequest) -> Stream[LogsResponse]:
        """Stream the logs of a container. `read` raises the server's errors."""
        return await self._connection.stream(self._method("Logs"), request, LogsResponse)

    async def exec(self) -> Duplex[ExecRequest, ExecResponse]:
        """Open a stream that runs a command in a container. The first request names the container and the command."""
        return await self._connection.duplex(self._method("Exec"), ExecRequest, ExecResponse)


class EventClient(ResourceClient[Event]):
    async def record(self, events: Sequence[Event]) -> BatchOutcomes:
        """Record at most 1,000 events. Existing events are merged, so a call whose response is lost raises OutcomeUnknown."""
        return await self._batch("Record", self.resource.request("Create", "BatchRequest")(items=events), retry=False)


class ElectionClient:
    """Reads elections. For candidates see election.py."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def get(self, name: str) -> Election:
        """Return the election with its leader. Raises NotFound if there is no leader."""
        return await self._connection.call("/pinnace.v1.Elections/Get", GetElectionRequest(name=name), Election)

    async def list(self) -> list[Election]:
        """Return all elections that have a leader."""
        method = "/pinnace.v1.Elections/List"
        return list((await self._connection.call(method, ListElectionsRequest(), ListElectionsResponse)).items)

    async def list_elections(self) -> ListElectionsResponse:
        """Return the states of all elections, also of those without a leader, with their terms and the revision."""
        method = "/pinnace.v1.Elections/List"
        return await self._connection.call(method, ListElectionsRequest(history=True), ListElectionsResponse)

    async def watch(self, name: str = "") -> Stream[ElectionWatchResponse]:
        """Watch an election, or all elections. The first response has their states, the others have each change."""
        method = "/pinnace.v1.Elections/Watch"
        return await self._connection.stream(method, WatchElectionsRequest(name=name), ElectionWatchResponse)

    async def list_terms(self, name: str) -> Sequence[Term]:
        """Return the latest terms of an election, oldest first. The current term has no end time. The list is empty if no term
        is recorded."""
        method = "/pinnace.v1.Elections/History"
        return list((await self._connection.call(method, ElectionHistoryRequest(name=name), ElectionHistoryResponse)).items)

    async def transfer_leadership(self, name: str, to: str = "") -> TransferElectionResponse:
        """Transfer leadership to the candidate `to`, or to any candidate if `to` is empty. The response names the new leader.
        Raises NotFound if `to` is not a candidate or there is no leader, and OutcomeUnknown if the response is lost."""
        request = TransferElectionRequest(name=name, to=to)
        return await self._connection.call("/pinnace.v1.Elections/Transfer", request, TransferElectionResponse, retry=False)


class AuthorizationClient:
    """Identities and permissions."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def who_am_i(self) -> UserInfo:
        """Return the user that the server authenticates for this client."""
        return await self._call("SelfSubjectReview", SelfSubjectReviewRequest(), UserInfo)

    async def can_i(self, attributes: ResourceAttributes) -> AccessReview:
        return await self._call("SelfSubjectAccessReview", SelfSubjectAccessReviewRequest(attributes=attributes), AccessReview)

    async def check_access(self, user: str, groups: Sequence[str], attributes: ResourceAttributes) -> AccessReview:
        """Check the permissions of another user. The caller needs permission to create SubjectAccessReviews."""
        request = SubjectAccessReviewRequest(user=user, groups=groups, attributes=attributes)
        return await self._call("SubjectAccessReview", request, AccessReview)

    async def list_rules(self, namespace: str) -> Sequence[PolicyRule]:
        """Return all rules that apply to this client in the namespace."""
        request = SelfSubjectRulesReviewRequest(namespace=namespace)
        return (await self._call("SelfSubjectRulesReview", request, RulesReview)).rules

    async def _call(self, method: str, request: Message, response: type[M]) -> M:
        return await self._connection.call(f"/pinnace.v1.Authorization/{method}", request, response)


class Client:
    """Clients for all resources and services over one connection. Methods raise ApiError. pinnace.client.resource lists the
    calls that may be retried. `at`: the revision at which resources are read; 0 reads the latest."""

    def __init__(self, connection: Caller, *, at: int = 0) -> None:
        self.connection = connection
        self._at = at
        self.pods = PodClient(connection, PODS, at)
        self.nodes: ResourceClient[Node] = ResourceClient(connection, NODES, at)
        self.namespaces: ResourceClient[Namespace] = ResourceClient(connection, NAMESPACES, at)
        self.events = EventClient(connection, EVENTS, at)
        self.priority_classes: ResourceClient[PriorityClass] = ResourceClient(connection, PRIORITY_CLASSES, at)
        self.leases: ResourceClient[Lease] = ResourceClient(connection, LEASES, at)
        self.usage = UsageClient(connection)
        self.elections = ElectionClient(connection)
        self.keys = KeysClient(connection)
        self.authorization = AuthorizationClient(connection)

    async def request_token(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        """Return the request with a token of a service account. Raises ApiError."""
        message = CreateTokenRequest(object=request, namespace=namespace, name=account)
        return await self.connection.call("/pinnace.v1.Tokens/Create", message, TokenRequest)

    def of(self, resource: Resource[T]) -> ResourceClient[T]:
        """Return the client of a resource."""
        return ResourceClient(self.connection, resource, self._at)

    def with_fence(self, fence: PresentFence) -> "Client":
        """Return a client whose calls include the leader's fence; see Guarded in channel.py."""
        return Client(FencedCaller(self.connection, fence), at=self._at)
