"""What would help against each plugin's refusal, and what exactly is wrong with one node."""

import json
from collections.abc import Sequence
from textwrap import dedent

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.resources import Object
from pinnace.scheduler.config import parse_configuration
from tests.builders import NodeBuilder, make_node, make_pod
from tests.unit.scheduler.asking_why import BUSY, THREE, details, explained, remedies, why
from tests.unit.scheduler.volume_objects import claim, storage_class, volume


def test_resources() -> None:
    assert remedies(make_pod("a").req(cpu=1, memory="40Gi"), THREE) == [
        "reduce its requests, or add a larger node: it requests 40Gi memory; n0, the closest of 3 nodes, has 32Gi -> "
    ]
    assert remedies(make_pod("a").req(cpu=1, memory="32Gi"), THREE[1:2], BUSY[1:2]) == [
        "free 500m cpu and 1Gi memory on n1, or reduce its requests accordingly: "
        "it requests 1 cpu, 500m of 4 is free; it requests 32Gi memory, 31Gi of 32Gi is free -> n1"
    ]
    full = make_node("n0").capacity(cpu=4, memory="1Gi", pods=1)
    assert remedies(make_pod("a"), [full], [make_pod("b").node("n0")]) == [
        "free room for 1 pod on n0: it runs 1 of at most 1 pods -> n0"
    ]
    assert details(make_pod("a").req(cpu=1, memory=1500 << 20), [full], [make_pod("b").req(memory=1000).node("n0")]) == [
        "NodeResourcesFit: Too many pods: it runs 1 of at most 1 pods",
        "NodeResourcesFit: Insufficient memory: it requests 1500Mi memory, 1024.0Mi of 1Gi is free, 476.0Mi is missing",
    ]


def test_last_one_of_seventy_resources() -> None:
    *there, last = (f"example.com/r{at}" for at in range(70))
    node = make_node("n0")
    for resource in there:
        node.extended(resource, 1)
    result = explained(make_pod("a").container(dict.fromkeys((*there, last), 1)), [node])
    assert result.message == f"0/1 nodes are available: 1 Insufficient {last}."
    assert [remedy.text for remedy in result.remedies] == [
        f"reduce its requests, or add a larger node: it requests 1 {last}; n0 has 0"
    ]


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
        "repair the nodes, which removes node.kubernetes.io/not-ready:NoExecute, or tolerate it -> n2",
    ]
    assert details(make_pod("a"), nodes) == ["TaintToleration: it does not tolerate the taint gpu=true:NoSchedule"]
    assert details(make_pod("a"), nodes, node="n3") == [
        "NodeUnschedulable: the node is cordoned: run `kubectl uncordon n3` to allow new pods"
    ]


def cordoned(name: str) -> NodeBuilder:
    """As it is on a cluster: controllers add a taint."""
    return make_node(name).unschedulable().taint("node.kubernetes.io/unschedulable")


