"""The verb `top`: resource usage of nodes and pods, in kubectl's layout."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import ceil
from typing import NamedTuple

import click

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.metrics_v1beta1_pb2 import NodeMetrics, PodMetrics
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import NODES, PODS
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.arguments import targets_of
from pinnace.cli.objects.query import Query, fetch, reference
from pinnace.cli.outcomes import Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, err, out


@verb(
    "top",
    examples="""
        pinnace top nodes
        pinnace top pods -A --sort-by cpu
        pinnace top pod web-1 --containers
        pinnace top pods -l app=web --sum
    """,
)
@click.argument("what", nargs=-1, metavar="KIND [NAME...] | KIND/NAME...", shell_complete=targets_of(NODES, PODS))
@arguments.all_namespaces
@arguments.selector
@arguments.field_selector
@click.option("--sort-by", type=click.Choice(["cpu", "memory"]), help="Sort by usage, largest first.")
@click.option("--containers", is_flag=True, help="Print the usage of containers within a pod.")
@click.option("--sum", "summed", is_flag=True, help="Print the sum of the resource usage.")
@click.option("--show-capacity", is_flag=True, help="Print node resources based on capacity instead of allocatable.")
@click.option("--no-headers", is_flag=True, help="Do not print headers.")
def top(
    settings: Settings,
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    sort_by: str | None,
    containers: bool,
    summed: bool,
    show_capacity: bool,
    no_headers: bool,
) -> None:
    """Show the CPU and memory usage of nodes or pods.

    With the process runtime, kubelets measure usage on request. CPU usage is the average since the previous request.
    The usage of simulated containers is taken from the pod annotations pinnace.io/cpu-usage and pinnace.io/memory-usage, or
    equals their resource requests.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector)
    if len(query.targets) > 1 or query.targets[0].resource not in (NODES, PODS):
        raise usage("you must specify nodes or pods", hint="`pinnace top nodes`, or `pinnace top pods`")
    by, headers = sort_by or "", not no_headers
    if query.targets[0].resource is PODS:
        if show_capacity:
            raise usage("--show-capacity is for nodes", hint="`pinnace top nodes --show-capacity`")
        run(settings, lambda session: _pods(session, query, by, containers=containers, summed=summed, headers=headers))
        return
    if containers or summed:
        raise usage("--containers and --sum are for pods", hint="`pinnace top pods --containers`")
    run(settings, lambda session: _nodes(session, query, by, capacity=show_capacity, headers=headers))


async def _nodes(session: Session, query: Query, by: str, *, capacity: bool, headers: bool) -> None:
    (target,) = query.targets
    chosen = query.selection(target, session)
    found, metrics = await asyncio.gather(
        fetch(session, query, target), session.client.usage.nodes(labels=chosen.labels, fields=chosen.fields)
    )
    _warn(metrics.warnings)
    if nodes := [each for each in found if isinstance(each, Node)]:
        out(of_nodes(nodes, metrics.items, by, capacity=capacity, headers=headers))
    elif not target.names:
        err("No resources found.")


async def _pods(session: Session, query: Query, by: str, *, containers: bool, summed: bool, headers: bool) -> None:
    (target,) = query.targets
    chosen = query.selection(target, session)
    metrics = await session.client.usage.pods(chosen.namespace, labels=chosen.labels, fields=chosen.fields)
    _warn(metrics.warnings)
    if metrics.items:
        everywhere = query.all_namespaces
        out(of_pods(
            metrics.items, by, namespaces=everywhere, containers=containers, summed=summed, headers=headers
        ))  # fmt: skip
    elif not target.names:
        err(f"No running pods found{f' in {chosen.namespace} namespace' if chosen.namespace else ''}.")
    measured = {each.metadata.name for each in metrics.items}
    if target.names and measured != set(target.names):
        for pod in await fetch(session, query, target):
            if isinstance(pod, Pod) and pod.metadata.name not in measured:
                session.failed(_unmeasured(pod))


def _unmeasured(pod: Pod) -> Failure:
    named = reference(PODS, pod.metadata.name)
    if pod.status.phase == "Running":
        return Failure(
            f"metrics not available for {named}", hint="its kubelet does not respond, or none of its containers is running"
        )
    return Failure(
        f"metrics not available for {named}: it is {pod.status.phase}", hint=f"`pinnace describe {named}` shows the reason"
    )


