"""The EndpointSlices of the Service `kubernetes`: the addresses of the running gateways.

    gateway --every RENEW_INTERVAL--> its Lease in kube-system --all valid Leases--> slices in the namespace default
            '--stops--> deletes its Lease and removes its address

A gateway that was killed is removed by another one when its Lease has expired. Each port has a slice of its own. Gateways that
share an address have one endpoint.

Source: the lease reconciler of kube-apiserver 1.36, pkg/controlplane/reconcilers/lease.go
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.discovery_v1_pb2 import EndpointSlice
from pinnace.api.resources import DEFAULT_NAMESPACE, ENDPOINT_SLICES, LEASES, SYSTEM_NAMESPACE
from pinnace.api.scalars import to_micro_time, to_seconds
from pinnace.api.wellknown import KUBERNETES_SERVICE, SERVICE_LABEL
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import format_address, parse_address

log = logging.getLogger(__name__)

RENEW_INTERVAL = 10.0
"""Seconds between two renewals, as in Kubernetes."""
LEASE_SECONDS = 30
"""Seconds after which the address of a gateway that was killed is removed."""
STOP_TIMEOUT = 2.0
"""Maximum seconds for the removal of the address of a gateway that stops."""
GATEWAY_LABEL = "pinnace.io/gateway"
"""On the Lease of a gateway."""
ADDRESS_ANNOTATION = "pinnace.io/gateway-address"
PORT_NAME = "https"


class GatewayAddress(NamedTuple):
    host: str
    port: int


def advertised_host(host: str) -> str:
    """Return the address for clients of a gateway that listens on `host`: the machine's, if it listens on all addresses."""
    with suppress(ValueError):
        if not ip_address(host).is_unspecified:
            return host
    with suppress(OSError):
        return socket.gethostbyname(socket.gethostname() if host in ("", "0.0.0.0", "::") else host)
    return "127.0.0.1"


def is_lease_valid(lease: Lease, now: float) -> bool:
    """Report whether a Lease has not expired. `now`: Unix time."""
    return now < to_seconds(lease.spec.renewTime) + lease.spec.leaseDurationSeconds


def valid_addresses(leases: Iterable[Lease], now: float) -> set[GatewayAddress]:
    """Return the addresses of the gateways whose Lease has not expired. `now`: Unix time. Malformed Leases are ignored."""
    addresses = set[GatewayAddress]()
    for lease in leases:
        if is_lease_valid(lease, now):
            with suppress(ValueError):
                host, port = parse_address(lease.metadata.annotations.get(ADDRESS_ANNOTATION, ""))
                addresses.add(GatewayAddress(str(ip_address(host.strip("[]"))), port))
    return addresses


def build_slices(addresses: Iterable[GatewayAddress]) -> Mapping[str, EndpointSlice]:
    """Return the slices by name: one for each port and IP family."""
    groups: dict[tuple[int, str], list[str]] = {}
    for host, port in sorted(addresses):
        groups.setdefault((port, "IPv6" if ":" in host else "IPv4"), []).append(host)
    slices: dict[str, EndpointSlice] = {}
    for (port, family), hosts in sorted(groups.items()):
        name = KUBERNETES_SERVICE if not slices else f"{KUBERNETES_SERVICE}-{family.lower()}-{port}"
        made = EndpointSlice(addressType=family)
        made.metadata.namespace, made.metadata.name = DEFAULT_NAMESPACE, name
        made.metadata.labels[SERVICE_LABEL] = KUBERNETES_SERVICE
        made.ports.add(name=PORT_NAME, port=port, protocol="TCP")
        for host in hosts:
            made.endpoints.add(addresses=[host]).conditions.ready = True
        slices[name] = made
    return slices


class SliceChanges(NamedTuple):
    create: Sequence[EndpointSlice]
    update: Sequence[EndpointSlice]
    delete: Sequence[EndpointSlice]
    """The present slices."""


