"""Questions of each kind, and the exact words of the answers: from the objects of a cluster to what `pinnace why` prints."""

import asyncio
import inspect
import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message import Message

from pinnace.api.core_v1_pb2 import Event, PersistentVolumeClaim, Pod
from pinnace.api.explanation import Explanation
from pinnace.api.jsonrecords import from_json, to_json
from pinnace.api.resources import ALL, NODES, PODS, Object
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.cli.why.process import understood
from pinnace.cli.why.text import lines
from pinnace.client.errors import Forbidden
from scheduler.config import Configuration, parse, with_plugin
from scheduler.cycle import Placed, Unschedulable, schedule_one
from scheduler.explaining import explanation
from scheduler.extenders.configuration import ExtenderConfiguration
from scheduler.framework import CycleState, FilterResult, NodeTable, PodInfo
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.client.fakeserver import FakeServer, refuse
from tests.unit.scheduler.pods import cache_of, framework, info
from tests.unit.scheduler.volume_objects import claim, storage_class, volume

NO_PREEMPTION = parse(
    dedent("""\
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles:
        - plugins: {postFilter: {disabled: [{name: "*"}]}}
    """)
)
THREE = [make_node(f"n{i}") for i in range(3)]
BUSY = [make_pod(f"b{i}").req(cpu="3500m" if i else "3200m", memory="1Gi").node(f"n{i}") for i in range(3)]


def explained(
    pod: PodBuilder,
    nodes: Sequence[NodeBuilder],
    placed: Sequence[PodBuilder] = (),
    *,
    node: str = "",
    configuration: Configuration = NO_PREEMPTION,
    file: Path | None = None,
    objects: Sequence[Object] = (),
) -> Explanation:
    """As it comes out of the other process."""
    stores: dict[Any, dict[str, Any]] = {resource: {} for resource in ALL}
    stores[NODES] = {each.metadata.name: each for each in (builder.build() for builder in nodes)}
    for each in objects:
        resource = next(resource for resource in ALL if isinstance(each, resource.message))
        each.metadata.namespace = "default" if resource.namespaced else ""
        stores[resource]["default/" * resource.namespaced + each.metadata.name] = each
    stores[PODS] = {f"default/{each.metadata.name}": each for each in (builder.build() for builder in placed)}
    found = explanation(pod.build(), stores, configuration, node, file)
    return from_json(Explanation, json.loads(json.dumps(to_json(found))))


def why(pod: PodBuilder, nodes: Sequence[NodeBuilder], placed: Sequence[PodBuilder] = (), **more: Any) -> str:
    """Without what is said about events."""
    *text, empty, events = lines(explained(pod, nodes, placed, **more), (), 0.0)
    assert (empty, events) == ("", "Events of its scheduler:  <none>")
    return "".join(f"{line}\n" for line in text)


def remedies(*question: Any, **more: Any) -> list[str]:
    return [f"{each.text} -> {' '.join(each.nodes)}" for each in explained(*question, **more).remedies]


def details(*question: Any, node: str = "n0") -> list[str]:
    asked = explained(*question, node=node).asked
    assert asked is not None
    return [f"{each.plugin}: {detail}" for each in asked.objections for detail in each.details]


def test_why_here() -> None:
    pod = make_pod("a").req(cpu=1).node("n1")
    assert why(pod, THREE, [pod, BUSY[0]]) == dedent("""\
        pod default/a is on n1. If it were placed again now, itself taken out:
        2 of 3 nodes can take it. n1 has the best score, like 1 other node: one of them is chosen by chance.

        What rules nodes out (ALONE: nodes ruled out by this reason only):
          PLUGIN             NODES   ALONE   REASON             WHICH
          NodeResourcesFit   1       1       Insufficient cpu   n0

        Scores, 0 to 100 each, times their weights:
          RANK   NODE        TOTAL   NodeResourcesFit   NodeResourcesBalancedAllocation
          1      n1 (here)   175     87.2               87.8
          1      n2          175     87.2               87.8
    """)


def test_it_would_go_elsewhere_now() -> None:
    pod = make_pod("a").req(cpu=1).node("n0")
    said = why(pod, THREE, [pod, make_pod("later").req(cpu=2).node("n0")]).splitlines()
    assert said[1] == "3 of 3 nodes can take it. The best score is that of n1 and 1 more; n0 comes as number 3."
    said = why(pod, [make_node("n0").unschedulable(), make_node("n1")], [pod]).splitlines()
    assert said[1] == "1 of 2 nodes can take it. The best score is that of n1; n0 could not take it any more."


