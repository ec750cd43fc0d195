"""`pinnace bench`: benchmarks on this machine. Each row is a subcommand; `pinnace.verification.bench` implements the rows."""

import json
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pinnace.api.machines import MachineOptions
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import running
from pinnace.cli.local.running import Steps
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cluster.processes import PortAllocator
from pinnace.cluster.spec import PROCESS, ClusterSpec
from pinnace.verification.bench import load
from pinnace.verification.bench.calibration import BenchCluster, calibrated_cluster
from pinnace.verification.bench.controllers import KINDS, measure_controllers
from pinnace.verification.bench.custom import measure_custom
from pinnace.verification.bench.failover import SIGNALS, measure_failovers
from pinnace.verification.bench.flood import ALL_METHODS, NOBODY, STRANGER, flood_as, measure_flood
from pinnace.verification.bench.gateway import measure_gateway
from pinnace.verification.bench.node_loss import measure_node_loss
from pinnace.verification.bench.report import BenchReport, BenchRun, describe_machine
from pinnace.verification.bench.scale import measure_scale
from pinnace.verification.bench.services import measure_services
from pinnace.verification.bench.throughput import measure_backlog, measure_creates, measure_throughput
from pinnace.verification.bench.watch import measure_watcher_crowd, measure_watchers
from pinnace.verification.bench.workloads import WORKLOADS

POSITIVE = click.IntRange(min=1)
RESULTS = "bench/results.jsonl"
MACHINE = MachineOptions(zones="0")
"""Nodes have no zone unless a workload gives them one, as in Kubernetes' benchmark of its scheduler."""
Measure = Callable[[BenchCluster, Steps], Awaitable[BenchRun]]
schedulers_option = click.option("--schedulers", type=POSITIVE, default=3, show_default=True, help="Schedulers of the cluster.")
batch_option = click.option(
    "--batch", type=click.IntRange(1, 1000), default=100, show_default=True, help="Pods per call; 1 creates them one by one."
)


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The common properties of all runs of a command."""

    name: str
    spec: ClusterSpec
    options: dict[str, Any]
    unit: str = ""
    """The unit of the rate; "" if the row has no rate."""
    headline: str = ""
    """The stage whose percentiles are the result, if the rate is not."""
    linked: bool = False
    """Whether proxies that can hold data connect the schedulers with the API servers."""
    flags: tuple[str, ...] = ()
    """Additional flags of the API servers."""


@click.group("bench", cls=VerbGroup)
def bench() -> None:
    """Measure pinnace on this machine.

    Each run starts a cluster, and first measures etcd with 64 clients that write one key per transaction. "Per 1,000
    transactions" is the rate relative to that result; use it to compare machines. The load generator and the witness run in
    this process, and their CPU time is reported separately.
    """


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every row."""
    for option in (
        click.option(
            "--save",
            is_flag=False,
            flag_value=RESULTS,
            metavar="FILE",
            help=f"Append the result to FILE, as a line of JSON ({RESULTS}).",
        ),
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="The output format."),
        click.option(
            "--runs", type=POSITIVE, default=1, show_default=True, help="Runs to make; quote the median of at least five."
        ),
        click.option("--apiservers", type=POSITIVE, default=2, show_default=True, help="API servers of the cluster."),
    ):
        function = option(function)
    return function


def pods_option(default: int) -> Callable[..., Any]:
    return click.option("--pods", type=POSITIVE, default=default, show_default=True, help="Pods to create.")


def nodes_option(default: int) -> Callable[..., Any]:
    return click.option("--nodes", type=POSITIVE, default=default, show_default=True, help="Nodes: 4 CPU, 32 GiB, 110 pods.")


@verb("throughput", examples="pinnace bench throughput --nodes 1000 --pods 5000 --batch 1 --runs 5")
@nodes_option(1000)
@pods_option(5000)
@batch_option
@schedulers_option
@common_options
def throughput_row(
    settings: Settings, nodes: int, pods: int, batch: int, schedulers: int, apiservers: int, **shared: Any
) -> None:
    """Pods from creation to bound to Running, with creation and scheduling at the same time."""
    check_pods_fit(pods, nodes)
    spec = ClusterSpec(nodes=nodes, schedulers=schedulers, apiservers=apiservers, machine=MACHINE)
    row = BenchRow("throughput", spec, {"nodes": nodes, "pods": pods, "batch": batch}, unit="pods/s")
    measure_row(settings, row, lambda bench, steps: measure_throughput(bench, pods, batch), **shared)


