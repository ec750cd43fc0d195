"""The scalar form, and the words of a refusal."""

import pytest

from pinnace import fit
from pinnace.fit import HostPort
from tests.builders import make_node, make_pod


def test_pod_that_fits() -> None:
    node = make_node("n").capacity(cpu=2, memory="1Gi", pods=2).build()
    assert fit.check_fit(make_pod("a").req(cpu=1).build(), node, [make_pod("b").req(cpu=1).build()]) == []


def test_all_reasons_are_reported() -> None:
    node = make_node("n").capacity(cpu=2, memory="1Gi", pods=1).build()
    there = make_pod("b").req(cpu=1).host_port(80).build()
    pod = make_pod("a").container({"cpu": "1500m", "memory": "2Gi", "example.com/gpu": 1}).host_port(80).build()
    refusals = fit.check_fit(pod, node, [there])
    assert [refusal.reason for refusal in refusals] == [
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient example.com/gpu",
        "node(s) didn't have free ports for the requested pod ports",
    ]
    assert [refusal.admission_reason for refusal in refusals] == [
        "OutOfpods",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfexample.com/gpu",
        "NodePorts",
    ]
    assert refusals[1].admission_message == "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"


def test_finished_pods_and_the_pod_itself_do_not_count() -> None:
    node = make_node("n").capacity(cpu=1, pods=1).build()
    pod = make_pod("a").req(cpu=1).build()
    done = [make_pod("b").req(cpu=1).phase("Succeeded").build(), make_pod("c").req(cpu=1).phase("Failed").build()]
    assert fit.check_fit(pod, node, [*done, pod]) == []


def test_allocatable_counts_not_capacity() -> None:
    node = make_node("n").capacity(cpu=4, pods=110).allocatable(cpu=1).build()
    assert [r.reason for r in fit.check_fit(make_pod("a").req(cpu=2).build(), node, [])] == ["Insufficient cpu"]


def test_absurd_request_fits_no_node() -> None:
    node = make_node("n").capacity(memory="8E", pods=110).build()
    assert [r.reason for r in fit.check_fit(make_pod("a").req(memory="8E").build(), node, [])] == ["Insufficient memory"]


@pytest.mark.parametrize(
    ("wanted", "used", "conflict"),
    [
        (HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "TCP", 80), True),
        (HostPort("0.0.0.0", "TCP", 80), HostPort("10.0.0.1", "TCP", 80), True),
        (HostPort("10.0.0.1", "TCP", 80), HostPort("0.0.0.0", "TCP", 80), True),
        (HostPort("10.0.0.1", "TCP", 80), HostPort("10.0.0.2", "TCP", 80), False),
        (HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "UDP", 80), False),
        (HostPort("0.0.0.0", "TCP", 80), HostPort("0.0.0.0", "TCP", 81), False),
    ],
)
def test_host_ports(wanted: HostPort, used: HostPort, conflict: bool) -> None:
    node = make_node("n").build()
    pod = make_pod("a").host_port(wanted.port, wanted.protocol, wanted.ip).build()
    there = make_pod("b").host_port(used.port, used.protocol, used.ip).build()
    assert bool(fit.check_fit(pod, node, [there])) is conflict


def test_room_takes_back_what_was_added() -> None:
    room = fit.NodeCapacity(fit.allocatable_amounts(make_node("n").capacity(cpu=1, pods=110).build()))
    requests = fit.pod_requests(make_pod("a").req(cpu=1).host_port(80).build())
    assert room.refusals(requests) == []
    room.add(requests)
    assert len(room.refusals(requests)) == 2
    room.remove(requests)
    assert room.refusals(requests) == []
