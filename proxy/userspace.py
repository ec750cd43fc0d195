"""The backend `userspace`: one listener per frontend, in this process. It needs no privileges.

    accept --> choose an endpoint (round robin or affinity) --> connect --refused or no answer--> next endpoint
                                                                  `--> Forwarding (proxy/forward.py)

A frontend without endpoints has no listener, so that the kernel refuses connections at once. A removed endpoint gets no new
connection and keeps its connections. UDP datagrams of one client address form a flow, which keeps its endpoint until it is idle
for UDP_IDLE, its endpoint is removed or refuses a datagram, or newer flows need its place (proxy/flows.py). All connections and
flows have descriptors from one budget (proxy/limits.py).

A new proxy takes the listening sockets over before the old one ends (proxy/handover.py). `close` accepts all connections that
wait and lets open connections finish.
"""

import asyncio
import errno
import logging
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pinnace.proxy import metrics
from pinnace.proxy.flows import Client, FlowTable, UdpFlow, address_family
from pinnace.proxy.forward import TcpForwarding, reset_socket
from pinnace.proxy.limits import (
    ACCEPTS,
    BACKLOG,
    CONNECT_TIMEOUT,
    DATAGRAMS,
    HALF_CLOSE_TIMEOUT,
    MAX_AFFINITIES,
    SWEEP_INTERVAL,
    UDP_IDLE,
    WARN_INTERVAL,
    DescriptorBudget,
    available_descriptors,
)
from pinnace.proxy.plan import NO_RULES, NODE_ADDRESS, Endpoint, Frontend, Rule, ServiceRules

log = logging.getLogger(__name__)


class EndpointBalancer:
    """Chooses endpoints for one frontend: round robin from a random start, or the endpoint of the client with affinity."""

    def __init__(self, rule: Rule, clock: Callable[[], float], randomness: random.Random) -> None:
        self._clock = clock
        self._random = randomness
        self._affinities: dict[str, tuple[Endpoint, float]] = {}
        """By client IP: the endpoint and the time of the last connection, least recent first."""
        self.update(rule)

    def update(self, rule: Rule) -> None:
        self.rule = rule
        self._order = list(rule.endpoints)
        self._random.shuffle(self._order)
        self._next = 0
        present = set(rule.endpoints)
        self._affinities = {ip: kept for ip, kept in self._affinities.items() if kept[0] in present} if rule.affinity else {}

    def ordered_endpoints(self, client: str) -> list[Endpoint]:
        """Return all endpoints in the order in which they are to be tried."""
        order, start = self._order, self._next
        if not order:
            return []
        self._next = (start + 1) % len(order)
        result = order[start:] + order[:start]
        if self.rule.affinity is not None and (kept := self._affinities.get(client)) is not None:
            endpoint, at = kept
            if self._clock() - at < self.rule.affinity:
                self._next = start
                result.remove(endpoint)
                result.insert(0, endpoint)
        return result

    def record_connection(self, client: str, endpoint: Endpoint) -> None:
        if self.rule.affinity is None:
            return
        self._affinities.pop(client, None)
        if endpoint in self.rule.endpoints:
            self._affinities[client] = endpoint, self._clock()
        if len(self._affinities) > MAX_AFFINITIES:
            del self._affinities[next(iter(self._affinities))]


