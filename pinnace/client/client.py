"""The whole API as one client: typed access to resources, elections, authorization, and usage of nodes and pods."""

from collections.abc import Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message

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
    GetElectionRequest,
    ListElectionsRequest,
    ListElectionsResponse,
    Term,
    TransferElectionRequest,
    TransferElectionResponse,
)
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
from pinnace.api.tables_pb2 import ListTableRequest, Table
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.client.channel import Caller, Duplex, Guarded, PresentFence, Stream
from pinnace.client.resource import EXACT, Outcomes, ResourceClient

L = TypeVar("L", NodeMetricsList, PodMetricsList)

PAGE = 1000


class UsageClient:
    """Lists have all pages, and the warnings of all of them, each once."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def nodes(self, *, labels: str = "", fields: str = "") -> NodeMetricsList:
        return await self._list("NodeMetrics", NodeMetricsList, "", labels, fields)

    async def pods(self, namespace: str = "", *, labels: str = "", fields: str = "") -> PodMetricsList:
        """Without a namespace, of all."""
        return await self._list("PodMetrics", PodMetricsList, namespace, labels, fields)

    async def _list(self, service: str, response: type[L], namespace: str, labels: str, fields: str) -> L:
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=PAGE)
        request, found, warnings = ListRequest(namespace=namespace, options=options), response(), dict[str, None]()
        while True:
            page = await self._connection.call(f"/pinnace.v1.{service}/List", request, response)
            found.items.extend(page.items)
            warnings.update(dict.fromkeys(page.warnings))
            token = getattr(page.metadata, "continue")
            if not token:
                found.warnings.extend(warnings)
                return found
            setattr(request.options, "continue", token)


T = TypeVar("T", bound=Object)
M = TypeVar("M", bound=Message)

TABLE_PAGE = 500


class TableClient:
    """Lists as tables that the server renders. `at`: the revision to read, as for a ResourceClient."""

    def __init__(self, connection: Caller, at: int = 0) -> None:
        self._connection = connection
        self._at = at

    async def list(
        self, resource: Resource[Any], namespace: str = "", *, labels: str = "", fields: str = "", metadata: bool = False
    ) -> Table:
        """All pages of one snapshot; without a namespace, of all namespaces. `metadata`: include the metadata of each
        object."""
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=TABLE_PAGE)
        if self._at:
            options.resourceVersion, options.resourceVersionMatch = str(self._at), EXACT
        included = ListTableRequest.METADATA if metadata else ListTableRequest.NONE
        request = ListTableRequest(resource=resource.plural, namespace=namespace, options=options, includeObject=included)
        table = Table()
        while True:
            page = await self._connection.call("/pinnace.v1.Tables/List", request, Table)
            table.rows.extend(page.rows)
            token = getattr(page.metadata, "continue")
            if not token:
                table.columnDefinitions.extend(page.columnDefinitions)
                return table
            setattr(request.options, "continue", token)  # the token contains the revision
            request.options.resourceVersion = request.options.resourceVersionMatch = ""


class PodClient(ResourceClient[Pod]):
    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> Outcomes:
        """Binds at most 1,000 pods to nodes, each independently. With an invalid fence every item fails with Fenced."""
        return await self._batch("BindBatch", BindBatchRequest(items=bindings, fence=fence), retry=False)

    async def evict_batch(self, evictions: Sequence[Eviction]) -> Outcomes:
        """Evicts at most 1,000 pods. Pods whose disruption budgets do not allow it fail with Exhausted."""
        return await self._batch("EvictBatch", EvictBatchRequest(items=evictions), retry=False)

    async def logs(self, request: LogsRequest) -> Stream[LogsResponse]:
        """Streams the output of a container. Refusals of the server are raised by `read`."""
        return await self._connection.stream(self._method("Logs"), request, LogsResponse)

    async def exec(self) -> Duplex[ExecRequest, ExecResponse]:
        """Runs a command in a container. The first request names both."""
        return await self._connection.duplex(self._method("Exec"), ExecRequest, ExecResponse)


class EventClient(ResourceClient[Event]):
    async def record(self, events: Sequence[Event]) -> Outcomes:
        """Records at most 1,000 events. Events that exist already are merged, so a lost answer is an OutcomeUnknown."""
        return await self._batch("Record", self.resource.request("Create", "BatchRequest")(items=events), retry=False)


class ElectionClient:
    """Reads elections. For candidates see election.py."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def get(self, name: str) -> Election:
        """The election with its leader. Raises NotFound if there is no leader."""
        return await self._connection.call("/pinnace.v1.Elections/Get", GetElectionRequest(name=name), Election)

    async def list(self) -> list[Election]:
        """All elections that have a leader."""
        method = "/pinnace.v1.Elections/List"
        return list((await self._connection.call(method, ListElectionsRequest(), ListElectionsResponse)).items)

    async def history(self, name: str) -> Sequence[Term]:
        """The latest terms of an election, oldest first. A term that lasts has no end. Empty if no term is known."""
        method = "/pinnace.v1.Elections/History"
        return list((await self._connection.call(method, ElectionHistoryRequest(name=name), ElectionHistoryResponse)).items)

    async def transfer(self, name: str, to: str = "") -> TransferElectionResponse:
        """Transfers leadership to another candidate: `to`, or any. The response names the new leader. Raises NotFound if `to`
        is not a candidate or there is no leader; OutcomeUnknown."""
        request = TransferElectionRequest(name=name, to=to)
        return await self._connection.call("/pinnace.v1.Elections/Transfer", request, TransferElectionResponse, retry=False)


