"""The nftables backend in network namespaces: a node with a client and three endpoints, each in a namespace of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from math import exp

import pytest

from pinnace.proxy.nftables import NftablesBackend
from pinnace.proxy.plan import NO_RULES, NODE_ADDRESS, Endpoint, Frontend, Rule, ServiceRules
from pinnace.proxy.proxier import BackendError


def _why_not() -> str:
    if os.geteuid():
        return "needs root"
    if missing := [name for name in ("nft", "ip") if shutil.which(name) is None]:
        return f"needs {', '.join(missing)}"
    if subprocess.run(["unshare", "-n", "nft", "list", "ruleset"], capture_output=True, check=False).returncode:
        return "the kernel permits no network namespaces or nftables"
    return ""


pytestmark = [pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-"), pytest.mark.timeout(60)]

SERVER = """
import socket, sys, threading
def udp(s):
    while True:
        _, client = s.recvfrom(100)
        s.sendto(sys.argv[1].encode(), client)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind((sys.argv[1], 8080))
threading.Thread(target=udp, args=(u,), daemon=True).start()
s = socket.create_server((sys.argv[1], 8080), backlog=1000)
print("ready", flush=True)
while True:
    c, peer = s.accept()
    c.sendall(f"{sys.argv[1]} {peer[0]}".encode())
    c.close()
"""
CLIENT = """
import json, socket, sys
host, port, count, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
found = []
for _ in range(count):
    try:
        if kind == "udp":
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.connect((host, port)); s.send(b"x")
        else:
            s = socket.create_connection((host, port), 3)
        found.append(s.recv(100).decode())
        s.close()
    except OSError as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""
SERVICE = "10.96.0.1"


class Network:
    """The namespaces PREFIX-node, PREFIX-client, and PREFIX-e1 to e3."""

    def __init__(self) -> None:
        self.prefix = f"pt{os.getpid() % 100000}"
        self.node = f"{self.prefix}-node"
        self.names = [self.node, *(f"{self.prefix}-{name}" for name in ("client", "e1", "e2", "e3"))]
        self.servers: list[subprocess.Popen[str]] = []
        self.node_address = "10.77.0.1"

    def start(self) -> None:
        for name in self.names:
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        for number, name in enumerate(self.names[1:]):
            inner, outer = f"i{number}", f"o{number}"
            self.ip("-n", self.node, "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            self.ip("-n", self.node, "addr", "add", f"10.77.{number}.1/24", "dev", outer)
            self.ip("-n", self.node, "link", "set", outer, "up")
            self.ip("-n", name, "addr", "add", f"10.77.{number}.2/24", "dev", inner)
            self.ip("-n", name, "link", "set", inner, "up")
            self.ip("-n", name, "route", "add", "default", "via", f"10.77.{number}.1")
        self.ip("-n", self.node, "route", "add", "10.96.0.0/16", "dev", "o3")
        self.run(self.node, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, name in enumerate(self.names[2:], 1):
            command = ["ip", "netns", "exec", name, sys.executable, "-S", "-c", SERVER, f"10.77.{number}.2"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self.servers.append(server)
            assert server.stdout is not None and server.stdout.readline() == "ready\n"

    def stop(self) -> None:
        for server in self.servers:
            server.kill()
            server.wait()
            if server.stdout:
                server.stdout.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, timeout=10)

    def run(self, name: str, *command: str) -> str:
        return subprocess.run(
            ["ip", "netns", "exec", name, *command], check=True, timeout=30, stdout=subprocess.PIPE, text=True
        ).stdout

    def ask(self, host: str, port: int, count: int = 1, *, kind: str = "tcp", of: str = "client") -> list[str]:
        """The answers, or names of errors."""
        name = self.node if of == "node" else f"{self.prefix}-{of}"
        result: list[str] = json.loads(self.run(name, sys.executable, "-S", "-c", CLIENT, host, str(port), str(count), kind))
        return result

    def ruleset(self) -> str:
        return self.run(self.node, "nft", "list", "ruleset")

    @property
    def endpoints(self) -> list[Endpoint]:
        return [Endpoint(f"10.77.{number}.2", 8080) for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def backend(network: Network) -> NftablesBackend:
    return NftablesBackend(command=("ip", "netns", "exec", network.node, "nft"))


def rules(*endpoints: Endpoint, affinity: int | None = None, address: str = SERVICE) -> ServiceRules:
    frontends = [Frontend(address, 80, "TCP"), Frontend(address, 80, "UDP")]
    inside = Rule("default/web", endpoints, affinity)
    outside = Rule("default/web", endpoints, affinity, masquerade=True)
    return ServiceRules({**dict.fromkeys(frontends, inside), Frontend(NODE_ADDRESS, 30080, "TCP"): outside})


def servers(answers: list[str]) -> Counter[str]:
    return Counter(answer.split()[0] for answer in answers)


async def test_connections_from_other_machines_and_the_node_are_spread(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules(*network.endpoints)})
    for of in ("client", "node"):
        counts = servers(network.ask(SERVICE, 80, 900, of=of))
        assert len(counts) == 3
        assert exp(-sum((count - 300) ** 2 / 300 for count in counts.values()) / 2) > 1e-4, counts
    assert set(network.ask(SERVICE, 80, 1)[0].split()[1:]) == {"10.77.0.2"}, "the address of the client is kept"
    assert set(servers(network.ask(SERVICE, 80, 20, kind="udp"))) <= {endpoint.address for endpoint in network.endpoints}


async def test_node_ports_are_masqueraded(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules(*network.endpoints)})
    answers = network.ask(network.node_address, 30080, 30)
    assert len(servers(answers)) >= 2
    assert all(answer.split()[1] in ("10.77.1.1", "10.77.2.1", "10.77.3.1") for answer in answers)


async def test_endpoint_reaches_itself_through_the_service(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules(network.endpoints[0])})
    assert network.ask(SERVICE, 80, of="e1") == ["10.77.1.2 10.77.1.1"]


