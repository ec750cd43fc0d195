"""The scalar and the table form say the same, whatever the nodes, the pods on them, and the pod."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pinnace.fit import HostPort, NodeCapacity, Requests, pod_requests
from pinnace.fit.requests import MAX_AMOUNT
from pinnace.fit.room import PORTS_REASON, insufficient_reason
from pinnace.fit.table import IntArray, UsedPorts, insufficient_nodes
from tests.builders import make_pod

RESOURCES = ("cpu", "memory", "example.com/gpu")
amount = st.one_of(st.integers(0, 4), st.integers(0, MAX_AMOUNT))
ports = st.builds(
    HostPort,
    ip=st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),
    protocol=st.sampled_from(["TCP", "UDP"]),
    port=st.integers(80, 82),
)


@st.composite
def requests(draw: st.DrawFn) -> Requests:
    asked = draw(st.dictionaries(st.sampled_from(RESOURCES), amount.filter(bool)))
    taken = draw(st.sets(ports, max_size=3))
    return Requests((("pods", 1), *sorted(asked.items())), tuple(sorted(taken)))


@st.composite
def resized(draw: st.DrawFn) -> Requests:
    """Of a pod whose resize is not done."""
    millicores = st.integers(1, 4)
    pod = make_pod("a").req(cpu=f"{draw(millicores)}m").build()
    pod.metadata.generation, pod.status.observedGeneration = 2, draw(st.sampled_from([0, 1, 2]))
    status = pod.status.containerStatuses.add(name=pod.spec.containers[0].name)
    status.allocatedResources["cpu"].string = f"{draw(millicores)}m"
    status.resources.requests["cpu"].string = f"{draw(millicores)}m"
    for kind in draw(st.sets(st.sampled_from(["PodResizePending", "PodResizeInProgress"]))):
        pod.status.conditions.add(type=kind, status="True", reason=draw(st.sampled_from(["Deferred", "Infeasible"])))
    return pod_requests(pod)


nodes = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(("pods", *RESOURCES)), amount), st.lists(st.one_of(requests(), resized()), max_size=4)
    ),
    min_size=1,
    max_size=4,
)


@given(nodes, st.one_of(requests(), resized()))
def test_scalar_and_table_agree(placed: list[tuple[dict[str, int], list[Requests]]], pod: Requests) -> None:
    used = UsedPorts()
    rooms = []
    for row, (allocatable, pods) in enumerate(placed):
        room = NodeCapacity(allocatable)
        for other in pods:
            room.add(other)
            used.add(f"n{row}", other.ports)
        rooms.append(room)

    def free(resource: str) -> IntArray:
        taken = [sum(dict(other.amounts).get(resource, 0) for other in pods) for _, pods in placed]
        has = [allocatable.get(resource, 0) for allocatable, _ in placed]
        return np.array(has, np.int64) - np.array(taken, np.int64)

    by_table: list[list[str]] = [[] for _ in placed]
    for resource, refused in insufficient_nodes(pod, free):
        for row in refused.nonzero()[0].tolist():
            by_table[row].append(insufficient_reason(resource))
    for row in range(len(placed)):
        if f"n{row}" in used.taken(pod.ports):
            by_table[row].append(PORTS_REASON)

    assert by_table == [[refusal.reason for refusal in room.refusals(pod)] for room in rooms]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.lists(ports, max_size=3))), st.randoms())
def test_ports_that_are_given_back_are_free(uses: list[tuple[str, list[HostPort]]], rng: random.Random) -> None:
    used = UsedPorts()
    for node, taken in uses:
        used.add(node, taken)
    rng.shuffle(uses)
    for node, taken in uses:
        used.remove(node, taken)
    assert used.taken([HostPort("0.0.0.0", protocol, port) for protocol in ("TCP", "UDP") for port in (80, 81, 82)]) == set()