class AuthorizationClient:
    """Identities and permissions."""

    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def who_am_i(self) -> UserInfo:
        """The user as which the server authenticates this client."""
        return await self._call("SelfSubjectReview", SelfSubjectReviewRequest(), UserInfo)

    async def can_i(self, attributes: ResourceAttributes) -> AccessReview:
        return await self._call("SelfSubjectAccessReview", SelfSubjectAccessReviewRequest(attributes=attributes), AccessReview)

    async def can(self, user: str, groups: Sequence[str], attributes: ResourceAttributes) -> AccessReview:
        """The permissions of another user. The caller needs a permission for this."""
        request = SubjectAccessReviewRequest(user=user, groups=groups, attributes=attributes)
        return await self._call("SubjectAccessReview", request, AccessReview)

    async def rules(self, namespace: str) -> Sequence[PolicyRule]:
        """All rules that apply to this client in the namespace."""
        request = SelfSubjectRulesReviewRequest(namespace=namespace)
        return (await self._call("SelfSubjectRulesReview", request, RulesReview)).rules

    async def _call(self, method: str, request: Message, response: type[M]) -> M:
        return await self._connection.call(f"/pinnace.v1.Authorization/{method}", request, response)


class Client:
    """The whole API over one connection. Its methods raise ApiError; see pinnace.client.resource for which calls may be
    repeated. `at`: resources are read at exactly that revision."""

    def __init__(self, connection: Caller, *, at: int = 0) -> None:
        self.connection = connection
        self._at = at
        self.pods = PodClient(connection, PODS, at)
        self.nodes: ResourceClient[Node] = ResourceClient(connection, NODES, at)
        self.namespaces: ResourceClient[Namespace] = ResourceClient(connection, NAMESPACES, at)
        self.events = EventClient(connection, EVENTS, at)
        self.priority_classes: ResourceClient[PriorityClass] = ResourceClient(connection, PRIORITY_CLASSES, at)
        self.leases: ResourceClient[Lease] = ResourceClient(connection, LEASES, at)
        self.tables = TableClient(connection, at)
        self.usage = UsageClient(connection)
        self.elections = ElectionClient(connection)
        self.authorization = AuthorizationClient(connection)

    def of(self, resource: Resource[T]) -> ResourceClient[T]:
        """The client of any resource."""
        return ResourceClient(self.connection, resource, self._at)

    def guarded(self, fence: PresentFence) -> "Client":
        """The same, in the name of a leader: see pinnace.client.channel."""
        return Client(Guarded(self.connection, fence), at=self._at)
