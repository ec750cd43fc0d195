"""What becomes of binds whose answer does not come, and of those of a leader that is deposed."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from pinnace.scheduler.binding_cycle import IN_FLIGHT
from tests.builders import make_node, make_pod
from tests.unit.scheduler.cluster import PATIENCE, TICK, Cluster, small
from tests.unit.scheduler.pod_clients import LatePods, LosingPods, StuckPods


def decisions() -> float:
    return (
        REGISTRY.get_sample_value("scheduler_schedule_attempts_total", {"profile": "default-scheduler", "result": "scheduled"})
        or 0.0
    )


@pytest.mark.parametrize("lost_on", ["way there", "way back"])
async def test_bind_whose_answer_is_lost_is_found_out_about(cluster: Cluster, lost_on: str) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on=lost_on)
    cluster.schedule("s0", client)

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    losing.lost_on = ""
    assert await cluster.bound("a") == "n"

    async def told() -> bool:
        return "a Scheduled: Successfully assigned default/a to n" in await cluster.events()

    await cluster.until(told)


async def test_binds_that_were_lost_with_a_term_are_settled_in_the_next(cluster: Cluster) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on="way there")
    cluster.schedule("s0", client)

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    await cluster.depose()
    losing.lost_on = ""
    assert await cluster.bound("a") == "n"


async def test_fenced_leader_stops(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req())
    client = cluster.connect()
    client.pods = late = LatePods(client.connection)
    scheduler = cluster.schedule("s0", client)
    await asyncio.wait_for(late.fenced.wait(), PATIENCE)
    await cluster.create(make_pod("b").req())

    async def waiting() -> bool:
        return scheduler.count_pending() == {"active": 1}

    await cluster.until(waiting)
    await asyncio.sleep(2 * TICK)  # what must not happen has this long to happen
    assert await waiting() and late.calls == 1
    assert not (await cluster.pod("a")).spec.nodeName and await cluster.events() == []


async def test_decisions_that_were_not_sent_are_taken_back_with_the_term(cluster: Cluster) -> None:
    await cluster.create(make_node("n"))
    client = cluster.connect()
    client.pods = stuck = StuckPods(client.connection)
    scheduler = cluster.schedule("s0", client)
    before = decisions()

    async def decided() -> bool:
        return decisions() - before == number + 1

    for number in range(IN_FLIGHT + 1):
        await cluster.create(make_pod(f"p{number}").req())
        await cluster.until(decided)
    assert stuck.calls == IN_FLIGHT
    await scheduler.stop()
    assert scheduler.count_pending() == {"active": 1}
