"""The API as a client meets it: a real server over a real etcd, spoken to with the client library."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import RFC_4122, UUID

import grpc.aio
import pytest

import pinnace.apiserver.server
from pinnace.api.core_v1_pb2 import Binding, Event, Namespace, ObjectReference, Pod
from pinnace.api.meta_v1_pb2 import ListOptions, ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import PODS
from pinnace.api.status import decode
from pinnace.api.verbs_pb2 import WatchEventType, WatchRequest
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client import errors
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_node, make_pod

PATIENCE = 10.0


@asynccontextmanager
async def serving(storage: EtcdStorage) -> AsyncIterator[tuple[ApiServer, str]]:
    """A running API server and its address."""
    server = ApiServer(storage)
    address = await server.start("127.0.0.1:0")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run())
        yield server, address
        await server.stop()
        running.cancel()


@pytest.fixture
async def server(etcd_storage: EtcdStorage) -> AsyncIterator[str]:
    async with serving(etcd_storage) as (_, address):
        yield address


@pytest.fixture
async def client(server: str) -> AsyncIterator[Client]:
    connection = Connection([server])
    client = Client(connection)
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.namespaces.get("kube-system")
                break
            except errors.ApiError:
                await asyncio.sleep(0.01)
    yield client
    await connection.close()


def new_pod(name: str) -> Pod:
    return make_pod(name).req(cpu="100m").new()


async def test_new_object_is_completed(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"))
    assert int(pod.metadata.resourceVersion) > 0 and pod.metadata.creationTimestamp.seconds
    uid = UUID(pod.metadata.uid)
    assert (str(uid), uid.version, uid.variant) == (pod.metadata.uid, 4, RFC_4122)
    assert pod.spec.restartPolicy == "Always" and pod.status.phase == "Pending" and pod.spec.priority == 0
    assert await client.pods.get("a", "default") == pod


async def test_create_refuses(client: Client) -> None:
    await client.pods.create(new_pod("a"))
    with pytest.raises(errors.AlreadyExists, match='pods "a" already exists'):
        await client.pods.create(new_pod("a"))
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        await client.pods.create(make_pod("b", "nowhere").req(cpu="1").new())
    bad = make_pod("Bad_Name").req(cpu="-1").new()
    with pytest.raises(errors.Invalid) as caught:
        await client.pods.create(bad)
    fields = {violation.field for violation in caught.value.violations}
    assert {"metadata.name", "spec.containers[0].resources.requests[cpu]"} <= fields


async def test_generate_name(client: Client) -> None:
    pod = new_pod("")
    pod.metadata.generateName = "web-"
    first, second = await client.pods.create(pod), await client.pods.create(pod)
    assert first.metadata.name.startswith("web-") and first.metadata.name != second.metadata.name


async def test_dry_run_writes_nothing(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"), dry_run=True)
    assert pod.spec.restartPolicy == "Always"
    with pytest.raises(errors.NotFound):
        await client.pods.get("a", "default")


async def test_batch_answers_per_item(client: Client) -> None:
    items = await client.pods.create_batch([new_pod("a"), new_pod("a"), make_pod("c", "nowhere").new(), new_pod("d")])
    reasons = [decode(item.error).reason if item.HasField("error") else "" for item in items]
    assert reasons == ["", "AlreadyExists", "NamespaceNotFound", ""]
    assert [pod.metadata.name for pod in (await client.pods.list("default")).items] == ["a", "d"]


async def test_updates_are_compare_and_swap(client: Client) -> None:
    first = await client.pods.create(new_pod("a"))
    first.metadata.labels["x"] = "1"
    second = await client.pods.update(first)
    assert int(second.metadata.resourceVersion) > int(first.metadata.resourceVersion)
    with pytest.raises(errors.Conflict, match=f"resourceVersion {first.metadata.resourceVersion} is stale"):
        await client.pods.update(first)
    first.metadata.resourceVersion = ""
    first.metadata.labels["x"] = "2"
    assert (await client.pods.update(first)).metadata.labels["x"] == "2"


async def test_update_that_changes_nothing_is_no_write(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"))
    assert (await client.pods.update(pod)).metadata.resourceVersion == pod.metadata.resourceVersion


async def test_status_and_spec_are_separate(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"))
    pod.status.message = "hello"
    pod.metadata.labels["x"] = "1"
    by_status = await client.pods.update_status(pod)
    assert by_status.status.message == "hello" and "x" not in by_status.metadata.labels
    by_status.status.message = "changed"
    by_status.metadata.labels["x"] = "2"
    by_update = await client.pods.update(by_status)
    assert by_update.status.message == "hello" and by_update.metadata.labels["x"] == "2"


async def test_status_of_a_namesake_is_refused(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"))
    pod.metadata.uid, pod.metadata.resourceVersion = "another", ""
    with pytest.raises(errors.Conflict) as caught:
        await client.pods.update_status(pod)
    assert caught.value.reason == "UIDMismatch"


async def test_unknown_fields_survive(client: Client) -> None:
    pod = new_pod("a")
    unknown = b"\xc2\x3e\x05hello"  # field 1000, a string: no message of ours knows it
    pod = Pod.FromString(pod.SerializeToString() + unknown)
    await client.pods.create(pod)
    read = await client.pods.get("a", "default")
    assert unknown in read.SerializeToString()
    read.metadata.labels["x"] = "1"
    assert unknown in (await client.pods.update(read)).SerializeToString()


async def test_delete(client: Client) -> None:
    pod = await client.pods.create(new_pod("a"))
    with pytest.raises(errors.Conflict):
        await client.pods.delete("a", "default", uid="another")
    assert (await client.pods.delete("a", "default", uid=pod.metadata.uid)).metadata.uid == pod.metadata.uid
    with pytest.raises(errors.NotFound):
        await client.pods.delete("a", "default")


async def test_watch_goes_on_where_the_list_was(client: Client) -> None:
    await client.pods.create(new_pod("a"))
    listing = await client.pods.list("default")
    await client.pods.create(new_pod("b"))
    await client.pods.delete("a", "default")
    seen: list[tuple[WatchEventType, str]] = []
    async with asyncio.timeout(PATIENCE):
        async for batch in client.pods.watch("default", resource_version=listing.resource_version):
            seen.extend((kind, pod.metadata.name) for kind, pod in batch.events)
            if len(seen) == 2:
                break
    assert seen == [(WatchEventType.ADDED, "b"), (WatchEventType.DELETED, "a")]


async def test_pages_are_one_snapshot(client: Client) -> None:
    await client.pods.create_batch([new_pod(f"p{i}") for i in range(7)])
    whole = await client.pods.list("default", page_size=3)
    assert [pod.metadata.name for pod in whole.items] == [f"p{i}" for i in range(7)]


async def test_namespaces(client: Client) -> None:
    await client.namespaces.create(Namespace(metadata=ObjectMeta(name="team")))
    await client.pods.create(make_pod("a", "team").req(cpu="1").new())
    ending = await client.namespaces.delete("team")
    assert ending.status.phase == "Terminating" and ending.metadata.HasField("deletionTimestamp")
    with pytest.raises(errors.Forbidden, match="being terminated"):
        await client.pods.create(make_pod("b", "team").req(cpu="1").new())
    ending = await client.namespaces.get("team")
    ending.metadata.labels["a"] = "b"
    await client.namespaces.update(ending)  # which does not end it
    with pytest.raises(errors.Forbidden):
        await client.namespaces.delete("default")
    await client.pods.delete("a", "team")
    await client.namespaces.delete("team")
    with pytest.raises(errors.NotFound):
        await client.namespaces.get("team")


async def test_events_are_merged(client: Client) -> None:
    event = Event(
        metadata=ObjectMeta(name="a.1", namespace="default"),
        involvedObject=ObjectReference(kind="Pod", namespace="default", name="a"),
        reason="FailedScheduling",
        message="first",
        type="Warning",
        count=1,
    )
    event.lastTimestamp.seconds = 100
    event.firstTimestamp.seconds = 100
    await client.events.record([event])
    event.message, event.count, event.lastTimestamp.seconds = "second", 2, 200
    await client.events.record([event])
    (merged,) = (await client.events.list("default")).items
    assert (merged.count, merged.message) == (3, "second")
    assert (merged.firstTimestamp.seconds, merged.lastTimestamp.seconds) == (100, 200)


def bindings(*names: str) -> list[Binding]:
    target = ObjectReference(kind="Node", name="n1")
    return [Binding(metadata=ObjectMeta(namespace="default", name=name), target=target) for name in names]


async def test_pod_is_bound_once(client: Client) -> None:
    await client.nodes.create(make_node("n1").capacity(cpu=4, memory="8Gi", pods=10).new())
    await client.pods.create_batch([new_pod("a"), new_pod("b")])
    items = await client.pods.bind_batch(bindings("a", "absent", "b"), None)
    assert [decode(item.error).reason if item.HasField("error") else "" for item in items] == ["", "NotFound", ""]
    (item,) = await client.pods.bind_batch(bindings("a"), None)
    assert decode(item.error).reason == "AlreadyBound"
    assert (await client.pods.get("a", "default")).spec.nodeName == "n1"


async def test_bind_with_an_old_token_is_fenced(client: Client) -> None:
    await client.pods.create_batch([new_pod("a"), new_pod("b")])
    items = await client.pods.bind_batch(bindings("a", "b"), Fence(election="scheduler", token=1))
    assert [decode(item.error).reason for item in items] == ["Fenced", "Fenced"]
    assert not (await client.pods.get("a", "default")).spec.nodeName


async def test_deposed_leader_is_refused_even_after_its_successor_bound_the_pod(client: Client) -> None:
    await client.pods.create(new_pod("a"))
    await client.pods.bind_batch(bindings("a"), None)
    (bound,) = await client.pods.bind_batch(bindings("a"), None)
    assert decode(bound.error).reason == "AlreadyBound"
    items = await client.pods.bind_batch(bindings("a", "gone"), Fence(election="scheduler", token=1))
    assert [decode(item.error).reason for item in items] == ["Fenced", "Fenced"]


async def test_writers_race_and_none_is_lost(client: Client) -> None:
    await client.pods.create(new_pod("a"))

    async def add(index: int) -> None:
        def change(pod: Pod) -> None:
            pod.metadata.labels[f"l{index}"] = "x"

        await client.pods.modify("a", "default", change)

    await asyncio.gather(*(add(i) for i in range(8)))
    assert len((await client.pods.get("a", "default")).metadata.labels) == 8


async def test_nonsense_is_refused_clearly(client: Client) -> None:
    with pytest.raises(errors.Invalid, match="field"):
        await client.pods.list("default", fields="spec.colour=red")
    with pytest.raises(errors.Invalid, match="invalid resource version"):
        await client.pods.list("default", resource_version="yesterday")
    with pytest.raises(errors.NotFound, match='pods "x" not found'):
        await client.of(PODS).get("x", "default")


async def test_bytes_that_are_no_message_are_refused_without_a_word_in_the_log(
    server: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.pods.list("default")
    async with grpc.aio.insecure_channel(server) as channel:
        create = channel.unary_unary("/pinnace.v1.Pods/Create")(b"\xff")
        watch = channel.unary_stream("/pinnace.v1.Pods/Watch")(b"\xff")
        campaign = channel.stream_stream("/pinnace.v1.Elections/Campaign")(iter([b"\xff"]))
        number = ListOptions(resourceVersion="\N{SUPERSCRIPT TWO}")
        rewatch = channel.unary_stream("/pinnace.v1.Pods/Watch")(WatchRequest(options=number).SerializeToString())
        for call in (create, watch, campaign, rewatch):
            assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_namespace_made_elsewhere_is_known_at_once(client: Client, etcd_storage: EtcdStorage) -> None:
    async with serving(etcd_storage) as (_, address):
        connection = Connection([address])
        other = Client(connection)
        for index in range(20):
            name = f"team-{index}"
            await client.namespaces.create(Namespace(metadata=ObjectMeta(name=name)))
            await other.pods.create(make_pod("a", name).req(cpu="1").new())
        await connection.close()


async def test_server_that_stops_sends_writers_on_and_loses_nothing(
    server: str, etcd_storage: EtcdStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pinnace.apiserver.server, "STOP_GRACE", 20.0
    )  # the disk of a busy machine may take longer than two seconds
    async with serving(etcd_storage) as (stopping, address):

        async def write(start: int) -> None:
            connection = Connection([address, server])  # begins with either
            writer = Client(connection)
            for index in range(start, start + 50):
                await writer.pods.create(new_pod(f"p{index}"))
            await connection.close()

        async with asyncio.TaskGroup() as group:
            for start in range(0, 400, 50):
                group.create_task(write(start))
            group.create_task(stopping.stop())
    connection = Connection([server])
    assert len((await Client(connection).pods.list("default")).items) == 400
    await connection.close()
