"""`pinnace top`: what nodes and pods use."""

import asyncio
from collections.abc import Iterable

import click

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES, PODS
from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.objects.arguments import targets_of
from pinnace.cli.objects.query import Query, fetch
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import Failure, usage
from pinnace.cli.output import consumption
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import err, out


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
@options.all_namespaces
@options.selector
@options.field_selector
@click.option("--sort-by", type=click.Choice(["cpu", "memory"]), help="Largest first.")
@click.option("--containers", is_flag=True, help="A line for each container of a pod.")
@click.option("--sum", "summed", is_flag=True, help="A last line with what all pods use.")
@click.option("--show-capacity", is_flag=True, help="Show percentages of the nodes' capacity instead of their allocatable.")
@click.option("--no-headers", is_flag=True, help="No line of column names.")
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
    """Show what nodes or pods use of CPU and memory.

    Kubelets measure the processes of the process runtime when they are asked: CPU since they were asked before. Pretended
    containers use what the annotations pinnace.io/cpu-usage and pinnace.io/memory-usage of their pods say, or else what they
    request.
    """
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector)
    if len(query.targets) > 1 or query.targets[0].resource not in (NODES, PODS):
        raise usage("either nodes or pods", hint="`pinnace top nodes`, or `pinnace top pods`")
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
        out(consumption.of_nodes(nodes, metrics.items, by, capacity=capacity, headers=headers))
    elif not target.names:
        err("No resources found.")


async def _pods(session: Session, query: Query, by: str, *, containers: bool, summed: bool, headers: bool) -> None:
    (target,) = query.targets
    chosen = query.selection(target, session)
    metrics = await session.client.usage.pods(chosen.namespace, labels=chosen.labels, fields=chosen.fields)
    _warn(metrics.warnings)
    if metrics.items:
        everywhere = query.all_namespaces
        out(consumption.of_pods(
            metrics.items, by, namespaces=everywhere, containers=containers, summed=summed, headers=headers
        ))  # fmt: skip
    elif not target.names:
        err(f"No pods run{f' in {chosen.namespace} namespace' if chosen.namespace else ''}.")
    measured = {each.metadata.name for each in metrics.items}
    if target.names and measured != set(target.names):
        for pod in await fetch(session, query, target):
            if isinstance(pod, Pod) and pod.metadata.name not in measured:
                session.failed(_unmeasured(pod))


def _unmeasured(pod: Pod) -> Failure:
    named = reference(PODS, pod.metadata.name)
    if pod.status.phase == "Running":
        return Failure(f"{named} is not measured", hint="its kubelet does not answer, or none of its containers runs now")
    return Failure(f"{named} uses nothing: it is {pod.status.phase}", hint=f"`pinnace describe {named}` says why")


def _warn(warnings: Iterable[str]) -> None:
    for each in warnings:
        err(f"Warning: {each}")
