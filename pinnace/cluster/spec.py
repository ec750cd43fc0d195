"""The specification of a local cluster: its size, the command line of each process, and the state in <data_dir>/cluster.json.
Pure: nothing is started here.

`ProcessHooks` changes the arguments and the wiring of processes, for benchmarks and fault injection.
"""

import json
import os
import re
import shlex
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

from pinnace.api.machines import MachineOptions
from pinnace.api.wellknown import CONTROLLERS_ELECTION, SCHEDULER_ELECTION
from pinnace.cluster import certificates
from pinnace.cluster.errors import SpecError
from pinnace.cluster.etcd import EtcdBinary, EtcdMember, etcd_command
from pinnace.runtime.procfs import ProcessIdentity

Wiring = Callable[[str, str, str], str]
"""(source, target, address) -> the address that the process `source` uses for the process `target`, which listens at `address`.
Called once, when the cluster is planned; a restarted process keeps the address.
"""
STAGES = ("fast", "realistic", "chaos")
"""The predefined sets of stages."""
ELECTION = SCHEDULER_ELECTION
"""The election of the schedulers."""
NODE_PREFIX = "node-"
UNPRIVILEGED_PORT = 6443
"""The port of the service kubernetes if proxies cannot listen on 443."""
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
"""The flags with the addresses of other processes."""
DNS = "--dns"
"""The flag of a proxy for its DNS address."""
DNS_PORT = 53
"""The port of DNS in resolv.conf(5)."""
TAKE_OVER = "--take-over"
"""The flag of a process that takes over from the running process with the same addresses."""
NO_ACCOUNTS = ("--disable-admission-plugins", "ServiceAccount")
"""The flags of API servers without controllers, which create the service accounts of pods."""
STORE = "--data-dir="
"""The flags of a member of etcd for its own addresses."""
MOST_PROCESSES = 1_000
"""The maximum number of processes of each component."""
MOST_NODES = 1_000_000
SHARING = "--permit-port-sharing"
"""The flag of a gateway that lets others listen on its address."""
FORMAT = 3
BEFORE = 2
"""The earlier format without `identity` and `stopped`, which can be read."""
FILE = "cluster.json"
REMOVED_FIELDS = ("admission_config",)
"""Fields of earlier versions. `admission_config` named a file of gRPC webhooks; webhooks are API objects now."""


def same_address(source: str, target: str, address: str) -> str:
    return address


def no_arguments(process: str) -> Sequence[str]:
    return ()


def no_folder(member: str) -> Path | None:
    return None


