"""What a scheduler shows of itself: its queue, and its cache beside the informers."""

import json
from types import SimpleNamespace
from typing import cast

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.records import CacheDump, QueueDump, from_json, to_json
from pinnace.cli.verbs.sched import cache_lines, queue_lines
from pinnace.runtime.logs import StateDumped
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.debugger import MOST, Debugger
from pinnace.scheduler.framework.profile import WaitingPods
from pinnace.scheduler.framework.runtime import Profiles
from pinnace.scheduler.informers import Informers
from pinnace.scheduler.queue import SchedulingQueue
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.clock import FakeClock
from tests.logged import logged
from tests.unit.scheduler.pods import framework, info


class World:
    """A debugger, and what it looks at."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cache = Cache()
        self.queue = SchedulingQueue(Profiles({"default-scheduler": framework()}))
        self.waiting = WaitingPods(lambda: None)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        informers = SimpleNamespace(nodes=SimpleNamespace(store=self.nodes), pods=SimpleNamespace(store=self.pods))
        self.debugger = Debugger(
            "scheduler-1",
            self.cache,
            self.queue,
            cast(Informers, informers),
            self.waiting,
            lambda: True,
            clock=self.clock,
        )

    def node(self, builder: NodeBuilder) -> None:
        node = builder.build()
        self.nodes[node.metadata.name] = node
        self.cache.set_node(node)

    def pod(self, builder: PodBuilder) -> None:
        """The informer has it, the cache has not."""
        pod = builder.build()
        self.pods[f"default/{pod.metadata.name}"] = pod

    @property
    def queue_lines(self) -> list[str]:
        """What `pinnace sched queue` prints, of what comes over HTTP."""
        return list(queue_lines(from_json(QueueDump, json.loads(json.dumps(to_json(self.debugger.show_queue()))))))

    @property
    def cache_lines(self) -> list[str]:
        """Likewise `pinnace sched dump`."""
        return list(cache_lines(from_json(CacheDump, json.loads(json.dumps(to_json(self.debugger.show_cache()))))))

    @property
    def differences(self) -> list[str]:
        return list(self.debugger.show_cache().differences.first)


@pytest.fixture
def world() -> World:
    world = World()
    world.node(make_node("n0"))
    return world


async def test_queue_by_place(world: World) -> None:
    queue, now = world.queue, world.clock.monotonic()
    for name in ("failed", "fails-again"):
        queue.add_pod(info(make_pod(name)), now)
        queued = queue.pop_pod(now)
        assert queued is not None
        if name == "failed":
            queue.add_unschedulable(queued, frozenset({"NodeResourcesFit", "TaintToleration"}), now)
        else:
            queue.add_failed(queued, now)
    queue.add_pod(info(make_pod("next").priority(7)), now)
    queue.add_pod(info(make_pod("gated").gate("quota")), now)
    world.waiting.add_pod(info(make_pod("gang")), "n0", {"Gang": 60.0}, now)
    await world.clock.advance(0.2)
    assert world.queue_lines == [
        "scheduler-1: 1 active, 1 backoff, 1 unschedulable, 1 gated, 1 wait in Permit",
        "POD                   PLACE           PRIORITY   ATTEMPTS   SINCE   BACKOFF   WAITS FOR",
        "default/next          active          7          0          0s",
        "default/fails-again   backoff         0          1          0s      0.8s",
        "default/failed        unschedulable   0          1          0s                NodeResourcesFit, TaintToleration",
        "default/gated         gated           0          0          0s                SchedulingGates",
        "default/gang          permit on n0                                            Gang",
    ]


def test_dump_shows_the_first_pods(world: World) -> None:
    for number in range(MOST + 3):
        world.queue.add_pod(info(make_pod(f"p{number}")), 0.0)
    text = world.queue_lines
    assert text[0].startswith(f"scheduler-1: {MOST + 3} active") and text[-1] == "... and 3 more"


def test_cache_that_agrees(world: World) -> None:
    there = make_pod("there").req(cpu="1500m", memory="1Gi").node("n0")
    world.pod(there)
    world.cache.add_pod(info(there), "n0")
    world.cache.assume_pod(info(make_pod("soon")), "n0")
    world.pod(make_pod("soon"))
    assert world.cache_lines == [
        "scheduler-1: 1 nodes, 2 pods on them, 1 of these assumed",
        "The cache and the informers agree.",
        "ASSUMED POD    NODE",
        "default/soon   n0",
        "NODE   FREE PODS    FREE CPU     FREE MEMORY",
        "n0     108 of 110   2500m of 4   31Gi of 32Gi",
    ]


def test_differences_are_named(world: World) -> None:
    world.nodes["n1"] = make_node("n1").build()
    world.cache.set_node(make_node("n2").build())
    world.nodes["n0"] = make_node("n0").version(2).build()
    world.pod(make_pod("missed").node("n0"))
    world.cache.add_pod(info(make_pod("gone").uid("uid-gone").node("n0")), "n0")
    assert world.differences == [
        "node n1: missing from the cache",
        "node n0: the cache has version 1, the informer 2",
        "node n2: only in the cache",
        "pod default/missed: on no node in the cache, on n0 in the informer",
        "pod with UID uid-gone: only in the cache, on n0",
    ]


def test_sums_that_are_wrong_are_named(world: World) -> None:
    pod = make_pod("a").req(cpu=1).node("n0")
    world.pod(pod)
    world.cache.add_pod(info(pod), "n0")
    assert not world.differences
    world.cache.nodes.remove_requests("n0", info(make_pod("b").req(cpu=1)).requests)
    assert sorted(world.differences) == [
        "node n0: the table has 110 of pods free, but the pods leave 109",
        "node n0: the table has 4000 of cpu free, but the pods leave 3000",
    ]


def test_both_go_to_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        world.debugger.log_state()
    dumped = [(item.part, item.state["name"]) for item in logged(caplog, StateDumped)]
    assert dumped == [("queue", "scheduler-1"), ("cache", "scheduler-1")]


async def test_documents(world: World) -> None:
    """What scripts read by `-o json`: their keys, and the order of these."""
    now = world.clock.monotonic()
    for name in ("fails", "refused"):
        world.queue.add_pod(info(make_pod(name)), now)
        queued = world.queue.pop_pod(now)
        assert queued is not None
        if name == "fails":
            world.queue.add_failed(queued, now)
        else:
            world.queue.add_unschedulable(queued, frozenset({"NodeResourcesFit"}), now)
    world.waiting.add_pod(info(make_pod("gang")), "n0", {"Gang": 60.0}, now)
    await world.clock.advance(0.98)
    entry = {"priority": 0, "attempts": 1, "seconds": 1.0}
    permit = {"pod": "default/gang", "node": "n0", "plugins": ["Gang"]}
    assert json.dumps(to_json(world.debugger.show_queue())) == json.dumps(
        {
            "name": "scheduler-1",
            "leading": True,
            "counts": {"backoff": 1, "unschedulable": 1},
            "places": {
                "backoff": [{"pod": "default/fails", **entry, "refusedBy": [], "backoff": 0.0}],
                "unschedulable": [{"pod": "default/refused", **entry, "refusedBy": ["NodeResourcesFit"]}],
            },
            "permit": {"number": 1, "first": [permit]},
        }
    )
    world.cache.assume_pod(info(make_pod("soon").req(cpu=1)), "n0")
    world.pod(make_pod("soon"))
    world.pod(make_pod("missed").node("n0"))
    room = {"node": "n0", "free": {"cpu": "3", "memory": "32Gi", "pods": "109"}}
    assert json.dumps(to_json(world.debugger.show_cache())) == json.dumps(
        {
            "name": "scheduler-1",
            "leading": True,
            "nodes": {"number": 1, "first": [room | {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}]},
            "pods": 1,
            "assumed": {"number": 1, "first": [{"pod": "default/soon", "node": "n0"}]},
            "differences": {
                "number": 1,
                "first": ["pod default/missed: on no node in the cache, on n0 in the informer"],
            },
        }
    )
