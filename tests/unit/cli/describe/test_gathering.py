"""What `describe` asks for, and how often."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pinnace.api.core_v1_pb2 import Event, Namespace, PersistentVolumeClaim, ResourceQuota, Service
from pinnace.api.discovery_v1_pb2 import Endpoint, EndpointPort, EndpointSlice
from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import (
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    SERVICES,
    Object,
    Resource,
)
from pinnace.api.status import Code
from pinnace.cli.describe.text import Fields, Rows
from pinnace.cli.objects import query
from pinnace.cli.verbs.describe import describe_all
from pinnace.client.client import Client
from pinnace.client.errors import Unavailable
from tests.builders import make_node, make_pod
from tests.unit.cli.fakes import DOWN, FORBIDDEN, FakeApi, refusal
from tests.workloads import make_deployment


class Api(FakeApi):
    """Has elections. `led`: those that somebody leads."""

    def __init__(self) -> None:
        super().__init__()
        self.elections = SimpleNamespace(list=self._elections)
        self.led: Sequence[Election] = ()
        self.elections_are_secret = False

    async def _elections(self) -> Sequence[Election]:
        self.calls.append("list elections")
        if self.elections_are_secret:
            raise FORBIDDEN
        return self.led

    async def tell(self, resource: Resource[Any], obj: Object, message: str, uid: str = "") -> None:
        about = Event(message=message)
        about.metadata.namespace, about.metadata.name = obj.metadata.namespace or "default", message
        about.involvedObject.kind, about.involvedObject.name = resource.kind, obj.metadata.name
        about.involvedObject.uid = uid or obj.metadata.uid
        await self.of(EVENTS).put(about)

    async def describe(self, resource: Resource[Any], *objs: Object) -> list[Fields]:
        self.calls.clear()
        return await describe_all(cast(Client, self), resource, objs)


def told(fields: Fields) -> list[str]:
    events = fields["Events"]
    assert isinstance(events, Rows)
    return [row[-1] for row in events.rows]


async def test_many_pods_take_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "NAMES_AT_ONCE", 30)
    api = Api()
    pods = [await api.of(PODS).put(make_pod(f"p{i}", "a" if i < 40 else "b").new()) for i in range(50)]
    for pod in pods:
        await api.tell(PODS, pod, f"of-{pod.metadata.name}")
        await api.tell(PODS, pod, f"of-an-earlier-{pod.metadata.name}", uid="other")
    described = await api.describe(PODS, *pods)
    assert sorted(api.calls) == ["list elections", *["list events"] * 3]
    assert [told(fields) for fields in described] == [[f"of-{pod.metadata.name}"] for pod in pods]
    assert all(fields["Scheduling"] for fields in described)


async def test_a_pod_whose_scheduler_nothing_runs_says_so() -> None:
    api = Api()
    lost, usual, bound = (
        make_pod("a").scheduler("x").build(),
        make_pod("b").build(),
        make_pod("c").scheduler("x").node("n").build(),
    )
    says = 'waiting: no running scheduler has a profile named "x"; profiles: '
    assert [each.get("Scheduling") for each in await api.describe(PODS, lost, usual, bound)] == [
        f"{says}none", 'waiting: election "scheduler" has no leader', None,
    ]  # fmt: skip
    api.led = [Election(name="scheduler", scheduler_names=["default-scheduler"])]
    assert [each.get("Scheduling") for each in await api.describe(PODS, lost, usual)] == [f"{says}default-scheduler", None]


async def test_a_node_is_its_name() -> None:
    api, node = Api(), make_node("n").build()
    await api.tell(NODES, node, "came", uid="before")
    (fields,) = await api.describe(NODES, node)
    assert told(fields) == ["came"]


async def test_replica_sets_are_asked_for_once_in_a_namespace() -> None:
    api = Api()
    await api.describe(DEPLOYMENTS, *(make_deployment(name) for name in "abc"))
    assert sorted(api.calls) == ["list events", f"list {REPLICA_SETS.plural}"]


async def test_pods_that_may_use_claims_are_asked_for_once_in_a_namespace() -> None:
    api, pod = Api(), make_pod("p", "a").new()
    pod.spec.volumes.add(name="v").volumeSource.persistentVolumeClaim.claimName = "one"
    await api.of(PODS).put(pod)
    claims = [PersistentVolumeClaim() for _ in range(3)]
    for claim, (namespace, name) in zip(claims, (("a", "one"), ("a", "two"), ("b", "one")), strict=True):
        claim.metadata.namespace, claim.metadata.name = namespace, name
    shown = await api.describe(PERSISTENT_VOLUME_CLAIMS, *claims)
    assert [fields["Used By"] for fields in shown] == [["p"], [], []]
    assert sorted(api.calls) == [*["list events"] * 2, *["list pods"] * 2]


async def test_empty_selection_makes_no_calls() -> None:
    api = Api()
    assert await api.describe(PODS) == [] and not api.calls


async def test_forbidden_details_are_noted_in_place() -> None:
    api = Api()
    api.elections_are_secret = True
    for resource, verb in ((EVENTS, "list"), (PODS, "list"), (LEASES, "get"), (REPLICA_SETS, "list")):
        api.of(resource).fail(verb, FORBIDDEN)
    (pod,) = await api.describe(PODS, make_pod("p").build())
    (node,) = await api.describe(NODES, make_node("n").build())
    (deployment,) = await api.describe(DEPLOYMENTS, make_deployment("web"))
    told = [pod["Scheduling"], pod["Events"], node["Lease"], node["Non-terminated Pods"], node["Allocated resources"]]
    told += [deployment["OldReplicaSets"], deployment["NewReplicaSet"]]
    assert told == ["<not shown: you may not>"] * len(told)
    assert isinstance(node["Events"], Rows)


async def test_forbidden_request_names_user_and_verb() -> None:
    api = Api()
    why = 'User "jane" cannot list events in the namespace "default"'
    api.of(EVENTS).fail("list", refusal(Code.PERMISSION_DENIED, "Forbidden", f"events is forbidden: {why}"))
    (fields,) = await api.describe(PODS, make_pod("p").node("n").build())
    assert fields["Events"] == f"<not shown: {why}>"
    api.of(EVENTS).fail("list", DOWN)
    with pytest.raises(Unavailable):
        await api.describe(PODS, make_pod("p").node("n").build())


async def test_a_service_has_its_own_slices_and_a_namespace_its_own_quotas() -> None:
    api = Api()
    for name in ("web", "db"):
        endpoints = EndpointSlice(endpoints=[Endpoint(addresses=[name])], ports=[EndpointPort(port=80)])
        endpoints.metadata.namespace, endpoints.metadata.name = "default", f"{name}-1"
        endpoints.metadata.labels["kubernetes.io/service-name"] = name
        await api.of(ENDPOINT_SLICES).put(endpoints)
        quota = ResourceQuota()
        quota.metadata.namespace = quota.metadata.name = name
        await api.of(RESOURCE_QUOTAS).put(quota)
    service, namespace = Service(), Namespace()
    service.metadata.namespace, service.metadata.name, namespace.metadata.name = "default", "web", "web"
    service.spec.ports.add(port=80)
    (shown,) = await api.describe(SERVICES, service)
    assert shown["Endpoints"] == Rows(("Port", "Addresses"), [("<unset>", "web:80")])
    (shown,) = await api.describe(NAMESPACES, namespace)
    assert isinstance(shown["Resource Quotas"], dict) and list(shown["Resource Quotas"]) == ["web"]