class UserspaceBackend:
    """The listeners of all frontends. Call all methods on the event loop. `problem` names a listener that failed."""

    def __init__(
        self,
        nodeport_addresses: Sequence[str] = ("127.0.0.1",),
        *,
        max_connections: int | None = None,
        inherited: dict[Frontend, socket.socket] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        """`inherited`: listening sockets of the previous process. They are taken out when they are used."""
        self._loop = asyncio.get_running_loop()
        self._node = tuple(nodeport_addresses)
        self._budget = DescriptorBudget.from_descriptors(available_descriptors(), max_connections)
        self.flows = FlowTable(lambda: self._budget.max_flows(self.open_connections))
        self._inherited = inherited if inherited is not None else {}
        self.clock = clock
        self.random = random.Random(seed)
        self._rules: dict[str, ServiceRules] = {}
        self._listeners: dict[Frontend, _TcpListener | _UdpListener] = {}
        self._owners: dict[Frontend, str] = {}
        self._failed: dict[Frontend, str] = {}
        """Listeners that could not be opened, with the error."""
        self._claims: dict[Frontend, dict[str, Rule]] = {}
        """Rules of services whose frontend another service has, by service."""
        self._connections: set[TcpForwarding] = set()
        self._connecting = 0
        self._idle = asyncio.Event()
        """Set when the last connection ends."""
        self._warned: dict[str, float] = {}
        self._sweeping = self._loop.call_later(SWEEP_INTERVAL, self._end_idle_connections)

    @property
    def services(self) -> Mapping[str, ServiceRules]:
        """The current rules by service."""
        return self._rules

    @property
    def problem(self) -> str | None:
        if not self._failed:
            return None
        frontend, why = next(iter(self._failed.items()))
        more = f" (and {len(self._failed) - 1} more)" if len(self._failed) > 1 else ""
        return f"cannot listen on {_format_frontend(frontend)}: {why}{more}"

    @property
    def descriptors(self) -> dict[Frontend, int]:
        """The descriptors of the listening sockets."""
        return {frontend: each.descriptor for frontend, each in self._listeners.items()}

    @property
    def open_connections(self) -> int:
        return len(self._connections) + self._connecting

    async def apply(self, changes: Mapping[str, ServiceRules]) -> None:
        """Replace the rules of these services. Frontends are closed first, because an address may move to another service."""
        wanted: list[tuple[str, Frontend, Rule]] = []
        for service, rules in changes.items():
            before = self._expand_node_ports(self._rules.get(service, NO_RULES))
            after = self._expand_node_ports(rules)
            for frontend in before.keys() - after.keys():
                self._release_frontend(service, frontend)
            wanted += [(service, frontend, rule) for frontend, rule in after.items()]
            if rules == NO_RULES:
                self._rules.pop(service, None)
            else:
                self._rules[service] = rules
        for service, frontend, rule in wanted:
            self._set_rule(service, frontend, rule)
        metrics.LISTENERS.set(len(self._listeners))

    async def retry_failed(self) -> None:
        """Open the listeners that failed."""
        for frontend in list(self._failed):
            service = self._owners.get(frontend)
            rule = self._expand_node_ports(self._rules.get(service, NO_RULES)).get(frontend) if service else None
            if service is None or rule is None:
                del self._failed[frontend]
            else:
                self._set_rule(service, frontend, rule)

    async def close(self, grace: float = 0.0) -> None:
        """Close all listeners. Let connections finish, and forward the answers of UDP flows, for `grace` seconds."""
        self._sweeping.cancel()
        answering: list[_UdpListener] = []
        for listener in self._listeners.values():
            if isinstance(listener, _UdpListener) and listener.flow_count and grace:
                listener.pause_receiving()
                answering.append(listener)
            else:
                listener.close()
        self._listeners.clear()
        self._idle.clear()
        if answering:
            await asyncio.sleep(grace)
        elif self.open_connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._idle.wait()
        for listener in answering:
            listener.close()
        for connection in list(self._connections):
            connection.close()

    def _expand_node_ports(self, rules: ServiceRules) -> dict[Frontend, Rule]:
        """Replace node ports by addresses of the node."""
        result: dict[Frontend, Rule] = {}
        for frontend, rule in rules.rules.items():
            if frontend.address == NODE_ADDRESS:
                result.update({frontend._replace(address=address): rule for address in self._node})
            else:
                result[frontend] = rule
        return result

    def _release_frontend(self, service: str, frontend: Frontend) -> None:
        if self._owners.get(frontend) != service:
            self._claims.get(frontend, {}).pop(service, None)
            return
        del self._owners[frontend]
        self._failed.pop(frontend, None)
        if listener := self._listeners.pop(frontend, None):
            listener.close()
        heirs = self._claims.pop(frontend, {})
        for heir, rule in heirs.items():
            self._set_rule(heir, frontend, rule)

    def _set_rule(self, service: str, frontend: Frontend, rule: Rule) -> None:
        if (owner := self._owners.setdefault(frontend, service)) != service:
            if service not in self._claims.setdefault(frontend, {}):
                log.warning("%s of service %s belongs to service %s", _format_frontend(frontend), service, owner)
            self._claims[frontend][service] = rule
            return
        listener = self._listeners.get(frontend)
        if not rule.endpoints:
            self._failed.pop(frontend, None)
            if listener is not None:
                del self._listeners[frontend]
                listener.close()
        elif listener is not None:
            if listener.balancer.rule != rule:
                listener.update(rule)
        else:
            make = _TcpListener if frontend.protocol == "TCP" else _UdpListener
            try:
                self._listeners[frontend] = make(self, self._loop, frontend, rule)
            except OSError as error:
                why = error.strerror or str(error)
                if self._failed.get(frontend) != why:
                    log.warning("cannot listen on %s of service %s: %s; retrying", _format_frontend(frontend), service, why)
                self._failed[frontend] = why
            else:
                self._failed.pop(frontend, None)

    def take_inherited_socket(self, frontend: Frontend) -> socket.socket | None:
        """Take the socket that the previous process left for this frontend."""
        result = self._inherited.pop(frontend, None)
        if result is not None:
            result.setblocking(False)
        return result

    def admit_connection(self) -> bool:
        """Return False if there are too many connections."""
        if self.open_connections < (limit := self._budget.connections):
            return True
        metrics.REJECTED.inc()
        self.warn_rarely("limit", f"{limit} connections are open: closing new ones; raise the limit of open files (ulimit -n)")
        return False

    def adjust_connecting_count(self, change: int) -> None:
        self._connecting += change
        self.flows.make_room()
        self._update_connection_count()

    def _update_connection_count(self) -> None:
        metrics.CONNECTIONS.set(self.open_connections)
        if not self.open_connections:
            self._idle.set()

    def start_forwarding(self, client: socket.socket, server: socket.socket) -> None:
        made = TcpForwarding(self._loop, client, server, self._remove_connection)
        self._connections.add(made)
        try:
            made.start()
        except OSError:  # a side has closed
            made.close(reset=True)

    def _remove_connection(self, connection: TcpForwarding) -> None:
        self._connections.discard(connection)
        self._update_connection_count()

    def warn_rarely(self, kind: str, message: str) -> None:
        """Log a warning, at most once per WARN_INTERVAL and kind."""
        now = self._loop.time()
        if now - self._warned.get(kind, -WARN_INTERVAL) >= WARN_INTERVAL:
            if len(self._warned) > 1_000:
                self._warned.clear()
            self._warned[kind] = now
            log.warning("%s", message)

    def _end_idle_connections(self) -> None:
        """End half-closed connections without data for HALF_CLOSE_TIMEOUT, and idle flows."""
        now = self._loop.time()
        for connection in [connection for connection in self._connections if connection.half_closed]:
            if connection.moved_bytes != connection.seen:
                connection.seen, connection.since = connection.moved_bytes, now
            elif now - connection.since >= HALF_CLOSE_TIMEOUT:
                connection.close(reset=True)
        self.flows.end_idle(now - UDP_IDLE)
        self._sweeping = self._loop.call_later(SWEEP_INTERVAL, self._end_idle_connections)


def _format_frontend(frontend: Frontend) -> str:
    host = f"[{frontend.address}]" if ":" in frontend.address else frontend.address
    return f"{host}:{frontend.port}/{frontend.protocol}"


def _bind_socket(frontend: Frontend, kind: socket.SocketKind) -> socket.socket:
    """Raises OSError, also for an invalid address."""
    try:
        family = address_family(frontend.address)
    except ValueError as error:
        raise OSError(errno.EADDRNOTAVAIL, str(error)) from None
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) if kind == socket.SOCK_STREAM else None
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((frontend.address, frontend.port))
    except OSError:
        made.close()
        raise
    return made


