"""Simulate one day with each scheduling policy of policies.yaml, and print figures for comparison.

    python -m examples.policies.compare [--nodes 300] [--seed 0] [--config FILE] [--labels price=1..10]

No cluster is needed: the program fills the scheduler's cache and calls its scheduling cycle. To test another policy, add a
profile to the file. If a plugin of a profile fails, the profile is missing in the table and named below it, and the exit code
is 1.
"""

import heapq
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from examples.policies.trace import HOURS, ZONES, Arrival, nodes, trace
from pinnace.api.core_v1_pb2 import Node
from pinnace.runtime.configuration import ConfigurationError
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import build_frameworks, read_configuration
from pinnace.scheduler.framework.plugin_errors import bounded_calls
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.framework.results import PluginError
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import AttemptFailed, Placed, schedule_one

PLUGIN_TIMEOUT = 5.0
"""Seconds after which a plugin call is interrupted. The profile then fails."""
LARGE = 8000
"""CPU request of a large pod, in millicores."""


@dataclass(slots=True)
class Day:
    """The results of one policy. Lists have one element per hour."""

    arrived: int = 0
    refused: int = 0
    used: list[float] = field(default_factory=list)
    """The fraction of nodes with pods."""
    full: list[float] = field(default_factory=list)
    """The requested fraction of these nodes' CPU."""
    uneven: list[float] = field(default_factory=list)
    """The standard deviation of the requested fraction of CPU over all nodes."""
    holes: list[float] = field(default_factory=list)
    """The number of additional pods of LARGE that fit, per node."""
    node_risk: float = 0.0
    """The mean fraction of a service's replicas on its fullest node, over services of at least three; 0 if there are none."""
    zone_risk: float = 0.0
    """The same for zones."""


def play(
    framework: Framework,
    machines: Sequence[Node],
    arrivals: Sequence[Arrival],
    seed: int,
    progress: Callable[[int], None] = lambda hour: None,
) -> Day:
    """Simulate the day. Calls `progress` after each hour. Raises PluginError."""
    cache, day = Cache(), Day()
    for node in machines:
        cache.set_node(node)
    selector = NodeSelector(cache, framework, seed, EquivalenceCache(cache.nodes))
    leaving: list[tuple[float, str]] = []
    where: dict[str, list[str]] = {}
    hour = 1
    for arrival in arrivals:
        while hour <= arrival.at:
            _remove_finished_pods(cache, leaving, hour)
            _record_utilization(cache, day)
            progress(hour)
            hour += 1
        _remove_finished_pods(cache, leaving, arrival.at)
        day.arrived += 1
        outcome = schedule_one(PodInfo(arrival.pod), selector)
        if isinstance(outcome, AttemptFailed):
            raise outcome.error
        if not isinstance(outcome, Placed):
            day.refused += 1
            continue
        heapq.heappush(leaving, (arrival.leaves, arrival.pod.metadata.uid))
        if arrival.leaves > HOURS:
            where.setdefault(arrival.group, []).append(outcome.node)
    zone = {node.metadata.name: node.metadata.labels["topology.kubernetes.io/zone"] for node in machines}
    services = [placed for placed in where.values() if len(placed) >= len(ZONES)]
    if services:
        day.node_risk = fmean(_largest_share(placed) for placed in services)
        day.zone_risk = fmean(_largest_share([zone[node] for node in placed]) for placed in services)
    return day


def _remove_finished_pods(cache: Cache, leaving: list[tuple[float, str]], now: float) -> None:
    while leaving and leaving[0][0] <= now:
        cache.remove_pod(heapq.heappop(leaving)[1])


