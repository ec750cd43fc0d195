"""Which level a call is of, and how wide it is."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from pinnace.api import elections_pb2, events_pb2, nodes_pb2, pods_pb2, tables_pb2, version_pb2
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.pods_pb2 import CreatePodBatchRequest
from pinnace.api.resources import NODES, PODS
from pinnace.api.tables_pb2 import ListTableRequest
from pinnace.api.verbs_pb2 import DeleteCollectionRequest, ListRequest, PatchRequest
from pinnace.apiserver.auth.audit import NoAudit
from pinnace.apiserver.auth.authentication import MASTERS, NODES_GROUP, UNSECURED, User
from pinnace.apiserver.auth.permissions import permission_of
from pinnace.apiserver.flow.levels import MAX_PATCH_COST, HasStoredCounts, cost_function, level_classifier
from pinnace.apiserver.services.resource import ResourceService, TablesService

SERVICES = {
    service.name: service
    for messages in (elections_pb2, events_pb2, nodes_pb2, pods_pb2, tables_pb2, version_pb2, health_pb2, reflection_pb2)
    for service in messages.DESCRIPTOR.services_by_name.values()
}
ADMIN = User("kubernetes-admin", (MASTERS,))
SCHEDULER = User("system:kube-scheduler")
FLEET = User("system:node:edge", (NODES_GROUP,))
EVE = User("eve")


@pytest.mark.parametrize(
    ("user", "service", "method", "level"),
    [
        (ADMIN, "Elections", "Campaign", None),
        (UNSECURED, "Nodes", "Heartbeat", None),
        (SCHEDULER, "Elections", "Campaign", "leader-election"),
        (EVE, "Elections", "Get", "leader-election"),
        (ADMIN, "Elections", "Transfer", "leader-election"),
        (FLEET, "Nodes", "Heartbeat", "node-high"),
        (FLEET, "Nodes", "UpdateStatusBatch", "node-high"),
        (FLEET, "Pods", "UpdateStatusBatch", "node-high"),
        (FLEET, "Pods", "DeleteBatch", "system"),
        (FLEET, "Events", "Record", "system"),
        (SCHEDULER, "Pods", "BindBatch", "system"),
        (SCHEDULER, "Pods", "UpdateStatus", "system"),
        (ADMIN, "Pods", "Create", "workload"),
        (EVE, "Pods", "Watch", "workload"),
        (UNSECURED, "Pods", "Get", "workload"),
        (ADMIN, "Version", "Get", "catch-all"),
        (SCHEDULER, "Health", "Check", "catch-all"),
        (ADMIN, "ServerReflection", "ServerReflectionInfo", "catch-all"),
        (FLEET, "ServerReflection", "ServerReflectionInfo", "catch-all"),
    ],
)
def test_levels(user: User, service: str, method: str, level: str | None) -> None:
    descriptor = SERVICES[service].methods_by_name[method]
    request = message_factory.GetMessageClass(descriptor.input_type)()
    (action, *_) = permission_of(descriptor).actions(request)
    assert level_classifier(action, pulse=descriptor.client_streaming)(user) == level


def test_batch_is_as_wide_as_its_work() -> None:
    width = cost_function(SERVICES["Pods"].methods_by_name["CreateBatch"])
    assert [width(batch_of(items)) for items in (0, 1, 20, 1000)] == [1, 1, 2, 51]


def test_list_is_as_wide_as_its_page() -> None:
    width = cost_function(SERVICES["Pods"].methods_by_name["List"])
    assert [width(page_of(limit)) for limit in (1, 100, 101, 500, 100_000, 0)] == [1, 1, 2, 5, 10, 10]
    assert [width(page_of(limit, **{"continue": "token"})) for limit in (1, 500, 0)] == [3, 15, 30]
    assert [width(page_of(limit, resourceVersion="7", resourceVersionMatch="Exact")) for limit in (1, 500, 0)] == [3, 15, 30]
    assert width(page_of(500, resourceVersion="7", resourceVersionMatch="NotOlderThan")) == 5


def test_table_is_wider_than_the_list_that_it_shows() -> None:
    width = cost_function(SERVICES["Tables"].methods_by_name["List"])
    tables = [ListTableRequest(options=page_of(limit, **more).options) for limit, more in ((1, {}), (500, {"continue": "t"}))]
    assert [width(table) for table in tables] == [5, 35]


def test_list_is_no_wider_than_what_there_is() -> None:
    """Else the few namespaces of a cluster are as dear as a thousand pods."""
    assert issubclass(ResourceService, HasStoredCounts) and issubclass(TablesService, HasStoredCounts)
    there = {"": 1234, "few": 7, "many": 250, "none": 0}
    lists, tables = (cost_function(SERVICES[name].methods_by_name["List"], Counts(there)) for name in ("Pods", "Tables"))
    assert [lists(ListRequest(namespace=namespace)) for namespace in there] == [10, 1, 3, 1]
    assert lists(ListRequest(namespace="many", options=ListOptions(limit=100))) == 1
    past = ListOptions(resourceVersion="7", resourceVersionMatch="Exact")
    assert lists(ListRequest(namespace="none", options=past)) == 30, "nobody knows how many there were"
    assert [tables(ListTableRequest(namespace=namespace)) for namespace in there] == [50, 5, 15, 5]
    deletes = cost_function(SERVICES["Pods"].methods_by_name["DeleteCollection"], Counts(there))
    assert [deletes(DeleteCollectionRequest(namespace=namespace)) for namespace in there] == [51, 1, 13, 1]


def test_limit_makes_no_list_slim_that_selects() -> None:
    """It is asked of every object whether it is meant."""
    there = {"": 1234, "many": 250}
    lists, deletes = (
        cost_function(SERVICES["Pods"].methods_by_name[name], Counts(there)) for name in ("List", "DeleteCollection")
    )
    for selector in ({"labelSelector": "app=none"}, {"fieldSelector": "spec.nodeName=none"}):
        options = ListOptions(limit=1, **selector)
        assert [lists(ListRequest(namespace=namespace, options=options)) for namespace in there] == [10, 3]
        assert [deletes(DeleteCollectionRequest(namespace=namespace, options=options)) for namespace in there] == [10, 3]
        tables = cost_function(SERVICES["Tables"].methods_by_name["List"], Counts(there))
        assert tables(ListTableRequest(options=options)) == 10 + 4, "what it prints is one"


def test_list_of_one_name_is_as_slim_as_a_get() -> None:
    cacher: Any = SimpleNamespace(cache_of=lambda resource: SimpleNamespace(count=lambda namespace: 250))
    authorizer: Any = None
    stores: list[Any] = [SimpleNamespace(resource=item) for item in (PODS, NODES)]
    pods, nodes = (ResourceService[Any](store, cacher, NoAudit(), authorizer) for store in stores)
    one, others = ListOptions(fieldSelector="metadata.name=a"), ListOptions(fieldSelector="metadata.name!=a")
    assert [pods.stored_count(ListRequest(namespace=name, options=one)) for name in ("default", "")] == [1, 250]
    assert nodes.stored_count(ListRequest(options=one)) == 1
    assert pods.stored_count(ListRequest(namespace="default", options=others)) == 250


def test_collection_is_deleted_at_the_width_of_a_batch() -> None:
    width = cost_function(SERVICES["Pods"].methods_by_name["DeleteCollection"])
    requests = [DeleteCollectionRequest(options=ListOptions(limit=limit)) for limit in (0, 20, 10**9, -1, -(2**60))]
    assert [width(request) for request in requests] == [51, 2, 51, 51, 51]


def test_patch_is_as_wide_as_the_object_that_it_changes() -> None:
    """However little it says."""
    sizes = {"none": 0, "usual": 3_000, "large": 276_000, "largest": 2**21}
    width = cost_function(SERVICES["Pods"].methods_by_name["Patch"], Sizes(sizes))
    assert [width(PatchRequest(name=name, patch=b"{}")) for name in sizes] == [1, 1, MAX_PATCH_COST, MAX_PATCH_COST]
    assert width(PatchRequest(name="none", patch=b" " * 40_960)) == 11


def test_call_for_one_object_costs_one_seat() -> None:
    for method in ("Create", "Get", "Update", "Delete", "Watch"):
        assert cost_function(SERVICES["Pods"].methods_by_name[method])(None) == 1


class Sizes:
    def __init__(self, by_name: Mapping[str, int]) -> None:
        self._by_name = by_name

    def stored_size(self, request: PatchRequest) -> int:
        return self._by_name[request.name]


class Counts:
    def __init__(self, by_namespace: Mapping[str, int]) -> None:
        self._by_namespace = by_namespace

    def stored_count(self, request: ListRequest | ListTableRequest | DeleteCollectionRequest) -> int:
        return self._by_namespace[request.namespace]


def batch_of(items: int) -> CreatePodBatchRequest:
    request = CreatePodBatchRequest()
    for _ in range(items):
        request.items.add()
    return request


def page_of(limit: int, **options: str) -> ListRequest:
    return ListRequest(options=ListOptions(limit=limit, **options))
