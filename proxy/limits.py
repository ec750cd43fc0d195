"""The limits of the proxy process: file descriptors, connections, datagrams, and the time that one client can take.

All listeners share one process, one limit of open files and one interpreter lock. So each kind of work has a limit of its own,
and one client or service cannot use up what the others need:

    RLIMIT_NOFILE - DESCRIPTORS_RESERVED = the descriptors for forwarding
        TCP: DESCRIPTORS_PER_CONNECTION each, all but UDP_SHARE_MIN
        UDP: one for each flow, at most UDP_SHARE_MAX, and at least UDP_SHARE_MIN; connections come first
            one client at most CLIENT_SHARE of the flows, one service SERVICE_SHARE; the flow that is idle for the longest
            time ends

The DNS server has its own thread (proxy/dns.py) and its own connections, which are part of DESCRIPTORS_RESERVED.
"""

import resource
from dataclasses import dataclass

DESCRIPTORS_RESERVED = 512
"""File descriptors for listeners, API servers, the status server, HEALTH_CHECK_CONNECTIONS and DNS_CONNECTIONS."""
DESCRIPTORS_PER_CONNECTION = 6
"""File descriptors of a TCP connection: two sockets, and two pipes if both directions carry large streams."""
UDP_SHARE_MIN = 1 / 16
"""The part of the descriptors that TCP connections leave to UDP flows."""
UDP_SHARE_MAX = 1 / 2
"""The part of the descriptors that UDP flows use if there are few connections."""
MAX_FLOWS = 10_000
"""UDP flows of the process. Each flow has a socket with buffers in the kernel."""
CLIENT_SHARE, SERVICE_SHARE = 1 / 4, 1 / 2
"""The parts of the UDP flows that one client address and one service can have. A client that opens many flows ends its own
before those of other clients of the service. On a local cluster many clients have one address, so that its part is large."""

CONNECT_TIMEOUT = 5.0
"""Seconds for which an endpoint may take to accept a connection before the next one is tried."""
HALF_CLOSE_TIMEOUT = 300.0
"""Seconds without data after which a connection that one side has closed ends."""
UDP_IDLE = 30.0
"""Seconds without a datagram after which a flow ends, as in Linux' connection tracking."""
SWEEP_INTERVAL = 10.0
"""Seconds between two searches for idle flows and half-closed connections."""
BACKLOG = 1024
"""Connections that wait to be accepted."""
ACCEPTS = DATAGRAMS = 64
"""Connections that are accepted, and datagrams that are forwarded, per event. One listener does not delay the others."""
MAX_AFFINITIES = 10_000
"""Client IPs per rule with session affinity. If it is exceeded, the client that was seen least recently is forgotten."""
WARN_INTERVAL = 10.0
"""Seconds between two warnings of one kind."""

HEALTH_CHECK_CONNECTIONS = 16
"""Open connections to a health check node port. A new one replaces the oldest one."""

DNS_CONNECTIONS = 128
"""Open TCP connections of the DNS server. A new one replaces the one that is idle for the longest time (RFC 7766, 6.2.3)."""
DNS_CONNECTIONS_PER_CLIENT = 32
"""The same for one client address."""
DNS_QUERIES_PER_CONNECTION = 128
"""Queries after which the server closes a TCP connection. Connections take turns after each query."""
DNS_TIMEOUT = 10.0
"""Seconds within which a client must send a whole query, and read the answer before it."""
DNS_MAX_QUERY = 4096
"""Bytes of a query. A name has at most 255 bytes; the rest is for EDNS options, which are not parsed."""
DNS_MAX_RECORDS = (1, 1, 1, 2)
"""Records of a query by section, as CoreDNS accepts them: question (exactly one), answer, authority, additional."""
DNS_CNAMES = 8
"""Names that an answer follows from ExternalName to ExternalName within the domain."""
SWITCH_INTERVAL = 0.0005
"""Seconds for which the DNS thread can keep the interpreter lock while the thread that forwards waits for it. The default of
Python, 5 ms, would be a visible delay for each datagram."""


def available_descriptors() -> int:
    """Return the number of file descriptors for forwarding."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(DESCRIPTORS_PER_CONNECTION + 1, min(soft, 1 << 20) - DESCRIPTORS_RESERVED)


@dataclass(frozen=True, slots=True)
class DescriptorBudget:
    """The shares of the descriptors for forwarding. `connections`: the maximum number of TCP connections."""

    descriptors: int
    connections: int

    @classmethod
    def from_descriptors(cls, descriptors: int, max_connections: int | None = None) -> "DescriptorBudget":
        """Divide the descriptors. `max_connections` replaces the number that follows from them."""
        most = int(descriptors * (1 - UDP_SHARE_MIN)) // DESCRIPTORS_PER_CONNECTION
        return cls(descriptors, max_connections or max(1, most))

    def max_flows(self, open_connections: int) -> int:
        """Return the maximum number of UDP flows beside the open connections."""
        least, most = (max(1, int(self.descriptors * share)) for share in (UDP_SHARE_MIN, UDP_SHARE_MAX))
        return min(max(least, self.descriptors - open_connections * DESCRIPTORS_PER_CONNECTION), most, MAX_FLOWS)