class TestCordonsWithTheirTaint:
    """A cordon is one thing in the way, and not two."""

    def test_advice_ends_a_pod_on_a_feasible_node(self) -> None:
        full = make_pod("full").req(cpu=4).node("n1")
        assert why(make_pod("a").req(cpu=1), [cordoned("n0"), make_node("n1")], [full]) == dedent("""\
            pod default/a is pending: no node is feasible.
            0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.

            Reasons why nodes are not feasible (ALONE: nodes with only this reason):
              PLUGIN              NODES   ALONE   REASON                       WHICH
              NodeUnschedulable   1       1       node(s) were unschedulable   n0
              NodeResourcesFit    1       1       Insufficient cpu             n1

            The smallest changes that would make a node feasible (alternatives):
              * uncordon n0  -> n0
              * free 1 cpu on n1, or reduce its requests accordingly: it requests 1 cpu, 0 of 4 is free  -> n1
        """)

    def test_all_are_cordoned(self) -> None:
        nodes = [cordoned("n0"), cordoned("n1")]
        assert remedies(make_pod("a"), nodes) == ["uncordon n0, n1 -> n0 n1"]
        assert details(make_pod("a"), nodes) == [
            "NodeUnschedulable: the node is cordoned: run `kubectl uncordon n0` to allow new pods"
        ]
        assert remedies(make_pod("a").req(cpu=1), nodes[:1], [make_pod("b").req(cpu=4).node("n0")]) == [
            "uncordon n0; and free 1 cpu on n0, or reduce its requests accordingly: it requests 1 cpu, 0 of 4 is free -> n0"
        ]

    def test_other_taints_are_another_thing(self) -> None:
        nodes = [cordoned("n0").taint("gpu", "true")]
        assert remedies(make_pod("a"), nodes) == ["uncordon n0; and tolerate gpu=true:NoSchedule -> n0"]
        assert details(make_pod("a"), nodes) == [
            "NodeUnschedulable: the node is cordoned: run `kubectl uncordon n0` to allow new pods",
            "TaintToleration: it does not tolerate the taint gpu=true:NoSchedule",
        ]
        tolerant = make_pod("a").tolerate("node.kubernetes.io/unschedulable", operator="Exists")
        assert remedies(tolerant, nodes) == ["tolerate gpu=true:NoSchedule -> n0"]
        assert explained(tolerant, [cordoned("n0")]).feasible == 1

    def test_taint_outlives_the_cordon_for_a_moment(self) -> None:
        nodes = [make_node("n0").taint("node.kubernetes.io/unschedulable")]
        assert details(make_pod("a"), nodes) == [
            "TaintToleration: it does not tolerate the taint node.kubernetes.io/unschedulable:NoSchedule"
        ]

    def test_scheduler_message_is_printed_unchanged(self) -> None:
        """Whichever plugin of the profile is asked first; and without NodeUnschedulable the taint is all there is."""
        profile = {"plugins": {"filter": {"disabled": [{"name": "*"}], "enabled": []}}}
        for enabled, message in [
            (["TaintToleration", "NodeUnschedulable"], "node(s) had untolerated taint {node.kubernetes.io/unschedulable: }"),
            (["NodeUnschedulable", "TaintToleration"], "node(s) were unschedulable"),
            (["TaintToleration"], "node(s) had untolerated taint {node.kubernetes.io/unschedulable: }"),
        ]:
            profile["plugins"]["filter"]["enabled"] = [{"name": name} for name in enabled]
            configuration = parse_configuration(
                json.dumps(
                    {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                        "profiles": [profile],
                    }
                )
            )
            result = explained(make_pod("a"), [cordoned("n0")], configuration=configuration, node="n0")
            assert result.message == f"0/1 nodes are available: 1 {message}."
            only = "NodeUnschedulable" if "NodeUnschedulable" in enabled else "TaintToleration"
            assert result.asked is not None
            assert [objection.plugin for objection in result.asked.objections] == [only]
            assert all(objection.details for objection in result.asked.objections)


def test_node_affinity() -> None:
    nodes = [make_node("n0").label("disk", "hdd").label("zone", "a"), make_node("n1").label("zone", "a")]
    pod = make_pod("a").node_selector("disk", "ssd").node_selector("zone", "a")
    assert remedies(pod, nodes) == ["remove nodeSelector disk=ssd (no node has it), or label a node accordingly -> n0 n1"]
    assert details(pod, nodes) == ["NodeAffinity: nodeSelector disk=ssd: the node has disk=hdd"]
    assert details(pod, nodes, node="n1") == ["NodeAffinity: nodeSelector disk=ssd: the node has no label disk"]

    assert remedies(make_pod("a").node_selector("disk", "ssd").node_selector("zone", "b"), nodes) == [
        "remove nodeSelector disk=ssd and nodeSelector zone=b, or label a node accordingly -> n0 n1"
    ]
    pod = make_pod("a").node_affinity(("zone", "In", ["a", "b"]), ("disk", "NotIn", ["hdd"]), ("gpu", "Exists", []))
    assert remedies(pod, nodes) == ["remove node affinity gpu Exists, or label a node accordingly -> n1"]
    assert details(pod, nodes) == [
        "NodeAffinity: node affinity disk NotIn [hdd]: the node has disk=hdd",
        "NodeAffinity: node affinity gpu Exists: the node has no label gpu",
    ]
    assert remedies(make_pod("a").node_fields("In", ["n7"]), nodes) == [
        "remove node affinity metadata.name In [n7], or label a node accordingly -> n0 n1"
    ]


