"""Preemption on random small clusters is what the rules say, written down once more, plainly, and tried on every node."""

from collections import Counter

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.scheduler.cache.table import SomeNodes
from pinnace.scheduler.cache.what_if import NodeWithPodsRemoved
from pinnace.scheduler.framework import Diagnosis, Nominated, Status
from pinnace.scheduler.preemption import NO_VICTIMS, NOT_HELPFUL, CandidateBounds, CandidateFinder
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.examples import examples
from tests.unit.scheduler import reference
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.preempting import Bench, budget

pytestmark = pytest.mark.slow

PRIORITIES = st.integers(-1, 3)


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodBuilder:
    pod = make_pod(name).req(cpu=draw(st.integers(0, 3)), memory=draw(st.integers(0, 3))).priority(draw(PRIORITIES))
    if draw(st.integers(0, 3)) == 0:
        pod.host_port(80)
    if draw(st.booleans()):
        pod.label("app", draw(st.sampled_from("xy")))
    return pod.started(draw(st.integers(1, 3))) if draw(st.booleans()) else pod


Cluster = tuple[list[NodeBuilder], list[PodBuilder], list[PodDisruptionBudget]]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = []
    for i in range(draw(st.integers(1, 4))):
        nodes.append(make_node(f"n{i}").capacity(cpu=draw(st.integers(0, 5)), memory=draw(st.integers(0, 5)), pods=4))
        if draw(st.integers(0, 4)) == 0:
            nodes[-1].taint("a")
    placed = [draw(pods(f"p{i}")).node(f"n{draw(st.integers(0, len(nodes) - 1))}") for i in range(draw(st.integers(0, 8)))]
    budgets = [budget(app, f"app={app}", draw(st.integers(0, 2))) for app in draw(st.sets(st.sampled_from("xy")))]
    return nodes, placed, budgets


@settings(max_examples=examples(60), deadline=None)
@given(clusters(), pods("new"))
def test_plain_rules(cluster: Cluster, new: PodBuilder) -> None:
    builders, placed, budgets = cluster
    bench = Bench(cache_of(*builders, placed=placed), *budgets)
    if bench.framework.run_filters({}, info(new), bench.cache.nodes).feasible.any():
        return
    best: list[tuple[object, str, list[Pod]]] = []
    for builder in builders:
        node = builder.build()
        on_node = [pod for item in placed if (pod := item.build()).spec.nodeName == node.metadata.name]
        victims, violations = plain_victims(new.build(), node, on_node, budgets)
        if victims:
            best.append((plain_rank(victims, violations), node.metadata.name, victims))
    answer = bench.preempt(new)
    event(f"candidates: {min(len(best), 2)}")
    if not best:
        counts = Counter(reason for item in builders for reason in plain_reasons(new.build(), item.build(), placed))
        listed = ", ".join(sorted(f"{number} {reason}" for reason, number in counts.items()))
        assert answer == Status(f"preemption: 0/{len(builders)} nodes are available: {listed}.") and not bench.evicted
        return
    assert isinstance(answer, Nominated)
    least = min(rank for rank, _, _ in best)
    expected = {name: sorted(pod.metadata.name for pod in victims) for rank, name, victims in best if rank == least}
    assert sorted(bench.evicted) == expected[answer.node]


def plain_reasons(new: Pod, node: Node, placed: list[PodBuilder]) -> list[str]:
    """Of a node on which preemption does not help."""
    pods = [pod for item in placed if (pod := item.build()).spec.nodeName == node.metadata.name]
    staying = [pod for pod in pods if pod.spec.priority >= new.spec.priority]
    reasons = reference.reasons(new, node, pods)
    lacking = {item.reason for item in fit.check_fit(new, node, []) if item.resource}
    if any("taint" in reason for reason in reasons) or lacking.intersection(reasons):
        return [NOT_HELPFUL]
    return [NO_VICTIMS] if len(staying) == len(pods) else reference.reasons(new, node, staying)


def plain_victims(new: Pod, node: Node, pods: list[Pod], budgets: list[PodDisruptionBudget]) -> tuple[list[Pod], int]:
    """Of one node, and how many violate a budget."""
    lower = sorted(
        (pod for pod in pods if pod.spec.priority < new.spec.priority),
        key=lambda pod: (-pod.spec.priority, _started(pod), pod.metadata.uid),
    )
    staying = [pod for pod in pods if pod.spec.priority >= new.spec.priority]
    if reference.reasons(new, node, staying):
        return [], 0
    allowed = {item.metadata.name: item.status.disruptionsAllowed for item in budgets}
    protected = []
    for pod in lower:
        app = pod.metadata.labels.get("app", "")
        if app in allowed:
            allowed[app] -= 1
            if allowed[app] < 0:
                protected.append(pod)
    victims = []
    for pod in [*protected, *(pod for pod in lower if pod not in protected)]:
        if reference.reasons(new, node, [*staying, pod]):
            victims.append(pod)
        else:
            staying.append(pod)
    return victims, sum(pod in protected for pod in victims)