class _TcpListener:
    def __init__(self, proxy: UserspaceBackend, loop: asyncio.AbstractEventLoop, frontend: Frontend, rule: Rule) -> None:
        """Raises OSError."""
        self._proxy, self._loop = proxy, loop
        self.balancer = EndpointBalancer(rule, proxy.clock, proxy.random)
        self._socket = proxy.take_inherited_socket(frontend) or _bind_socket(frontend, socket.SOCK_STREAM)
        self._socket.listen(BACKLOG)
        loop.add_reader(self._socket, self._accept)

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def update(self, rule: Rule) -> None:
        self.balancer.update(rule)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        while self._accept():  # the kernel would reset connections that wait
            pass
        self._socket.close()

    def _accept(self) -> int:
        """Return the number of accepted connections."""
        for count in range(ACCEPTS):
            try:
                client, address = self._socket.accept()
            except BlockingIOError:
                return count
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._proxy.warn_rarely(
                        "accept", f"cannot accept connections: {error.strerror}; raise the limit of open files"
                    )
                    self._loop.remove_reader(self._socket)
                    self._loop.call_later(0.1, self._resume)
                    return 0
                continue  # the client has disconnected
            client.setblocking(False)
            if self._proxy.admit_connection():
                _ConnectionAttempt(self._proxy, self._loop, self.balancer, client, address[0]).try_next_endpoint()
            else:
                reset_socket(client)
        return ACCEPTS

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)


