"""UDP flows: the limits, and the flow that ends if they are exceeded."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from pinnace.proxy import userspace
from pinnace.proxy.flows import FlowTable, UdpFlow
from pinnace.proxy.limits import DESCRIPTORS_PER_CONNECTION, MAX_FLOWS, DescriptorBudget
from pinnace.proxy.plan import Endpoint
from tests.unit.proxy.test_userspace import ADDRESS, endpoint, free_port, proxy, rules, udp_server
from tests.unit.proxy.test_userspace import ask as ask_tcp

TARGET = Endpoint("127.0.0.1", 9)


class Table(FlowTable):
    """A table whose limit can change, with a short way to open flows."""

    def __init__(self, most: int) -> None:
        super().__init__(lambda: self.most)
        self.most = most
        self.ended: list[str] = []

    def open(self, client: str, service: str = "default/a", listener: str = "l") -> UdpFlow:
        """`client`: "address:port"."""
        address, _, port = client.partition(":")
        self.make_room(service, (address, int(port)))
        flow = UdpFlow(listener, service, (address, int(port)), TARGET, lambda flow: self.ended.append(name_of(flow)), 0.0)
        self.add(flow)
        return flow

    @property
    def open_flows(self) -> list[str]:
        return [name_of(flow) for flow in self._all]


def name_of(flow: UdpFlow) -> str:
    return f"{flow.client[0]}:{flow.client[1]}"


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table(8)
    yield table
    for flow in list(table._all):
        table.end_flow(flow)
    assert not table._flows and not table._groups


def test_flow_that_is_idle_for_the_longest_time_ends_first(table: Table) -> None:
    first, *_ = [table.open(f"{client}:1", f"default/{client}") for client in "abcdefgh"]
    table.record_datagram(first, 1.0)
    table.open("i:1", "default/i")
    assert table.ended == ["b:1"] and table.open_flows == [f"{client}:1" for client in "cdefghai"]


def test_client_replaces_its_own_flows_beyond_its_share(table: Table) -> None:
    """Also if another client has the oldest flow of the service."""
    table.open("other:1")
    for port in range(9):
        table.open(f"a:{port}")
    assert table.open_flows == ["other:1", "a:7", "a:8"]


def test_service_replaces_its_own_flows_beyond_its_share(table: Table) -> None:
    table.open("x:1", "default/other")
    for number in range(6):
        table.open(f"c{number}:1", "default/a", listener=f"l{number % 2}")
    assert table.open_flows == ["x:1", "c2:1", "c3:1", "c4:1", "c5:1"]


def test_smaller_limit_ends_flows(table: Table) -> None:
    for number in range(4):
        table.open(f"c{number}:1", f"default/{number}")
    table.most = 1
    table.make_room()
    assert table.open_flows == ["c3:1"]


def test_idle_flows_and_flows_of_a_listener_end(table: Table) -> None:
    old, new = table.open("a:1"), table.open("b:1", "default/b", listener="m")
    table.record_datagram(new, 10.0)
    assert table.flows_of_listener("l") == [old] and table.get("m", ("b", 1)) is new
    table.end_idle(5.0)
    assert table.ended == ["a:1"] and old.socket.fileno() < 0
    table.end_flow(old)
    assert table.open_flows == ["b:1"]


@pytest.mark.parametrize("descriptors", [7, 100, 3_488, 1 << 20])
def test_connections_and_flows_fit_into_the_descriptors(descriptors: int) -> None:
    budget = DescriptorBudget.from_descriptors(descriptors)
    for connections in (0, budget.connections // 2, budget.connections):
        flows = budget.max_flows(connections)
        assert 1 <= flows <= MAX_FLOWS
        assert connections * DESCRIPTORS_PER_CONNECTION + flows <= descriptors
    assert DescriptorBudget.from_descriptors(descriptors, 3).connections == 3


async def test_flood_of_datagrams_leaves_connections_and_other_clients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """6,000 flows took all descriptors, so that no TCP service was reachable for 30 seconds."""
    monkeypatch.setattr(userspace, "available_descriptors", lambda: 60)
    tcp_port, udp_port = free_port(), free_port(kind=socket.SOCK_DGRAM)
    transport, server = await udp_server("127.251.7.2")
    loop = asyncio.get_running_loop()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) for _ in range(101)]
    other, *flood = sockets
    other.bind(("127.251.7.99", 0))

    async def exchange(client: socket.socket) -> None:
        async with asyncio.timeout(5):
            await loop.sock_sendto(client, b"!", (ADDRESS, udp_port))
            assert await loop.sock_recv(client, 100) == b"127.251.7.2!"

    async with endpoint("127.251.7.3") as web, proxy() as it:
        await it.apply({"default/web": rules(tcp_port, web), "default/dns": rules(udp_port, server, protocol="UDP")})
        await exchange(other)
        (flow,) = it.flows._all
        for client in flood:
            await exchange(client)
        assert len(it.flows) <= 30
        assert await ask_tcp(tcp_port) == "127.251.7.3"
        await exchange(other)
        assert flow.socket.fileno() >= 0, "the client keeps its flow"
    for item in sockets:
        item.close()
    transport.close()