def test_why_pending_for_several_reasons() -> None:
    nodes = [*THREE, make_node("n3").taint("gpu", "true"), make_node("n4").taint("gpu", "true").capacity(cpu=2, pods=9)]
    assert why(make_pod("a").req(cpu=3), nodes, BUSY) == dedent("""\
        pod default/a is pending: no node can take it.
        0/5 nodes are available: 2 node(s) had untolerated taint {gpu: true}, 3 Insufficient cpu.

        What rules nodes out (ALONE: nodes ruled out by this reason only):
          PLUGIN             NODES   ALONE   REASON                                      WHICH
          TaintToleration    2       1       node(s) had untolerated taint {gpu: true}   n3, n4
          NodeResourcesFit   4       3       Insufficient cpu                            n0, n1, n2, n4

        The smallest changes that would help, any one of them:
          * tolerate gpu=true:NoSchedule  -> n3
          * free 2200m cpu on n0, the nearest of 3 nodes, or ask for that much less: it asks for 3 cpu, 800m of 4 is free  -> n0
    """)


def test_resources() -> None:
    assert remedies(make_pod("a").req(cpu=1, memory="40Gi"), THREE) == [
        "ask for less, or add a larger node: it asks for 40Gi memory, and n0, which comes nearest of 3 nodes, has 32Gi -> "
    ]
    assert remedies(make_pod("a").req(cpu=1, memory="32Gi"), THREE[1:2], BUSY[1:2]) == [
        "free 500m cpu and 1Gi memory on n1, or ask for that much less: "
        "it asks for 1 cpu, 500m of 4 is free; it asks for 32Gi memory, 31Gi of 32Gi is free -> n1"
    ]
    full = make_node("n0").capacity(cpu=4, memory="1Gi", pods=1)
    assert remedies(make_pod("a"), [full], [make_pod("b").node("n0")]) == [
        "free room for 1 pod on n0: it runs 1 of at most 1 pods -> n0"
    ]
    assert details(make_pod("a").req(cpu=1, memory=1500 << 20), [full], [make_pod("b").req(memory=1000).node("n0")]) == [
        "NodeResourcesFit: Too many pods: it runs 1 of at most 1 pods",
        "NodeResourcesFit: Insufficient memory: it asks for 1500Mi memory, 1024.0Mi of 1Gi is free, 476.0Mi is missing",
    ]


def test_the_last_one_of_seventy_resources() -> None:
    *there, last = (f"example.com/r{at}" for at in range(70))
    node = make_node("n0")
    for resource in there:
        node.extended(resource, 1)
    found = explained(make_pod("a").container(dict.fromkeys((*there, last), 1)), [node])
    assert found.message == f"0/1 nodes are available: 1 Insufficient {last}."
    assert [each.text for each in found.remedies] == [f"ask for less, or add a larger node: it asks for 1 {last}, and n0 has 0"]


def test_taints_and_cordons() -> None:
    not_ready = make_node("n2").taint("node.kubernetes.io/not-ready", effect="NoExecute")
    nodes = [
        make_node("n0").taint("gpu", "true"),
        make_node("n1").taint("gpu", "true"),
        not_ready,
        make_node("n3").unschedulable(),
    ]
    assert remedies(make_pod("a"), nodes) == [
        "tolerate gpu=true:NoSchedule -> n0 n1",
        "uncordon n3 -> n3",
        "make the nodes well again, which ends node.kubernetes.io/not-ready:NoExecute, or tolerate it -> n2",
    ]
    assert details(make_pod("a"), nodes) == ["TaintToleration: it does not tolerate the taint gpu=true:NoSchedule"]
    assert details(make_pod("a"), nodes, node="n3") == [
        "NodeUnschedulable: the node is cordoned: `pinnace uncordon n3` lets pods onto it again"
    ]


def cordoned(name: str) -> NodeBuilder:
    """As it is on a cluster: controllers add a taint."""
    return make_node(name).unschedulable().taint("node.kubernetes.io/unschedulable")


