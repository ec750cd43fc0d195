"""The backend `nftables`: rules in the kernel. It needs root and the program `nft`.

    prerouting, output --> map service-ips {address, protocol, port}  --> chain of the frontend --> dnat to a random endpoint
                       `-> map service-nodeports {protocol, port}     -'

The cost of the lookup does not depend on the number of services. Each sync is one transaction: packets see the rules before it
or after it. The transaction contains only the objects that have changed. The first one replaces the table. The rules stay when
the proxy stops. Frontends without endpoints are rejected: TCP with a reset, UDP with an ICMP message.

Connections keep their endpoint, because the kernel translates their packets by its connection tracking. UDP flows to removed
endpoints are deleted with `conntrack`, if it is installed.

Source: https://kubernetes.io/blog/2025/02/28/nftables-kube-proxy/
"""

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import ip_address

from pinnace.proxy.plan import NO_RULES, NODE_ADDRESS, Endpoint, Frontend, Rule, ServiceRules
from pinnace.proxy.proxier import BackendError

log = logging.getLogger(__name__)

TABLE = "pinnace-proxy"
NFT_TIMEOUT = 30.0
MASQUERADE_MARK = "0x4000"
"""The bit of the packet mark that requests masquerading, as kube-proxy's default."""
FAMILIES = {4: ("ip", "ipv4_addr"), 6: ("ip6", "ipv6_addr")}


def base_commands(version: int, node_addresses: Sequence[str]) -> list[str]:
    """Return the commands that replace the table of an IP version. `node_addresses`: the addresses of node ports; if empty, all
    local addresses except loopback addresses."""
    family, kind = FAMILIES[version]
    table = f"{family} {TABLE}"
    here = [node_address for node_address in node_addresses if ip_address(node_address).version == version]
    loopback = "127.0.0.0/8" if version == 4 else "::1"
    to_node = f"fib daddr type local {family} daddr != {loopback}"
    if node_addresses:
        to_node = f"{family} daddr {{ {', '.join(here)} }}" if here else ""
    lookups = [f"{family} daddr . meta l4proto . th dport vmap @service-ips"]
    checks = [f"{family} daddr . meta l4proto . th dport vmap @no-endpoint-services"]
    if to_node:
        lookups.append(f"{to_node} meta l4proto . th dport vmap @service-nodeports")
        checks.append(f"{to_node} meta l4proto . th dport vmap @no-endpoint-nodeports")
    chains = {
        "mark-for-masquerade": [f"meta mark set meta mark or {MASQUERADE_MARK}"],
        "reject-packet": ["meta l4proto tcp reject with tcp reset", "reject"],
        "services": lookups,
        "endpoints-check": checks,
        "nat-prerouting { type nat hook prerouting priority dstnat; }": ["goto services"],
        "nat-output { type nat hook output priority -100; }": ["goto services"],
        "nat-postrouting { type nat hook postrouting priority srcnat; }": [
            f"meta mark and {MASQUERADE_MARK} != 0 meta mark set meta mark xor {MASQUERADE_MARK} masquerade fully-random",
            f"{family} saddr . {family} daddr @hairpin masquerade fully-random",
        ],
        **{
            f"filter-{hook} {{ type filter hook {hook} priority filter; }}": ["ct state new goto endpoints-check"]
            for hook in ("input", "forward", "output")
        },
    }
    commands = [f"add table {table}", f"delete table {table}", f"add table {table}"]
    commands += [
        f"add map {table} {name} {{ type {key} : verdict; }}"
        for name, key in (
            ("service-ips", f"{kind} . inet_proto . inet_service"),
            ("service-nodeports", "inet_proto . inet_service"),
            ("no-endpoint-services", f"{kind} . inet_proto . inet_service"),
            ("no-endpoint-nodeports", "inet_proto . inet_service"),
        )
    ]
    commands.append(f"add set {table} hairpin {{ type {kind} . {kind}; }}")
    commands += [f"add chain {table} {name}" for name in chains]
    commands += [f"add rule {table} {name.split()[0]} {rule}" for name, rules in chains.items() for rule in rules]
    return commands


@dataclass(slots=True)
class ServiceObjects:
    """The objects of one service in a table. Names of chains and sets are stable while their frontend exists."""

    chains: dict[str, list[str]] = field(default_factory=dict)
    """Rules by chain. A chain may refer to later ones."""
    sets: dict[str, str] = field(default_factory=dict)
    """Definitions by set."""
    elements: dict[tuple[str, str], str] = field(default_factory=dict)
    """Verdicts by map and key."""
    hairpins: set[str] = field(default_factory=set)


