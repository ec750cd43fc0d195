"""Contract of node leases when users or the previous server of a fleet write the Lease objects."""

import asyncio
from collections.abc import Callable

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.nodes_pb2 import HeartbeatRequest
from pinnace.api.wellknown import BIRTH_ANNOTATION
from pinnace.apiserver.services import nodes
from pinnace.apiserver.services.nodes import TIMING
from pinnace.apiserver.storage.interface import KeyValue, Write
from tests.contract.fleets import BRISK, PREFIX, Cluster, Speaker
from tests.contract.servers import PATIENCE

UNREADABLE = b"\xff"


def annotate(lease: Lease) -> None:
    lease.metadata.annotations["note"] = "a person was here"


def rename_holder(lease: Lease) -> None:
    lease.spec.holderIdentity = "somebody"


def clear_annotations(lease: Lease) -> None:
    lease.metadata.annotations.clear()


def change_birth(lease: Lease) -> None:
    lease.metadata.annotations[BIRTH_ANNOTATION] = str(2**40)


async def edit(cluster: Cluster, node: str, change: Callable[[Lease], None], *, keep: bool = True) -> KeyValue:
    """Change the Lease object of a node. With `keep`, update it and keep its etcd lease, as the API does. Otherwise, delete and
    recreate it without an etcd lease."""
    result = (await cluster.leases())[node]
    lease = Lease.FromString(result.value)
    change(lease)
    expected = result.mod_revision
    if not keep:
        await cluster.storage.transact([Write(result.key, None, expected)])
        expected = 0
    await cluster.storage.transact([Write(result.key, lease.SerializeToString(), expected, lease=result.lease if keep else 0)])
    return (await cluster.leases())[node]


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "CHECK_INTERVAL", 0.1)
    monkeypatch.setattr(nodes, "RESUME_GRACE", 0.1)


async def test_manually_edited_lease_stays_attached_to_the_session(cluster: Cluster) -> None:
    """The edited object is deleted with the session."""
    server = await cluster.serve(BRISK)
    speaker = await Speaker.open(server, "fleet-a", ["n1", "n2"])
    await speaker.hear("opened")
    await cluster.holding("n1", "n2")
    edited = await edit(cluster, "n1", annotate)
    await server.cacher.wait_for(edited.mod_revision, PATIENCE)
    await beat(speaker, 1)  # the server sends no other message
    assert (await cluster.leases())["n1"] == edited
    speaker.vanish()
    await cluster.holding()


async def test_unreadable_lease_objects_are_rewritten_without_ending_the_session(cluster: Cluster) -> None:
    foreign = await cluster.storage.grant_lease(60)
    for node, lease in (("n1", 0), ("n2", foreign)):
        await cluster.storage.transact([Write(PREFIX + node, UNREADABLE, 0, lease=lease)])
    await cluster.serve(BRISK)
    cluster.fleet("fleet-a", ["n1", "n2"])
    read = await cluster.until(all_can_be_read)
    assert Lease.FromString(read["n2"].value).metadata.name == "n2"
    await cluster.storage.transact([Write(PREFIX + "n1", UNREADABLE, read["n1"].mod_revision, lease=read["n1"].lease)])
    read = await cluster.until(all_can_be_read)
    assert {Lease.FromString(item.value).spec.holderIdentity for item in read.values()} == {"fleet-a"}


def all_can_be_read(leases: dict[str, KeyValue]) -> bool:
    return UNREADABLE not in [item.value for item in leases.values()]


@pytest.mark.parametrize("change", [rename_holder, clear_annotations, change_birth])
async def test_manual_change_of_the_holder_is_reverted(cluster: Cluster, change: Callable[[Lease], None]) -> None:
    """The session keeps the object alive. Otherwise, the wrong holder would keep the node, and no fleet would run it."""
    await cluster.serve(BRISK)
    one = cluster.fleet("fleet-a", ["n1"])
    before = Lease.FromString((await cluster.holding("n1"))["n1"].value)
    await edit(cluster, "n1", change)
    found = await cluster.until(lambda found: Lease.FromString(found["n1"].value) == before)
    assert found["n1"].lease
    assert not one.taken_over


async def test_manually_recreated_lease_is_reattached_to_the_session(cluster: Cluster) -> None:
    """Otherwise, the object would outlive the fleet."""
    await cluster.serve(BRISK)
    one = cluster.fleet("fleet-a", ["n1"])
    lease = (await cluster.holding("n1"))["n1"].lease
    assert not (await edit(cluster, "n1", annotate, keep=False)).lease
    await cluster.until(lambda found: found["n1"].lease == lease)
    assert not one.taken_over


async def test_fleet_that_moves_to_another_server_keeps_its_nodes(cluster: Cluster) -> None:
    """The previous server has not noticed the move and still receives a heartbeat."""
    one, two = await cluster.serve(BRISK), await cluster.serve(TIMING)
    before = await Speaker.open(one, "f", ["n1"])
    opened = (await before.hear("opened")).opened
    revision = (await cluster.holding("n1"))["n1"].mod_revision
    _after = await Speaker.open(two, "f", ["n1"], opened.session, opened.birth)
    found = await cluster.until(lambda found: found["n1"].mod_revision > revision)
    await one.cacher.wait_for(found["n1"].mod_revision, PATIENCE)
    await asyncio.sleep(nodes.CHECK_INTERVAL)
    await before.say(HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=1)))
    await before.hear("ack")
    before.vanish()
    await asyncio.wait_for(one.storage.refused.wait(), PATIENCE)
    assert await cluster.leases() == found


async def test_late_writes_of_a_fleets_previous_server_are_corrected(cluster: Cluster) -> None:
    """The previous server rewrites the Lease object for the fleet, and deletes it once it notices the move."""
    one, two = await cluster.serve(BRISK), await cluster.serve(BRISK)
    before = await Speaker.open(one, "f", [])
    opened = (await before.hear("opened")).opened
    after = await Speaker.open(two, "f", ["n1"], opened.session, opened.birth)
    await after.hear("opened")
    revision = (await cluster.holding("n1"))["n1"].mod_revision
    await before.say(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["n1"])))
    found = await cluster.until(lambda found: found["n1"].mod_revision > revision)
    await two.cacher.wait_for(found["n1"].mod_revision, PATIENCE)
    await beat(after, 1)
    before.vanish()
    await cluster.holding()
    await two.cacher.wait_for(await cluster.storage.current_revision(), PATIENCE)
    await beat(after, 2)
    assert (await cluster.holding("n1"))["n1"].key == PREFIX + "n1"


async def beat(speaker: Speaker, sequence: int) -> None:
    """Send a heartbeat after the interval at which the server checks the Lease objects."""
    await asyncio.sleep(nodes.CHECK_INTERVAL)
    await speaker.say(HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=sequence)))
    await speaker.hear("ack")