class TestCordonsWithTheirTaint:
    """A cordon is one thing in the way, and not two."""

    def test_one_is_ended_where_that_helps(self) -> None:
        full = make_pod("full").req(cpu=4).node("n1")
        assert why(make_pod("a").req(cpu=1), [cordoned("n0"), make_node("n1")], [full]) == dedent("""\
            pod default/a is pending: no node can take it.
            0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.

            What rules nodes out (ALONE: nodes ruled out by this reason only):
              PLUGIN              NODES   ALONE   REASON                       WHICH
              NodeUnschedulable   1       1       node(s) were unschedulable   n0
              NodeResourcesFit    1       1       Insufficient cpu             n1

            The smallest changes that would help, any one of them:
              * uncordon n0  -> n0
              * free 1 cpu on n1, or ask for that much less: it asks for 1 cpu, 0 of 4 is free  -> n1
        """)

    def test_all_are_cordoned(self) -> None:
        nodes = [cordoned("n0"), cordoned("n1")]
        assert remedies(make_pod("a"), nodes) == ["uncordon n0, n1 -> n0 n1"]
        assert details(make_pod("a"), nodes) == [
            "NodeUnschedulable: the node is cordoned: `pinnace uncordon n0` lets pods onto it again"
        ]
        assert remedies(make_pod("a").req(cpu=1), nodes[:1], [make_pod("b").req(cpu=4).node("n0")]) == [
            "uncordon n0; and free 1 cpu on n0, or ask for that much less: it asks for 1 cpu, 0 of 4 is free -> n0"
        ]

    def test_other_taints_are_another_thing(self) -> None:
        nodes = [cordoned("n0").taint("gpu", "true")]
        assert remedies(make_pod("a"), nodes) == ["uncordon n0; and tolerate gpu=true:NoSchedule -> n0"]
        assert details(make_pod("a"), nodes) == [
            "NodeUnschedulable: the node is cordoned: `pinnace uncordon n0` lets pods onto it again",
            "TaintToleration: it does not tolerate the taint gpu=true:NoSchedule",
        ]
        tolerant = make_pod("a").tolerate("node.kubernetes.io/unschedulable", operator="Exists")
        assert remedies(tolerant, nodes) == ["tolerate gpu=true:NoSchedule -> n0"]
        assert explained(tolerant, [cordoned("n0")]).feasible == 1

    def test_the_taint_outlives_the_cordon_for_a_moment(self) -> None:
        nodes = [make_node("n0").taint("node.kubernetes.io/unschedulable")]
        assert details(make_pod("a"), nodes) == [
            "TaintToleration: it does not tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"
        ]

    def test_what_the_scheduler_says_is_told_as_it_is(self) -> None:
        """Whichever plugin of the profile is asked first; and without NodeUnschedulable the taint is all there is."""
        profile = {"plugins": {"filter": {"disabled": [{"name": "*"}], "enabled": []}}}
        for enabled, message in [
            (["TaintToleration", "NodeUnschedulable"], "node(s) had untolerated taint {node.kubernetes.io/unschedulable: }"),
            (["NodeUnschedulable", "TaintToleration"], "node(s) were unschedulable"),
            (["TaintToleration"], "node(s) had untolerated taint {node.kubernetes.io/unschedulable: }"),
        ]:
            profile["plugins"]["filter"]["enabled"] = [{"name": name} for name in enabled]
            configuration = parse(
                json.dumps(
                    {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                        "profiles": [profile],
                    }
                )
            )
            found = explained(make_pod("a"), [cordoned("n0")], configuration=configuration, node="n0")
            assert found.message == f"0/1 nodes are available: 1 {message}."
            only = "NodeUnschedulable" if "NodeUnschedulable" in enabled else "TaintToleration"
            assert found.asked is not None
            assert [each.plugin for each in found.asked.objections] == [only]
            assert all(each.details for each in found.asked.objections)


