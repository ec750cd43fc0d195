import random
import socket
import subprocess
import sys
from ipaddress import ip_network

import pytest

from pinnace.cluster.processes import BLOCK, HIGHEST, LOWEST, PortAllocator, choose_service_network, is_port_free

pytestmark = pytest.mark.processes


def test_ports_are_free_distinct_and_below_the_ephemeral_range() -> None:
    ports = PortAllocator(random.Random(1))
    given = [ports.next() for _ in range(50)]
    assert len(set(given)) == 50
    assert all(LOWEST <= port <= HIGHEST for port in given)
    assert all(is_port_free(f"127.0.0.1:{port}") for port in given)


def test_listening_port_is_not_allocated() -> None:
    taken = PortAllocator(random.Random(1)).next()
    with socket.create_server(("127.0.0.1", taken)):
        assert not is_port_free(f"127.0.0.1:{taken}")
        assert PortAllocator(random.Random(1)).next() != taken


def test_two_clusters_reserve_different_port_blocks() -> None:
    one, other = PortAllocator(random.Random(1)), PortAllocator(random.Random(1))
    first, second = one.next(), other.next()
    assert first // BLOCK != second // BLOCK
    script = "import random; from pinnace.cluster.processes import PortAllocator; print(PortAllocator(random.Random(1)).next())"
    elsewhere = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert int(elsewhere.stdout) // BLOCK not in (first // BLOCK, second // BLOCK)
    del one
    assert PortAllocator(random.Random(1)).next() // BLOCK == first // BLOCK, "a deleted allocator releases its block"


def test_port_block_with_a_used_port_is_skipped() -> None:
    ports = PortAllocator(random.Random(1))
    used = ports.next()
    del ports
    with socket.create_server(("127.0.0.1", used)):
        assert PortAllocator(random.Random(1)).next() // BLOCK != used // BLOCK


def test_service_network_of_another_cluster_is_not_chosen() -> None:
    with socket.socket() as other:
        rng = random.Random(1)
        first = choose_service_network((LOWEST,), random.Random(1))
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind((str(ip_network(first)[1]), LOWEST))
        other.listen()
        assert choose_service_network((LOWEST,), rng) != first
