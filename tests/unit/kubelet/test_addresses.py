import pytest

from kubelet.addresses import AddressPool, host_ip, node_index, pod_cidr


def test_nodes_that_end_in_a_number_have_the_addresses_of_that_number() -> None:
    assert (host_ip("node-0"), pod_cidr("node-0")) == ("192.168.0.0", "10.0.0.0/24")
    assert (host_ip("node-300"), pod_cidr("node-300")) == ("192.168.1.44", "10.1.44.0/24")
    assert len({pod_cidr(f"node-{index}") for index in range(65_536)}) == 65_536


@pytest.mark.parametrize("name", ["worker", "node-65536", "node-123456789", "9" * 60])
def test_other_names_have_an_index_all_the_same(name: str) -> None:
    assert 0 <= node_index(name) < 65_536
    assert node_index(name) == node_index(name)


def test_the_lowest_free_address_is_given_out() -> None:
    pool = AddressPool("10.0.1.0/24")
    assert [pool.take() for _ in range(3)] == ["10.0.1.2", "10.0.1.3", "10.0.1.4"]
    pool.release("10.0.1.3")
    assert [pool.take(), pool.take()] == ["10.0.1.3", "10.0.1.5"]


def test_a_full_network_gives_nothing_until_something_is_released() -> None:
    pool = AddressPool("10.0.1.0/29")
    assert [pool.take() for _ in range(6)] == ["10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6", ""]
    pool.release("10.0.1.6")
    assert pool.take() == "10.0.1.6"


def test_reserved_addresses_are_not_given_out() -> None:
    pool = AddressPool("10.0.1.0/24")
    pool.reserve("10.0.1.2")
    pool.reserve("10.0.9.3")  # of another network
    pool.reserve("nonsense")
    assert pool.take() == "10.0.1.3"
    pool.release("10.0.1.2")
    pool.release("10.0.9.9")
    assert pool.take() == "10.0.1.2"
