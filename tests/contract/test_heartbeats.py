"""Contract of node leases with every Storage. The tests use the real service and the real session over gRPC."""

import asyncio
from collections.abc import Callable

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.apiserver.services import nodes as node_service
from pinnace.apiserver.services.nodes import MAX_NODES, TIMING
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.interface import Write
from pinnace.client import errors, heartbeat
from pinnace.client.channel import Duplex
from tests.contract.fleets import BRISK, HASTY, PREFIX, Cluster, Speaker
from tests.contract.servers import PATIENCE, Server
from tests.unit.cacher.world import eventually


async def test_lease_objects_are_attached_to_the_lease_of_the_session(cluster: Cluster) -> None:
    await cluster.serve()
    cluster.fleet("fleet-a", ["n1", "n2"])
    result = await cluster.holding("n1", "n2")
    assert len({item.lease for item in result.values()} - {0}) == 1
    lease = Lease.FromString(result["n1"].value)
    assert (lease.metadata.name, lease.metadata.namespace) == ("n1", NODE_LEASE_NAMESPACE)
    assert (lease.spec.holderIdentity, lease.spec.leaseDurationSeconds) == ("fleet-a", HASTY.ttl)
    assert lease.metadata.uid
    assert lease.metadata.creationTimestamp.seconds


async def test_heartbeats_renew_leases_without_writes(cluster: Cluster) -> None:
    await cluster.serve(TIMING)
    cluster.fleet("fleet-a", ["n1"])
    before = await cluster.holding("n1")
    revision = await cluster.storage.current_revision()
    await asyncio.sleep(TIMING.ttl * 1.5)
    assert await cluster.leases() == before
    assert await cluster.storage.current_revision() == revision


async def test_large_fleet_acquires_its_nodes_in_chunks(cluster: Cluster) -> None:
    await cluster.serve(TIMING)
    nodes = [f"n{number}" for number in range(node_service.CLAIM_CHUNK * 2 + 1)]
    cluster.fleet("fleet-a", nodes)
    await cluster.holding(*nodes)


async def test_session_can_add_nodes(cluster: Cluster) -> None:
    await cluster.serve()
    fleet = cluster.fleet("fleet-a", ["n1"])
    await cluster.holding("n1")
    fleet.session.add(["n2"])
    await cluster.holding("n1", "n2")
    assert list(fleet.session.nodes) == ["n1", "n2"]


async def test_added_and_released_nodes_do_not_wait_for_the_next_heartbeat(cluster: Cluster) -> None:
    await cluster.serve(Timing(interval=60.0, silence=300.0, ttl=300))
    fleet = cluster.fleet("fleet-a", ["n1"])
    await cluster.holding("n1")
    fleet.session.add(["n2"])
    await cluster.holding("n1", "n2")
    fleet.session.release(["n1"])
    await cluster.holding("n2")


