"""Where a filter says that no pod of the node is to blame, none is: whichever of them leave it, it refuses the pod."""

import random
from collections import Counter

from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, framework, info

TRIES = 300
APPS = ("app=web", "app=db")
TOPOLOGIES = ("zone", "rack")


def some_node(rng: random.Random, name: str) -> NodeBuilder:
    node = make_node(name).capacity(cpu=rng.randint(1, 4), memory="4Gi", pods=rng.choice([1, 10]))
    for topology in TOPOLOGIES:
        if rng.random() < 0.8:
            node.label(topology, rng.choice("ab"))
    return node


def some_pod(rng: random.Random, name: str) -> PodBuilder:
    pod = make_pod(name).req(cpu=rng.choice([0, 0, 1, 3])).label("app", rng.choice(["web", "db"]))
    for _ in range(rng.choice([0, 0, 1, 2])):
        state = rng.choice([pod.affinity, pod.affinity, pod.anti_affinity, pod.spread])
        state(rng.choice(APPS), rng.choice(TOPOLOGIES))
    return pod


def test_it_stays_refused_whoever_leaves() -> None:
    rng, plugins, unresolvable = random.Random(3), framework(), Counter[str]()
    for _ in range(TRIES):
        names = [f"n{number}" for number in range(rng.randint(1, 4))]
        placed = [some_pod(rng, f"p{number}").node(rng.choice(names)) for number in range(rng.randint(0, 6))]
        cache = cache_of(*(some_node(rng, name) for name in names), placed=placed)
        wanted = info(some_pod(rng, "new"))
        for plugin, result in plugins.run_filters({}, wanted, cache.nodes).refusals:
            for row in result.unresolvable().nonzero()[0].tolist() if result.unresolvable is not None else ():
                unresolvable[plugin] += 1
                assert not result.passed[row]
                pods = list(cache.pods_on(cache.nodes.names[row]))
                with cache.what_if() as what_if:
                    for item in rng.sample(pods, rng.randint(0, len(pods))):
                        what_if.remove_pod(item)
                    assert not dict(plugins.run_filters({}, wanted, cache.nodes).refusals)[plugin].passed[row]
    assert min(unresolvable[name] for name in ("InterPodAffinity", "PodTopologySpread", "NodeResourcesFit")) > 20
