"""The verbs `node` and `pod`: add virtual nodes to a fleet, and inject failures of nodes and containers.

The kubelet fleet in the label `pinnace.io/fleet` runs the node. Until the fleet holds the lease of the node and has made it
Ready, the not-ready taint of the API server keeps pods away. Failures are annotations that the fleet obeys (kubelet/node.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

import click

from pinnace.api.core_v1_pb2 import ContainerStatus, Node, Pod
from pinnace.api.machines import MachineShape
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resources import NODES, PODS
from pinnace.api.wellknown import CRASH_ANNOTATION, FAULT_ANNOTATION, FLEET_LABEL, PRESSURE_ANNOTATION, REGION_LABEL, ZONE_LABEL
from pinnace.cli.changes import Change, change_all
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import format_reference
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_result
from pinnace.client.errors import error_of
from pinnace.client.flags import NodeShapeOptions
from pinnace.client.flags import machine_options as machine_options

BATCH = 200
"""Nodes per batch."""
MOST = 100_000
SHORTAGES = ("memory", "disk", "pid")


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A positive Kubernetes quantity, as text."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if parse(value) <= 0:
                self.fail(f'"{value}" is not more than 0', param, ctx)
        except QuantityError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Shortage(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A shortage of a node: "memory", or "memory=4Gi"."""

    name = "kind[=amount]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, equals, text = str(value).partition("=")
        if kind not in SHORTAGES:
            self.fail(f'"{kind}" is none of {", ".join(SHORTAGES)}', param, ctx)
        return f"{kind}={Quantity().convert(text, param, ctx)}" if equals else kind


@click.group("node", cls=VerbGroup)
def node() -> None:
    """Add virtual nodes, or inject node failures."""


@verb(
    "add",
    examples="""
        pinnace node add --count 1000                   # of 4 CPUs and 32Gi each
        pinnace node add --cpu 64 --memory 256Gi --prefix big- --labels disk=ssd --taints dedicated=db:NoSchedule
        pinnace node add --machines shapes.yaml         # nodes of different shapes
    """,
)
@click.option(
    "--count", type=click.IntRange(1, MOST), help="Number of nodes.  [default: 1, or the sum of the counts in --machines]"
)
@machine_options
@click.option("--prefix", default="node-", show_default=True, help="The prefix of the names, followed by a number.")
@click.option("--fleet", metavar="NAME", help="The kubelet fleet that runs the nodes. Required if there are several fleets.")
def add(settings: Settings, count: int | None, machines: NodeShapeOptions, prefix: str, fleet: str | None) -> None:
    """Add virtual nodes, which a kubelet fleet simulates.

    A node becomes Ready once the fleet has acquired it. The fleet sets the labels that every node has, such as
    kubernetes.io/hostname. It also sets zone and region unless --zones is given.
    """
    if machines.options.zones == "0":
        raise click.BadParameter("the fleet gives every node a zone, unless it has none itself", param_hint="--zones")
    wanted = machines.shapes.count or 1 if count is None else count
    run_session(settings, lambda session: add_nodes(session, wanted, prefix, fleet, machines))


async def add_nodes(session: CommandSession, count: int, prefix: str, fleet: str | None, machines: NodeShapeOptions) -> None:
    session.wait_for_each(count)
    existing = (await session.client.nodes.list()).items
    owner = find_fleet(existing, fleet)
    names = list(islice(generate_free_names((node.metadata.name for node in existing), prefix), count))
    zoned = bool(machines.options.zones or machines.options.machines)
    with session.progress("adding nodes", count) as advance:
        for start in range(0, count, BATCH):
            batch = names[start : start + BATCH]
            numbered = enumerate(batch, start)
            made = [build_node(name, owner, machines.shapes.shape_of_node(number), zoned=zoned) for number, name in numbered]
            outcomes = await session.client.nodes.create_batch(made)
            for name, outcome in zip(batch, outcomes, strict=True):
                if (error := error_of(outcome)) is not None:
                    session.report_failure(error)
                else:
                    print_result(f"{format_reference(NODES, name)} created\n")
            advance(len(batch))