def test_node_affinity() -> None:
    nodes = [make_node("n0").label("disk", "hdd").label("zone", "a"), make_node("n1").label("zone", "a")]
    pod = make_pod("a").node_selector("disk", "ssd").node_selector("zone", "a")
    assert remedies(pod, nodes) == ["drop nodeSelector disk=ssd (no node has it), or label a node accordingly -> n0 n1"]
    assert details(pod, nodes) == ["NodeAffinity: nodeSelector disk=ssd: the node has disk=hdd"]
    assert details(pod, nodes, node="n1") == ["NodeAffinity: nodeSelector disk=ssd: the node has no label disk"]

    assert remedies(make_pod("a").node_selector("disk", "ssd").node_selector("zone", "b"), nodes) == [
        "drop nodeSelector disk=ssd and nodeSelector zone=b, or label a node accordingly -> n0 n1"
    ]
    pod = make_pod("a").node_affinity(("zone", "In", ["a", "b"]), ("disk", "NotIn", ["hdd"]), ("gpu", "Exists", []))
    assert remedies(pod, nodes) == ["drop node affinity gpu Exists, or label a node accordingly -> n1"]
    assert details(pod, nodes) == [
        "NodeAffinity: node affinity disk NotIn [hdd]: the node has disk=hdd",
        "NodeAffinity: node affinity gpu Exists: the node has no label gpu",
    ]
    assert remedies(make_pod("a").node_fields("In", ["n7"]), nodes) == [
        "drop node affinity metadata.name In [n7], or label a node accordingly -> n0 n1"
    ]


def test_host_ports() -> None:
    question = make_pod("a").host_port(80).host_port(81), THREE[:1], [make_pod("web").host_port(80).node("n0")]
    assert remedies(*question) == ["free host port 80/TCP, which default/web has on n0 -> n0"]
    assert details(*question) == ["NodePorts: host port 80/TCP is taken by default/web"]


def test_pods_that_want_or_shun_others() -> None:
    host, one = "kubernetes.io/hostname", THREE[:1]
    near = make_pod("a").affinity("app=db", host), one
    assert remedies(*near) == [
        f"place pods with app=db in the same {host} as one of these nodes, or only prefer to be near -> n0"
    ]
    assert details(*near) == [f"InterPodAffinity: it wants to be near pods with app=db in the same {host}, and there are none"]

    away = make_pod("a").anti_affinity("app=web", host), one, [make_pod("w").label("app", "web").node("n0")]
    assert remedies(*away) == [
        f"move pods with app=web in the same {host} as one of these nodes away, or only prefer not to be near -> n0"
    ]
    assert details(*away) == [f"InterPodAffinity: it will not be near pods with app=web in the same {host}: default/w"]

    shunned = make_pod("a").label("app", "web"), one, [make_pod("lonely").anti_affinity("app=web", host).node("n0")]
    assert remedies(*shunned) == ["move away what will not have it near: default/lonely -> n0"]
    assert details(*shunned) == ["InterPodAffinity: pods in the same topology will not have it near: default/lonely"]


def test_topology_spread() -> None:
    nodes = [make_node("n0").label("zone", "a"), make_node("n1").label("zone", "b").unschedulable(), make_node("n2")]
    question = (
        make_pod("a").label("app", "web").spread("app=web", "zone"),
        nodes,
        [make_pod("w").label("app", "web").node("n0")],
    )
    assert remedies(*question) == [
        "uncordon n1 -> n1",
        "label the nodes with zone -> n2",
        "allow more than a maxSkew of 1 over zone, or say ScheduleAnyway -> n0",
    ]
    assert details(*question) == ["PodTopologySpread: maxSkew 1 over zone: a has 1 of the pods with app=web"]
    assert details(*question, node="n2") == [
        "PodTopologySpread: the node has no label zone, over which the pod is to be spread"
    ]


def test_where_two_plugins_refuse_every_node() -> None:
    nodes = [make_node("n0").taint("gpu", "true"), make_node("n1").taint("gpu", "true")]
    placed = [make_pod("b").req(cpu=3).node("n0"), make_pod("c").req(cpu=2).node("n1")]
    assert remedies(make_pod("a").req(cpu=3), nodes, placed) == [
        "tolerate gpu=true:NoSchedule; and free 1 cpu on n1, or ask for that much less: it asks for 3 cpu, 2 of 4 is free -> n1"
    ]


def test_why_not_that_node() -> None:
    assert why(make_pod("a").req(cpu=1), [*THREE, make_node("n3").unschedulable()], BUSY, node="n1") == dedent("""\
        pod default/a is pending: no node can take it.
        0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu.

        n1 cannot take it:
          PLUGIN             WHY
          NodeResourcesFit   Insufficient cpu: it asks for 1 cpu, 500m of 4 is free, 500m is missing
    """)


