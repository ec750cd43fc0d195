import random
import socket

from pinnace.cluster.ports import HIGHEST, LOWEST, Ports, is_free


def test_ports_are_free_distinct_and_below_those_of_outgoing_connections() -> None:
    ports = Ports(random.Random(1))
    given = [ports.next() for _ in range(50)]
    assert len(set(given)) == 50
    assert all(LOWEST <= port <= HIGHEST for port in given)
    assert all(is_free(f"127.0.0.1:{port}") for port in given)


def test_a_port_that_somebody_listens_on_is_neither_free_nor_given() -> None:
    taken = Ports(random.Random(1)).next()
    with socket.create_server(("127.0.0.1", taken)):
        assert not is_free(f"127.0.0.1:{taken}")
        assert Ports(random.Random(1)).next() != taken