def plan_changes(present: Iterable[EndpointSlice], wanted: Mapping[str, EndpointSlice]) -> SliceChanges:
    """Return the changes from the present slices to the wanted ones. A slice whose address type differs is replaced."""
    create, update, delete = dict(wanted), list[EndpointSlice](), list[EndpointSlice]()
    for old in present:
        new = wanted.get(old.metadata.name)
        if new is None or new.addressType != old.addressType:
            delete.append(old)
            continue
        del create[old.metadata.name]
        if _endpoints_content(new) != _endpoints_content(old):
            changed = EndpointSlice()
            changed.CopyFrom(old)
            changed.ClearField("ports")
            changed.ClearField("endpoints")
            changed.ports.extend(new.ports)
            changed.endpoints.extend(new.endpoints)
            update.append(changed)
    return SliceChanges(list(create.values()), update, delete)


def _endpoints_content(each: EndpointSlice) -> tuple[list[tuple[str, int]], list[str]]:
    return [(port.name, port.port) for port in each.ports], [address for item in each.endpoints for address in item.addresses]


class EndpointReconciler:
    """Keeps the address of one gateway. `name` is unique among the gateways."""

    def __init__(self, client: Client, name: str, address: GatewayAddress, clock: Clock = SYSTEM_CLOCK) -> None:
        self._leases = client.of(LEASES)
        self._slices = client.of(ENDPOINT_SLICES)
        self._name = f"gateway-{name.lower()}"
        self._address = address
        self._clock = clock
        self._problem = ""

    async def run(self) -> None:
        """Renew and reconcile until cancelled."""
        while True:
            await self.renew_and_reconcile()
            await self._clock.sleep(RENEW_INTERVAL)

    async def renew_and_reconcile(self) -> None:
        """Renew the Lease and reconcile once. Failures are logged."""
        await self._try_step(self._renew_lease)
        await self._try_step(self._reconcile)

    async def remove_address(self) -> None:
        """Remove the address."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._try_step(self._delete_lease)
                await self._try_step(self._reconcile)

    async def _try_step(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
            self._problem = ""
        except ApiError as error:
            if error.message != self._problem:
                self._problem = error.message
                log.warning("cannot write the endpoints of the service %s: %s", KUBERNETES_SERVICE, error.message)

    async def _renew_lease(self) -> None:
        now = to_micro_time(self._clock.time())
        try:
            lease = await self._leases.get(self._name, SYSTEM_NAMESPACE)
        except NotFound:
            lease = Lease()
        lease.metadata.name, lease.metadata.namespace = self._name, SYSTEM_NAMESPACE
        lease.metadata.labels[GATEWAY_LABEL] = "true"
        lease.metadata.annotations[ADDRESS_ANNOTATION] = format_address(self._address)
        spec = lease.spec
        spec.holderIdentity, spec.leaseDurationSeconds = self._name, LEASE_SECONDS
        spec.renewTime.CopyFrom(now)
        if not spec.HasField("acquireTime"):
            spec.acquireTime.CopyFrom(now)
        with suppress(AlreadyExists, Conflict, NotFound):
            await (self._leases.update(lease) if lease.metadata.uid else self._leases.create(lease))

    async def _delete_lease(self) -> None:
        with suppress(NotFound):
            await self._leases.delete(self._name, SYSTEM_NAMESPACE)

    async def _reconcile(self) -> None:
        leases = await self._leases.list(SYSTEM_NAMESPACE, labels=f"{GATEWAY_LABEL}=true")
        now = self._clock.time()
        for lease in leases.items:
            if not is_lease_valid(lease, now):  # of a gateway that was killed
                with suppress(Conflict, NotFound):
                    version = lease.metadata.resourceVersion
                    await self._leases.delete(lease.metadata.name, SYSTEM_NAMESPACE, resource_version=version)
        addresses = valid_addresses(leases.items, now)
        present = await self._slices.list(DEFAULT_NAMESPACE, labels=f"{SERVICE_LABEL}={KUBERNETES_SERVICE}")
        changes = plan_changes(present.items, build_slices(addresses))
        with suppress(AlreadyExists, Conflict, NotFound):  # another gateway makes the same changes
            for old in changes.delete:
                await self._slices.delete(old.metadata.name, DEFAULT_NAMESPACE, uid=old.metadata.uid)
            for new in changes.create:
                await self._slices.create(new)
            for changed in changes.update:
                await self._slices.update(changed)