@verb("create", examples="pinnace bench create --batch 1")
@pods_option(10000)
@batch_option
@click.option(
    "--stages/--no-stages",
    default=True,
    show_default=True,
    help="Show the API servers' CPU by stage, at a cost of a few percent.",
)
@common_options
def create_row(settings: Settings, pods: int, batch: int, stages: bool, apiservers: int, **shared: Any) -> None:
    """Create pods without a scheduler."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers)
    flags = ("--profile-stages",) if stages else ()
    row = BenchRow("create", spec, {"pods": pods, "batch": batch}, unit="pods/s", flags=flags)
    measure_row(settings, row, lambda bench, steps: measure_creates(bench, pods, batch), **shared)


@verb(
    "backlog",
    examples="""
        pinnace bench backlog --nodes 5000 --pods 10000
        pinnace bench backlog --workload topology-spread
    """,
    help=f"""Schedule pods that are already waiting.

    A workload defines the nodes, the pods, the existing objects and the changes during the run. All but the first are
    workloads of Kubernetes' scheduler benchmark:

    \b
    {
        '''
    '''.join(f"{name:{max(map(len, WORKLOADS))}}  {each.about}" for name, each in WORKLOADS.items())
    }
    """,
)
@click.option(
    "--workload",
    "name",
    type=click.Choice(list(WORKLOADS)),
    metavar="NAME",
    default="plain",
    show_default=True,
    help="See above.",
)
@click.option("--nodes", type=POSITIVE, help="Nodes: 4 CPU, 32 GiB, 110 pods.  [default: 5000; 1000 for plain]")
@click.option("--pods", type=POSITIVE, help="Pods to schedule.  [default: as many as in Kubernetes' benchmark; 5000 for plain]")
@click.option(
    "--bound-only",
    is_flag=True,
    help="Stop the kubelets first: pods are bound, and never run, as in Kubernetes' own benchmark.",
)
@schedulers_option
@common_options
def backlog_row(
    settings: Settings,
    name: str,
    nodes: int | None,
    pods: int | None,
    bound_only: bool,
    schedulers: int,
    apiservers: int,
    **shared: Any,
) -> None:
    load = WORKLOADS[name]
    nodes, pods = nodes or load.nodes, pods or load.measured.count
    if pods > (room := load.max_measured_pods(nodes)):
        raise usage_failure(
            f"{pods:,} pods of {name} do not fit on {nodes:,} nodes: there is room for {max(0, room):,}",
            hint="use more --nodes, or fewer --pods",
        )
    spec = ClusterSpec(nodes=nodes, schedulers=schedulers, apiservers=apiservers, machine=MACHINE)
    options = {"workload": name, "nodes": nodes, "pods": pods, "kubelets": 0 if bound_only else spec.kubelets}
    row = BenchRow("backlog", spec, options, unit="pods/s")
    measure_row(settings, row, lambda bench, steps: measure_backlog(bench, load, pods, steps, bound_only=bound_only), **shared)


@verb("failover", examples="pinnace bench failover --signal STOP --times 20")
@nodes_option(1000)
@click.option(
    "--signal",
    "name",
    type=click.Choice(list(SIGNALS)),
    default="KILL",
    show_default=True,
    help="The signal that the leader receives.",
)
@click.option("--times", type=POSITIVE, default=5, show_default=True, help="How many times the leader receives the signal.")
@click.option("--schedulers", type=click.IntRange(min=2), default=3, show_default=True, help="Schedulers of the cluster.")
@common_options
def failover_row(
    settings: Settings, nodes: int, name: str, times: int, schedulers: int, apiservers: int, **shared: Any
) -> None:
    """The time from a signal to the leading scheduler to the first bind by its successor, while pods are created."""
    spec = ClusterSpec(nodes=nodes, schedulers=schedulers, apiservers=apiservers, machine=MACHINE)
    row = BenchRow("failover", spec, {"nodes": nodes, "signal": name, "times": times}, headline="gap", linked=name == "STOP")
    measure_row(settings, row, lambda bench, steps: measure_failovers(bench, SIGNALS[name], times, steps), **shared)


@verb("watch", examples="pinnace bench watch --watchers 1000 --events 1000")
@click.option("--watchers", type=POSITIVE, default=100, show_default=True, help="Watchers, each with a connection of its own.")
@click.option("--events", type=POSITIVE, default=1000, show_default=True, help="Pods that are created.")
@batch_option
@common_options
def watch_row(settings: Settings, watchers: int, events: int, batch: int, apiservers: int, **shared: Any) -> None:
    """Events delivered to many watchers."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers)
    row = BenchRow(
        "watch", spec, {"watchers": watchers, "events": events, "batch": batch}, unit="deliveries/s", headline="delivered"
    )
    measure_row(settings, row, lambda bench, steps: measure_watchers(bench, watchers, events, batch), **shared)


