from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise

import pytest

from pinnace.kubelet.addresses import AddressPool, host_ip, node_address_index, pod_cidr


def test_numbered_nodes_are_distinct() -> None:
    names = [f"node-{index}" for index in range(65_536)]
    assert len({pod_cidr(name) for name in names}) == len({host_ip(name) for name in names}) == 65_536


def test_equal_numbers_with_different_prefixes_get_distinct_addresses() -> None:
    names = [f"{prefix}{index}" for prefix in ("node-", "big-", "fleet-1-") for index in range(1000)]
    assert len({pod_cidr(name) for name in names}) == len({host_ip(name) for name in names}) == 3000


def test_addresses_are_in_their_networks() -> None:
    assert all(IPv4Address(host_ip(f"n{index}")) in IPv4Network("172.16.0.0/12") for index in range(0, 65_536, 97))
    assert all(IPv4Network(pod_cidr(f"n{index}")).subnet_of(IPv4Network("10.0.0.0/8")) for index in range(0, 65_536, 97))


@pytest.mark.parametrize(("pods", "length"), [(0, 24), (110, 24), (253, 24), (254, 23), (500, 23), (5000, 19), (1 << 40, 12)])
def test_size_of_the_pod_network_depends_on_the_pod_capacity(pods: int, length: int) -> None:
    network = IPv4Network(pod_cidr("node-7", pods))
    assert network.prefixlen == length and network.subnet_of(IPv4Network("10.0.0.0/8"))
    assert AddressPool(str(network)).size >= min(pods, 1_000_000)


def test_larger_networks_do_not_overlap() -> None:
    networks = sorted(IPv4Network(pod_cidr(f"node-{index}", 500)) for index in range(2000))
    assert not any(one.overlaps(next_one) for one, next_one in pairwise(networks))


@pytest.mark.parametrize("name", ["worker", "node-65536", "node-123456789", "9" * 60])
def test_every_node_name_has_a_stable_index(name: str) -> None:
    assert 0 <= node_address_index(name) < 65_536
    assert node_address_index(name) == node_address_index(name)


def test_pool_allocates_the_lowest_free_address() -> None:
    pool = AddressPool("10.0.1.0/24")
    assert [pool.allocate_address() for _ in range(3)] == ["10.0.1.2", "10.0.1.3", "10.0.1.4"]
    pool.release("10.0.1.3")
    assert [pool.allocate_address(), pool.allocate_address()] == ["10.0.1.3", "10.0.1.5"]


def test_full_pool_allocates_nothing_until_a_release() -> None:
    pool = AddressPool("10.0.1.0/29")
    assert [pool.allocate_address() for _ in range(6)] == ["10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6", ""]
    pool.release("10.0.1.6")
    assert pool.allocate_address() == "10.0.1.6"


def test_reserved_addresses_are_not_allocated() -> None:
    pool = AddressPool("10.0.1.0/24")
    pool.reserve("10.0.1.2")
    pool.reserve("10.0.9.3")  # of another network
    pool.reserve("nonsense")
    assert pool.allocate_address() == "10.0.1.3"
    pool.release("10.0.1.2")
    pool.release("10.0.9.9")
    assert pool.allocate_address() == "10.0.1.2"
