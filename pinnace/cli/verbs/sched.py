"""`pinnace sched`: the queue and the cache of the leading scheduler."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from pinnace.api.records import CacheDump, NodeRoom, QueueDump, QueuePlace, to_json
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import clusters, running
from pinnace.cli.local.schedulers import ask_scheduler
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_result
from pinnace.printers.columns import human_duration

SHOWN = ("pods", "cpu", "memory")

http_option = click.option("--http", default="", metavar="HOST:PORT", help="The --http address of a scheduler.")
output_option = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="The output format.")


@click.group("sched", cls=VerbGroup)
def sched() -> None:
    """Show the queue or the cache of the leading scheduler.

    By default this is the scheduler that leads the local cluster. --http selects another one.
    """


@verb(
    "queue",
    examples="""
        pinnace sched queue
        pinnace sched queue --http 127.0.0.1:7481 -o json | jq .counts
    """,
)
@http_option
@clusters.data_dir_option
@output_option
def queue(settings: Settings, http: str, data_dir: Path | None, output: str) -> None:
    """Show the pods in the scheduling queue: the sub-queue, the number of attempts, and what each pod waits for."""
    with running.translate_cluster_errors():
        queue_dump = ask_scheduler(QueueDump, http, clusters.present_data_dir(settings, data_dir))
    print_result(
        json.dumps(to_json(queue_dump), indent=2) + "\n"
        if output == "json"
        else "".join(f"{line}\n" for line in queue_lines(queue_dump))
    )


@verb(
    "dump",
    examples="""
        pinnace sched dump
        pinnace sched dump -o json | jq .differences
    """,
)
@http_option
@clusters.data_dir_option
@output_option
def dump(settings: Settings, http: str, data_dir: Path | None, output: str) -> None:
    """Dump the scheduler's cache: nodes with their free resources, and assumed pods. Compares the cache with the informers.

    `kill -USR2` makes a scheduler write its cache and its queue to its log.
    """
    with running.translate_cluster_errors():
        cache_dump = ask_scheduler(CacheDump, http, clusters.present_data_dir(settings, data_dir))
    print_result(
        json.dumps(to_json(cache_dump), indent=2) + "\n"
        if output == "json"
        else "".join(f"{line}\n" for line in cache_lines(cache_dump))
    )


sched.add_command(queue)
sched.add_command(dump)


def queue_lines(found: QueueDump) -> Iterator[str]:
    counts, permit = found.counts, found.permit
    told = [place for place in QueuePlace if place is not QueuePlace.IN_FLIGHT or place in counts]
    numbers = ", ".join(f"{counts.get(place, 0)} {place}" for place in told)
    yield f"{found.name}: {numbers}, {permit.number} wait in Permit"
    rows = [
        (
            queued.pod,
            place.value,
            str(queued.priority),
            str(queued.attempts),
            human_duration(queued.seconds),
            f"{queued.backoff:g}s" if queued.backoff is not None else "",
            ", ".join(queued.refused_by),
        )
        for place in QueuePlace
        for queued in found.places.get(place, ())
    ]
    rows += [(waiting.pod, f"permit on {waiting.node}", "", "", "", "", ", ".join(waiting.plugins)) for waiting in permit.first]
    if rows:
        yield from Table(["POD", "PLACE", "PRIORITY", "ATTEMPTS", "SINCE", "BACKOFF", "WAITS FOR"]).render(rows).splitlines()
    yield from _format_omitted(sum(counts.values()) + permit.number - len(rows))


def cache_lines(found: CacheDump) -> Iterator[str]:
    nodes, assumed, differences = found.nodes, found.assumed, found.differences
    yield f"{found.name}: {nodes.number} nodes, {found.pods} pods on them, {assumed.number} of these assumed"
    yield "The cache and the informers agree." if not differences.number else f"{differences.number} differences:"
    yield from (f"  {difference}" for difference in differences.first)
    yield from _format_omitted(differences.number - len(differences.first))
    if assumed.first:
        yield from (Table(["ASSUMED POD", "NODE"]).render([(item.pod, item.node) for item in assumed.first]).splitlines())
        yield from _format_omitted(assumed.number - len(assumed.first))
    if nodes.first:
        rows = [(node_room.node, *(_format_free(node_room, resource) for resource in SHOWN)) for node_room in nodes.first]
        yield from Table(["NODE", *(f"FREE {resource.upper()}" for resource in SHOWN)]).render(rows).splitlines()
        yield from _format_omitted(nodes.number - len(nodes.first))


def _format_free(node: NodeRoom, resource: str) -> str:
    """Format free resources: "3500m of 4"."""
    return f"{node.free[resource]} of {node.allocatable[resource]}" if resource in node.free else ""


def _format_omitted(number: int) -> Iterator[str]:
    if number > 0:
        yield f"... and {number} more"
