"""Events about pods that name a scheduler that does not run."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.verbs_pb2 import ADDED, DELETED
from pinnace.client.informer import Delta, Index
from pinnace.controllers import schedulernames
from pinnace.controllers.schedulernames import (
    INTERVAL,
    SchedulerNameController,
    find_missing_schedulers,
    pending_scheduler_name,
)
from tests.builders import PodBuilder, make_pod

USUAL = Election(name="scheduler", holder="s", scheduler_names=["default-scheduler"])
CHEAP = Election(name="cheap", holder="c", scheduler_names=["cheap"])
MESSAGE = 'no running scheduler has a profile named "cheap"; profiles: default-scheduler'


@pytest.mark.parametrize(
    ("pod", "scheduler"),
    [
        (make_pod("p"), "default-scheduler"),
        (make_pod("p").scheduler("cheap"), "cheap"),
        (make_pod("p").scheduler("cheap").node("n"), ""),
        (make_pod("p").gate("g"), ""),
        (make_pod("p").terminating(), ""),
        (make_pod("p").phase("Failed"), ""),
    ],
)
def test_unscheduled_pod_waits_for_its_scheduler(pod: PodBuilder, scheduler: str) -> None:
    assert pending_scheduler_name(pod.build()) == scheduler


def test_missing_schedulers_are_listed_with_a_message() -> None:
    names = {"default-scheduler", "cheap"}
    assert find_missing_schedulers(names, [USUAL]) == {"cheap": MESSAGE}
    assert find_missing_schedulers(names, [USUAL, CHEAP]) == {}
    assert (
        find_missing_schedulers(names, []) == find_missing_schedulers(names, [Election(name="controllers", holder="x")]) == {}
    ), "without any scheduler, no name is reported"


class World:
    """A controller with these pods. `events` has the recorded events with the names of their pods."""

    def __init__(self, *pods: PodBuilder) -> None:
        self.index: Index[Pod] = Index(pending_scheduler_name, [pod.build() for pod in pods])
        self.elections: list[Election] = [USUAL]
        self.asked = 0
        self.events: list[tuple[str, ...]] = []
        informers = SimpleNamespace(index=lambda resource, by: self.index)
        shared: Any = SimpleNamespace(client=SimpleNamespace(elections=self), informers=informers, events=self)
        self.controller = SchedulerNameController(shared)

    async def list(self) -> "list[Election]":
        self.asked += 1
        return self.elections

    def event(self, pod: Pod, *said: str) -> None:
        self.events.append((pod.metadata.name, *said))

    async def look(self, times: int = 1) -> "list[str]":
        """Sync, and return the names of the pods that got an event."""
        self.events = []
        for _ in range(times):
            assert await self.controller.sync("pods") == INTERVAL
        return [name for name, *_ in self.events]


async def test_pod_with_an_unknown_scheduler_gets_one_event() -> None:
    """kubernetes#116982: such a pod stays pending, without an explanation."""
    world = World(make_pod("a").scheduler("cheap"), make_pod("b"))
    assert await world.look() == [], "the scheduler may become leader soon"
    assert await world.look() == ["a"]
    assert world.events == [("a", "Warning", "FailedScheduling", MESSAGE)]
    assert await world.look(3) == []
    world.index.apply_deltas([Delta(ADDED, make_pod("c").scheduler("cheap").build(), None)])
    assert await world.look() == ["c"]


async def test_scheduler_that_recovers_in_time_causes_no_event() -> None:
    world = World(make_pod("a").scheduler("cheap"))
    await world.look()
    world.elections = [USUAL, CHEAP]
    assert await world.look() == []
    world.elections = [USUAL]
    assert await world.look() == [] and await world.look() == ["a"]


async def test_elections_are_not_read_without_waiting_pods() -> None:
    pod = make_pod("a").scheduler("cheap")
    world = World(pod)
    world.index.apply_deltas([Delta(DELETED, pod.build(), pod.build())])
    assert await world.look(3) == [] and world.asked == 0


async def test_events_of_many_pods_are_spread_over_several_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulernames, "MOST", 2)
    world = World(*(make_pod(f"p{i}").scheduler("cheap") for i in range(5)))
    await world.look()
    assert [len(await world.look()) for _ in range(4)] == [2, 2, 1, 0]
