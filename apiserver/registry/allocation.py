"""Allocation of cluster IPs and node ports: each address and each port is a key of its own, owned by one service.

    /registry/ipaddresses/10.96.0.7    an IPAddress whose parentRef is the service
    /registry/nodeports/30080          "namespace/name" of the service

The keys are companions of the service's own write (`Write.companions`). One transaction creates the service and its keys, or
updates the service and replaces keys, or deletes all of them. So an address or a port never has two services, and a server that
is killed leaves nothing to repair.

A candidate is a random address or port that the watch cache does not show as taken. If another service takes it first, the
transaction fails, the cache is refreshed, and the step runs again with another candidate. The key of an address that the client
requests is read from etcd, and the service is refused if the key exists. A write that keeps the addresses and ports of a
service reads nothing, unless the cache lacks one of their keys.

An IPAddress cannot be deleted while its service uses the address (AddressGuard). The service is read from etcd.

A service without an address, or with one that has no key, comes from an older version. Its next write allocates the address, or
creates the key if no other service has it.

Source: pkg/registry/core/service (storage/alloc.go, ipallocator, portallocator) of Kubernetes 1.36.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import chain
from typing import NamedTuple

from google.protobuf.message import DecodeError

from pinnace.api.core_v1_pb2 import Service, ServiceSpec
from pinnace.api.names import new_uid
from pinnace.api.networking_v1_pb2 import IPAddress
from pinnace.api.resources import IP_ADDRESSES, SERVICE_CIDRS, SERVICES, node_port_key
from pinnace.api.scalars import to_time
from pinnace.api.status import Code, Refusal, Violation
from pinnace.apiserver import errors
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheEntry, CacheError, SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.mutation import (
    DeferredState,
    Final,
    MutationEffect,
    Next,
    ObjectVersion,
    PutObject,
    RemoveObject,
    Step,
)
from pinnace.apiserver.registry.strategies.services import HEADLESS
from pinnace.apiserver.registry.validation.fields import invalid
from pinnace.apiserver.storage.interface import Storage, StorageError, Write
from pinnace.runtime.clock import Clock

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address
FAMILIES = {4: "IPv4", 6: "IPv6"}
WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
MAX_KEYS = 100
"""Maximum number of node ports of one service: a transaction of etcd has at most 128 operations."""
ATTEMPTS = 32
"""Random candidates before a search for a free one."""
MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
FAMILY_LABEL = "ipaddress.kubernetes.io/ip-family"


class RangeFull(Rejected):
    """No address or node port is free."""


class ServiceRanges(NamedTuple):
    """The ranges of the command line."""

    networks: tuple[Network, ...] = (IPv4Network("10.96.0.0/16"),)
    """At most one of each IP family. The family of the first one is the default."""
    node_ports: range = range(30000, 32768)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse --service-cluster-ip-range. Raises ValueError."""
    networks = tuple(ip_network(part.strip()) for part in text.split(","))
    if len({network.version for network in networks}) < len(networks):
        raise ValueError(f'"{text}": expected one network, or one of each IP family')
    for network in networks:
        if network.num_addresses < 4:
            raise ValueError(f'"{network}" has too few addresses: use a prefix of at most /{network.max_prefixlen - 2}')
    return networks