def _record_utilization(cache: Cache, day: Day) -> None:
    capacity, free = cache.nodes.allocatable("cpu"), cache.nodes.free("cpu")
    used = cache.nodes.free("pods") < cache.nodes.allocatable("pods")
    day.used.append(float(used.mean()))
    day.full.append(float(1 - free[used].sum() / capacity[used].sum()) if used.any() else 0.0)
    day.uneven.append(float((1 - free / capacity).std()))
    day.holes.append(float(np.sum(free // LARGE) / len(free)))


def _largest_share(places: Sequence[str]) -> float:
    """The fraction in the most frequent place."""
    return max(Counter(places).values()) / len(places)


FIGURES: Mapping[str, Callable[[Day], str]] = {
    "pods refused": lambda day: f"{day.refused / day.arrived:.2%}",
    "nodes in use": lambda day: f"{fmean(day.used):.1%}",
    "requested CPU of these": lambda day: f"{fmean(day.full):.1%}",
    "std. deviation of CPU, all nodes": lambda day: f"{fmean(day.uneven):.3f}",
    f"room for more pods of {LARGE // 1000} CPUs": lambda day: f"{fmean(day.holes):.2f} a node",
    "replicas on the fullest node": lambda day: f"{day.node_risk:.1%}",
    "replicas in the fullest zone": lambda day: f"{day.zone_risk:.1%}",
}


def _labels(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, Sequence[str]]:
    result: dict[str, Sequence[str]] = {}
    for item in given:
        key, _, values = item.partition("=")
        if not key or not values:
            raise click.BadParameter(f"expected KEY=1..10 or KEY=a,b,c, got {item}")
        first, dots, last = values.partition("..")
        if dots and not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise click.BadParameter(f"expected a range such as 1..10, got {values}")
        result[key] = [str(number) for number in range(int(first), int(last) + 1)] if dots else values.split(",")
    return result


def _progress(name: str, hour: int) -> None:
    """Print the progress of a profile; on a terminal, in one line that is updated."""
    if sys.stderr.isatty():
        click.echo(f"\r{name}: hour {hour} of {HOURS:.0f} ", err=True, nl=False)
    elif hour == 1:
        click.echo(f"{name} ...", err=True)


@click.command()
@click.option("--nodes", "count", default=300, show_default=True, type=click.IntRange(min=9))
@click.option("--seed", default=0, show_default=True, help="Runs with equal seeds have the same day and the same placements.")
@click.option(
    "--config",
    default=Path(__file__).with_name("policies.yaml"),
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A KubeSchedulerConfiguration. Paths of plugins begin at its folder.",
)
@click.option(
    "--labels",
    multiple=True,
    callback=_labels,
    metavar="KEY=VALUES",
    help="A label of the nodes: price=1..10, or disk=ssd,hdd. Each node has a random one of the values. May be repeated.",
)
def main(count: int, seed: int, config: Path, labels: Mapping[str, Sequence[str]]) -> None:
    """Compare the profiles of a KubeSchedulerConfiguration."""
    machines = list(nodes(count, labels, seed))
    arrivals = trace(count, random.Random(seed))
    try:
        policies = build_frameworks(read_configuration(config), Offline())
    except ConfigurationError as error:
        raise click.ClickException(f"{config}: {error}") from error
    days: dict[str, Day] = {}
    failed: dict[str, PluginError] = {}
    for name, policy in policies.items():
        try:
            with bounded_calls(PLUGIN_TIMEOUT):
                days[name] = play(policy, machines, arrivals, seed, partial(_progress, name))
        except PluginError as error:
            failed[name] = error
        except KeyboardInterrupt:
            click.echo(f"\ninterrupted: {name} and later profiles are not compared", err=True)
            break
        if sys.stderr.isatty():
            click.echo("\r\033[K", err=True, nl=False)
    table = Table("", title=f"{len(arrivals):,} pods on {count:,} nodes, means over {HOURS:.0f} hours", title_justify="left")
    for name in days:
        table.add_column(name, justify="right")
    for figure, show in FIGURES.items():
        table.add_row(figure, *map(show, days.values()))
    if days:
        Console().print(table)
    for name, error in failed.items():
        click.echo(f"Error: profile {name}: {error}", err=True)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