@verb("fail", examples="pinnace node fail node-0        # until: pinnace node recover node-0")
@arguments.nodes
@arguments.selector
def fail(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Make virtual nodes fail, as if their machines had lost power.

    The nodes stop sending heartbeats and their containers die. The controllers then mark the nodes NotReady and replace the
    pods.
    """
    change_all(settings, NODES, nodes, selector, build_failure_change("failed"))


@verb("freeze", examples="pinnace node freeze -l zone=a   # until: pinnace node recover -l zone=a")
@arguments.nodes
@arguments.selector
def freeze(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Disconnect virtual nodes, as if their network had failed.

    The nodes send no heartbeats and receive no updates, but their containers keep running.
    """
    change_all(settings, NODES, nodes, selector, build_failure_change("frozen"))


@verb("recover", examples="pinnace node recover node-0 node-1")
@arguments.nodes
@arguments.selector
def recover(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Undo fail, freeze and pressure.

    Pods that were deleted in the meantime are stopped. The other pods of a failed node are restarted.
    """
    change_all(settings, NODES, nodes, selector, remove_failures)


@verb(
    "pressure",
    examples="""
        pinnace node pressure node-0                  # MemoryPressure
        pinnace node pressure node-0 --of memory=20Gi # with 20Gi used besides the pods
        pinnace node pressure node-0 --of disk --of pid
    """,
)
@arguments.nodes
@arguments.selector
@click.option(
    "--of",
    "kinds",
    type=Shortage(),
    multiple=True,
    default=("memory",),
    show_default=True,
    help="memory, disk or pid, and the amount used besides the pods. May be repeated.",
)
def pressure(settings: Settings, nodes: tuple[str, ...], selector: str, kinds: tuple[str, ...]) -> None:
    """Simulate a shortage of memory, disk or process IDs on virtual nodes.

    The nodes report the condition, refuse the pods that it concerns, and evict pods one by one until the rest fits beside
    AMOUNT. Without an AMOUNT, they evict pods until `pinnace node recover`.
    """
    change_all(settings, NODES, nodes, selector, build_pressure_change(kinds))


node.add_command(add)
node.add_command(fail)
node.add_command(freeze)
node.add_command(recover)
node.add_command(pressure)


@click.group("pod", cls=VerbGroup)
def pod() -> None:
    """Make pods crash."""


@verb(
    "crash",
    examples="""
        pinnace pod crash web-0
        pinnace pod crash web-0 -c app --exit-code 137
        pinnace pod crash -l app=web
    """,
)
@arguments.pods
@arguments.selector
@click.option(
    "-c", "--container", default="", metavar="NAME", help="Crash only this container.  [default: all running containers]"
)
@click.option("--exit-code", type=click.IntRange(0, 255), default=1, show_default=True, help="The exit code of the containers.")
def crash(settings: Settings, pods: tuple[str, ...], selector: str, container: str, exit_code: int) -> None:
    """Crash the containers of pods once.

    The restart policy of the pod decides what happens next. Containers that are real processes are killed and have exit code
    137.
    """
    change_all(settings, PODS, pods, selector, build_crash_change(container, exit_code))


pod.add_command(crash)


def find_fleet(nodes: Iterable[Node], wanted: str | None) -> str:
    """Return the fleet of new nodes: the given one, or the only one with nodes. Raises Failure."""
    fleets = sorted({node.metadata.labels[FLEET_LABEL] for node in nodes if FLEET_LABEL in node.metadata.labels})
    if wanted is not None:
        return wanted
    if not fleets:
        raise Failure("no node belongs to a fleet yet", hint="name the kubelet's fleet with --fleet", code=ExitCode.NOT_FOUND)
    if len(fleets) > 1:
        raise Failure(f"there are {len(fleets)} fleets: {', '.join(fleets)}", hint="choose with --fleet", code=ExitCode.USAGE)
    return fleets[0]


def generate_free_names(taken: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield the names after the highest existing number: node-10, node-11, ..."""
    numbers = [int(rest) for name in taken if name.startswith(prefix) and (rest := name.removeprefix(prefix)).isdecimal()]
    return (f"{prefix}{number}" for number in count(max(numbers, default=-1) + 1))


def build_node(name: str, fleet: str, shape: MachineShape, *, zoned: bool = False) -> Node:
    """Return a new node. `zoned`: in a zone of the shape; otherwise the fleet sets the zone."""
    node = Node()
    node.metadata.name = name
    node.metadata.labels.update(shape.labels)
    node.metadata.labels[FLEET_LABEL] = fleet
    if zoned:
        own = shape.default_labels(name, shape.resources)
        node.metadata.labels.update((key, own[key]) for key in (ZONE_LABEL, REGION_LABEL) if key in own)
    node.spec.taints.extend(shape.taints)
    for resource, amount in shape.resources.items():
        node.status.capacity[resource].string = amount
        node.status.allocatable[resource].string = amount
    return node


def build_failure_change(fault: str) -> Change:
    """Return a change that makes a node fail. `fault`: "failed" or "frozen"."""

    def change(node: Node) -> str:
        _check_has_fleet(node)
        if node.metadata.annotations.get(FAULT_ANNOTATION) == fault:
            return f"already {fault}"
        node.metadata.annotations[FAULT_ANNOTATION] = fault
        return fault

    return change


def build_pressure_change(kinds: Sequence[str]) -> Change:
    """Return a change that simulates shortages. `kinds`: such as "memory=4Gi", "pid"."""
    value = ",".join(kinds)

    def change(node: Node) -> str:
        _check_has_fleet(node)
        node.metadata.annotations[PRESSURE_ANNOTATION] = value
        return f"under pressure: {value}"

    return change


def remove_failures(node: Node) -> str:
    annotations = node.metadata.annotations
    keys = [key for key in (FAULT_ANNOTATION, PRESSURE_ANNOTATION) if key in annotations]
    for key in keys:
        del annotations[key]
    return "recovered" if keys else "has nothing to recover from"


def build_crash_change(container: str, code: int) -> Change:
    """Return a change that crashes containers. `container`: its name; empty: all running containers."""

    def change(pod: Pod) -> str:
        running = [
            status for status in _container_statuses(pod) if status.state.HasField("running") and container in ("", status.name)
        ]
        if not running:
            raise Failure(f"its container {container} does not run" if container else "none of its containers runs")
        for container_status in running:
            pod.metadata.annotations[CRASH_ANNOTATION + container_status.name] = f"{container_status.restartCount} {code}"
        return f"crashed: {', '.join(container_status.name for container_status in running)}"

    return change


def _container_statuses(pod: Pod) -> Sequence[ContainerStatus]:
    return (*pod.status.initContainerStatuses, *pod.status.containerStatuses)


def _check_has_fleet(node: Node) -> None:
    """Raise Failure for a node that no fleet runs."""
    if FLEET_LABEL not in node.metadata.labels:
        raise Failure("no fleet plays it", hint="only virtual nodes can be told to fail: those of `pinnace node add`")
