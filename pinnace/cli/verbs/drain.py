"""`pinnace drain`: empties nodes."""

from typing import Any

import click

from pinnace.api.resources import NODES
from pinnace.api.selectors import parse_labels
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_one
from pinnace.cli.changes.draining import How
from pinnace.cli.changes.draining import drain as drain_node
from pinnace.cli.changes.nodes import marking
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, fetch
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.client.errors import ApiError

WAIT = 600.0
"""Seconds, unless --timeout says otherwise: budgets may make it wait for other pods."""


@verb(
    "drain",
    examples="""
        pinnace drain node-0
        pinnace drain node-0 --force --grace-period 5 --timeout 2m
        pinnace drain -l zone=a --pod-selector app=web
    """,
)
@arguments.nodes
@options.selector
@click.option("--pod-selector", default="", metavar="LABELS", help="Evict only pods with these labels.")
@click.option("--force", is_flag=True, help="Also pods without a controller: nobody makes them again.")
@click.option("--delete-emptydir-data", is_flag=True, help="Also pods with an emptyDir: what is in it is lost.")
@click.option(
    "--grace-period",
    type=click.IntRange(-1, options.MOST),
    default=-1,
    metavar="SECONDS",
    help="Time for each pod to stop; -1: the pod's own.",
)
@click.option("--ignore-daemonsets", is_flag=True, expose_value=False, help="Changes nothing: there are no DaemonSets.")
def drain(
    settings: Settings,
    nodes: tuple[str, ...],
    selector: str,
    pod_selector: str,
    force: bool,
    delete_emptydir_data: bool,
    grace_period: int,
) -> None:
    """Empty nodes, to take them away or to restart them.

    A node is cordoned first. Its pods are evicted as their disruption budgets allow; what is refused is asked for again, for
    ten minutes or --timeout. The command returns when they are gone.
    """
    if not nodes and not selector:
        raise usage("which node?", hint="name nodes, or select them with -l")
    parse_labels(pod_selector)
    how = How(force, delete_emptydir_data, grace_period if grace_period >= 0 else None, pod_selector)
    query = Query.of([NODES.plural, *(name.removeprefix("node/") for name in nodes)], labels=selector)
    run(settings, lambda session: drain_all(session, query, how))


async def drain_all(session: Session, query: Query, how: How) -> None:
    """All are cordoned before the first is emptied, so that no pod is moved twice; none, when one of them is not there."""
    session.wait_up_to(WAIT)
    client = session.client.of(NODES)
    found: list[Any] = list(await fetch(session, query, query.targets[0]))
    session.finish()
    if not found:
        raise query.unmatched()
    for node in found:
        said = await change_one(client, node, marking(unschedulable=True))
        out(f"{reference(NODES, node.metadata.name)} {said}\n")
    for node in found:
        try:
            await drain_node(session, node.metadata.name, how)
        except (Failure, ApiError) as error:
            session.failed(error)
