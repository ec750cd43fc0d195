"""What a search of preemption remembers from one pod to the next is what a search from scratch finds, whatever happens: pods
come, begin and go, nodes change, room is nominated (also for the preemptor itself), and filters fail in between."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from unittest.mock import patch

import pytest

from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import Diagnosis
from pinnace.scheduler.framework.results import PluginError
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from pinnace.scheduler.preemption import CandidateBounds, CandidateFinder, FoundCandidates
from tests.builders import NodeBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, framework, info
from tests.unit.scheduler.preempting import budget

pytestmark = pytest.mark.slow

SEEDS, STEPS, SEED = 80, 60, 7
BUDGETS = [budget("x", "app=x", 1), budget("y", "app=y", 0)]


class World:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.cache = cache_of(*(self.node(number) for number in range(rng.randint(1, 8))))
        self.framework = framework()
        self.equivalence = EquivalenceCache(self.cache.nodes)
        self.bounds = CandidateBounds(rng.choice([0, 10, 50]), rng.randint(1, 4))
        self.known = CandidateFinder(self.bounds)
        self.placed: list[PodInfo] = []
        self.waiting: list[PodInfo] = []
        self.templates = [(rng.randint(1, 5), rng.randint(1, 4)) for _ in range(rng.randint(1, 3))]

    def node(self, number: int) -> NodeBuilder:
        return make_node(f"n{number}").capacity(cpu=self.rng.randint(2, 6), pods=self.rng.randint(2, 6))

    def change(self, name: str) -> None:
        where, kind = self.rng.choice(self.cache.nodes.names), self.rng.random()
        if kind < 0.5:
            made = make_pod(name).req(cpu=self.rng.randint(0, 3)).priority(self.rng.randint(-1, 3))
            pod = info(made.label("app", self.rng.choice("xyz")).node(where))
            self.cache.add_pod(pod, where)
            self.placed.append(pod)
        elif kind < 0.65 and self.placed:
            self.cache.remove_pod(self.placed.pop(self.rng.randrange(len(self.placed))).uid)
        elif kind < 0.8 and self.placed:
            self.cache.set_start_time(self.rng.choice(self.placed).uid, self.rng.randint(1, 9))
        elif kind < 0.9:
            self.cache.nominate_pod(info(make_pod(name).req(cpu=1).priority(self.rng.randint(0, 4))), where)
        elif kind < 0.93:
            self.cache.set_node(self.node(int(where[1:])).build())

    def preemptor(self, name: str) -> PodInfo:
        if not self.waiting or self.rng.random() < 0.4:
            cpu, priority = self.rng.choice(self.templates)
            self.waiting.append(info(make_pod(name).req(cpu=cpu).priority(priority)))
        return self.rng.choice(self.waiting)

    def fail(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        """A filter fails, perhaps, somewhere in a search."""
        lacking = NodeResourcesFit.lacking

        def failing(plugin: NodeResourcesFit, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
            if self.rng.random() < 0.3:
                raise RuntimeError("it fails")
            return lacking(plugin, pod, free)

        with patch.object(NodeResourcesFit, "lacking", failing), suppress(PluginError):
            self.known.find_candidates(pod, diagnosis, self.cache, self.framework, BUDGETS, SEED)


def told(found: FoundCandidates | Diagnosis) -> object:
    if isinstance(found, Diagnosis):
        return found.message
    every = [(item.node, [pod.uid for pod in item.pods], item.violations) for item in found]
    return every, found.best_candidate.node, [pod.uid for pod in found.best_candidate.pods]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_cached_search_equals_new_search(seed: int) -> None:
    world = World(random.Random(seed))
    for step in range(STEPS):
        for index in range(world.rng.randint(0, 3)):
            world.change(f"p{step}-{index}")
        pod = world.preemptor(f"w{step}")
        picked = NodeSelector(world.cache, world.framework, SEED, world.equivalence).select_node(pod, {})
        if not isinstance(picked, Diagnosis):
            world.cache.assume_pod(pod, world.cache.nodes.names[picked])
            world.waiting.remove(pod)
            continue
        if world.rng.random() < 0.2:
            world.fail(pod, picked)
        result = world.known.find_candidates(pod, picked, world.cache, world.framework, BUDGETS, SEED)
        anew = CandidateFinder(world.bounds).find_candidates(pod, picked, world.cache, world.framework, BUDGETS, SEED)
        assert told(result) == told(anew)
        if isinstance(anew, FoundCandidates) and world.rng.random() < 0.7:
            world.cache.nominate_pod(pod, anew.best_candidate.node)
            for victim in anew.best_candidate.pods:
                if world.rng.random() < 0.5:
                    world.cache.remove_pod(victim.uid)
                    world.placed = [item for item in world.placed if item.uid != victim.uid]