def parse_node_ports(text: str) -> range:
    """Parse --service-node-port-range, "FIRST-LAST". Raises ValueError."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal() or not 1 <= int(first) <= int(last) <= 65535:
        raise ValueError(f'"{text}": expected FIRST-LAST, such as 30000-32767')
    return range(int(first), int(last) + 1)


def cluster_ips(spec: ServiceSpec) -> list[str]:
    """Return the addresses of a service; [] for a headless service and for one without an address."""
    if spec.type not in WITH_ADDRESS or spec.clusterIP == HEADLESS:
        return []
    return list(spec.clusterIPs) or [spec.clusterIP] * bool(spec.clusterIP)


def node_ports(spec: ServiceSpec) -> list[int]:
    """Return the distinct node ports of a service, including healthCheckNodePort."""
    return list(dict.fromkeys(filter(None, (*(port.nodePort for port in spec.ports), spec.healthCheckNodePort))))


def allocation_keys(service: Service | None) -> list[str]:
    """Return the keys that a service owns."""
    if service is None:
        return []
    spec = service.spec
    addresses = [IP_ADDRESSES.key("", str(ip_address(address))) for address in cluster_ips(spec)]
    return [*addresses, *map(node_port_key, node_ports(spec))]


def is_usable_address(address: Address, network: Network) -> bool:
    """Return whether a service can have the address: not the first one, nor the broadcast address."""
    if address.version != network.version or address not in network:
        return False
    return address != network[0] and (network.version == 6 or address != network[-1])


def free_address(network: Network, used: Callable[[str], bool], rng: random.Random) -> str:
    """Return a random free address, or "" if all are taken. The first addresses are allocated last, so that clients can request
    them, as in Kubernetes (KEP-3070)."""
    first, last = 1, network.num_addresses - (2 if network.version == 4 else 1)
    reserved = min(max(16, network.num_addresses // 16), 256)
    dynamic = min(first + reserved, last + 1)
    for low, high in ((dynamic, last), (first, dynamic - 1)):
        if address := next(_free_addresses(network, low, high, used, rng), ""):
            return address
    return ""


def _free_addresses(network: Network, low: int, high: int, used: Callable[[str], bool], rng: random.Random) -> Iterator[str]:
    """Yield free addresses with the offsets from `low` to `high`."""
    size = high - low + 1
    if size <= 0:
        return
    for _ in range(ATTEMPTS):
        address = str(network[low + rng.randrange(size)])
        if not used(address):
            yield address
    start = rng.randrange(size)
    for step in range(size):
        address = str(network[low + (start + step) % size])
        if not used(address):
            yield address


class ServiceAllocator:
    """Implements apiserver.registry.mutation.Allocator. `refresh`: see Store."""

    def __init__(
        self,
        cacher: Cacher,
        storage: Storage,
        refresh: Callable[[], Awaitable[None]],
        ranges: ServiceRanges,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._addresses = cacher.cache_of(IP_ADDRESSES)
        self._cidrs = cacher.cache_of(SERVICE_CIDRS)
        self._raw = cacher.raw_key
        self._storage = storage
        self._refresh = refresh
        self._ranges = ranges
        self._clock = clock
        self._rng = rng
        self._every_cidr = SelectionPredicate.parse(SERVICE_CIDRS, "", "", "")
        self._ports = AllocatedNodePorts()
        cacher.cache_of(SERVICES).observe(self._ports)

    def with_allocation(self, step: Step[Service], dry_run: bool) -> Step[Service]:
        rounds = 0

        def allocate(version: ObjectVersion[Service] | None) -> Next[Service]:
            next_state = step(version)
            if next_state is MutationEffect.NO_OP:
                return next_state

            async def final() -> Final[Service]:
                nonlocal rounds
                rounds += 1
                if rounds > 1:  # another service may have taken the candidates
                    await self._refresh_allocations()
                state = await next_state.final() if isinstance(next_state, DeferredState) else next_state
                try:
                    return await self._add_companions(state, version)
                except RangeFull:  # a service that the cache still has may be deleted
                    await self._refresh_allocations()
                return await self._add_companions(state, version)

            return DeferredState(final)

        return allocate

    async def _refresh_allocations(self) -> None:
        with suppress(CacheError, StorageError):
            await self._refresh()

    async def _add_companions(self, final: Final[Service], version: ObjectVersion[Service] | None) -> Final[Service]:
        """Add the companions to the next state of a service. Raises Rejected."""
        if final is MutationEffect.NO_OP:
            return final
        old = version.obj if version is not None else None
        new = copy_without_version(SERVICES, final.obj) if isinstance(final, PutObject) else None
        requested = allocation_keys(new)
        owned = allocation_keys(old)
        retained = {key for key in owned if key in requested and self._is_key_cached(key)}
        present = await self._read_keys({*owned, *requested} - retained)
        if new is not None:
            self._check_requested(new, {key: present[key] is not None for key in requested if key not in owned})
            if not new.metadata.HasField("deletionTimestamp"):
                self._allocate(new, old)
        wanted = allocation_keys(new)
        if dropped := [
            key for key in retained if key not in wanted
        ]:  # the second address of a service that becomes SingleStack
            present |= await self._read_keys(dropped)
            retained.difference_update(dropped)
        missing = [key for key in wanted if key not in retained and present.get(key) is None]
        companions = [Write(key, self._allocation_value(key, new), 0) for key in missing if new]
        for key in owned:
            allocation = present.get(key)
            if (
                key not in wanted
                and allocation is not None
                and old is not None
                and _owner_of_key(key, allocation[1]) == _service_key(old)
            ):
                companions.append(Write(key, None, allocation[0]))
        if len(companions) > MAX_KEYS:
            assert new is not None or old is not None
            raise _invalid_service(new or old, [Violation("spec.ports", f"Too many: must have at most {MAX_KEYS} node ports")])
        if new is None:
            return RemoveObject(tuple(companions), final.last if isinstance(final, RemoveObject) else None)
        assert isinstance(final, PutObject)
        return final._replace(obj=new, companions=tuple(companions))

    def _is_key_cached(self, key: str) -> bool:
        if key.startswith(IP_ADDRESSES.prefix):
            return self._addresses.get(key) is not None
        return self._raw(key) is not None

    async def _read_keys(self, keys: Iterable[str]) -> dict[str, tuple[int, bytes] | None]:
        """Return the mod_revision and the value of each key. Raises Rejected."""
        wanted_keys = list(keys)
        try:
            pairs_read = await asyncio.gather(*map(self._storage.get, wanted_keys))
        except StorageError as error:
            raise Rejected(errors.storage_refusal(error)) from None
        pairs = zip(wanted_keys, pairs_read, strict=True)
        return {key: None if each is None else (each.mod_revision, each.value) for key, each in pairs}

    def _check_requested(self, service: Service, requested: Mapping[str, bool]) -> None:
        """Refuse requested addresses and ports that are taken or out of range. `requested`: whether each new key is taken.
        Raises Rejected."""
        spec, problems, networks = service.spec, list[Violation](), self._active_networks()
        for address in map(ip_address, cluster_ips(spec)):
            used = requested.get(IP_ADDRESSES.key("", str(address)))
            detail = f"failed to allocate IP {address}: "
            if used:
                problems.append(invalid("spec.clusterIPs", list(spec.clusterIPs), f"{detail}provided IP is already allocated"))
            elif used is not None and not any(is_usable_address(address, network) for network in networks):
                detail += f"the provided IP ({address}) is not in the valid range. The range of valid IPs is "
                problems.append(invalid("spec.clusterIPs", list(spec.clusterIPs), detail + ", ".join(map(str, networks))))
        ports = [(f"spec.ports[{index}].nodePort", port.nodePort) for index, port in enumerate(spec.ports)]
        valid = self._ranges.node_ports
        for path, port in (*ports, ("spec.healthCheckNodePort", spec.healthCheckNodePort)):
            used = requested.get(node_port_key(port)) if port else None
            if used:
                problems.append(invalid(path, port, "provided port is already allocated"))
            elif used is not None and port not in valid:
                detail = f"provided port is not in the valid range. The range of valid ports is {valid[0]}-{valid[-1]}"
                problems.append(invalid(path, port, detail))
        if problems:
            raise _invalid_service(service, problems)

    def _allocate(self, service: Service, old: Service | None) -> None:
        """Set the missing families, addresses and node ports. `old`: the service before an update. Raises Rejected."""
        spec = service.spec
        if spec.type not in WITH_ADDRESS:
            return
        networks = self._active_networks()
        families = list(dict.fromkeys(FAMILIES[network.version] for network in networks))
        if problems := set_ip_families(spec, families):
            raise _invalid_service(service, problems)
        if spec.clusterIP != HEADLESS:
            self._allocate_addresses(service, networks)
        if spec.type in ("NodePort", "LoadBalancer"):
            self._allocate_ports(service, is_new=old is None)

    def _allocate_addresses(self, service: Service, networks: Sequence[Network]) -> None:
        spec = service.spec
        for family in list(spec.ipFamilies)[len(spec.clusterIPs) :]:
            own = [network for network in networks if FAMILIES[network.version] == family]
            address = next(filter(None, (free_address(network, self._is_address_taken, self._rng) for network in own)), "")
            if not address:
                raise _range_full_error("a serviceIP", ", ".join(map(str, own)), "add a ServiceCIDR, or delete services")
            spec.clusterIPs.append(address)
        spec.clusterIP = spec.clusterIPs[0]

    def _is_address_taken(self, address: str) -> bool:
        return self._addresses.get(IP_ADDRESSES.key("", address)) is not None

    def _allocate_ports(self, service: Service, *, is_new: bool) -> None:
        """Set the missing node ports. A new service has one number for the same port in several protocols; an update allocates
        a number for each port. As in Kubernetes (initNodePorts and updateNodePorts). Raises Rejected."""
        spec = service.spec
        if spec.type == "LoadBalancer" and not spec.allocateLoadBalancerNodePorts:
            own = set[int]()
        else:
            own = {port.nodePort for port in spec.ports}
            shared = {port.port: port.nodePort for port in reversed(spec.ports) if port.nodePort} if is_new else {}
            for port in spec.ports:
                if not port.nodePort:
                    port.nodePort = shared.get(port.port) or self._free_port(own)
                    own.add(port.nodePort)
                    if is_new:
                        shared[port.port] = port.nodePort
        if spec.type == "LoadBalancer" and spec.externalTrafficPolicy == "Local" and not spec.healthCheckNodePort:
            spec.healthCheckNodePort = self._free_port(own)

    def _free_port(self, own: set[int]) -> int:
        """Return a random port that the cache does not show as taken. Raises Rejected."""
        ports = self._ranges.node_ports
        start = self._rng.randrange(len(ports))
        tried = (self._rng.choice(ports) for _ in range(ATTEMPTS))
        for port in chain(tried, ports[start:], ports[:start]):
            if port not in own and port not in self._ports and self._raw(node_port_key(port)) is None:
                return port
        raise _range_full_error("a nodePort", f"{ports[0]}-{ports[-1]}", "delete services, or set --service-node-port-range")

    def _active_networks(self) -> list[Network]:
        """Return the networks of all ServiceCIDRs that are not terminating; those of the command line if there are none."""
        networks: list[Network] = []
        for entry in self._cidrs.select(self._every_cidr):
            if not entry.obj.metadata.HasField("deletionTimestamp"):
                networks += [ip_network(cidr, strict=False) for cidr in entry.obj.spec.cidrs]
        first = self._ranges.networks[0].version
        return sorted(networks or self._ranges.networks, key=lambda network: network.version != first)

    def _allocation_value(self, key: str, service: Service) -> bytes:
        if not key.startswith(IP_ADDRESSES.prefix):
            return _service_key(service).encode()
        address = IPAddress()
        metadata, parent = address.metadata, address.spec.parentRef
        metadata.name = key.removeprefix(IP_ADDRESSES.prefix)
        metadata.uid = new_uid(self._rng)
        metadata.creationTimestamp.CopyFrom(to_time(self._clock.time()))
        metadata.labels[FAMILY_LABEL] = FAMILIES[ip_address(metadata.name).version]
        metadata.labels[MANAGED_BY] = "ipallocator.k8s.io"
        parent.resource = SERVICES.plural
        parent.namespace, parent.name = service.metadata.namespace, service.metadata.name
        return address.SerializeToString()


class AllocatedNodePorts:
    """The node ports of all services in the watch cache, including those that have no keys. Implements CacheObserver."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def __contains__(self, port: int) -> bool:
        return port in self._counts

    def reset_entries(self, entries: Iterable[CacheEntry[Service]]) -> None:
        self._counts = Counter(port for entry in entries for port in node_ports(entry.parse_uncached().spec))

    def handle_change(self, old: CacheEntry[Service] | None, new: CacheEntry[Service] | None) -> None:
        for port in node_ports(old.parse_uncached().spec) if old is not None else ():
            self._counts[port] -= 1
            if not self._counts[port]:
                del self._counts[port]
        if new is not None:
            self._counts.update(node_ports(new.parse_uncached().spec))


