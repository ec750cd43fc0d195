"""Pods that wait for the permission of a plugin, through the whole scheduler."""

import asyncio

import pytest

from pinnace.api.resources import NODES, PODS
from pinnace.scheduler.config import Configuration, with_plugin
from pinnace.scheduler.framework import CycleState, Handle, PodInfo, Status, Wait
from tests.builders import make_node, make_pod
from tests.unit.scheduler.cluster import PATIENCE, QUICK, TICK, Cluster
from tests.unit.scheduler.fake_api import Weather
from tests.unit.scheduler.pod_clients import LosingPods
from tests.unit.scheduler.stage import Stage


class Turnstile:
    """Lets pods through in pairs."""

    name = "Turnstile"

    def __init__(self, handle: Handle) -> None:
        self._waiting = handle.waiting
        self.timeout = PATIENCE
        self.log: list[str] = []
        TURNSTILES.append(self)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        self.log.append(f"reserve {pod.name}")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self.log.append(f"unreserve {pod.name}")

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        first = next(iter(self._waiting), None)
        if first is None:
            return Wait(self.timeout)
        first.allow(self.name)
        return None

    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self.log.append(f"bound {pod.name}")


TURNSTILES: list[Turnstile] = []


class TestPermit:
    @pytest.fixture
    async def turnstile(self, cluster: Cluster) -> Turnstile:
        await cluster.create(make_node("n"))
        self.scheduler = cluster.schedule("s0", configuration=with_plugin(QUICK, f"{__name__}:Turnstile"))
        await cluster.until(cluster.leader)
        return TURNSTILES[-1]

    async def logged(self, cluster: Cluster, turnstile: Turnstile, *expected: str) -> None:
        async def same() -> bool:
            return turnstile.log == list(expected)

        await cluster.until(same)

    async def test_pod_waits_for_another(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        assert not (await cluster.pod("a")).spec.nodeName
        await cluster.create(make_pod("b").req())
        assert (await cluster.bound("a"), await cluster.bound("b")) == ("n", "n")

        async def told() -> bool:
            return turnstile.log[:2] == ["reserve a", "reserve b"] and sorted(turnstile.log[2:]) == ["bound a", "bound b"]

        await cluster.until(told)

    async def test_pod_whose_wait_expires_is_retried(self, cluster: Cluster, turnstile: Turnstile) -> None:
        turnstile.timeout = TICK
        await cluster.create(make_pod("a").req())
        timeout = f"rejected due to timeout after waiting {TICK:g}s at plugin Turnstile"

        async def told() -> bool:
            events = await cluster.events()
            return f"a FailedScheduling: 0/1 nodes are available: 1 {timeout}." in events

        await cluster.until(told)
        turnstile.timeout = PATIENCE

        async def again() -> bool:
            return turnstile.log[:3] == ["reserve a", "unreserve a", "reserve a"]

        await cluster.until(again)

    async def test_pod_that_is_deleted_waits_no_more(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        await cluster.client.pods.delete("a", "default", grace=0)
        await self.logged(cluster, turnstile, "reserve a", "unreserve a")

    async def test_pod_that_is_being_deleted_waits_no_more(self, cluster: Cluster, turnstile: Turnstile) -> None:
        """Somebody's finalizer keeps it, but no node will run it."""
        kept = make_pod("a").req().new()
        kept.metadata.finalizers.append("example.com/keep")
        await cluster.client.pods.create(kept)
        await self.logged(cluster, turnstile, "reserve a")
        await cluster.client.pods.delete("a", "default")
        await self.logged(cluster, turnstile, "reserve a", "unreserve a")
        assert not self.scheduler.count_pending()

    async def test_waiting_pods_are_requeued_at_the_end_of_a_term(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        await cluster.depose()
        await self.logged(cluster, turnstile, "reserve a", "unreserve a", "reserve a")
        await cluster.create(make_pod("b").req())
        assert await cluster.bound("a") == "n"


async def test_unfinished_binds_are_unreserved_in_the_next_term(
    cluster: Cluster,
) -> None:
    await cluster.create(make_node("n"))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on="way there")
    cluster.schedule("s0", client, with_plugin(QUICK, f"{__name__}:Turnstile"))
    await cluster.create(make_pod("a").req(), make_pod("b").req())

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    await cluster.depose()
    losing.lost_on = ""
    await cluster.bound("a")
    log = TURNSTILES[-1].log
    assert sorted(log[2:4]) in (["unreserve a", "unreserve b"], ["bound a", "bound b"])


class Doorman:
    """Sends pods away while the door is closed."""

    name = "Doorman"
    closed = False

    def __init__(self) -> None:
        self.asked: list[float] = []
        DOORMEN.append(self)

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        self.asked.append(asyncio.get_running_loop().time())
        return Wait(0.1) if self.closed else None


DOORMEN: list[Doorman] = []


def test_refusal_is_not_held_against_a_pod_together_with_the_errors_before_it() -> None:
    """Binds fail for so long that the next is tried ten seconds later. Then the pod is refused for the first time."""
    stage = Stage(with_plugin(Configuration(), f"{__name__}:Doorman"))

    async def story() -> None:
        stage.api.weather = lambda: Weather.REFUSED
        stage.api.put(NODES, make_node("n").build())
        stage.api.put(PODS, make_pod("a").build())
        await asyncio.sleep(30.0)
        doorman = DOORMEN[-1]
        doorman.closed, errors = True, len(doorman.asked)
        await asyncio.sleep(15.0)
        refused, again = doorman.asked[errors : errors + 2]
        assert again - refused == pytest.approx(1.1, abs=0.05)

    stage.play(story())
