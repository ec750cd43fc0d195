"""Quotas and limit ranges as a client meets them: one API server, with everything that is in it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod, ResourceQuota
from pinnace.api.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS, SERVICES, STORAGE_CLASSES, Resource
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Forbidden
from tests.builders import make_pod
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage

DEADLINE = 10.0


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving(MemoryStorage()) as address:
        connection = Connection([address])
        yield Client(connection)
        await connection.close()


async def make(client: Client, resource: Resource[Any], name: str = "a", **data: Any) -> Any:
    return await client.of(resource).create(from_dict(resource, {"metadata": {"name": name}, **data}))


async def bound(client: Client, name: str = "q", scopes: tuple[str, ...] = (), **hard: str) -> None:
    """Makes a quota."""
    amounts = {key.replace("_", "."): amount for key, amount in hard.items()}
    await make(client, RESOURCE_QUOTAS, name, spec={"hard": amounts, "scopes": scopes})


async def used(client: Client, name: str = "q") -> dict[str, str]:
    result = await client.of(RESOURCE_QUOTAS).get(name, "default")
    return {key: amount.string for key, amount in result.status.used.items()}


async def used_becomes(client: Client, name: str = "q", **expected: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while await used(client, name) != expected:  # noqa: ASYNC110 (as a client sees it)
            await asyncio.sleep(0.01)


async def test_new_quota_counts_what_is_there(client: Client) -> None:
    for name in "abc":
        await client.pods.create(make_pod(name).req().new())
    await bound(client, pods="3")
    with pytest.raises(Forbidden, match="exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"):
        await client.pods.create(make_pod("d").req().new())
    await used_becomes(client, pods="3")


async def test_room_counts_at_once(client: Client) -> None:
    """That which a delete, an end, or a larger bound has made."""
    await bound(client, pods="1")
    await client.pods.create(make_pod("a").req().new())
    await client.pods.delete("a", "default")
    ended = await client.pods.create(make_pod("b").req().new())
    ended.status.phase = "Succeeded"
    await client.pods.update_status(ended)
    await client.pods.create(make_pod("c").req().new())
    with pytest.raises(Forbidden):
        await client.pods.create(make_pod("d").req().new())

    def raise_it(quota: ResourceQuota) -> None:
        quota.spec.hard["pods"].string = "2"

    await client.of(RESOURCE_QUOTAS).modify("q", "default", raise_it)
    await client.pods.create(make_pod("d").req().new())
    assert await used(client) == {"pods": "2"}


async def test_deleted_objects_are_released_without_a_request(client: Client) -> None:
    await bound(client, pods="5")
    for name in "ab":
        await client.pods.create(make_pod(name).req().new())
    await client.pods.delete("a", "default")
    await used_becomes(client, pods="1")


async def test_dry_run_is_refused_like_a_create_and_charges_nothing(client: Client) -> None:
    await bound(client, pods="1")
    await client.pods.create(make_pod("a").req().new(), dry_run=True)
    await client.pods.create(make_pod("a").req().new())
    with pytest.raises(Forbidden, match="exceeded quota"):
        await client.pods.create(make_pod("b").req().new(), dry_run=True)
    assert await used(client) == {"pods": "1"}


def cpu(amount: str) -> dict[str, Any]:
    """A patch of the subresource resize."""
    return {"spec": {"containers": [{"name": "c0", "resources": {"requests": {"cpu": amount}}}]}}


async def test_resize_is_charged_and_bounded(client: Client) -> None:
    await bound(client, requests_cpu="1")
    await client.pods.create(make_pod("a").req(cpu="200m").new())
    made = await client.pods.patch("a", "default", cpu("600m"), subresource="resize")
    assert (made.spec.containers[0].resources.requests["cpu"].string, made.metadata.generation) == ("600m", 2)
    assert await used(client) == {"requests.cpu": "600m"}
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m"):
        await client.pods.patch("a", "default", cpu("1100m"), subresource="resize")
    await make(client, LIMIT_RANGES, spec={"limits": [{"type": "Container", "min": {"cpu": "300m"}}]})
    with pytest.raises(Forbidden, match="minimum cpu usage per Container is 300m, but request is 100m"):
        await client.pods.patch("a", "default", cpu("100m"), subresource="resize")
    await client.pods.patch("a", "default", cpu("300m"), subresource="resize")
    await used_becomes(client, **{"requests.cpu": "300m"})


async def test_pod_must_say_what_is_bounded_and_a_limit_range_says_it_for_him(client: Client) -> None:
    await bound(client, requests_cpu="1")
    with pytest.raises(Forbidden, match=r'pods "a" is forbidden: failed quota: q: must specify requests.cpu for: c0'):
        await client.pods.create(make_pod("a").req().new())
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "600m"}, "max": {"cpu": "800m"}}]}
    await make(client, LIMIT_RANGES, spec=limits)
    made = await client.pods.create(make_pod("a").req().new())
    assert made.spec.containers[0].resources.requests["cpu"].string == "600m"
    with pytest.raises(Forbidden, match=r"requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"):
        await client.pods.create(make_pod("b").req().new())
    with pytest.raises(Forbidden, match='pods "c" is forbidden: maximum cpu usage per Container is 800m, but limit is 2'):
        await client.pods.create(make_pod("c").container({}, {"cpu": 2}).new())


async def test_create_refused_by_one_quota_is_charged_to_none(client: Client) -> None:
    await bound(client, "few", pods="1")
    await bound(client, "busy", ("NotBestEffort",), cpu="8")
    await client.pods.create(make_pod("a").req(cpu=2).new())
    with pytest.raises(Forbidden, match="exceeded quota: few"):
        await client.pods.create(make_pod("b").req(cpu=2).new())
    assert (await used(client, "few"), await used(client, "busy")) == ({"pods": "1"}, {"cpu": "2"})


async def test_claim_that_grows_is_charged_for_what_it_grows(client: Client) -> None:
    await bound(client, requests_storage="5Gi")
    claims = client.of(PERSISTENT_VOLUME_CLAIMS)
    growing = {"metadata": {"name": "grows"}, "provisioner": "example.com/disks", "allowVolumeExpansion": True}
    await client.of(STORAGE_CLASSES).create(from_dict(STORAGE_CLASSES, growing))
    asked = {"resources": {"requests": {"storage": "1Gi"}}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "grows", **asked}
    claim = await make(client, PERSISTENT_VOLUME_CLAIMS, spec=spec)
    claim.status.phase = "Bound"
    claim = await claims.update_status(claim)
    claim.spec.resources.requests["storage"].string = "4Gi"
    claim = await claims.update(claim)
    assert await used(client) == {"requests.storage": "4Gi"}
    claim.spec.resources.requests["storage"].string = "6Gi"
    limited = "requested: requests.storage=2Gi, used: requests.storage=4Gi, limited: requests.storage=5Gi"
    with pytest.raises(Forbidden, match=f'persistentvolumeclaims "a" is forbidden: exceeded quota: q, {limited}'):
        await claims.update(claim)


async def test_claim_that_comes_into_a_quota_by_its_class_of_attributes_is_charged_all_that_it_is(client: Client) -> None:
    gold = {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}
    hard = {"persistentvolumeclaims": "1", "requests.storage": "3Gi"}
    await make(client, RESOURCE_QUOTAS, "q", spec={"hard": hard, "scopeSelector": gold})
    claims = client.of(PERSISTENT_VOLUME_CLAIMS)

    async def turn_gold(name: str) -> None:
        asked = {"resources": {"requests": {"storage": "2Gi"}}}
        claim = await make(client, PERSISTENT_VOLUME_CLAIMS, name, spec={"accessModes": ["ReadWriteOnce"], **asked})
        claim.status.phase = "Bound"
        claim = await claims.update_status(claim)
        claim.spec.volumeAttributesClassName = "gold"
        await claims.update(claim)

    await turn_gold("a")
    assert await used(client) == {"persistentvolumeclaims": "1", "requests.storage": "2Gi"}
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: persistentvolumeclaims=1,requests\.storage=2Gi"):
        await turn_gold("b")


async def test_allocated_claim_size_is_counted_and_not_refused(client: Client) -> None:
    """It asked for more, went back, and somebody else took the room: its status tells of storage that is in use."""
    await bound(client, requests_storage="5Gi")
    asked = {"resources": {"requests": {"storage": "2Gi"}}}
    claim = await make(client, PERSISTENT_VOLUME_CLAIMS, spec={"accessModes": ["ReadWriteOnce"], **asked})
    await make(client, PERSISTENT_VOLUME_CLAIMS, "b", spec={"accessModes": ["ReadWriteOnce"], **asked})
    claim.status.allocatedResources["storage"].string = "4Gi"
    await client.of(PERSISTENT_VOLUME_CLAIMS).update_status(claim)
    assert await used(client) == {"requests.storage": "6Gi"}


async def test_service_that_takes_ports_of_nodes_is_charged_for_them(client: Client) -> None:
    await bound(client, services="2", services_nodeports="1")
    ports = [{"port": 80}]
    service = await make(client, SERVICES, spec={"ports": ports})
    service.spec.type = "NodePort"
    await client.of(SERVICES).update(service)
    assert await used(client) == {"services": "1", "services.nodeports": "1"}
    with pytest.raises(Forbidden, match=r"services\.nodeports=1"):
        await make(client, SERVICES, "b", spec={"ports": ports, "type": "NodePort"})


async def test_quota_with_a_changed_scope_is_recounted(client: Client) -> None:
    def of_class(name: str) -> dict[str, Any]:
        return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]}

    quota = await make(client, RESOURCE_QUOTAS, "q", spec={"hard": {"pods": "1"}, "scopeSelector": of_class("none")})
    await client.pods.create(make_pod("a").req().priority_class("system-node-critical").new())
    await used_becomes(client, pods="0")
    quota = await client.of(RESOURCE_QUOTAS).get("q", "default")
    quota.spec.scopeSelector.matchExpressions[0].values[:] = ["system-node-critical"]
    await client.of(RESOURCE_QUOTAS).update(quota)
    with pytest.raises(Forbidden, match="used: pods=1"):
        await client.pods.create(make_pod("b").req().priority_class("system-node-critical").new())


async def test_other_namespaces_are_not_bounded(client: Client) -> None:
    await bound(client, pods="0")
    made = make_pod("a", "kube-system").req().new()
    assert isinstance(await client.pods.create(made), Pod)
