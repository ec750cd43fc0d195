"""What nodes and pods use, as tables in kubectl's form. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import ceil
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.metrics_v1beta1_pb2 import NodeMetrics, PodMetrics
from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.cli.terminal.table import Table

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
        """Millicores, rounded up, and mebibytes."""
        return f"{ceil(self.cpu * 1000)}m", f"{self.memory // _MI:f}Mi"

    def share(self, of: "Used") -> tuple[str, str]:
        """In percent; unknown of what has none."""
        pairs = ((self.cpu, of.cpu), (self.memory, of.memory))
        cpu, memory = (f"{part * 100 // whole:f}%" if whole else UNKNOWN for part, whole in pairs)
        return cpu, memory


class Row(NamedTuple):
    names: tuple[str, ...]
    used: Used


def used(amounts: Mapping[str, Quantity]) -> Used:
    return Used(_amount(amounts, "cpu"), _amount(amounts, "memory"))


def total(each: Iterable[Used]) -> Used:
    """Exactly; what is shown is rounded."""
    cpu, memory = Decimal(0), Decimal(0)
    for one in each:
        cpu, memory = cpu + one.cpu, memory + one.memory
    return Used(cpu, memory)


def of_nodes(nodes: Sequence[Node], metrics: Iterable[NodeMetrics], by: str, *, capacity: bool, headers: bool) -> str:
    """All nodes, those that are not measured last. `by`: see `ordered`. `capacity`: percentages are of that, and not of what
    pods may have of it."""
    known = {each.metadata.name: used(each.usage) for each in metrics}
    has = {node.metadata.name: used(node.status.capacity if capacity else node.status.allocatable) for node in nodes}
    measured = [Row((name,), known[name]) for name in has if name in known]
    lines: list[tuple[str, ...]] = []
    for (name,), uses in ordered(measured, by):
        (cpu, memory), (of_cpu, of_memory) = uses.cells, uses.share(has[name])
        lines.append((name, cpu, of_cpu, memory, of_memory))
    lines += [(name, *[UNKNOWN] * 4) for name in sorted(has.keys() - known.keys())]
    return Table(("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"), show_headers=headers).render(lines)


def of_pods(metrics: Iterable[PodMetrics], by: str, *, namespaces: bool, containers: bool, summed: bool, headers: bool) -> str:
    """`namespaces`, `containers`: whether there is a column of these; those of a pod are together. `summed`: with a line of
    what all use."""
    pods: list[Row] = []
    inside: dict[tuple[str, ...], list[Row]] = {}
    for pod in metrics:
        metadata = pod.metadata
        names = (metadata.namespace, metadata.name) if namespaces else (metadata.name,)
        inside[names] = [Row((*names, each.name), used(each.usage)) for each in pod.containers]
        pods.append(Row(names, total(each.used for each in inside[names])))
    pods = ordered(pods, by)
    rows = [row for pod in pods for row in ordered(inside[pod.names], by)] if containers else pods
    head = (*(("NAMESPACE",) if namespaces else ()), *(("POD", "NAME") if containers else ("NAME",)))
    lines = [(*names, *uses.cells) for names, uses in rows]
    if summed:
        nothing = [""] * len(head)
        lines += [(*nothing, _LINE, _LINE), (*nothing, *total(row.used for row in rows).cells)]
    return Table((*head, "CPU(cores)", "MEMORY(bytes)"), show_headers=headers).render(lines)


def ordered(rows: Iterable[Row], by: str) -> list[Row]:
    """By name; or by what is used, "cpu" or "memory", the most first."""
    named = sorted(rows, key=lambda row: row.names)
    return sorted(named, key=lambda row: getattr(row.used, by), reverse=True) if by else named


def _amount(amounts: Mapping[str, Quantity], resource: str) -> Decimal:
    try:
        return parse(amounts[resource].string) if resource in amounts else Decimal(0)
    except QuantityError:  # from a server that speaks otherwise
        return Decimal(0)