async def test_leases_of_a_killed_fleet_are_deleted_after_the_grace_period(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server deletes them before the etcd lease expires."""
    monkeypatch.setattr(node_service, "RESUME_GRACE", 0.1)
    await cluster.serve(Timing(interval=0.05, silence=0.3, ttl=60))
    dying = cluster.fleet("fleet-a", ["n1", "n2"])
    await cluster.holding("n1", "n2")
    await dying.kill()
    await cluster.holding()


async def test_leases_of_a_closed_session_are_deleted_immediately(cluster: Cluster) -> None:
    await cluster.serve()
    closing = cluster.fleet("fleet-a", ["n1"])
    await cluster.holding("n1")
    await closing.session.close()
    assert await cluster.leases() == {}
    await asyncio.wait_for(closing.running, PATIENCE)


async def test_session_can_close_while_its_open_is_pending(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Duplex.write

    async def write_and_wait(stream: Duplex[HeartbeatRequest, HeartbeatResponse], request: HeartbeatRequest) -> None:
        await write(stream, request)
        if request.HasField("open"):
            await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Duplex, "write", write_and_wait)
    monkeypatch.setattr(heartbeat, "CLOSE_TIMEOUT", 0.1)
    await cluster.serve(BRISK)
    closing = cluster.fleet("fleet-a", ["n1"])
    await cluster.holding("n1")
    monkeypatch.setattr(node_service, "RESUME_GRACE", 60.0)
    await closing.session.close()
    await cluster.holding()


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
async def test_leases_survive_the_end_of_a_server(cluster: Cluster, end: Callable[[Server], object]) -> None:
    one, two = await cluster.serve(TIMING), await cluster.serve(TIMING)
    cluster.fleet("fleet-a", ["n1", "n2"], one, two)
    before = await cluster.holding("n1", "n2")
    revision = await cluster.storage.current_revision()
    await end(one)
    after = await cluster.until(lambda found: all(item.mod_revision > revision for item in found.values()))
    await asyncio.sleep(TIMING.ttl)
    assert await cluster.leases() == after
    assert {node: item.create_revision for node, item in after.items()} == {
        node: item.create_revision for node, item in before.items()
    }


async def test_previous_server_does_not_delete_the_leases_of_a_moved_fleet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_service, "RESUME_GRACE", 0.1)
    one, two = await cluster.serve(TIMING), await cluster.serve(TIMING)
    before = await Speaker.open(one, "fleet-a", ["n1"])
    session = (await before.hear("opened")).opened.session
    revision = (await cluster.holding("n1"))["n1"].mod_revision
    _after = await Speaker.open(two, "fleet-a", ["n1"], session)
    found = await cluster.until(lambda found: found["n1"].mod_revision > revision)
    before.vanish()
    await asyncio.wait_for(one.storage.refused.wait(), PATIENCE)
    assert await cluster.leases() == found


async def test_silent_fleet_loses_its_leases_and_is_notified(cluster: Cluster) -> None:
    server = await cluster.serve(Timing(interval=0.05, silence=0.3, ttl=60))
    silent = await Speaker.open(server, "fleet-a", ["n1"])
    await silent.hear("opened")
    await cluster.holding("n1")
    assert "no heartbeat" in (await silent.hear("lost")).lost.reason
    assert await cluster.leases() == {}


async def test_newer_session_takes_over_nodes_of_an_older_session(cluster: Cluster) -> None:
    one, two = await cluster.serve(), await cluster.serve()
    older = cluster.fleet("fleet-a", ["n1", "n2"], one)
    await cluster.holding("n1", "n2")
    cluster.fleet("fleet-b", ["n2", "n3"], two)
    await asyncio.wait_for(older.was_taken_over.wait(), PATIENCE)
    assert older.taken_over == {"n2": "fleet-b"}
    assert list(older.session.nodes) == ["n1"]
    taken = (await cluster.holding("n1", "n2", "n3"))["n2"]
    lease = Lease.FromString(taken.value)
    assert (lease.spec.holderIdentity, lease.spec.leaseTransitions) == ("fleet-b", 1)


async def test_resumed_session_does_not_take_nodes_from_a_newer_session(cluster: Cluster) -> None:
    """Otherwise, two fleets with the same nodes would take them from each other forever."""
    server = await cluster.serve(TIMING)
    older = await Speaker.open(server, "fleet-a", ["n1", "n2"])
    session = (await older.hear("opened")).opened.session
    await cluster.holding("n1", "n2")
    newer = await Speaker.open(server, "fleet-b", ["n1"])
    await newer.hear("opened")
    await cluster.until(lambda found: Lease.FromString(found["n1"].value).spec.holderIdentity == "fleet-b")
    again = await Speaker.open(server, "fleet-a", ["n1", "n2"], session)
    await again.hear("opened")
    taken_over = (await again.hear("taken_over")).taken_over
    assert (list(taken_over.nodes), taken_over.holder) == (["n1"], "fleet-b")
    assert Lease.FromString((await cluster.leases())["n1"].value).spec.holderIdentity == "fleet-b"


async def test_older_fleet_takes_no_nodes_from_a_newer_fleet(cluster: Cluster) -> None:
    """The older fleet opens a new session and adds nodes. Processes with the same name must not compete."""
    server = await cluster.serve(TIMING)
    older = await Speaker.open(server, "f", ["n1"])
    birth = (await older.hear("opened")).opened.birth
    before = await cluster.holding("n1")
    newer = await Speaker.open(server, "f", ["n1", "n2"])
    assert (await newer.hear("opened")).opened.birth > birth
    found = await cluster.until(lambda found: "n2" in found and found["n1"].lease != before["n1"].lease)
    again = await Speaker.open(server, "f", ["n1"], birth=birth)
    assert (await again.hear("opened")).opened.birth == birth
    assert list((await again.hear("taken_over")).taken_over.nodes) == ["n1"]
    await again.say(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["n2"])))
    assert list((await again.hear("taken_over")).taken_over.nodes) == ["n2"]
    assert await cluster.leases() == found


async def test_older_fleet_reacquires_nodes_that_have_no_holder(cluster: Cluster) -> None:
    await cluster.serve()
    older = cluster.fleet("f", ["n1", "n2"])
    await cluster.holding("n1", "n2")
    newer = cluster.fleet("f", ["n1"])
    await asyncio.wait_for(older.was_taken_over.wait(), PATIENCE)
    await newer.session.close()
    await cluster.holding("n2")
    older.session.add(["n1"])
    await cluster.holding("n1", "n2")
    assert older.taken_over == {"n1": "f"}


async def test_restarted_fleet_takes_over_its_nodes(cluster: Cluster) -> None:
    """The leases of the killed fleet have not expired yet."""
    server = await cluster.serve(Timing(interval=1.0, silence=60.0, ttl=60))
    _killed = await Speaker.open(server, "f", ["n1"])
    before = await cluster.holding("n1")
    _again = await Speaker.open(server, "f", ["n1"])
    await cluster.until(lambda found: found["n1"].lease != before["n1"].lease)


async def test_expired_session_is_replaced(cluster: Cluster) -> None:
    server = await cluster.serve()
    cluster.fleet("fleet-a", ["n1"])
    lease = (await cluster.holding("n1"))["n1"].lease
    await cluster.storage.revoke_lease(lease)
    found = await cluster.until(lambda found: "n1" in found and found["n1"].lease != lease)
    assert found.keys() == {"n1"}
    assert server.cacher.revision


async def test_manually_deleted_lease_is_recreated(cluster: Cluster) -> None:
    await cluster.serve()
    cluster.fleet("fleet-a", ["n1", "n2"])
    revision = (await cluster.holding("n1", "n2"))["n1"].mod_revision
    await cluster.storage.transact([Write(PREFIX + "n1", None, revision)])
    await cluster.holding("n1", "n2")


async def test_release_deletes_only_the_leases_of_the_released_nodes(cluster: Cluster) -> None:
    await cluster.serve()
    fleet = cluster.fleet("fleet-a", ["n1", "n2", "n3"])
    before = await cluster.holding("n1", "n2", "n3")
    fleet.session.release(["n1", "n3", "not-ours"])
    assert await cluster.holding("n2") == {"n2": before["n2"]}
    fleet.session.add(["n1"])
    await cluster.holding("n1", "n2")
    assert list(fleet.session.nodes) == ["n2", "n1"]


async def test_session_forgets_completed_releases(cluster: Cluster) -> None:
    """The session sends its releases again to each new server, so the list must not grow without bounds."""
    await cluster.serve()
    fleet = cluster.fleet("fleet-a", ["n1", "n2", "n3"])
    await cluster.holding("n1", "n2", "n3")
    fleet.session.release(["n1"])
    assert list(fleet.session._released) == ["n1"]
    fleet.session.release(["n3"])
    await cluster.holding("n2")
    await eventually(lambda: not fleet.session._released)


async def test_heartbeat_response_counts_the_completed_releases(cluster: Cluster) -> None:
    speaker = await Speaker.open(await cluster.serve(BRISK), "f", ["n1", "n2"])
    await speaker.hear("opened")
    await cluster.holding("n1", "n2")
    released = []
    for sequence, nodes in enumerate((["n1"], ["unknown"], ["n2"]), 1):
        await speaker.say(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=nodes)))
        while not released or released[-1] < sequence:
            await speaker.say(HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=sequence)))
            released.append((await speaker.hear("ack")).ack.released)
            left = await cluster.leases()
            assert released[-1] < 1 or "n1" not in left
            assert released[-1] < 3 or "n2" not in left
    assert released == sorted(released) and set(released) <= {0, 1, 2, 3}


async def test_node_that_is_added_and_released_gets_no_lease(cluster: Cluster) -> None:
    await cluster.serve()
    fleet = cluster.fleet("fleet-a", ["n1"])
    await cluster.holding("n1")
    fleet.session.add(["n2", "n3"])
    fleet.session.release(["n2"])
    await cluster.holding("n1", "n3")


async def test_next_server_completes_a_release(cluster: Cluster) -> None:
    """The previous server was killed before it deleted the Lease object. The session and its lease are still alive."""
    await cluster.serve(BRISK)
    fleet = await Speaker.open(cluster.servers[0], "f", ["n1", "n2"])
    session = (await fleet.hear("opened")).opened.session
    await cluster.holding("n1", "n2")
    again = await Speaker.open(await cluster.serve(BRISK), "f", ["n2"], session=session)
    await again.hear("opened")
    await again.say(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=["n1", "unknown"])))
    await cluster.holding("n2")


async def test_fleet_cannot_release_a_node_of_another_fleet(cluster: Cluster) -> None:
    server = await cluster.serve(BRISK)
    cluster.fleet("fleet-a", ["n1"])
    before = await cluster.holding("n1")
    other = await Speaker.open(server, "f", ["n2"])
    await other.hear("opened")
    await other.say(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=["n1"])))
    await other.say(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["n3"])))
    assert (await cluster.holding("n1", "n2", "n3"))["n1"] == before["n1"]


async def test_session_without_a_holder_is_invalid(cluster: Cluster) -> None:
    speaker = await Speaker.open(await cluster.serve(), "", ["n1"])
    with pytest.raises(errors.Invalid, match=r"open\.holder: Required value"):
        await speaker.next()


@pytest.mark.parametrize(("holder", "nodes"), [("f", ["../pods/a"]), ("f", ["a", ""]), ("f" * 254, ["a"])])
async def test_session_with_an_invalid_holder_or_node_name_is_rejected(cluster: Cluster, holder: str, nodes: list[str]) -> None:
    fleet = await Speaker.open(await cluster.serve(), holder, nodes)
    with pytest.raises(errors.Invalid, match=r"DNS subdomain names|at most 253 characters"):
        await fleet.next()
    assert not await cluster.leases()


async def test_adding_an_invalid_node_name_ends_the_session(cluster: Cluster) -> None:
    fleet = await Speaker.open(await cluster.serve(BRISK), "f", ["n1"])
    await fleet.hear("opened")
    await fleet.say(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=["a/b"])))
    with pytest.raises(errors.Invalid, match="DNS subdomain names"):
        await fleet.hear("lost")
    assert not await cluster.leases()


async def test_releasing_an_invalid_node_name_ends_the_session(cluster: Cluster) -> None:
    fleet = await Speaker.open(await cluster.serve(BRISK), "f", ["n1"])
    await fleet.hear("opened")
    await fleet.say(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=["a/b"])))
    with pytest.raises(errors.Invalid, match="DNS subdomain names"):
        await fleet.hear("lost")
    assert not await cluster.leases()


async def test_message_with_too_many_nodes_is_rejected(cluster: Cluster) -> None:
    server, many = await cluster.serve(), [f"n{number}" for number in range(MAX_NODES + 1)]
    at_once = await Speaker.open(server, "f", many)
    with pytest.raises(errors.Invalid, match=r"nodes: Too many: 10001: must have at most 10000 items"):
        await at_once.next()
    later = await Speaker.open(server, "f", [])
    await later.hear("opened")
    await later.say(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=many)))
    with pytest.raises(errors.Invalid, match="10001: must have at most 10000 items"):
        await later.hear("lost")


async def test_large_fleet_sends_its_nodes_in_several_messages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_service, "MAX_NODES", 10)
    monkeypatch.setattr(heartbeat, "MAX_NODES_PER_MESSAGE", 10)
    await cluster.serve()
    nodes = [f"n{number}" for number in range(25)]
    fleet = cluster.fleet("fleet-a", nodes)
    await cluster.holding(*nodes)
    more = [f"m{number}" for number in range(25)]
    fleet.session.add(more)
    await cluster.holding(*nodes, *more)