def test_host_ports() -> None:
    question = make_pod("a").host_port(80).host_port(81), THREE[:1], [make_pod("web").host_port(80).node("n0")]
    assert remedies(*question) == ["free host port 80/TCP, which default/web uses on n0 -> n0"]
    assert details(*question) == ["NodePorts: host port 80/TCP is used by default/web"]


def test_pods_that_want_or_shun_others() -> None:
    host, one = "kubernetes.io/hostname", THREE[:1]
    near = make_pod("a").affinity("app=db", host), one
    assert remedies(*near) == [
        f"place pods with app=db in the same {host} as one of these nodes, or use preferred affinity -> n0"
    ]
    assert details(*near) == [f"InterPodAffinity: it requires pods with app=db in the same {host}, but none exist"]

    away = make_pod("a").anti_affinity("app=web", host), one, [make_pod("w").label("app", "web").node("n0")]
    assert remedies(*away) == [
        f"remove pods with app=web in the same {host} as one of these nodes, or use preferred anti-affinity -> n0"
    ]
    assert details(*away) == [f"InterPodAffinity: its anti-affinity excludes pods with app=web in the same {host}: default/w"]

    shunned = make_pod("a").label("app", "web"), one, [make_pod("lonely").anti_affinity("app=web", host).node("n0")]
    assert remedies(*shunned) == ["remove pods whose anti-affinity excludes it: default/lonely -> n0"]
    assert details(*shunned) == ["InterPodAffinity: pods in the same topology exclude it by anti-affinity: default/lonely"]


def test_node_outside_the_topology_is_near_nothing() -> None:
    nodes = [make_node("n0").label("zone", "a"), make_node("n1").label("rack", "r"), make_node("n2")]
    question = make_pod("a").affinity("app=db", "zone").affinity("tier=db", "rack"), nodes
    wanted = "pods with app=db in the same zone and pods with tier=db in the same rack"
    assert remedies(*question) == [
        f"label the nodes with rack, or use preferred affinity for {wanted} -> n0",
        f"label the nodes with zone, or use preferred affinity for {wanted} -> n1",
        f"label the nodes with zone and rack, or use preferred affinity for {wanted} -> n2",
    ]
    assert details(*question, node="n1") == [f"InterPodAffinity: it requires {wanted}, but the node has no label zone"]

    near = make_pod("a").affinity("app=db", "zone"), nodes
    assert remedies(*near) == [
        "label the nodes with zone, or use preferred affinity for pods with app=db in the same zone -> n1 n2",
        "place pods with app=db in the same zone as one of these nodes, or use preferred affinity -> n0",
    ]


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
        "increase maxSkew above 1 over zone, or use ScheduleAnyway -> n0",
    ]
    assert details(*question) == ["PodTopologySpread: maxSkew 1 over zone: a has 1 of the pods with app=web"]
    assert details(*question, node="n2") == [
        "PodTopologySpread: the node has no label zone, which a topology spread constraint of the pod requires"
    ]