class _ConnectionAttempt:
    """Connects a client to the first endpoint that accepts."""

    __slots__ = ("_address", "_balancer", "_client", "_left", "_loop", "_now", "_proxy", "_server", "_timer")

    def __init__(
        self,
        proxy: UserspaceBackend,
        loop: asyncio.AbstractEventLoop,
        balancer: EndpointBalancer,
        client: socket.socket,
        address: str,
    ) -> None:
        self._proxy, self._loop, self._balancer = proxy, loop, balancer
        self._client, self._address = client, address
        self._left = iter(balancer.ordered_endpoints(address))
        self._server: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._now: Endpoint | None = None
        proxy.adjust_connecting_count(1)

    def try_next_endpoint(self) -> None:
        for endpoint in self._left:
            self._now = endpoint
            try:
                self._server = socket.socket(address_family(endpoint.address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                code = self._server.connect_ex(endpoint)
            except OSError as error:
                code = error.errno or errno.EIO
            if code == 0:
                return self._hand_over_connection()
            if code == errno.EINPROGRESS and self._server is not None:
                self._timer = self._loop.call_later(CONNECT_TIMEOUT, self._handle_connect_failure, "no answer")
                self._loop.add_writer(self._server, self._finish_connect)
                return None
            self._discard(errno.errorcode.get(code, str(code)))
        self._proxy.adjust_connecting_count(-1)
        metrics.FAILED.inc()
        reset_socket(self._client)
        return None

    def _finish_connect(self) -> None:
        assert self._server is not None
        code = self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._handle_connect_failure(errno.errorcode.get(code, str(code)))
        else:
            self._loop.remove_writer(self._server)
            self._hand_over_connection()

    def _hand_over_connection(self) -> None:
        assert self._server is not None and self._now is not None
        if self._timer is not None:
            self._timer.cancel()
        self._balancer.record_connection(self._address, self._now)
        self._proxy.start_forwarding(self._client, self._server)
        self._proxy.adjust_connecting_count(-1)

    def _handle_connect_failure(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._loop.remove_writer(self._server)
        self._discard(why)
        self.try_next_endpoint()

    def _discard(self, why: str) -> None:
        assert self._now is not None
        service = self._balancer.rule.service
        self._proxy.warn_rarely(
            f"{service} {self._now}", f"endpoint {self._now.address}:{self._now.port} of service {service} failed: {why}"
        )
        metrics.RETRIES.inc()
        if self._server is not None:
            self._server.close()
            self._server = None


class _UdpListener:
    def __init__(self, proxy: UserspaceBackend, loop: asyncio.AbstractEventLoop, frontend: Frontend, rule: Rule) -> None:
        """Raises OSError."""
        self._proxy, self._loop = proxy, loop
        self._flows = proxy.flows
        self.balancer = EndpointBalancer(rule, proxy.clock, proxy.random)
        self._socket = proxy.take_inherited_socket(frontend) or _bind_socket(frontend, socket.SOCK_DGRAM)
        loop.add_reader(self._socket, self._receive_from_clients)

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    @property
    def flow_count(self) -> int:
        return len(self._flows.flows_of_listener(self))

    def update(self, rule: Rule) -> None:
        """End flows to removed endpoints: the next datagram of the client gets another endpoint."""
        self.balancer.update(rule)
        for flow in self._flows.flows_of_listener(self):
            if flow.endpoint not in rule.endpoints:
                self._flows.end_flow(flow)

    def pause_receiving(self) -> None:
        """Receive nothing from clients, and continue to forward answers."""
        self._loop.remove_reader(self._socket)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        for flow in self._flows.flows_of_listener(self):
            self._flows.end_flow(flow)
        self._socket.close()

    def _receive_from_clients(self) -> None:
        for _ in range(DATAGRAMS):
            try:
                data, address = self._socket.recvfrom(65536)
            except OSError:  # nothing left, or an ICMP error of an earlier reply
                return
            client = address[:2]
            for _ in range(len(self.balancer.rule.endpoints)):  # an endpoint that is known to be dead refuses the datagram
                flow = self._flows.get(self, client) or self._open_flow(client)
                if flow is None:
                    break
                self._flows.record_datagram(flow, self._loop.time())
                try:
                    flow.socket.send(data)
                    break
                except BlockingIOError:  # the buffer is full: drop it, as a network does
                    break
                except OSError:
                    self._flows.end_flow(flow)

    def _open_flow(self, client: Client) -> UdpFlow | None:
        service = self.balancer.rule.service.partition(":")[0]
        self._flows.make_room(service, client)
        for endpoint in self.balancer.ordered_endpoints(client[0]):
            try:
                flow = UdpFlow(self, service, client, endpoint, self._handle_flow_end, self._loop.time())
            except OSError as error:
                self._proxy.warn_rarely(
                    "udp", f"cannot open a UDP flow to {endpoint.address}:{endpoint.port}: {error.strerror}"
                )
                continue
            self._flows.add(flow)
            self.balancer.record_connection(client[0], endpoint)
            self._loop.add_reader(flow.socket, self._receive_from_endpoint, flow)
            return flow
        return None

    def _handle_flow_end(self, flow: UdpFlow) -> None:
        self._loop.remove_reader(flow.socket)

    def _receive_from_endpoint(self, flow: UdpFlow) -> None:
        for _ in range(DATAGRAMS):
            try:
                data = flow.socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:  # the endpoint refuses datagrams
                self._flows.end_flow(flow)
                return
            self._flows.record_datagram(flow, self._loop.time())
            with suppress(OSError):  # the client is gone, or the buffer is full
                self._socket.sendto(data, flow.client)
