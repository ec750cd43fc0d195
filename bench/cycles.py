"""What one decision costs, by the number of nodes and by the number of pods that they hold; and what the cache of both weighs.

    python -m bench.cycles [--plot cycles.svg]      (the plot needs `pip install -e .[plots]`)

No cluster is needed: nodes and pods are put into the scheduler's cache, and its own cycle decides, with the default profile. So
this is the scheduler's part of the work alone; `pinnace bench backlog` measures all of it.
"""

import gc
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.wellknown import ZONE_LABEL
from pinnace.runtime.process import GC_THRESHOLDS
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import Configuration, build_frameworks
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
from pinnace.verification.bench.load import NODE_CPU, Shape, build_pod
from pinnace.verification.bench.report import describe_machine
from pinnace.verification.bench.workloads import AFFINE, MEASURED, MOONS, PREFER_ANTI_AFFINE, SPREAD

NODES = (100, 300, 1000, 3000, 5000, 15000)
HELD_PER_NODE = 4
PODS = (1000, 5000, 10000, 50000, 150000)
BESIDE = 5000
"""Nodes that hold PODS."""
ROUNDS, DECISIONS = 5, 40
"""A figure is the median of so many rounds of so many decisions."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods to decide about. `alike`: what was found out about the last is used for the next, as the scheduler does."""

    name: str
    shape: Shape
    alike: bool = True


KINDS = (
    Kind("plain", build_pod),
    Kind("plain, each the first of its kind", build_pod, alike=False),
    Kind("even over three zones", SPREAD),
    Kind("with others of its kind in one zone", AFFINE),
    Kind("rather not beside its kind", PREFER_ANTI_AFFINE),
)


@dataclass(frozen=True, slots=True)
class Point:
    """`microseconds` of CPU for a decision, the assumption included."""

    kind: str
    nodes: int
    held: int
    microseconds: float


def filled(nodes: int, held: int, shape: Shape) -> Cache:
    """So many pods of a shape, dealt out to so many nodes in three zones."""
    cache = Cache()
    for i in range(nodes):
        node = Node()
        node.metadata.name = f"node-{i}"
        node.metadata.labels.update({"kubernetes.io/hostname": node.metadata.name, ZONE_LABEL: MOONS[i % len(MOONS)]})
        for name, amount in (("cpu", f"{NODE_CPU}m"), ("memory", "32Gi"), ("pods", "110")):
            node.status.capacity[name].string = node.status.allocatable[name].string = amount
        cache.set_node(node)
    for i in range(held):
        cache.add_pod(_named(shape, f"held-{i}"), f"node-{i % nodes}")
    return cache


def cost(kind: Kind, nodes: int, held: int, framework: Framework) -> Point:
    """Raises AssertionError when a pod finds no node."""
    cache = filled(nodes, held, kind.shape)
    selector = NodeSelector(cache, framework, 0, EquivalenceCache(cache.nodes) if kind.alike else None)
    rounds = []
    for turn in range(ROUNDS + 1):
        pods = [_named(kind.shape, f"new-{turn}-{i}") for i in range(DECISIONS)]
        began = time.process_time()
        outcomes = [schedule_one(item, selector) for item in pods]
        rounds.append((time.process_time() - began) / DECISIONS)
        assert all(isinstance(outcome, Placed) for outcome in outcomes), outcomes
    return Point(kind.name, nodes, held, median(rounds[1:]) * 1e6)  # the first warms up


def peak(nodes: int, held: int) -> float:
    """Megabytes of a process that fills a cache with default pods: one of its own, so that nothing was there before."""
    if child := os.fork():
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        return usage.ru_maxrss / 1024
    cache = filled(nodes, held, build_pod)
    os._exit(0 if len(cache) == held else 1)


def _named(shape: Shape, name: str) -> PodInfo:
    made = shape(name)
    made.metadata.uid, made.metadata.namespace = name, MEASURED
    return PodInfo(made)


def draw(panels: Mapping[str, Sequence[tuple[int, Point]]], file: Path) -> None:
    """One panel for each axis; both axes are logarithmic. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]  # the extra `plots`

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes: Any = figure.subplots(1, len(panels), sharey=True)
    for panel, (title, points) in zip(axes, panels.items(), strict=True):
        for kind in KINDS:
            line = [(x, point.microseconds) for x, point in points if point.kind == kind.name]
            panel.loglog(*zip(*line, strict=True), marker="o", label=kind.name)
        panel.set_xlabel(title)
        panel.grid(visible=True, which="both", alpha=0.3)
    axes[0].set_ylabel("microseconds of CPU a decision")
    axes[0].legend(fontsize="small")
    figure.savefig(file)


@click.command()
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw it there; as JSON beside it, too.")
def main(plot: Path | None) -> None:
    """Measures what one decision costs."""
    weight = peak(BESIDE, max(PODS)) - peak(0, 0)
    gc.set_threshold(*GC_THRESHOLDS)
    (framework,) = build_frameworks(Configuration(), Offline()).values()
    by_nodes = [cost(kind, nodes, nodes * HELD_PER_NODE, framework) for kind in KINDS for nodes in NODES]
    by_pods = [cost(kind, BESIDE, held, framework) for kind in KINDS for held in PODS]
    table = Table("us of CPU a decision", title=f"{HELD_PER_NODE} pods on each node, or {BESIDE:,} nodes", title_justify="left")
    for heading in [f"{nodes:,} nodes" for nodes in NODES] + [f"{held:,} pods" for held in PODS]:
        table.add_column(heading, justify="right")
    for kind in KINDS:
        row = [point.microseconds for points in (by_nodes, by_pods) for point in points if point.kind == kind.name]
        table.add_row(kind.name, *(f"{figure:,.0f}" for figure in row))
    console = Console(width=200)
    console.print(table)
    console.print(f"{BESIDE:,} nodes and {max(PODS):,} pods weigh {weight:,.0f} MB in the scheduler's cache")
    if plot is not None:
        panels = {
            f"nodes, with {HELD_PER_NODE} pods each": [(point.nodes, point) for point in by_nodes],
            f"pods held, on {BESIDE:,} nodes": [(point.held, point) for point in by_pods],
        }
        draw(panels, plot)
        document = {
            "machine": asdict(describe_machine()),
            "cache_mb": weight,
            "points": [asdict(p) for p in by_nodes + by_pods],
        }
        plot.with_suffix(".json").write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