def build_service_objects(service: str, rules: ServiceRules, version: int) -> ServiceObjects:
    """Return the objects of a service. Pure."""
    result = ServiceObjects()
    for frontend, rule in rules.rules.items():
        node_port = frontend.address == NODE_ADDRESS
        if not node_port and ip_address(frontend.address).version != version:
            continue
        endpoints = [endpoint for endpoint in rule.endpoints if ip_address(endpoint.address).version == version]
        key = f"{frontend.protocol.lower()} . {frontend.port}"
        if not node_port:
            key = f"{frontend.address} . {key}"
        if not endpoints:
            name = "no-endpoint-nodeports" if node_port else "no-endpoint-services"
            result.elements[name, key] = "goto reject-packet"
            continue
        chain = f"service-{_rules_hash(service, frontend)}"
        result.elements["service-nodeports" if node_port else "service-ips", key] = f"goto {chain}"
        result.hairpins.update(f"{endpoint.address} . {endpoint.address}" for endpoint in endpoints)
        _add_frontend_rules(result, chain, rule, frontend, endpoints, version)
    return result


def _add_frontend_rules(
    found: ServiceObjects, chain: str, rule: Rule, frontend: Frontend, endpoints: Sequence[Endpoint], version: int
) -> None:
    family, kind = FAMILIES[version]
    rules = ["jump mark-for-masquerade"] if rule.masquerade else []
    protocol = f"meta l4proto {frontend.protocol.lower()}"
    count = len(endpoints)
    if rule.affinity is None:
        targets = ", ".join(f"{number} : {each.address} . {each.port}" for number, each in enumerate(endpoints))
        found.chains[chain] = [*rules, f"{protocol} dnat {family} to numgen random mod {count} map {{ {targets} }}"]
        return
    names = [f"{chain.replace('service', 'endpoint')}-{_rules_hash(endpoint)}" for endpoint in endpoints]
    for name, each in zip(names, endpoints, strict=True):
        clients = f"{name.replace('endpoint', 'affinity')}-{rule.affinity}"
        found.sets[clients] = f"{{ type {kind}; flags dynamic, timeout; timeout {rule.affinity}s; size 65535; }}"
        address = each.address if version == 4 else f"[{each.address}]"
        found.chains[name] = [f"update @{clients} {{ {family} saddr }}", f"{protocol} dnat to {address}:{each.port}"]
        rules.append(f"{family} saddr @{clients} goto {name}")
    targets = ", ".join(f"{number} : goto {name}" for number, name in enumerate(names))
    found.chains[chain] = [*rules, f"numgen random mod {count} vmap {{ {targets} }}"]


def build_transaction(
    version: int, changes: Iterable[tuple[ServiceObjects, ServiceObjects]], hairpins: Counter[str]
) -> list[str]:
    """Return the commands from the old objects to the new ones. Update `hairpins`, which counts the services by element."""
    table = f"{FAMILIES[version][0]} {TABLE}"
    sets: list[str] = []
    chains: list[str] = []
    flushes: list[str] = []
    rules: list[str] = []
    gone: list[str] = []
    elements: list[str] = []
    removed_chains: list[str] = []
    removed_sets: list[str] = []
    before = set(hairpins)
    for old, new in changes:
        for name, definition in new.sets.items():
            if name not in old.sets:
                sets.append(f"add set {table} {name} {definition}")
        for name, content in new.chains.items():
            if old.chains.get(name) == content:
                continue
            if name in old.chains:
                flushes.append(f"flush chain {table} {name}")
            else:
                chains.append(f"add chain {table} {name}")
            rules += [f"add rule {table} {name} {rule}" for rule in content]
        for (name, key), verdict in old.elements.items():
            if new.elements.get((name, key)) != verdict:
                gone.append(f"delete element {table} {name} {{ {key} }}")
        for (name, key), verdict in new.elements.items():
            if old.elements.get((name, key)) != verdict:
                elements.append(f"add element {table} {name} {{ {key} : {verdict} }}")
        for name in old.chains.keys() - new.chains.keys():
            flushes.append(f"flush chain {table} {name}")
            removed_chains.append(f"delete chain {table} {name}")
        removed_sets += [f"delete set {table} {name}" for name in old.sets.keys() - new.sets.keys()]
        hairpins.update(new.hairpins)
        hairpins.subtract(old.hairpins)
    for element in [each for each, count in hairpins.items() if count <= 0]:
        del hairpins[element]
    gone += [f"delete element {table} hairpin {{ {hairpin} }}" for hairpin in before - set(hairpins)]
    elements += [f"add element {table} hairpin {{ {hairpin} }}" for hairpin in set(hairpins) - before]
    return [*sets, *chains, *flushes, *rules, *gone, *elements, *removed_chains, *removed_sets]


def _rules_hash(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:16]