def no_environment(process: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class ProcessHooks:
    """Changes by process name: addresses of other processes, additional arguments and environment variables, and the data
    directory of a member of etcd outside of the cluster's directory (its owner removes it).
    """

    wiring: Wiring = same_address
    arguments: Callable[[str], Sequence[str]] = no_arguments
    environment: Callable[[str], Mapping[str, str]] = no_environment
    etcd_data: Callable[[str], Path | None] = no_folder


PLAIN = ProcessHooks()


ETCD, APISERVER, SCHEDULER, CONTROLLERS, KUBELET = "etcd", "apiserver", "scheduler", "controllers", "kubelet"
GATEWAY, PROXY = "gateway", "proxy"
ELECTIONS = {SCHEDULER: ELECTION, CONTROLLERS: CONTROLLERS_ELECTION}
"""The elections of a cluster, by component."""
FAKE, PROCESS = "fake", "process"
SERVICE_NETWORK = "10.96.0.0/16"
"""The network of cluster IPs."""
ELECTION_LEASE, SLOW_LEASE = "--election-lease-duration", 10
"""The flag of API servers, and its value in seconds in slow motion."""


def default_data_dir() -> Path:
    """The default data directory, with symbolic links resolved, as for --data-dir: contexts and processes contain this path.

    Source: https://specifications.freedesktop.org/basedir-spec/latest/ (a relative XDG_STATE_HOME is ignored).
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    return ((Path(base) if base.startswith("/") else Path.home() / ".local" / "state") / "pinnace" / "default").resolve()


def data_dir_flag(folder: Path) -> str:
    """The option that selects this cluster in commands of hints; "" for the default."""
    return "" if folder == default_data_dir() else f" --data-dir {shlex.quote(str(folder))}"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The number of processes of each component. Zero schedulers, controllers or nodes are allowed, for benchmarks. Raises
    SpecError.
    """

    nodes: int = 10
    kubelets: int = 1
    schedulers: int = 3
    apiservers: int = 2
    etcd_members: int = 1
    controllers: int = 0
    gateways: int = 0
    gateways_share_port: bool = False
    """Whether the gateways have one address. The kernel distributes the connections."""
    proxy: bool = False
    """Whether a service proxy runs."""
    data_dir: Path = field(default_factory=default_data_dir)
    runtime: str = FAKE
    """The runtime of containers."""
    stages: str = ""
    """The behavior of simulated containers: a predefined set or a file. Empty: they run."""
    images: str = ""
    """The commands of images, a file. No effect with another runtime than the process runtime."""
    machine: MachineOptions = field(default_factory=MachineOptions)
    """The properties of the nodes."""
    scheduler_config: str = ""
    """A KubeSchedulerConfiguration, a file. This file and those below are copied into the cluster's folder
    (pinnace.cluster.inputs)."""
    scheduler_plugins: tuple[str, ...] = ()
    """Further plugins of the schedulers: module:Class or file.py:Class."""
    slow_motion: bool = False
    """Leases of elections last SLOW_LEASE seconds, so that people can watch them."""

    def __post_init__(self) -> None:
        if self.runtime not in (FAKE, PROCESS):
            raise SpecError(f'unknown runtime "{self.runtime}"', hint=f"use --runtime {FAKE} or {PROCESS}")
        if self.stages and self.runtime != FAKE:
            raise SpecError(
                "--stages cannot be used with --runtime process",
                hint=f"use --runtime {FAKE}, or omit --stages",
            )
        if self.etcd_members not in (1, 3):
            raise SpecError(f"invalid number of etcd members: {self.etcd_members}", hint="use --etcd-members 1 or 3")
        if self.apiservers < 1:
            raise SpecError(f"invalid number of API servers: {self.apiservers}", hint="use --apiservers 1 or more")
        if self.schedulers < 0:
            raise SpecError(f"invalid number of schedulers: {self.schedulers}", hint="use --schedulers 1 or more")
        if self.controllers < 0:
            raise SpecError(f"invalid number of controllers: {self.controllers}", hint="use --controllers 0 or more")
        if self.gateways < 0:
            raise SpecError(f"invalid number of gateways: {self.gateways}", hint="use --gateways 0 or more")
        if max(self.apiservers, self.schedulers, self.controllers, self.kubelets, self.gateways) > MOST_PROCESSES:
            raise SpecError("too many processes for one machine", hint=f"use {MOST_PROCESSES:,} or fewer of each")
        if self.nodes > MOST_NODES:
            raise SpecError("too many nodes for one cluster", hint=f"use --nodes {MOST_NODES} or fewer")
        if self.nodes < 0 or self.kubelets < (1 if self.nodes else 0):
            raise SpecError(f"{self.kubelets} kubelets cannot run {self.nodes} nodes", hint="use 1 or more of each")
        if self.kubelets > self.nodes:
            raise SpecError(
                f"too many kubelets for {self.nodes} nodes: each of the {self.kubelets} kubelets needs at least one",
                hint=f"use --nodes {self.kubelets} or more, or fewer kubelets",
            )

    def to_fields(self) -> dict[str, Any]:
        """All fields except the directory, by name, for the state file."""
        return {name: value for name, value in asdict(self).items() if name != "data_dir"}

    @classmethod
    def from_fields(cls, chosen: Mapping[str, Any], data_dir: Path) -> "ClusterSpec":
        """The inverse. `to_fields` may be JSON of an earlier version: without some fields, or with removed ones. Raises
        TypeError for an unknown field."""
        known = ((name, value) for name, value in chosen.items() if name not in REMOVED_FIELDS)
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in known}
        return cls(**{**values, "machine": MachineOptions(**values.get("machine", {}))}, data_dir=data_dir)


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """The plan of a process. `name` is unique in the cluster; it is the name of the log and of the candidate in elections.
    `address` is for clients, `http` for health checks; a process without clients has one address for both. `environment`:
    variables in addition to the caller's.
    """

    component: str
    name: str
    address: str
    http: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def with_addresses(self, addresses: Mapping[str, str]) -> "ProcessPlan":
        """The plan with these addresses replaced."""

        def new(text: str) -> str:
            return ADDRESS.sub(lambda found: addresses.get(found[0], found[0]), text)

        return replace(self, address=new(self.address), http=new(self.http), argv=tuple(map(new, self.argv)))

    def can_share_address(self, address: str) -> bool:
        """Whether other processes can listen on the address as well."""
        return address == self.address and SHARING in self.argv

    def mentions_address(self, address: str) -> bool:
        """Whether its command line contains this address."""
        return any(address in ADDRESS.findall(argument) for argument in self.argv)


