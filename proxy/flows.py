"""The UDP flows of all listeners: the datagrams between one client address and one endpoint.

A flow has a socket, because answers must return to its client. The number of flows has a limit for the process, and a share of
it for each client and for each service. A flow that exceeds a limit replaces the one that is idle for the longest time: of the
same client, of the same service, or of all. All operations take constant time, except the end of the flows of a listener.
"""

import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from ipaddress import ip_address

from pinnace.proxy.limits import CLIENT_SHARE, SERVICE_SHARE
from pinnace.proxy.plan import Endpoint

Client = tuple[str, int]


def address_family(address: str) -> socket.AddressFamily:
    """Raises ValueError."""
    return socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET


class UdpFlow:
    """`on_end` is called once, when a flow is taken out of its table. Then its socket closes."""

    __slots__ = ("client", "endpoint", "listener", "on_end", "service", "socket", "used")

    def __init__(
        self,
        listener: object,
        service: str,
        client: Client,
        endpoint: Endpoint,
        on_end: Callable[["UdpFlow"], None],
        now: float,
    ) -> None:
        """`service`: "namespace/name". Raises OSError."""
        self.listener, self.service, self.client, self.endpoint = listener, service, client, endpoint
        self.on_end, self.used = on_end, now
        self.socket = socket.socket(address_family(endpoint.address), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self.socket.connect(endpoint)
        except OSError:
            self.socket.close()
            raise


_Order = OrderedDict[UdpFlow, None]
"""Flows, the one that is idle for the longest time first."""


class FlowTable:
    """`limit` returns the maximum number of flows at the moment. It must be at least 1."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._flows: dict[tuple[object, Client], UdpFlow] = {}
        self._all: _Order = OrderedDict()
        self._groups: dict[object, _Order] = {}
        """The flows of each client address, service and listener."""

    def __len__(self) -> int:
        return len(self._all)

    def get(self, listener: object, client: Client) -> UdpFlow | None:
        return self._flows.get((listener, client))

    def flows_of_listener(self, listener: object) -> list[UdpFlow]:
        """Return the flows of a listener."""
        return list(self._groups.get(listener, ()))

    def make_room(self, service: str = "", client: Client | None = None) -> None:
        """End idle flows so that there is room for one more flow of this service and client, or so that the limit holds."""
        limit = self._limit()
        if client is not None:
            for group, share in ((client[0], CLIENT_SHARE), (("service", service), SERVICE_SHARE)):
                while len(flows := self._groups.get(group, ())) >= max(1, int(limit * share)):
                    self.end_flow(next(iter(flows)))
        while len(self._all) > (limit if client is None else limit - 1):
            self.end_flow(next(iter(self._all)))

    def add(self, flow: UdpFlow) -> None:
        """Add a flow that is used now. `make_room` comes first."""
        self._flows[flow.listener, flow.client] = flow
        self._all[flow] = None
        for group in self._groups_of(flow):
            self._groups.setdefault(group, OrderedDict())[flow] = None

    def record_datagram(self, flow: UdpFlow, now: float) -> None:
        """Note a datagram of the flow."""
        flow.used = now
        self._all.move_to_end(flow)
        for group in self._groups_of(flow):
            self._groups[group].move_to_end(flow)

    def end_flow(self, flow: UdpFlow) -> None:
        """End a flow. Does nothing if it has ended."""
        if self._flows.get((flow.listener, flow.client)) is not flow:
            return
        del self._flows[flow.listener, flow.client], self._all[flow]
        for group in self._groups_of(flow):
            flows = self._groups[group]
            del flows[flow]
            if not flows:
                del self._groups[group]
        flow.on_end(flow)
        flow.socket.close()

    def end_idle(self, before: float) -> None:
        """End the flows without a datagram since this time."""
        while self._all and (flow := next(iter(self._all))).used <= before:
            self.end_flow(flow)

    @staticmethod
    def _groups_of(flow: UdpFlow) -> Iterator[object]:
        yield flow.client[0]
        yield "service", flow.service
        yield flow.listener