class NftablesBackend:
    """The tables of both IP versions. `apply` raises BackendError; then the next call replaces the tables."""

    problem: str | None = None

    def __init__(self, node_addresses: Sequence[str] = (), command: Sequence[str] = ("nft",)) -> None:
        """`command`: how to run nft, for example in a network namespace."""
        self._node_addresses = node_addresses
        self._command = tuple(command)
        self._rules: dict[str, ServiceRules] = {}
        self._built = False
        self._applied: dict[str, ServiceRules] = {}
        """The rules without frontends that belong to other services."""
        self._owners: dict[Frontend, str] = {}
        self._waiting: dict[Frontend, dict[str, None]] = {}
        """Services whose frontend another service has."""
        self._hairpins: dict[int, Counter[str]] = {}

    @property
    def services(self) -> Mapping[str, ServiceRules]:
        return self._rules

    async def apply(self, changes: Mapping[str, ServiceRules]) -> None:
        after = {**self._rules, **changes}
        if not self._built:
            self._owners, self._waiting, self._applied = {}, {}, {}
        own = self._claim_frontends(changes, after) if self._built else self._claim_frontends(after, after)
        commands: list[str] = []
        counts: dict[int, Counter[str]] = {}
        for version in FAMILIES:
            counts[version] = Counter(self._hairpins.get(version, {})) if self._built else Counter()
            if self._built:
                pairs = [
                    (
                        build_service_objects(key, self._applied.get(key, NO_RULES), version),
                        build_service_objects(key, rules, version),
                    )
                    for key, rules in own.items()
                ]
            else:
                commands += base_commands(version, self._node_addresses)
                pairs = [(ServiceObjects(), build_service_objects(key, rules, version)) for key, rules in own.items()]
            commands += build_transaction(version, pairs, counts[version])
        if commands:
            try:
                await self._run_nft(commands)
            except BackendError:
                self._built = False
                raise
        old = {key: self._applied.get(key, NO_RULES) for key in own}
        self._built, self._hairpins = True, counts
        self._rules = {key: rules for key, rules in after.items() if rules != NO_RULES}
        for key, rules in own.items():
            if rules.rules:
                self._applied[key] = rules
            else:
                self._applied.pop(key, None)
        await self._end_flows(old, own)

    def _claim_frontends(
        self, changes: Mapping[str, ServiceRules], after: Mapping[str, ServiceRules]
    ) -> dict[str, ServiceRules]:
        """Return the rules without frontends that belong to other services. Services that inherit frontends are added."""
        rules_by_service = dict(changes)
        for key, rules in changes.items():
            for frontend in self._applied.get(key, NO_RULES).rules.keys() - rules.rules.keys():
                del self._owners[frontend]
                rules_by_service.update(
                    {heir: after[heir] for heir in self._waiting.pop(frontend, ()) if heir not in rules_by_service}
                )
        for key, rules in rules_by_service.items():
            own: dict[Frontend, Rule] = {}
            for frontend, rule in rules.rules.items():
                if (owner := self._owners.setdefault(frontend, key)) == key:
                    own[frontend] = rule
                elif key not in (waiting := self._waiting.setdefault(frontend, {})):
                    waiting[key] = None
                    log.warning("%s of service %s belongs to service %s", tuple(frontend), key, owner)
            rules_by_service[key] = ServiceRules(own, rules.health_check)
        return rules_by_service

    @property
    def descriptors(self) -> Mapping[Frontend, int]:
        return {}

    async def retry_failed(self) -> None:
        """Nothing: a failed sync is repeated."""

    async def close(self, grace: float = 0.0) -> None:
        """Keep the rules, so that a restart interrupts no connection."""

    async def _run_nft(self, commands: Sequence[str]) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, "-f", "-",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            raise BackendError(f"cannot run {self._command[0]}: {error.strerror}; install the package nftables") from None
        try:
            async with asyncio.timeout(NFT_TIMEOUT):
                _, errors = await process.communicate("\n".join(commands).encode() + b"\n")
        except TimeoutError:
            process.kill()
            await process.wait()
            raise BackendError(f"nft did not end within {NFT_TIMEOUT:g} s") from None
        if process.returncode:
            first = errors.decode(errors="replace").strip().splitlines()[:2]
            raise BackendError(f"nft failed with exit code {process.returncode}: {' '.join(first)}")

    async def _end_flows(self, old: Mapping[str, ServiceRules], changes: Mapping[str, ServiceRules]) -> None:
        """Delete the tracked UDP flows to removed endpoints."""
        gone = {
            endpoint
            for key, rules in changes.items()
            for frontend, rule in old.get(key, NO_RULES).rules.items()
            if frontend.protocol == "UDP"
            for endpoint in set(rule.endpoints) - set(rules.rules[frontend].endpoints if frontend in rules.rules else ())
        }
        if not gone:
            return
        program = shutil.which("conntrack")
        if program is None:
            log.warning("UDP flows to %d removed endpoints end when they are idle: conntrack is not installed", len(gone))
            return
        for endpoint in gone:
            process = await asyncio.create_subprocess_exec(
                *self._command[:-1], program, "-D", "-p", "udp", "--reply-src", endpoint.address,
                "--reply-port-src", str(endpoint.port),
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            await process.wait()