@dataclass(frozen=True, slots=True)
class ComponentInputs:
    """The configuration of components, beyond their number and addresses."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """The content of the files in `config_folder`, by relative path."""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Additional arguments, by component."""
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Additional environment variables, by component."""
    notes: Sequence[str] = ()
    """Notes on settings without effect, one sentence each."""


NO_INPUTS = ComponentInputs()


def plan_processes(
    spec: ClusterSpec,
    binary: EtcdBinary,
    port: Callable[[], int],
    hooks: ProcessHooks = PLAIN,
    processors: Collection[int] = (),
    inputs: ComponentInputs = NO_INPUTS,
    *,
    low_ports: bool = True,
    service_network: str = SERVICE_NETWORK,
    pod_dns: str = "",
) -> list[ProcessPlan]:
    """The plans of a cluster's processes, in starting order. `port` returns another free port at each call. `processors`: the
    processors of the machine, if API servers are pinned. `inputs`: the configuration of the components. `low_ports`: whether
    processes may listen on the port 443. `service_network`: of cluster IPs. `pod_dns`: the address of the DNS server, port
    53, if pods can use it.
    """

    def address() -> str:
        return f"127.0.0.1:{port()}"

    def reaching(source: str, targets: Sequence[tuple[str, str]]) -> str:
        return ",".join(hooks.wiring(source, target, address) for target, address in targets)

    pki = pki_folder(spec.data_dir)
    tls = certificates.etcd_member_files(pki)
    names = [f"{ETCD}-{i}" for i in range(spec.etcd_members)]
    folders = [hooks.etcd_data(name) or etcd_folder(spec.data_dir) / name for name in names]
    members = [EtcdMember(name, each, port(), port(), port()) for name, each in zip(names, folders, strict=True)]
    plans = [ProcessPlan(ETCD, m.name, m.endpoint, m.http, tuple(etcd_command(binary, m, members, tls=tls))) for m in members]
    stores = [(member.name, member.endpoint) for member in members]

    shown = certificates.component_files(pki, APISERVER)
    serving = ("--tls-cert-file", f"{shown.cert}", "--tls-private-key-file", f"{shown.key}", "--client-ca-file", f"{shown.ca}")
    servers = [(f"{APISERVER}-{i}", address(), address()) for i in range(spec.apiservers)]
    for name, listen, http in servers:
        argv = _module_command(
            APISERVER, "--name", name, "--listen", listen, "--http", http, *serving,
            "--etcd", reaching(name, stores), *certificates.etcd_arguments(pki), *certificates.kubelet_arguments(pki),
            *certificates.account_key_arguments(pki), *(() if spec.controllers else NO_ACCOUNTS),
            *((ELECTION_LEASE, str(SLOW_LEASE)) if spec.slow_motion else ()),
            "--service-cluster-ip-range", service_network,
            *(() if low_ports else ("--kubernetes-service-port", str(UNPRIVILEGED_PORT))),
        )  # fmt: skip
        plans.append(ProcessPlan(APISERVER, name, listen, http, argv))
    endpoints = [(name, listen) for name, listen, _ in servers]

    controllers_flags = ("--root-ca-file", f"{shown.ca}", "--volumes-dir", str(volumes_folder(spec.data_dir)))
    for component, count in ((SCHEDULER, spec.schedulers), (CONTROLLERS, spec.controllers)):
        for i in range(count):
            name, http = f"{component}-{i}", address()
            argv = _module_command(
                component, "--name", name, "--server", reaching(name, endpoints), "--http", http,
                "--kubeconfig", str(certificates.client_config_path(pki, component)),
                *(controllers_flags if component == CONTROLLERS else ()),
            )  # fmt: skip
            plans.append(ProcessPlan(component, name, http, http, argv))

    gateway: tuple[str, ...] = ()
    shared, sharing = (address(), ("--permit-port-sharing",)) if spec.gateways_share_port else ("", ())
    for i in range(spec.gateways):
        name, listen, http = f"{GATEWAY}-{i}", shared or address(), address()
        argv = _module_command(
            GATEWAY, "--name", name, "--server", reaching(name, endpoints), "--listen", listen, "--http", http, *serving,
            "--timeline", address(), "--data-dir", str(spec.data_dir),
            "--kubeconfig", str(certificates.client_config_path(pki, GATEWAY)), *sharing,
        )  # fmt: skip
        plans.append(ProcessPlan(GATEWAY, name, listen, http, argv))
        gateway = gateway or ("--gateway", listen)

    if spec.proxy:
        name, http = f"{PROXY}-0", address()
        argv = _module_command(
            PROXY, "--name", name, "--server", reaching(name, endpoints), "--http", http,
            "--kubeconfig", str(certificates.client_config_path(pki, PROXY)),
            DNS, f"{pod_dns}:{DNS_PORT}" if pod_dns else address(), *gateway, TAKE_OVER,
        )  # fmt: skip
        plans.append(ProcessPlan(PROXY, name, http, http, argv))

    for i, (first, count) in enumerate(split_evenly(spec.nodes, spec.kubelets)):
        name, http = f"{KUBELET}-{i}", address()
        argv = _module_command(
            KUBELET, "--name", name, "--server", reaching(name, endpoints), "--http", http,
            "--kubeconfig", str(certificates.client_config_path(pki, name)),
            "--nodes", str(count), "--node-prefix", NODE_PREFIX, "--first-index", str(first),
            "--runtime", spec.runtime, "--root-dir", str(pods_folder(spec.data_dir) / name), "--listen", address(),
            *(("--cluster-dns", pod_dns) if pod_dns and spec.proxy else ()),
        )  # fmt: skip
        plans.append(ProcessPlan(KUBELET, name, http, http, argv))
    return [_with_hooks(_with_inputs(plan, inputs), hooks) for plan in _assign_processors(plans, processors)]


def _assign_processors(plans: Sequence[ProcessPlan], processors: Collection[int]) -> list[ProcessPlan]:
    """Assign a processor to each API server (pinnace.runtime.procfs), if there are fewer processors than processes."""
    if not 1 < len(processors) < len(plans):
        return list(plans)
    dealt = cycle(sorted(processors))

    def staying(plan: ProcessPlan) -> ProcessPlan:
        return replace(plan, argv=(*plan.argv, "--stay-on-cpu", str(next(dealt))))

    return [staying(plan) if plan.component == APISERVER else plan for plan in plans]


def _with_inputs(plan: ProcessPlan, inputs: ComponentInputs) -> ProcessPlan:
    environment = tuple(sorted(inputs.environment.get(plan.component, {}).items()))
    return replace(plan, argv=(*plan.argv, *inputs.arguments.get(plan.component, ())), environment=environment)


def _with_hooks(plan: ProcessPlan, hooks: ProcessHooks) -> ProcessPlan:
    environment = tuple(sorted({**dict(plan.environment), **hooks.environment(plan.name)}.items()))
    return replace(plan, argv=(*plan.argv, *hooks.arguments(plan.name)), environment=environment)


def with_current_installation(plan: ProcessPlan) -> ProcessPlan:
    """The same process with the current installation: after an upgrade, restarted processes use the new version. etcd is not
    changed. Earlier versions named the modules of components without the package `pinnace`.
    """
    if plan.component == ETCD:
        return plan
    if plan.argv[1:3] == ("-m", f"{plan.component}.main"):
        return replace(plan, argv=(*_module_command(plan.component), *plan.argv[3:]))
    return replace(plan, argv=(sys.executable, *plan.argv[1:]))


def listening_addresses(plan: ProcessPlan) -> list[str]:
    """The listening addresses of this process."""
    said = [value for flag, value in pairwise(plan.argv) if flag in ("--listen", DNS)]
    peers = [argument for argument in plan.argv if argument.startswith("--listen-peer-urls=")]
    return list(dict.fromkeys((plan.address, plan.http, *said, *(item for peer in peers for item in ADDRESS.findall(peer)))))


def etcd_data_dir(plan: ProcessPlan) -> list[str]:
    """The data directory of a member of etcd."""
    return [argument.removeprefix(STORE) for argument in plan.argv if argument.startswith(STORE)]


def etcd_folder(data_dir: Path) -> Path:
    return data_dir / "etcd"


def pki_folder(data_dir: Path) -> Path:
    return data_dir / "pki"


def config_folder(data_dir: Path) -> Path:
    """The directory with copies of configuration files."""
    return data_dir / "config"


def kubeconfig_file(data_dir: Path) -> Path:
    """For kubectl and other clients of Kubernetes: the administrator, at the first gateway."""
    return data_dir / "kubeconfig"


def pods_folder(data_dir: Path) -> Path:
    """The directory of a kubelet's pods, for the process runtime."""
    return data_dir / "pods"


