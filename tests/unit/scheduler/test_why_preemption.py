"""What `pinnace why` says of room that is kept for nominated pods, and of room that preemption could make."""

from textwrap import dedent

import pytest

from pinnace.scheduler.config import with_plugin
from pinnace.scheduler.explain.explain import MAX_PREEMPTION_NODES
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, Unschedulable, schedule_one
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.asking_why import NO_PREEMPTION, THREE, details, explained, remedies, why
from tests.unit.scheduler.pods import cache_of, framework, info


class TestNominated:
    """Room is kept for pods whose victims are going, as the scheduler keeps it."""

    BOSS = make_pod("boss").req(cpu="3").priority(1000).nominated("n0")
    KEPT = "because resources are reserved for default/boss"

    def test_room_that_is_kept_is_no_room(self) -> None:
        assert why(make_pod("small").req(cpu=2), THREE[:1], [self.BOSS]) == dedent(f"""\
            pod default/small is pending: no node is feasible.
            0/1 nodes are available: 1 Insufficient cpu.

            Reasons why nodes are not feasible (ALONE: nodes with only this reason):
              PLUGIN             NODES   ALONE   REASON             WHICH
              NodeResourcesFit   1       1       Insufficient cpu   n0

            The smallest change that would make a node feasible:
              * free 1 cpu on n0, or reduce its requests accordingly: it requests 2 cpu, 1 of 4 is free, {self.KEPT}  -> n0
        """)
        assert details(make_pod("small").req(cpu=2), THREE[:1], [self.BOSS]) == [
            f"NodeResourcesFit: Insufficient cpu: it requests 2 cpu, 1 of 4 is free, {self.KEPT}, 1 is missing"
        ]
        one = make_node("n0").capacity(cpu=4, memory="1Gi", pods=1)
        assert remedies(make_pod("small"), [one], [self.BOSS]) == [
            "free room for 1 pod on n0: it runs 0 of at most 1 pods, and resources are reserved for default/boss -> n0"
        ]

    @pytest.mark.parametrize(
        "nominated",
        [
            make_pod("boss").req(cpu="3").priority(-1).nominated("n0"),
            make_pod("boss").req(cpu="3").priority(1000).nominated("n0").terminating(),
            make_pod("boss").req(cpu="3").priority(1000).nominated("n0").scheduler("another"),
            make_pod("boss").req(cpu="3").priority(1000).nominated("n0").node("n1"),
            make_pod("boss").req(cpu="3").priority(1000).nominated("gone"),
            make_pod("small").req(cpu="3").priority(1000).nominated("n0"),
        ],
        ids=["less important", "being deleted", "another scheduler's", "bound elsewhere", "nowhere", "itself"],
    )
    def test_nominated_pod_keeps_no_room(self, nominated: PodBuilder) -> None:
        assert explained(make_pod("small").req(cpu=2), THREE[:1], [nominated]).feasible == 1

    def test_spared_pods_count_in_no_score(self) -> None:
        """As in the scheduler: who is nominated may go elsewhere."""
        (kept,) = explained(make_pod("small").req(cpu=1), THREE[:1], [self.BOSS]).ranking
        (free,) = explained(make_pod("small").req(cpu=1), THREE[:1]).ranking
        assert kept == free

    def test_ports_and_neighbours_count_too(self) -> None:
        boss = make_pod("boss").priority(1000).nominated("n0").host_port(80).label("app", "web")
        web = make_pod("web").host_port(80)
        assert explained(web, THREE[:2], [boss]).feasible == 1
        assert remedies(web, THREE[:1], [boss]) == ["free host port 80/TCP, which default/boss uses on n0 -> n0"]
        assert details(web, THREE[:1], [boss]) == ["NodePorts: host port 80/TCP is used by default/boss"]
        away = make_pod("away").anti_affinity("app=web", "kubernetes.io/hostname")
        assert details(away, THREE[:1], [boss]) == [
            "InterPodAffinity: its anti-affinity excludes pods with app=web in the same kubernetes.io/hostname: default/boss"
        ]

    def test_reason_is_reported_once(self) -> None:
        """Of two nodes one has the port taken, on the other it is kept: it is one reason, and one remedy."""
        placed = [make_pod("boss").priority(1000).nominated("n0").host_port(80), make_pod("b").host_port(80).node("n1")]
        result = explained(make_pod("web").host_port(80), THREE[:2], placed)
        assert [(refusal.plugin, refusal.nodes, refusal.alone) for refusal in result.refusals] == [
            ("NodePorts", ["n0", "n1"], 2)
        ]
        assert result.message == "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
        assert [remedy.nodes for remedy in result.remedies] == [["n0", "n1"]]

    def test_preemption_does_not_free_what_is_kept(self) -> None:
        pod = make_pod("a").req(cpu=3).priority(10)
        victim = make_pod("victim").req(cpu=3).priority(1).node("n0")
        assert explained(pod, THREE[:1], [victim, self.BOSS]).preemption == (
            "it would not help: no node fits the pod even without its pods of lower priority than 10"
        )

    @pytest.mark.parametrize(("cpu", "ports"), [(1, [80]), (2, [80]), (1, [80, 80, 80]), (2, [])])
    def test_it_is_what_the_scheduler_says(self, cpu: int, ports: list[int]) -> None:
        cache, pod = cache_of(*THREE), make_pod("small").req(cpu=cpu).host_port(80)
        nominated = [make_pod(f"boss-{i}").req(cpu=3).priority(1000).nominated(f"n{i}") for i in range(3)]
        for each, port in zip(nominated, ports, strict=False):
            each.host_port(port)
        for item in nominated:
            cache.nominate_pod(info(item), item.build().status.nominatedNodeName)
        decided = schedule_one(info(pod), NodeSelector(cache, framework(), 0))
        result = explained(pod, THREE, nominated)
        assert (result.feasible > 0) == isinstance(decided, Placed)
        assert result.message == (decided.message if isinstance(decided, Unschedulable) else "")