def test_why_not_that_node_although_it_fits() -> None:
    placed = [make_pod("b").req(cpu=2).node("n0")]
    assert why(make_pod("a").req(cpu=1), THREE, placed, node="n0") == dedent("""\
        pod default/a is pending, and there is room for it: it will be placed as soon as it is its turn.
        3 of 3 nodes can take it. The best score is that of n1 and 1 more.

        n0 can take it, but it is number 3: 125 points, where n1 has 175.
        Most of it is NodeResourcesFit: 61.9 instead of 87.2.

        Scores, 0 to 100 each, times their weights:
          RANK   NODE   TOTAL   NodeResourcesFit   NodeResourcesBalancedAllocation
          1      n1     175     87.2               87.8
          1      n2     175     87.2               87.8
          3      n0     125     61.9               63.1
    """)
    assert "\nn1 can take it, and no node is better.\n" in why(make_pod("a").req(cpu=1), THREE, placed, node="n1")


def test_no_nodes_at_all() -> None:
    assert why(make_pod("a").req(cpu=1, memory="1Gi"), []) == dedent("""\
        pod default/a is pending: no node can take it.
        no nodes available to schedule pods

        The smallest change that would help:
          * add a node with 1 cpu and 1Gi memory free
    """)


def test_gated() -> None:
    assert why(make_pod("a").gate("quota").gate("budget"), THREE[:1], BUSY[:1]) == dedent("""\
        pod default/a is pending: it has scheduling gates: quota, budget; until they are removed it is not tried.
        1 of 1 node can take it. The best score is that of n0.

        The smallest change that would help:
          * remove the scheduling gates quota and budget

        Scores, 0 to 100 each, times their weights:
          RANK   NODE   TOTAL   NodeResourcesFit
          1      n0     56.9    56.9
    """)


