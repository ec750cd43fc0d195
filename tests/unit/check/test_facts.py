"""The facts that are extracted from objects."""

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import LEASES, NODES, PODS, election_key
from pinnace.history.records import (
    UNSCHEDULABLE,
    ElectionFacts,
    LeaseFacts,
    NodeFacts,
    PodFacts,
    StoredChange,
    decode_facts,
    decode_record,
    digest_of,
    encode_record,
    labels_digest,
    object_digest,
)
from tests.builders import make_node, make_pod


def test_facts_of_a_pod() -> None:
    pod = make_pod("a").uid("u").req(cpu="100m", memory="1Gi").build()
    assert decode_facts(PODS.key_of(pod), pod.SerializeToString()) == PodFacts(
        "u", phase=pod.status.phase, requests=(("pods", 1), ("cpu", 100), ("memory", 1 << 30))
    )
    pod = make_pod("a").uid("u").node("n").annotation("pinnace.io/fence", "scheduler/17").phase("Running").terminating().build()
    pod.status.startTime.seconds = 5
    facts = decode_facts(PODS.key_of(pod), pod.SerializeToString())
    assert facts == PodFacts("u", "n", "scheduler", 17, "Running", (("pods", 1),), 5, terminating=True)
    assert facts.bound_by_scheduler and not facts.finished


def test_malformed_fence_is_ignored() -> None:
    """Otherwise the recorder would end at this revision, and so would each restarted one, which replays it."""
    for text in ("hello", "scheduler/" + "9" * 5000):
        pod = make_pod("a").uid("u").node("n").annotation("pinnace.io/fence", text).build()
        facts = decode_facts(PODS.key_of(pod), pod.SerializeToString())
        assert isinstance(facts, PodFacts) and (facts.election, facts.token) == ("", 0)


def test_label_order_does_not_affect_fingerprints() -> None:
    pod = make_pod("a").label("x", "1").label("y", "2").build()
    facts = decode_facts(PODS.key_of(pod), pod.SerializeToString())
    assert isinstance(facts, PodFacts)
    assert facts.labels == labels_digest({"y": "2", "x": "1"}) != labels_digest({"x": "2", "y": "1"})
    assert labels_digest({}) == ""


def test_pod_with_constraints_is_picky() -> None:
    for builder in (make_pod("a").node_selector("a", "b"), make_pod("a").host_port(80), make_pod("a").scheduler("mine")):
        pod = builder.build()
        facts = decode_facts(PODS.key_of(pod), pod.SerializeToString())
        assert isinstance(facts, PodFacts) and facts.picky


def test_facts_of_a_node() -> None:
    node = make_node("n").uid("u").build()
    node.status.allocatable.clear()
    node.status.allocatable["cpu"].string = "4"
    assert decode_facts(NODES.key_of(node), node.SerializeToString()) == NodeFacts("u", (("cpu", 4000),), ready=False)
    node.spec.unschedulable = True
    assert decode_facts(NODES.key_of(node), node.SerializeToString()) == NodeFacts(
        "u", (("cpu", 4000),), open=False, ready=False, taints=(UNSCHEDULABLE,)
    )
    node.spec.taints.add(key="dedicated", value="x", effect="NoExecute")
    node.spec.taints.add(key="gone", effect="NoSchedule")
    facts = decode_facts(NODES.key_of(node), node.SerializeToString())
    assert isinstance(facts, NodeFacts) and facts.taints == ("dedicated=x:NoExecute", "gone:NoSchedule", UNSCHEDULABLE)
    assert decode_record(encode_record(StoredChange(1.0, 1, NODES.key_of(node), facts=facts))) == StoredChange(
        1.0, 1, NODES.key_of(node), facts=facts
    )


def test_facts_of_elections_leases_and_other_keys() -> None:
    election = Election(name="e", holder="h", session=3)
    assert decode_facts(election_key("e"), election.SerializeToString()) == ElectionFacts("h", 3)
    election.since.seconds, election.since.nanos = 5, 500_000_000
    assert decode_facts(election_key("e"), election.SerializeToString()) == ElectionFacts("h", 3, began=5.5)
    lease = Lease()
    lease.spec.holderIdentity = "fleet"
    assert decode_facts(LEASES.key("ns", "n"), lease.SerializeToString()) == LeaseFacts("fleet")
    assert decode_facts("/registry/events/default/e", b"whatever") is None
    assert decode_facts(PODS.key("default", "a"), None) is None


def test_digest_ignores_resource_version_and_map_order() -> None:
    pod = make_pod("a").label("x", "1").label("y", "2").version(7).build()
    other = make_pod("a").label("y", "2").label("x", "1").build()
    assert object_digest(pod) == object_digest(other) == digest_of(PODS.key_of(other), other.SerializeToString())
    assert pod.metadata.resourceVersion == "7"
    assert object_digest(make_pod("a").label("x", "2").build()) != object_digest(other)


def test_digest_of_other_keys_covers_their_bytes() -> None:
    assert digest_of("/registry/elections/e", b"a") != digest_of("/registry/elections/e", b"b")
    assert len(digest_of("/somewhere", b"a")) == len(object_digest(Pod())) == 16
    assert digest_of("/somewhere", None) == ""
    assert digest_of("/pinnace.io/events-trim", b"") != "", "an empty value differs from a deleted key"