def test_preemptible() -> None:
    pod = make_pod("a").req(cpu=3).priority(10)
    placed = [
        make_pod("more").req(cpu=2).priority(5).node("n0"),
        make_pod("less").req(cpu=1).priority(1).node("n0"),
        make_pod("mighty").req(cpu=2).priority(10).node("n1"),
    ]
    would = "1 node fits the pod without its pods of lower priority than 10; on n0 the victims would be default/more"
    assert explained(pod, THREE[:2], placed).preemption == f"{would}; but no plugin of the profile preempts"
    preempting = with_plugin(NO_PREEMPTION, "tests.unit.scheduler.test_why_preemption:Preempts")
    assert f"\nPreemption: {would}.\n" in why(pod, THREE[:2], placed, configuration=preempting)
    never = make_pod("a").req(cpu=3).priority(10).preemption_policy("Never")
    assert f"\nPreemption: {would}; but its preemptionPolicy is Never.\n" in why(never, THREE[:2], placed)
    assert explained(make_pod("a").req(cpu=5).priority(10), THREE[:2], placed).preemption == (
        "it would not help: no node fits the pod even without its pods of lower priority than 10"
    )
    assert explained(make_pod("a").req(cpu=3), THREE[:2], placed).preemption == ""


class TestOneNodeIsEmptied:
    """As by the scheduler: the pods of all other nodes stay."""

    NODES = (make_node("n0").label("zone", "a").capacity(cpu=1, memory="8Gi", pods=9), make_node("n1").label("zone", "a"))

    def test_affinity_target_is_not_a_victim(self) -> None:
        placed = [make_pod("db").req(cpu=1).label("app", "db").node("n0"), make_pod("busy").req(cpu=4).node("n1")]
        boss = make_pod("boss").req(cpu=2).priority(10).affinity("app=db", "zone")
        assert explained(boss, self.NODES, placed).preemption.startswith(
            "1 node fits the pod without its pods of lower priority than 10; on n1 the victims would be default/busy"
        )

    def test_victims_on_other_nodes_are_kept(self) -> None:
        placed = [make_pod(f"x{node}").label("app", "x").node(f"n{node}") for node in range(2)]
        boss = make_pod("boss").priority(10).anti_affinity("app=x", "zone")
        assert explained(boss, self.NODES, placed).preemption == (
            "it would not help: no node fits the pod even without its pods of lower priority than 10"
        )

    def test_many_are_not_counted(self) -> None:
        nodes = [make_node(f"n{number}") for number in range(MAX_PREEMPTION_NODES + 1)]
        placed = [make_pod(f"b{number}").req(cpu=4).node(f"n{number}") for number in range(MAX_PREEMPTION_NODES + 1)]
        assert explained(make_pod("a").req(cpu=1).priority(10), nodes, placed).preemption.startswith(
            "100 nodes or more fit the pod without their pods of lower priority than 10; on n"
        )


class Preempts:
    name = "Preempts"

    def post_filter(self, *_: object) -> None:
        raise AssertionError("an explanation makes no room")