def plain_rank(victims: list[Pod], violations: int) -> tuple[float, ...]:
    highest = max(pod.spec.priority for pod in victims)
    total = sum(pod.spec.priority + 2**31 for pod in victims)
    return violations, highest, total, len(victims), -min(_started(pod) for pod in victims if pod.spec.priority == highest)


def _started(pod: Pod) -> float:
    return pod.status.startTime.seconds if pod.status.HasField("startTime") else float("inf")


@settings(max_examples=examples(30), deadline=None)
@given(clusters(), pods("new"), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), max_size=6))
def test_cached_victims_equal_computed_victims(cluster: Cluster, new: PodBuilder, changes: list[tuple[int, int]]) -> None:
    """Pods come, go, begin and are nominated between two pods that are alike."""
    builders, placed, budgets = cluster
    bench = Bench(cache_of(*builders, placed=placed), *budgets)
    cache, bounds, known = bench.cache, CandidateBounds(50, 1), CandidateFinder(CandidateBounds(50, 1))

    def candidates(search: CandidateFinder) -> list[tuple[str, list[str], int]] | None:
        pod = info(new)
        diagnosis = bench.framework.run_filters({}, pod, cache.nodes.subtract_reserved(pod.priority, pod.uid))
        if diagnosis.feasible.any():
            return None
        result = search.find_candidates(pod, diagnosis, cache, bench.framework, budgets, 0)
        return [] if isinstance(result, Diagnosis) else [(v.node, [p.uid for p in v.pods], v.violations) for v in result]

    for number, (what, where) in enumerate([(7, 0), *changes]):
        node = f"n{where % len(builders)}"
        if what < len(placed):
            cache.remove_pod(info(placed[what]).uid)
        elif what == 6:
            cache.nominate_pod(info(make_pod(f"other{number}").req(cpu=1).priority(2)), node)
        else:
            cache.add_pod(info(make_pod(f"more{number}").req(cpu=1).priority(where - 1).node(node)), node)
        assert candidates(known) == candidates(CandidateFinder(bounds))


@settings(max_examples=examples(30), deadline=None)
@given(clusters(), pods("new"), st.sets(st.integers(0, 7)))
def test_node_by_itself_is_judged_as_among_all(cluster: Cluster, new: PodBuilder, gone: set[int]) -> None:
    """With some of the pods thought away."""
    builders, placed, _ = cluster
    bench, pod = Bench(cache_of(*builders, placed=placed)), info(new)
    nodes = bench.cache.nodes
    one_by_one = bench.framework.single_node_filter(bench.framework.run_filters({}, pod, nodes))
    assert one_by_one is not None
    away = {info(placed[index]).uid for index in gone if index < len(placed)}
    leaving = [item for name in nodes.names for item in bench.cache.pods_on(name) if item.uid in away]
    rows = range(len(nodes))
    with bench.cache.what_if() as what_if:
        for item in leaving:
            what_if.remove_pod(item)
        judged = bench.framework.run_filters({}, pod, nodes)
        among_all = [judged.passes(row) for row in rows]
        assert [one_by_one.passes_filters(pod, row, SomeNodes(nodes, slice(row, row + 1))) for row in rows] == among_all
    freed = [NodeWithPodsRemoved(nodes, row) for row in rows]
    for item in leaving:
        freed[nodes.rows([item.node])[0]].remove_pod(item)
    if one_by_one.depends_on_resources_only:
        assert [one_by_one.passes_filters(pod, row, freed[row]) for row in rows] == among_all
    event(f"they see room: {one_by_one.depends_on_resources_only}")


def test_with_affinity_no_node_is_judged_by_itself() -> None:
    bench = Bench(cache_of(make_node("n").capacity(cpu=1, memory=1, pods=4)))
    pod = info(make_pod("new").req(cpu=1).affinity("app=x", "zone"))
    assert bench.framework.single_node_filter(bench.framework.run_filters({}, pod, bench.cache.nodes)) is None
