"""The IP addresses of virtual nodes and pods. They are stable and distinct.

The addresses of a node follow from its name, so every process computes the same ones. Nodes with the same prefix and different
numbers are distinct. Other prefixes start elsewhere in the same space of 65,536 nodes: two prefixes with 1,000 nodes each
overlap with a probability of 3%. Nodes with more pods than a /24 has addresses get larger networks, and the space has fewer of
them. Nothing is routed to these addresses.

*Local* addresses are in 127.0.0.0/8, which belongs to this machine on Linux. A process can listen on any port of its pod's
address, like the processes of other pods.
"""

from ipaddress import IPv4Address, IPv4Network
from socket import inet_ntoa
from typing import NamedTuple
from zlib import crc32

SPACE = 65536
LOCAL_SPACE = 255 * 256
"""Local nodes. 127.255.0.0/16 is for the cluster IPs of services (pinnace.cluster.spec)."""
HOSTS = IPv4Address("172.16.0.0")
FIRST = IPv4Address("10.0.0.0")
"""The first address of default pod networks in 10.0.0.0/8."""
_SPACE_BITS = 24
"""Host bits of 10.0.0.0/8."""
_USUAL_BITS, _MOST_BITS = 8, 20
"""Host bits of the default and of the largest pod network of a node: /24 and /12."""
_NOT_FOR_PODS = 3
"""Reserved addresses of a network: the network address, the node's address, and the broadcast address."""


class PodAddresses(NamedTuple):
    """The addresses of a pod and its node."""

    host: str
    pod: str


def node_address_index(name: str) -> int:
    """An index from 0 to 65535: the number at the end of the name, plus an offset derived from the rest of the name."""
    return _index_of_name(name, SPACE)


def _index_of_name(name: str, space: int) -> int:
    prefix = name.rstrip("0123456789")
    return (crc32(prefix.encode()) + int(name[len(prefix) :][-9:] or 0)) % space


def host_ip(name: str, *, local: bool = False) -> str:
    """An address in 172.16.0.0/12, or the first address of the node's pod network if `local`."""
    if local:
        return str(IPv4Network(pod_cidr(name, local=True))[1])
    return inet_ntoa((int(HOSTS) + 1 + node_address_index(name)).to_bytes(4, "big"))


def pod_cidr(name: str, pods: int = 0, *, local: bool = False) -> str:
    """The default pod network of a node. It is a /24 of 127.0.0.0/8 if `local`, otherwise a network of 10.0.0.0/8 that is a /24
    or large enough for `pods` addresses.
    """
    if local:
        high, low = divmod(_index_of_name(name, LOCAL_SPACE), 256)
        return f"127.{high}.{low}.0/24"
    bits = min(max((pods + _NOT_FOR_PODS - 1).bit_length(), _USUAL_BITS), _MOST_BITS)
    return f"{FIRST + (node_address_index(name) << bits) % (1 << _SPACE_BITS)}/{32 - bits}"


class AddressPool:
    """Allocates the pod addresses of one node, lowest free address first. The first two addresses are reserved for the network
    and the node.
    """

    def __init__(self, cidr: str) -> None:
        """Raises ValueError if `cidr` is not an IPv4 network."""
        network = IPv4Network(cidr)
        self._base = int(network.network_address)
        self._last = network.num_addresses - 2  # the last address is the broadcast address
        self.size = max(self._last - 1, 0)
        """The maximum number of pods with an address."""
        self._taken: set[int] = set()
        self._lowest = 2  # all lower addresses are allocated

    def allocate_address(self) -> str:
        """Return the allocated address, or an empty string if none is free."""
        number = self._lowest
        while number in self._taken:
            number += 1
        self._lowest = number
        if number > self._last:
            return ""
        self._taken.add(number)
        return inet_ntoa((self._base + number).to_bytes(4, "big"))

    def reserve(self, address: str) -> None:
        """Reserve an address that an earlier process allocated. Addresses of other networks are ignored."""
        if (number := self._number_of_address(address)) is not None:
            self._taken.add(number)

    def release(self, address: str) -> None:
        if (number := self._number_of_address(address)) is not None and number in self._taken:
            self._taken.remove(number)
            self._lowest = min(self._lowest, number)

    def _number_of_address(self, address: str) -> int | None:
        try:
            number = int(IPv4Address(address)) - self._base
        except ValueError:
            return None
        return number if 2 <= number <= self._last else None
