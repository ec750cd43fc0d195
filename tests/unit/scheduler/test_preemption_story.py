"""A pod that preempts another, through the whole scheduler. The kubelet's part, removing the victim, is played by hand."""

import pytest

from pinnace.api.pods_pb2 import Fence
from pinnace.client.election import LeaderElector
from tests.builders import make_pod
from tests.unit.scheduler.cluster import Cluster, sees, small


async def test_pod_preempts_another_and_its_room_is_kept(cluster: Cluster) -> None:
    await cluster.create_class("high")
    await cluster.create(small("n"), make_pod("low").req(cpu=1))
    cluster.schedule("s0")
    await cluster.bound("low")
    await cluster.create(make_pod("high").req(cpu=1).priority_class("high"))

    async def preempted() -> bool:
        high, low = await cluster.pod("high"), await cluster.pod("low")
        return high.status.nominatedNodeName == "n" and low.metadata.HasField("deletionTimestamp")

    await cluster.until(preempted)
    condition = next(item for item in (await cluster.pod("low")).status.conditions if item.type == "DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
    assert condition.message == "default-scheduler: preempting to accommodate a higher priority pod"

    await cluster.create(make_pod("late").req(cpu=1).priority_class("high"))

    async def refused() -> bool:
        return any(
            event.startswith("late FailedScheduling: 0/1 nodes are available: 1 Insuff") for event in await cluster.events()
        )

    await cluster.until(refused)
    await cluster.client.pods.delete("low", "default", grace=0)
    assert await cluster.bound("high") == "n"
    assert not (await cluster.pod("late")).spec.nodeName

    async def told() -> bool:
        events = await cluster.events()
        return (
            "low Preempted: Preempted by pod default/high on node n" in events
            and "high FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu." in events
        )

    await cluster.until(told)


async def test_new_leader_keeps_the_room_too(cluster: Cluster) -> None:
    await cluster.create_class("high")
    await cluster.create(small("n"), make_pod("low").req(cpu=1))
    first = cluster.schedule("s0")
    await cluster.bound("low")
    await cluster.create(make_pod("high").req(cpu=1).priority_class("high"))

    async def preempted() -> bool:
        return (await cluster.pod("high")).status.nominatedNodeName == "n"

    await cluster.until(preempted)
    await cluster.kill(first)
    await cluster.create(make_pod("other").req(cpu=1))
    second = cluster.schedule("s1")
    await cluster.until(lambda: sees(second, 2))
    assert second._cache.nodes.nominated.node_of((await cluster.pod("high")).metadata.uid) == "n"
    await cluster.client.pods.delete("low", "default", grace=0)
    assert await cluster.bound("high") == "n"


async def test_deposed_scheduler_deletes_no_victims(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.create_class("high")
    await cluster.create(small("n"), make_pod("low").req(cpu=1))
    deposed = cluster.schedule("s0")
    await cluster.bound("low")
    monkeypatch.setattr(LeaderElector, "fence", Fence(election="scheduler", token=1))
    await cluster.create(make_pod("high").req(cpu=1).priority_class("high"))
    uid = (await cluster.pod("high")).metadata.uid

    async def tried() -> bool:
        return bool(deposed._cache.nodes.nominated.node_of(uid)) and not deposed._evictions._pending

    await cluster.until(tried)
    high, low = await cluster.pod("high"), await cluster.pod("low")
    assert not low.metadata.HasField("deletionTimestamp") and not high.status.nominatedNodeName
    assert not any(condition.type == "DisruptionTarget" for condition in low.status.conditions)