class AddressGuard:
    """Refuses the deletion of an IPAddress while its service uses the address. Implements Allocator.

    If the service is deleted and created again between the read and the write, its keys are, too. Then the write conflicts,
    because it expects the revision of the address, and the step runs again.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def with_allocation(self, step: Step[IPAddress], dry_run: bool) -> Step[IPAddress]:
        def guarded_step(version: ObjectVersion[IPAddress] | None) -> Next[IPAddress]:
            next_state = step(version)
            if version is None or next_state is MutationEffect.NO_OP:
                return next_state

            async def final() -> Final[IPAddress]:
                state = await next_state.final() if isinstance(next_state, DeferredState) else next_state
                if _is_deletion(state, version.obj):
                    await self._check_service_exists(version.obj)
                return state

            return DeferredState(final)

        return guarded_step

    async def _check_service_exists(self, address: IPAddress) -> None:
        """Raise Rejected if the write is not allowed."""
        parent = address.spec.parentRef
        if (parent.group, parent.resource) != ("", SERVICES.plural):
            return
        try:
            stored = await self._storage.get(SERVICES.key(parent.namespace, parent.name))
            service = Service.FromString(stored.value) if stored is not None else None
        except StorageError as error:
            raise Rejected(errors.storage_refusal(error)) from None
        except DecodeError:
            return
        if IP_ADDRESSES.key_of(address) in allocation_keys(service):
            user = f'service "{parent.namespace}/{parent.name}"'
            message = f'ipaddresses "{address.metadata.name}" is forbidden: {user} uses the address; delete the service instead'
            raise Rejected(errors.forbidden(message))


def _is_deletion(state: Final[IPAddress], old: IPAddress) -> bool:
    """Return whether the next state deletes the object, or begins to."""
    if isinstance(state, PutObject):
        return state.obj.metadata.HasField("deletionTimestamp") and not old.metadata.HasField("deletionTimestamp")
    return state is not MutationEffect.NO_OP


def set_ip_families(spec: ServiceSpec, available: Sequence[str]) -> list[Violation]:
    """Set ipFamilies and ipFamilyPolicy, and remove the second address of a service that becomes SingleStack. `available`: the
    families of the cluster, the default first. Return what the cluster cannot provide."""
    headless = spec.clusterIP == HEADLESS
    addresses = [] if headless else list(spec.clusterIPs)
    families = list(spec.ipFamilies) or [FAMILIES[ip_address(address).version] for address in addresses] or list(available[:1])
    if not spec.HasField("ipFamilyPolicy"):
        bare = headless and not spec.selector and not spec.ipFamilies
        spec.ipFamilyPolicy = "RequireDualStack" if bare or len(families) > 1 else "SingleStack"
    if spec.ipFamilyPolicy == "SingleStack":
        del families[1:]
        del spec.clusterIPs[1:]
    elif len(families) == 1:
        other = "IPv6" if families[0] == "IPv4" else "IPv4"
        if headless or other in available:
            families.append(other)
        elif spec.ipFamilyPolicy == "RequireDualStack":
            detail = "this cluster is not configured for dual-stack services"
            return [invalid("spec.ipFamilyPolicy", spec.ipFamilyPolicy, detail)]
    spec.ipFamilies[:] = families
    problems = list[Violation]()
    for index, family in enumerate(families):
        if not headless and family not in available:
            problems.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
        if index < len(addresses) and FAMILIES[ip_address(addresses[index]).version] != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            problems.append(invalid(f"spec.clusterIPs[{index}]", addresses[index], detail))
    return problems


def _service_key(service: Service) -> str:
    return f"{service.metadata.namespace}/{service.metadata.name}"


def _owner_of_key(key: str, value: bytes) -> str:
    """Return "namespace/name" of the service that owns a key; "" if it is not a service's."""
    if not key.startswith(IP_ADDRESSES.prefix):
        return value.decode(errors="replace")
    try:
        parent = IPAddress.FromString(value).spec.parentRef
    except DecodeError:
        return ""
    return f"{parent.namespace}/{parent.name}" if (parent.group, parent.resource) == ("", SERVICES.plural) else ""


def _invalid_service(service: Service | None, problems: Sequence[Violation]) -> Rejected:
    return Rejected(errors.invalid(SERVICES, service.metadata.name if service else "", problems))


def _range_full_error(what: str, where: str, hint: str) -> RangeFull:
    message = f"Internal error occurred: failed to allocate {what}: range is full ({where})"
    return RangeFull(Refusal(Code.INTERNAL, "InternalError", message, metadata=(("hint", hint),)))