def _warn(warnings: Iterable[str]) -> None:
    for each in warnings:
        err(f"Warning: {each}")


UNKNOWN = "<unknown>"
_MI = 1 << 20
_LINE = "________"


class Used(NamedTuple):
    cpu: Decimal = Decimal(0)
    """Cores."""
    memory: Decimal = Decimal(0)
    """Bytes."""

    @property
    def cells(self) -> tuple[str, str]:
        """CPU usage in millicores, rounded up, and memory usage in mebibytes."""
        return f"{ceil(self.cpu * 1000)}m", f"{self.memory // _MI:f}Mi"

    def share(self, of: "Used") -> tuple[str, str]:
        """The percentage of another amount; unknown if that is zero."""
        pairs = ((self.cpu, of.cpu), (self.memory, of.memory))
        cpu, memory = (f"{part * 100 // whole:f}%" if whole else UNKNOWN for part, whole in pairs)
        return cpu, memory


class Row(NamedTuple):
    names: tuple[str, ...]
    used: Used


def used(amounts: Mapping[str, Quantity]) -> Used:
    return Used(_amount(amounts, "cpu"), _amount(amounts, "memory"))


def total(each: Iterable[Used]) -> Used:
    """Return the exact sum, before rounding."""
    cpu, memory = Decimal(0), Decimal(0)
    for one in each:
        cpu, memory = cpu + one.cpu, memory + one.memory
    return Used(cpu, memory)


def of_nodes(nodes: Sequence[Node], metrics: Iterable[NodeMetrics], by: str, *, capacity: bool, headers: bool) -> str:
    """Return the table of all nodes, with unmeasured nodes last. `by` is described at `sorted_rows`. `capacity`: percentages
    are of the capacity instead of the allocatable amounts."""
    known = {each.metadata.name: used(each.usage) for each in metrics}
    has = {node.metadata.name: used(node.status.capacity if capacity else node.status.allocatable) for node in nodes}
    measured = [Row((name,), known[name]) for name in has if name in known]
    lines: list[tuple[str, ...]] = []
    for (name,), uses in sorted_rows(measured, by):
        (cpu, memory), (of_cpu, of_memory) = uses.cells, uses.share(has[name])
        lines.append((name, cpu, of_cpu, memory, of_memory))
    lines += [(name, *[UNKNOWN] * 4) for name in sorted(has.keys() - known.keys())]
    return Table(("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"), show_headers=headers).render(lines)


def of_pods(metrics: Iterable[PodMetrics], by: str, *, namespaces: bool, containers: bool, summed: bool, headers: bool) -> str:
    """Return the table of pods. `namespaces` and `containers` add these columns; containers of a pod are adjacent. `summed`
    adds a line with the total."""
    pods: list[Row] = []
    inside: dict[tuple[str, ...], list[Row]] = {}
    for pod in metrics:
        metadata = pod.metadata
        names = (metadata.namespace, metadata.name) if namespaces else (metadata.name,)
        inside[names] = [Row((*names, each.name), used(each.usage)) for each in pod.containers]
        pods.append(Row(names, total(each.used for each in inside[names])))
    pods = sorted_rows(pods, by)
    rows = [row for pod in pods for row in sorted_rows(inside[pod.names], by)] if containers else pods
    head = (*(("NAMESPACE",) if namespaces else ()), *(("POD", "NAME") if containers else ("NAME",)))
    lines = [(*names, *uses.cells) for names, uses in rows]
    if summed:
        nothing = [""] * len(head)
        lines += [(*nothing, _LINE, _LINE), (*nothing, *total(row.used for row in rows).cells)]
    return Table((*head, "CPU(cores)", "MEMORY(bytes)"), show_headers=headers).render(lines)


def sorted_rows(rows: Iterable[Row], by: str) -> list[Row]:
    """Sort by name, or by usage of "cpu" or "memory" in descending order."""
    named = sorted(rows, key=lambda row: row.names)
    return sorted(named, key=lambda row: getattr(row.used, by), reverse=True) if by else named


def _amount(amounts: Mapping[str, Quantity], resource: str) -> Decimal:
    try:
        return parse(amounts[resource].string) if resource in amounts else Decimal(0)
    except QuantityError:  # not from an API server of this version
        return Decimal(0)