class TestNominated:
    """Room is kept for pods whose victims are going, as the scheduler keeps it."""

    BOSS = make_pod("boss").req(cpu="3").priority(1000).nominated("n0")
    KEPT = "as room is kept for default/boss"

    def test_room_that_is_kept_is_no_room(self) -> None:
        assert why(make_pod("small").req(cpu=2), THREE[:1], [self.BOSS]) == dedent(f"""\
            pod default/small is pending: no node can take it.
            0/1 nodes are available: 1 Insufficient cpu.

            What rules nodes out (ALONE: nodes ruled out by this reason only):
              PLUGIN             NODES   ALONE   REASON             WHICH
              NodeResourcesFit   1       1       Insufficient cpu   n0

            The smallest change that would help:
              * free 1 cpu on n0, or ask for that much less: it asks for 2 cpu, 1 of 4 is free, {self.KEPT}  -> n0
        """)
        assert details(make_pod("small").req(cpu=2), THREE[:1], [self.BOSS]) == [
            f"NodeResourcesFit: Insufficient cpu: it asks for 2 cpu, 1 of 4 is free, {self.KEPT}, 1 is missing"
        ]
        one = make_node("n0").capacity(cpu=4, memory="1Gi", pods=1)
        assert remedies(make_pod("small"), [one], [self.BOSS]) == [
            "free room for 1 pod on n0: it runs 0 of at most 1 pods, and room is kept for default/boss -> n0"
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
    def test_no_room_is_kept(self, nominated: PodBuilder) -> None:
        assert explained(make_pod("small").req(cpu=2), THREE[:1], [nominated]).feasible == 1

    def test_what_is_kept_counts_in_no_score(self) -> None:
        """As in the scheduler: who is nominated may go elsewhere."""
        (kept,) = explained(make_pod("small").req(cpu=1), THREE[:1], [self.BOSS]).ranking
        (free,) = explained(make_pod("small").req(cpu=1), THREE[:1]).ranking
        assert kept == free

    def test_ports_and_neighbours_count_too(self) -> None:
        boss = make_pod("boss").priority(1000).nominated("n0").host_port(80).label("app", "web")
        web = make_pod("web").host_port(80)
        assert explained(web, THREE[:2], [boss]).feasible == 1
        assert remedies(web, THREE[:1], [boss]) == ["free host port 80/TCP, which default/boss has on n0 -> n0"]
        assert details(web, THREE[:1], [boss]) == ["NodePorts: host port 80/TCP is taken by default/boss"]
        away = make_pod("away").anti_affinity("app=web", "kubernetes.io/hostname")
        assert details(away, THREE[:1], [boss]) == [
            "InterPodAffinity: it will not be near pods with app=web in the same kubernetes.io/hostname: default/boss"
        ]

    def test_a_reason_is_told_once(self) -> None:
        """Of two nodes one has the port taken, on the other it is kept: it is one reason, and one remedy."""
        placed = [make_pod("boss").priority(1000).nominated("n0").host_port(80), make_pod("b").host_port(80).node("n1")]
        found = explained(make_pod("web").host_port(80), THREE[:2], placed)
        assert [(each.plugin, each.nodes, each.alone) for each in found.refusals] == [("NodePorts", ["n0", "n1"], 2)]
        assert found.message == "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
        assert [each.nodes for each in found.remedies] == [["n0", "n1"]]

    def test_preemption_does_not_free_what_is_kept(self) -> None:
        pod = make_pod("a").req(cpu=3).priority(10)
        victim = make_pod("victim").req(cpu=3).priority(1).node("n0")
        assert explained(pod, THREE[:1], [victim, self.BOSS]).preemption == (
            "it would not help: also without the 1 pods of lower priority than 10 no node could take it"
        )

    @pytest.mark.parametrize(("cpu", "ports"), [(1, [80]), (2, [80]), (1, [80, 80, 80]), (2, [])])
    def test_it_is_what_the_scheduler_says(self, cpu: int, ports: list[int]) -> None:
        cache, pod = cache_of(*THREE), make_pod("small").req(cpu=cpu).host_port(80)
        nominated = [make_pod(f"boss-{i}").req(cpu=3).priority(1000).nominated(f"n{i}") for i in range(3)]
        for each, port in zip(nominated, ports, strict=False):
            each.host_port(port)
        for each in nominated:
            cache.nominate(info(each), each.build().status.nominatedNodeName)
        decided = schedule_one(info(pod), cache, framework(), 0)
        found = explained(pod, THREE, nominated)
        assert (found.feasible > 0) == isinstance(decided, Placed)
        assert found.message == (decided.message if isinstance(decided, Unschedulable) else "")


def test_preemptible() -> None:
    pod = make_pod("a").req(cpu=3).priority(10)
    placed = [
        make_pod("more").req(cpu=2).priority(5).node("n0"),
        make_pod("less").req(cpu=1).priority(1).node("n0"),
        make_pod("mighty").req(cpu=2).priority(10).node("n1"),
    ]
    would = "without pods of lower priority than 10, 1 node could take it; on n0 default/more would have to go"
    assert explained(pod, THREE[:2], placed).preemption == f"{would}; but no plugin of the profile preempts"
    preempting = with_plugin(NO_PREEMPTION, "tests.unit.scheduler.test_why:Preempts")
    assert f"\nPreemption: {would}.\n" in why(pod, THREE[:2], placed, configuration=preempting)
    never = make_pod("a").req(cpu=3).priority(10).preemption_policy("Never")
    assert f"\nPreemption: {would}; but its preemptionPolicy is Never.\n" in why(never, THREE[:2], placed)
    assert explained(make_pod("a").req(cpu=5).priority(10), THREE[:2], placed).preemption == (
        "it would not help: also without the 2 pods of lower priority than 10 no node could take it"
    )
    assert explained(make_pod("a").req(cpu=3), THREE[:2], placed).preemption == ""


class Preempts:
    name = "Preempts"

    def post_filter(self, *_: object) -> None:
        raise AssertionError("an explanation makes no room")


class Boom:
    name = "Boom"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        raise RuntimeError("boom")


def test_a_plugin_that_fails_is_named() -> None:
    configuration = with_plugin(NO_PREEMPTION, "tests.unit.scheduler.test_why:Boom")
    assert why(make_pod("a"), THREE, configuration=configuration) == (
        'pod default/a is pending: plugin "Boom" failed in Filter: RuntimeError: boom '
        f"(test_why.py:{inspect.getsourcelines(Boom.filter)[1] + 1}).\n"
    )


def test_a_scheduler_that_is_not_configured() -> None:
    pod = make_pod("a").scheduler("cheap")
    default = 'its scheduler "cheap" is not in the default configuration; give its own with --config FILE.\n'
    assert why(pod, THREE) == f"pod default/a is pending. Nothing more is known: {default}"
    assert why(pod.node("n1"), THREE) == f"pod default/a is on n1. Nothing more is known: {default}"
    assert why(make_pod("a").scheduler("cheap"), THREE, file=Path("my.yaml")) == (
        "pod default/a is pending. Nothing more is known: "
        'its scheduler "cheap" is not in my.yaml, which has only default-scheduler.\n'
    )


def test_a_pod_of_a_node_that_does_not_exist() -> None:
    pod = make_pod("a").req(cpu=1).node("n77")
    said = why(pod, [make_node("n0")], [pod]).splitlines()
    assert said[:2] == [
        "pod default/a is bound to n77, and there is no such node; pods of a node that is gone are removed within a minute. "
        "If it were placed again now, itself taken out:",
        "1 of 1 node can take it. The best score is that of n0.",
    ]


def test_a_bound_pod_that_would_not_be_tried() -> None:
    pod = make_pod("a").gate("g").node("n0")
    said = why(pod, THREE, [pod]).splitlines()
    assert said[1] == "It would not be placed: it has scheduling gates: g; until they are removed it is not tried."


def test_a_claim_that_does_not_exist_is_one_thing_in_the_way() -> None:
    assert why(make_pod("a").req(cpu=1).claim("nope"), [*THREE[:2], make_node("n2").taint("gpu")]) == dedent("""\
        pod default/a is pending: no node can take it.
        0/3 nodes are available: persistentvolumeclaim "nope" not found.

        What rules nodes out (ALONE: nodes ruled out by this reason only):
          PLUGIN               NODES   ALONE   REASON                                   WHICH
          VolumeRestrictions   3       2       persistentvolumeclaim "nope" not found   n0, n1, n2
          TaintToleration      1       0       node(s) had untolerated taint {gpu: }    n2

        The smallest change that would help:
          * create the PersistentVolumeClaim nope  -> n0, n1
    """)


@pytest.mark.parametrize(
    ("asked", "there", "remedy"),
    [
        (
            claim("c", storage_class="manual"),
            (),
            "create the StorageClass manual, with provisioner: kubernetes.io/no-provisioner and "
            "volumeBindingMode: WaitForFirstConsumer",
        ),
        (
            claim("c", storage_class="fast"),
            (storage_class("fast", volumeBindingMode="Immediate"),),
            "make the StorageClass fast anew, with volumeBindingMode: WaitForFirstConsumer: "
            "nobody binds its claims at once here",
        ),
        (
            claim("c"),
            (),
            "give the PersistentVolumeClaim c a class with volumeBindingMode: WaitForFirstConsumer: "
            "nobody binds claims without one here",
        ),
        (
            claim("c", volumeName="v"),
            (volume("v"),),
            "bind the PersistentVolumeClaim c to v, which it names: nobody does that here",
        ),
    ],
    ids=["no such class", "Immediate", "without a class", "pre-bound"],
)
def test_a_claim_that_nobody_binds(asked: PersistentVolumeClaim, there: Sequence[Object], remedy: str) -> None:
    question = make_pod("a").claim("c"), THREE[:1]
    assert remedies(*question, objects=(asked, *there)) == [f"{remedy} -> n0"]
    found = explained(*question, node="n0", objects=(asked, *there)).asked
    assert found is not None
    (details,) = [each.details for each in found.objections if each.plugin == "VolumeBinding"]
    assert details == [f"pod has unbound immediate PersistentVolumeClaims: {remedy}"]


def test_extenders_are_not_asked_but_named() -> None:
    extenders = [
        ExtenderConfiguration("http://everybody"),
        ExtenderConfiguration("http://gpus", managed_resources={"example.com/gpu": True}),
    ]
    configuration = replace(NO_PREEMPTION, extenders=extenders)
    said = "Extenders have a say as well, and only the scheduler asks them: {}."
    assert why(make_pod("a"), THREE, configuration=configuration).splitlines()[2] == said.format("http://everybody")
    gpu = why(make_pod("a").container({"example.com/gpu": 1}), THREE, configuration=configuration)
    assert gpu.splitlines()[2] == said.format("http://everybody, http://gpus")


def test_what_is_said_around_it() -> None:
    event = Event(type="Warning", reason="FailedScheduling", message="no", reportingComponent="default-scheduler")
    said = list(lines(explained(make_pod("a"), []), [event], 0.0, leaderless="scheduler"))
    assert said[1] == 'Nobody leads election "scheduler": until somebody does, nothing is scheduled.'
    assert (
        said[-3:]
        == [
            "Events of its scheduler:",
            "  Type     Reason            Age        From               Message",
            "  ----     ------            ---        ----               -------",
            "  Warning  FailedScheduling  <unknown>  default-scheduler  no",
        ][-3:]
    )


@pytest.mark.parametrize("bound", [False, True])
def test_the_cluster_is_as_before(bound: bool) -> None:
    """The same question has the same answer: nothing of it is left in the objects."""
    pod = make_pod("a").req(cpu=3).priority(10)
    if bound:
        pod.node("n0")
    assert why(pod, THREE, BUSY) == why(pod, THREE, BUSY)


def test_the_document() -> None:
    """What scripts read by `-o json`: its keys, and their order."""
    nodes = [*THREE[:2], make_node("n2").taint("gpu", "true")]
    placed = [*BUSY[:1], make_pod("b").req(cpu=2).node("n1")]
    found = to_json(explained(make_pod("a").req(cpu=1), nodes, placed, node="n2"))
    scores = {"NodeResourcesFit": 61.89, "NodeResourcesBalancedAllocation": 63.11}
    found["ranking"][0]["scores"] = {plugin: round(score, 2) for plugin, score in found["ranking"][0]["scores"].items()}
    found["ranking"][0]["total"] = round(found["ranking"][0]["total"], 1)
    assert json.dumps(found, indent=2) == json.dumps(
        {
            "pod": "default/a",
            "scheduler": "default-scheduler",
            "bound": "",
            "nodes": 3,
            "feasible": 1,
            "problem": "",
            "message": "",
            "refusals": [
                {
                    "plugin": "TaintToleration",
                    "reason": "node(s) had untolerated taint {gpu: true}",
                    "nodes": ["n2"],
                    "alone": 1,
                },
                {"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": ["n0"], "alone": 1},
            ],
            "weights": {"NodeResourcesFit": 1, "NodeResourcesBalancedAllocation": 1},
            "ranking": [{"node": "n1", "rank": 1, "total": 125.0, "scores": scores}],
            "best": 1,
            "remedies": [],
            "preemption": "",
            "asked": {
                "node": "n2",
                "objections": [
                    {"plugin": "TaintToleration", "details": ["it does not tolerate the taint gpu=true:NoSchedule"]}
                ],
            },
            "extenders": [],
            "nodeIsGone": False,
            "unknown": "",
        },
        indent=2,
    )
    found = to_json(explained(make_pod("a").req(cpu=5), THREE[:1]))
    text = "ask for less, or add a larger node: it asks for 5 cpu, and n0 has 4"
    assert found["remedies"] == [{"text": text, "nodes": [], "plugins": ["NodeResourcesFit"]}]
    assert found["asked"] is None


def test_servers_that_are_too_slow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "scheduler.explaining", "--server", server, "--timeout", "0.2", "default", "a"]
        said = subprocess.run(command, capture_output=True, check=True).stdout
    assert json.loads(said) == {
        "explanation": None,
        "unexplained": {"error": "the API servers took more than 0.2 s", "kind": "too slow", "status": ""},
    }


async def test_a_call_that_is_refused() -> None:
    refused = Refusal(Code.PERMISSION_DENIED, "Forbidden", "you may not get pods", metadata=(("hint", "a ClusterRole"),))

    async def get(request: GetRequest, context: grpc.aio.ServicerContext) -> Message:
        await refuse(context, refused)
        return Pod()

    servers = await FakeServer().start()
    servers.on("/pinnace.v1.Pods/Get", GetRequest, get)
    try:
        command = [sys.executable, "-m", "scheduler.explaining", "--server", servers.address, "default", "a"]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        said, _ = await process.communicate()
    finally:
        await servers.stop()
    with pytest.raises(Forbidden) as raised:
        understood(said, b"")
    assert raised.value.refusal == refused
