"""Kinds that pinnace does not have and that a real kube-scheduler watches: they are discoverable, empty and read-only."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.gateway.api_resources import EMPTY, SERVED, ApiResource, index_by_path
from pinnace.gateway.http import JSON
from pinnace.gateway.media_types import PROTOBUF
from pinnace.gateway.watch_events import INITIAL_EVENTS_END
from pinnace.gateway.watches import STREAM_PROTOBUF
from tests.unit.gateway.serving import Answer, Gateway, gateway

WATCHED = [
    ("/apis/resource.k8s.io/v1", "resourceslices", "ResourceSlice"),
    ("/apis/resource.k8s.io/v1", "resourceclaims", "ResourceClaim"),
    ("/apis/resource.k8s.io/v1", "deviceclasses", "DeviceClass"),
    ("/apis/storage.k8s.io/v1", "csidrivers", "CSIDriver"),
    ("/apis/storage.k8s.io/v1", "csistoragecapacities", "CSIStorageCapacity"),
    ("/apis/storage.k8s.io/v1", "volumeattachments", "VolumeAttachment"),
    ("/api/v1", "replicationcontrollers", "ReplicationController"),
]
INITIAL = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
every_kind = pytest.mark.parametrize(("group", "plural", "kind"), WATCHED)


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


@every_kind
async def test_empty_kind_is_discovered_and_listed(served: Gateway, group: str, plural: str, kind: str) -> None:
    resources = (await served.ask("GET", group)).json["resources"]
    (result,) = [resource for resource in resources if resource["name"] == plural]
    assert (result["kind"], sorted(result["verbs"])) == (kind, ["get", "list", "watch"])
    listed = await served.ask("GET", f"{group}/{plural}?limit=500&labelSelector=a%3Db")
    assert (listed.code, listed.json["kind"], listed.json["items"]) == (200, f"{kind}List", [])
    assert int(listed.json["metadata"]["resourceVersion"]) > 0
    assert (await served.ask("GET", f"{group}/{plural}", accept=PROTOBUF)).body.startswith(b"k8s\0")


@every_kind
async def test_empty_kind_has_no_objects_and_is_read_only(served: Gateway, group: str, plural: str, kind: str) -> None:
    resources = (await served.ask("GET", group)).json["resources"]
    namespaced = next(resource["namespaced"] for resource in resources if resource["name"] == plural)
    path = f"{group}/namespaces/default/{plural}" if namespaced else f"{group}/{plural}"
    missing = await served.ask("GET", f"{path}/x")
    assert (missing.code, missing.json["reason"], missing.json["details"]["kind"]) == (404, "NotFound", plural)
    for method, target in (("POST", path), ("PUT", f"{path}/x"), ("PATCH", f"{path}/x"), ("DELETE", f"{path}/x")):
        refused = await served.ask(method, target, {"metadata": {"name": "x"}})
        assert (refused.code, refused.json["reason"]) == (405, "MethodNotAllowed"), method


async def watch_every_kind(served: Gateway, accept: str) -> list[tuple[str, Answer]]:
    """Kind and answer, of watches at the same time: each takes a second."""
    answers = await asyncio.gather(
        *(served.ask("GET", f"{group}/{plural}{INITIAL}", accept=accept) for group, plural, _ in WATCHED)
    )
    return [(kind, answer) for (_, _, kind), answer in zip(WATCHED, answers, strict=True)]


async def test_watch_starts_with_the_annotated_bookmark(served: Gateway) -> None:
    for kind, answer in await watch_every_kind(served, JSON):
        (event,) = answer.lines
        assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", kind)
        assert event["object"]["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
        assert int(event["object"]["metadata"]["resourceVersion"]) > 0


async def test_protobuf_watch_starts_with_the_annotated_bookmark(served: Gateway) -> None:
    for kind, answer in await watch_every_kind(served, f"{PROTOBUF};stream=watch,{PROTOBUF},application/json"):
        assert answer.content_type == STREAM_PROTOBUF
        assert len(answer.body) == 4 + int.from_bytes(answer.body[:4], "big")
        assert all(part in answer.body for part in (b"BOOKMARK", kind.encode(), INITIAL_EVENTS_END.encode()))


@pytest.mark.parametrize("resource", EMPTY, ids=lambda resource: resource.plural)
def test_table_rejects_a_kind_that_is_both_served_and_empty(resource: ApiResource) -> None:
    with pytest.raises(ValueError, match=f"two resources have the path .*{resource.plural}"):
        index_by_path((*SERVED, resource))