@pytest.mark.parametrize("other", [{}, {"nodeTaintsPolicy": "Honor"}], ids=["affinity", "taints"])
def test_pods_that_are_not_spread_are_not_counted(other: dict[str, str]) -> None:
    """Those of nodes that the pod's affinity or the policies leave out, or that are in no topology of another constraint."""
    nodes = [
        make_node("n0").label("zone", "a").label("rack", "r").label("disk", "ssd"),
        make_node("n1").label("zone", "b").label("rack", "s").label("disk", "ssd").unschedulable(),
        make_node("n2").label("zone", "a").label("disk", "ssd"),
        make_node("n3").label("zone", "a").label("rack", "t"),
        make_node("n4").label("zone", "a").label("rack", "u").label("disk", "ssd").taint("gpu"),
    ]
    pod = make_pod("a").label("app", "web").node_selector("disk", "ssd").spread("app=web", "zone", **other)
    pod.spread("app=web", "rack", skew=9)
    placed = [make_pod(f"w{number}").label("app", "web").node(f"n{number}") for number in (0, 2, 3, 4)]
    assert details(pod, nodes, placed)[0] == (
        f"PodTopologySpread: maxSkew 1 over zone: a has {1 if other else 2} of the pods with app=web"
    )


def test_where_two_plugins_refuse_every_node() -> None:
    nodes = [make_node("n0").taint("gpu", "true"), make_node("n1").taint("gpu", "true")]
    placed = [make_pod("b").req(cpu=3).node("n0"), make_pod("c").req(cpu=2).node("n1")]
    assert remedies(make_pod("a").req(cpu=3), nodes, placed) == [
        "tolerate gpu=true:NoSchedule; "
        "and free 1 cpu on n1, or reduce its requests accordingly: it requests 3 cpu, 2 of 4 is free -> n1"
    ]


def test_claim_that_does_not_exist_is_one_thing_in_the_way() -> None:
    assert why(make_pod("a").req(cpu=1).claim("nope"), [*THREE[:2], make_node("n2").taint("gpu")]) == dedent("""\
        pod default/a is pending: no node is feasible.
        0/3 nodes are available: persistentvolumeclaim "nope" not found.

        Reasons why nodes are not feasible (ALONE: nodes with only this reason):
          PLUGIN            NODES   ALONE   REASON                                   WHICH
          VolumeBinding     3       2       persistentvolumeclaim "nope" not found   n0, n1, n2
          TaintToleration   1       0       node(s) had untolerated taint {gpu: }    n2

        The smallest change that would make a node feasible:
          * create the PersistentVolumeClaim nope  -> n0, n1
    """)


@pytest.mark.parametrize(
    ("asked", "there", "remedy"),
    [
        (
            claim("c", storage_class="manual"),
            (),
            "create the StorageClass manual with provisioner: kubernetes.io/no-provisioner and "
            "volumeBindingMode: WaitForFirstConsumer",
        ),
        (
            claim("c", storage_class="fast"),
            (storage_class("fast", volumeBindingMode="Immediate"),),
            "create a PersistentVolume of the class fast that satisfies the PersistentVolumeClaim c",
        ),
        (
            claim("c"),
            (),
            "create a PersistentVolume that satisfies the PersistentVolumeClaim c",
        ),
        (
            claim("c", volumeName="v"),
            (volume("v"),),
            "create or free the PersistentVolume v, which the PersistentVolumeClaim c requests",
        ),
    ],
    ids=["no such class", "Immediate", "without a class", "pre-bound"],
)
def test_claim_without_a_provisioner(asked: PersistentVolumeClaim, there: Sequence[Object], remedy: str) -> None:
    question = make_pod("a").claim("c"), THREE[:1]
    assert remedies(*question, objects=(asked, *there)) == [f"{remedy} -> n0"]
    result = explained(*question, node="n0", objects=(asked, *there)).asked
    assert result is not None
    (details,) = [objection.details for objection in result.objections if objection.plugin == "VolumeBinding"]
    assert details == [f"pod has unbound immediate PersistentVolumeClaims: {remedy}"]
