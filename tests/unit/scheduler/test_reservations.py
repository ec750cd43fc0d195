"""What plugins set aside in Reserve and give back in Unreserve, through the whole scheduler: who waits for it is tried."""

import asyncio

import pytest

from pinnace.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from pinnace.scheduler.config import Configuration, with_plugin
from pinnace.scheduler.framework import Change, ClusterEvent, CycleState, FilterResult, NodeTable, PodInfo, Status, Wait
from tests.builders import make_node, make_pod
from tests.unit.scheduler.fake_api import Weather
from tests.unit.scheduler.stage import Stage
from tests.unit.scheduler.volume_objects import claim, storage_class, volume

SLOW = "slow"
"""The pod that has what the other one wants."""


class Hold:
    """Lets a pod wait for longer than the test takes."""

    name = "Hold"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        return Wait(600.0) if pod.name == SLOW else None


class License:
    """There is one in the cluster."""

    name = "License"

    def __init__(self) -> None:
        self._holder = ""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(nodes.label("missing").equal("") | bool(self._holder), "no license left")

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        self._holder = pod.uid
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        if self._holder == pod.uid:
            self._holder = ""


class HintedLicense(License):
    """It says what helps."""

    name = "HintedLicense"
    helped_by = Change.RESERVATION_ENDED

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node == "n0"


def configured(*plugins: type) -> Configuration:
    configuration = Configuration()
    for plugin in plugins:
        configuration = with_plugin(configuration, f"{__name__}:{plugin.__name__}")
    return configuration


async def taken(stage: Stage) -> None:
    """One pod has got it, the other one waits for it."""
    stage.api.put(NODES, make_node("n0").build())
    stage.api.put(STORAGE_CLASSES, storage_class("hand"))
    stage.api.put(PERSISTENT_VOLUMES, volume("disk", storage_class="hand"))
    for name in (SLOW, "next"):
        wanted = claim(name, storage_class="hand")
        wanted.metadata.namespace = "default"
        stage.api.put(PERSISTENT_VOLUME_CLAIMS, wanted)
    await asyncio.sleep(1.0)
    for name in (SLOW, "next"):
        stage.api.put(PODS, make_pod(name).claim(name).build())
        await asyncio.sleep(15.0)
    assert stage.node_of("next") == ""


@pytest.mark.parametrize("plugins", [(Hold,), (Hold, License), (Hold, HintedLicense)], ids=["volume", "license", "hint"])
@pytest.mark.parametrize("how", ["deleted", "rejected"])
def test_it_is_given_back(plugins: tuple[type, ...], how: str) -> None:
    stage = Stage(configured(*plugins))

    async def story() -> None:
        await taken(stage)
        if how == "deleted":
            stage.api.remove(PODS, f"default/{SLOW}")
        else:
            waiting = next(iter(stage.schedulers[0]._binder.waiting))
            waiting.reject("Hold", "enough")
        await asyncio.sleep(3.0)
        assert stage.node_of("next")

    stage.play(story())


def test_it_is_given_back_by_an_earlier_term() -> None:
    """The bind was in doubt when the term ended; before the next one began the pod was deleted."""
    stage = Stage(configured(HintedLicense))
    stage.api.weather = lambda: Weather.LOST

    async def story() -> None:
        stage.api.put(NODES, make_node("n0").build())
        stage.api.put(PODS, make_pod(SLOW).build())
        await asyncio.sleep(1.0)
        stage.api.put(PODS, make_pod("next").build())
        await asyncio.sleep(15.0)
        stage.candidate().depose()
        stage.api.remove(PODS, f"default/{SLOW}")
        await asyncio.sleep(1.0)
        stage.api.weather = lambda: Weather.FAIR
        stage.candidate().elect()
        await asyncio.sleep(3.0)
        assert stage.node_of("next")

    stage.play(story())