async def test_frontends_without_endpoints_refuse_at_once(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules()})
    for of in ("client", "node"):
        assert network.ask(SERVICE, 80, of=of) == ["ConnectionRefusedError"]
        answers = network.ask(SERVICE, 80, kind="udp", of=of)
        assert answers == (["ConnectionRefusedError"] if of == "client" else ["PermissionError"])  # send fails on the node
    assert network.ask(network.node_address, 30080) == ["ConnectionRefusedError"]
    await backend.apply({"default/web": rules(network.endpoints[1])})
    assert servers(network.ask(SERVICE, 80, 5)) == {"10.77.2.2": 5}


async def test_affinity_keeps_a_client_at_its_endpoint(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules(*network.endpoints, affinity=600)})
    first = servers(network.ask(SERVICE, 80, 20))
    assert len(first) == 1
    left = [endpoint for endpoint in network.endpoints if endpoint.address not in first]
    await backend.apply({"default/web": rules(*left, affinity=600)})
    again = servers(network.ask(SERVICE, 80, 20))
    assert len(again) == 1 and again.keys() != first.keys()
    await backend.apply({"default/web": rules(*left, affinity=300)})
    await backend.apply({"default/web": rules(*left)})
    assert "affinity" not in network.ruleset()


async def test_only_changes_are_sent_and_nothing_is_left(network: Network, backend: NftablesBackend) -> None:
    await backend.apply(
        {"default/web": rules(*network.endpoints), "default/b": rules(network.endpoints[0], address="10.96.0.2")}
    )
    await backend.apply({"default/web": rules(network.endpoints[0]), "default/c": rules(address="10.96.0.3")})
    incremental = network.ruleset()
    fresh = NftablesBackend(command=("ip", "netns", "exec", network.node, "nft"))
    await fresh.apply(backend.services)  # the table is replaced: a restart
    assert sorted(network.ruleset().replace(",", "").split()) == sorted(incremental.replace(",", "").split())
    await fresh.apply(dict.fromkeys(fresh.services, NO_RULES))
    left = network.ruleset()
    assert "service-" not in left.replace("service-ips", "").replace("service-nodeports", "") and "10.96" not in left
    assert "10.77" not in left


async def test_frontend_of_two_services_belongs_to_the_first_one(network: Network, backend: NftablesBackend) -> None:
    first, second, _ = network.endpoints
    await backend.apply({"default/web": rules(first)})
    await backend.apply({"default/b": rules(second)})
    assert servers(network.ask(SERVICE, 80, 5)) == {first.address: 5}
    await backend.apply({"default/web": NO_RULES})
    assert servers(network.ask(SERVICE, 80, 5)) == {second.address: 5}
    await backend.apply({"default/b": NO_RULES})
    assert backend.services == {} and "10.96" not in network.ruleset()


async def test_flushed_ruleset_is_restored_at_the_next_change(network: Network, backend: NftablesBackend) -> None:
    await backend.apply({"default/web": rules(*network.endpoints)})
    network.run(network.node, "nft", "flush", "ruleset")

    with pytest.raises(BackendError, match="nft failed"):
        await backend.apply({"default/web": rules(network.endpoints[0])})
    await backend.apply({"default/web": rules(network.endpoints[0])})
    assert servers(network.ask(SERVICE, 80, 3)) == {"10.77.1.2": 3}