def volumes_folder(data_dir: Path) -> Path:
    """The directory of the volumes of the StorageClass standard."""
    return data_dir / "volumes"


def fleet_node_names(spec: ClusterSpec) -> dict[str, list[str]]:
    """The names of each fleet's own nodes, as in its certificate."""
    return {
        f"{KUBELET}-{i}": [f"{NODE_PREFIX}{first}..{first + count - 1}"] if count else []
        for i, (first, count) in enumerate(split_evenly(spec.nodes, spec.kubelets))
    }


def split_evenly(total: int, parts: int) -> list[tuple[int, int]]:
    """`total` items split into `parts` as evenly as possible: (index of the first, count) of each part."""
    bounds = [total * i // parts for i in range(parts + 1)] if parts else []
    return [(first, end - first) for first, end in pairwise(bounds)]


def _module_command(component: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"pinnace.{component}.main", *arguments)


class StateError(ValueError):
    """The text is not a valid state, or is of an unknown version."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process of the cluster. `process` is None until it is started, and during a restart."""

    plan: ProcessPlan
    process: ProcessIdentity | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def component(self) -> str:
        return self.plan.component

    @property
    def pid(self) -> int:
        """0: the start was not written."""
        return self.process.pid if self.process else 0


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`created` in Unix seconds. `made`: directories that were created for the cluster, outermost first. `identity`: the
    content of the markers; "" for a cluster of an earlier version. `stopped`: by `pinnace stop`. `digests`: of the
    configuration files, by option (pinnace.cluster.inputs).
    """

    spec: ClusterSpec
    created: float
    made: tuple[Path, ...]
    processes: tuple[ProcessRecord, ...]
    identity: str = ""
    stopped: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def endpoints(self) -> list[str]:
        """The addresses of the API servers."""
        return [record.plan.address for record in self.processes if record.component == APISERVER]

    def find_process(self, name: str) -> ProcessRecord:
        """Raises KeyError."""
        for record in self.processes:
            if record.name == name:
                return record
        raise KeyError(name)

    def processes_of(self, component: str) -> list[ProcessRecord]:
        return [record for record in self.processes if record.component == component]

    def with_process(self, name: str, process: ProcessIdentity | None) -> "ClusterState":
        """Raises KeyError."""
        return self.with_record(replace(self.find_process(name), process=process))

    def with_record(self, record: ProcessRecord) -> "ClusterState":
        """Replace the record of the same name."""
        return replace(self, processes=tuple(record if r.name == record.name else r for r in self.processes))


def initial_state(spec: ClusterSpec, plans: Sequence[ProcessPlan], made: Sequence[Path], now: float) -> ClusterState:
    """The state before any process has been started."""
    return ClusterState(spec, now, tuple(made), tuple(ProcessRecord(plan) for plan in plans), uuid.uuid4().hex)


def encode_state(state: ClusterState) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "created": state.created,
            "data_dir": str(state.spec.data_dir),
            "spec": state.spec.to_fields(),
            "identity": state.identity,
            "stopped": state.stopped,
            "digests": dict(state.digests),
            "made": [str(folder) for folder in state.made],
            "processes": [
                {**asdict(record.plan), "process": asdict(record.process) if record.process else None}
                for record in state.processes
            ],
        },
        indent=2,
    )


def decode_state(text: str) -> ClusterState:
    """Raises StateError."""
    try:
        result = json.loads(text)
        if result["format"] not in (BEFORE, FORMAT):
            raise StateError(f"it has format {result['format']}, this version of pinnace knows {BEFORE} and {FORMAT}")
        return ClusterState(
            spec=ClusterSpec.from_fields(result["spec"], Path(result["data_dir"])),
            created=float(result["created"]),
            made=tuple(Path(folder) for folder in result["made"]),
            processes=tuple(
                ProcessRecord(
                    ProcessPlan(
                        p["component"],
                        p["name"],
                        p["address"],
                        p["http"],
                        tuple(p["argv"]),
                        tuple((name, value) for name, value in p["environment"]),
                    ),
                    ProcessIdentity(**p["process"]) if p["process"] else None,
                )
                for p in result["processes"]
            ),
            identity=str(result.get("identity", "")),
            stopped=bool(result.get("stopped", False)),
            digests=dict(result.get("digests", {})),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise StateError(f"{type(error).__name__}: {error}") from error