@verb("crowd", examples="pinnace bench crowd --watchers 1000 --stuck 50 --rate 500 --seconds 60")
@click.option("--watchers", type=POSITIVE, default=1000, show_default=True, help="Watchers that read; 20 share a connection.")
@click.option("--stuck", type=click.IntRange(min=0), default=50, show_default=True, help="Watchers that never read.")
@click.option("--rate", type=POSITIVE, default=500, show_default=True, help="Writes per second.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=60.0, show_default=True, help="The duration in seconds.")
@common_options
def crowd_row(settings: Settings, watchers: int, stuck: int, rate: int, seconds: float, apiservers: int, **shared: Any) -> None:
    """Many watchers of a steady stream of events. Some of them never read. The history is compacted every second."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers)
    options = {"watchers": watchers, "stuck": stuck, "rate": rate, "seconds": seconds}
    row = BenchRow("crowd", spec, options, unit="deliveries/s", headline="delivered", flags=("--etcd-compaction-interval", "1"))
    measure_row(settings, row, lambda bench, steps: measure_watcher_crowd(bench, watchers, stuck, rate, seconds), **shared)


@verb(
    "flood",
    examples="""
        pinnace bench flood --rate 5000 --seconds 20
        pinnace bench flood --as nobody --service grpc.health.v1.Health --calls 4000
        pinnace bench flood --as stranger --seconds 5
    """,
)
@click.option(
    "--rate", type=POSITIVE, default=5000, show_default=True, help="Creates per second that the flooding user attempts."
)
@click.option("--seconds", type=POSITIVE, default=15, show_default=True, help="For how long.")
@click.option(
    "--as",
    "who",
    type=click.Choice([NOBODY, STRANGER]),
    help="Flood without rights instead: nobody has no token, a stranger a certificate and no role.",
)
@click.option(
    "--service", default=ALL_METHODS, show_default=True, help="With --as: which service to call, or each one in turn."
)
@click.option("--calls", type=click.IntRange(min=2), default=4000, show_default=True, help="With --as: calls to keep open.")
@common_options
def flood_row(
    settings: Settings, rate: int, seconds: int, who: str | None, service: str, calls: int, apiservers: int, **shared: Any
) -> None:
    """Another user's gets and a leader's heartbeats, while one user floods an API server with creates, or without
    permissions."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers)
    if who is None:
        row = BenchRow("flood", spec, {"rate": rate, "seconds": seconds}, headline="get, flooded")
        measure_row(settings, row, lambda bench, steps: measure_flood(bench, rate, seconds, steps), **shared)
        return
    spec = replace(spec, apiservers=1)  # all of them have the same flags, and the port for tokens is one of these
    options = {"as": who, "service": service, "calls": calls, "seconds": seconds}
    tokens_at = f"127.0.0.1:{PortAllocator().next()}"
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as tokens:
        tokens.write(f"{secrets.token_hex()},somebody,1\n")
        tokens.flush()
        flags = ("--token-auth-file", tokens.name, "--token-listen", tokens_at)
        row = BenchRow("flood", spec, options, headline="get, quiet", flags=flags)
        measure_row(
            settings, row, lambda bench, steps: flood_as(bench, who, tokens_at, service, calls, seconds, steps), **shared
        )


@verb("gateway", examples="pinnace bench gateway --requests 5000")
@click.option("--requests", type=POSITIVE, default=3000, show_default=True, help="Creates, and gets, of each kind.")
@pods_option(5000)
@click.option("--watchers", type=POSITIVE, default=100, show_default=True, help="Watchers, each with its own connection.")
@click.option("--events", type=POSITIVE, default=300, show_default=True, help="Pods created while the watchers watch.")
@common_options
def gateway_row(
    settings: Settings, requests: int, pods: int, watchers: int, events: int, apiservers: int, **shared: Any
) -> None:
    """Creates, gets, lists and watches through a gateway, in JSON and in protobuf, and the same through gRPC."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers, gateways=1)
    options = {"requests": requests, "pods": pods, "watchers": watchers, "events": events}
    row = BenchRow("gateway", spec, options, unit="creates/s")
    measure_row(settings, row, lambda bench, steps: measure_gateway(bench, requests, pods, watchers, events, steps), **shared)


@verb("services", examples="pinnace bench services --requests 5000 --services 200")
@click.option("--requests", type=POSITIVE, default=20_000, show_default=True, help="Requests during rolling updates.")
@click.option("--services", "count", type=POSITIVE, default=1000, show_default=True, help="Services with 10 endpoints each.")
@click.option("--changes", type=POSITIVE, default=100, show_default=True, help="Changes of endpoints.")
@common_options
def services_row(settings: Settings, requests: int, count: int, changes: int, apiservers: int, **shared: Any) -> None:
    """Requests through the service proxy during updates, beside HAProxy and direct connections. Uses the process runtime."""
    spec = ClusterSpec(nodes=3, schedulers=1, controllers=1, apiservers=apiservers, runtime=PROCESS, proxy=True)
    options = {"requests": requests, "services": count, "changes": changes}
    row = BenchRow("services", spec, options, unit="requests/s")
    measure_row(settings, row, lambda bench, steps: measure_services(bench, requests, count, changes, steps), **shared)


@verb("node-loss", examples="pinnace bench node-loss --nodes 200 --replicas 1000")
@nodes_option(200)
@click.option("--kubelets", type=click.IntRange(min=2), default=2, show_default=True, help="Processes; the last one dies.")
@click.option("--replicas", type=POSITIVE, default=1000, show_default=True, help="Replicas of all Deployments together.")
@click.option("--deployments", type=POSITIVE, default=10, show_default=True, help="Deployments that share the pods.")
@common_options
def node_loss_row(
    settings: Settings, nodes: int, kubelets: int, replicas: int, deployments: int, apiservers: int, **shared: Any
) -> None:
    """Kill a kubelet process that runs nodes with pods of Deployments, and start it again."""
    check_pods_fit(replicas, nodes - -(-nodes // kubelets))
    spec = ClusterSpec(nodes=nodes, kubelets=kubelets, controllers=2, apiservers=apiservers, machine=MACHINE)
    row = BenchRow(
        "node-loss",
        spec,
        {"nodes": nodes, "kubelets": kubelets, "replicas": replicas, "deployments": deployments},
        headline="all replicas serve again",
    )
    measure_row(settings, row, lambda bench, steps: measure_node_loss(bench, replicas, deployments, steps), **shared)


@verb("scale", examples="pinnace bench scale --nodes 5000 --pods 150000")
@nodes_option(5000)
@pods_option(150_000)
@click.option("--kubelets", type=POSITIVE, default=2, show_default=True, help="Processes that share the nodes.")
@click.option(
    "--replicas", type=POSITIVE, default=5000, show_default=True, help="How many of the pods belong to one Deployment."
)
@click.option("--rest", type=POSITIVE, default=30, show_default=True, help="How long the idle cluster is measured, in seconds.")
@common_options
def scale_row(
    settings: Settings, nodes: int, pods: int, kubelets: int, replicas: int, rest: int, apiservers: int, **shared: Any
) -> None:
    """Memory and CPU usage of a large idle cluster, and a rolling update in it."""
    check_pods_fit(pods + replicas // 4, nodes)  # a rolling update may have a quarter more
    spec = ClusterSpec(nodes=nodes, kubelets=kubelets, schedulers=2, controllers=2, apiservers=apiservers, machine=MACHINE)
    row = BenchRow("scale", spec, {"nodes": nodes, "pods": pods, "replicas": replicas}, headline="rolled")
    measure_row(settings, row, lambda bench, steps: measure_scale(bench, pods, replicas, rest, steps), **shared)


@verb("controllers", examples="pinnace bench controllers --kind daemonset --nodes 5000")
@click.option("--kind", type=click.Choice(KINDS), default="statefulset", show_default=True, help="Whose controller works.")
@click.option("--count", type=POSITIVE, default=2000, show_default=True, help="Number of pods, or of CronJobs of every minute.")
@nodes_option(100)
@click.option("--kubelets", type=POSITIVE, default=1, show_default=True, help="Processes that share the nodes.")
@click.option("--rest", type=POSITIVE, default=30, show_default=True, help="How long the idle cluster is measured, in seconds.")
@common_options
def controllers_row(
    settings: Settings, kind: str, count: int, nodes: int, kubelets: int, rest: int, apiservers: int, **shared: Any
) -> None:
    """The pods of StatefulSets, of a DaemonSet on all nodes, or the Jobs of CronJobs; then the idle cluster."""
    if kind == "daemonset":
        count = nodes
    if kind == "statefulset":
        check_pods_fit(count, nodes)
    spec = ClusterSpec(nodes=nodes, kubelets=kubelets, schedulers=1, controllers=1, apiservers=apiservers, machine=MACHINE)
    row = BenchRow(f"controllers-{kind}", spec, {"kind": kind, "count": count, "nodes": nodes}, unit="/s")
    measure_row(settings, row, lambda bench, steps: measure_controllers(bench, kind, count, rest, steps), **shared)


@verb("custom", examples="pinnace bench custom --definitions 1000 --objects 100000")
@click.option("--definitions", type=POSITIVE, default=1000, show_default=True, help="CustomResourceDefinitions to create.")
@click.option(
    "--objects", type=POSITIVE, default=100_000, show_default=True, help="Custom objects to create, half of them of one kind."
)
@common_options
def custom_row(settings: Settings, definitions: int, objects: int, apiservers: int, **shared: Any) -> None:
    """Many definitions and custom objects: creates, lists, watches, memory, restarts, and a get of another user meanwhile."""
    spec = ClusterSpec(nodes=0, kubelets=0, schedulers=0, apiservers=apiservers, controllers=1, gateways=1)
    row = BenchRow("custom", spec, {"definitions": definitions, "objects": objects}, unit="objects/s")
    measure_row(settings, row, lambda bench, steps: measure_custom(bench, definitions, objects, steps), **shared)


ROWS = (
    throughput_row, create_row, backlog_row, failover_row, watch_row, crowd_row, flood_row, gateway_row, services_row,
    node_loss_row, scale_row, controllers_row, custom_row
)  # fmt: skip
for command in ROWS:
    bench.add_command(command)


def check_pods_fit(pods: int, nodes: int) -> None:
    """Raise Failure if the nodes do not have room for the pods."""
    if pods > nodes * load.PODS_PER_NODE:
        raise usage_failure(
            f"{pods:,} pods do not fit on {nodes:,} nodes: each takes {load.PODS_PER_NODE}",
            hint=f"use --nodes {-(-pods // load.PODS_PER_NODE)} or more",
        )


def measure_row(settings: Settings, row: BenchRow, body: Measure, *, runs: int, output: str, save: str | None) -> None:
    """Run a row, print the result, and save it. The exit code is 10 if a pod was lost or bound twice."""
    with running.translate_cluster_errors(), Steps(settings) as steps:
        result = running.run_coroutine(_execute_runs(row, body, runs, steps), hangup=True)
    spec = row.spec
    options = row.options | {"schedulers": spec.schedulers, "apiservers": spec.apiservers, "etcd members": spec.etcd_members}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    report = BenchReport(row.name, row.unit, row.headline, options, result, describe_machine(), date)
    if save:
        _append_report(report, Path(save))
    if output == "json":
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        running.create_console(settings).print(report.render())
    if wrong := [f"{name.replace('_', ' ')}: {count}" for name, count in report.violations.items() if count]:
        raise Failure(f"invariants violated: {', '.join(wrong)}", code=ExitCode.VERDICT)


async def _execute_runs(row: BenchRow, body: Measure, runs: int, steps: Steps) -> list[BenchRun]:
    result = []
    for number in range(1, runs + 1):
        if runs > 1:
            steps.line(f"run {number} of {runs}")
        async with calibrated_cluster(row.spec, steps, linked=row.linked, flags=row.flags) as bench:
            steps.waiting(f"the measurement: {row.name}")
            result.append(await body(bench, steps))
    return result


def _append_report(report: BenchReport, path: Path) -> None:
    """Append the report to the file as a line. Raises Failure if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(report.to_json()) + "\n")
    except OSError as error:
        raise Failure(
            f"cannot write the result to {path}: {error.strerror}", hint="choose another file with --save FILE"
        ) from error
