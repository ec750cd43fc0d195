"""`pinnace node`: adds virtual nodes to a fleet, lists nodes, and lets them fail."""

from itertools import islice
from typing import Any

import click

from pinnace.api.quantity import QuantityError, parse
from pinnace.api.resources import NODES
from pinnace.cli import options
from pinnace.cli.changes.faults import SHORTAGES, failing, pressing, recovering
from pinnace.cli.changes.nodes import change_nodes
from pinnace.cli.changes.virtual_nodes import fleet_of, free_names, new_node
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.objects.targets import reference
from pinnace.cli.output.formats import chosen
from pinnace.cli.output.showing import Style, show
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.client.errors import error_of
from pinnace.client.flags import Machines
from pinnace.client.flags import machines as machine_options
from pinnace.printers.columns import View

BATCH = 200
"""Nodes that are sent together."""
MOST = 100_000


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """A Kubernetes quantity of more than nothing, as text."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if parse(value) <= 0:
                self.fail(f'"{value}" is not more than 0', param, ctx)
        except QuantityError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Shortage(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """What a node is to be short of: "memory", or "memory=4Gi"."""

    name = "kind[=amount]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, equals, text = str(value).partition("=")
        if kind not in SHORTAGES:
            self.fail(f'"{kind}" is none of {", ".join(SHORTAGES)}', param, ctx)
        return f"{kind}={Quantity().convert(text, param, ctx)}" if equals else kind


@click.group("node", cls=VerbGroup)
def node() -> None:
    """Add virtual nodes to a fleet, list nodes, or make them fail."""


@verb(
    "add",
    examples="""
        pinnace node add --count 1000                   # of 4 CPUs and 32Gi each
        pinnace node add --cpu 64 --memory 256Gi --prefix big- --labels disk=ssd --taints dedicated=db:NoSchedule
        pinnace node add --machines shapes.yaml         # nodes that differ
    """,
)
@click.option("--count", type=click.IntRange(1, MOST), help="How many.  [default: 1, or as many as --machines counts]")
@machine_options
@click.option("--prefix", default="node-", show_default=True, help="Names are this followed by a number.")
@click.option("--fleet", metavar="NAME", help="The kubelet fleet that plays them; needed when there are several.")
def add(settings: Settings, count: int | None, machines: Machines, prefix: str, fleet: str | None) -> None:
    """Create virtual nodes, which a kubelet fleet then plays.

    They are Ready once the fleet has taken them over. Labels that every node has, such as kubernetes.io/hostname, are the
    fleet's to set, and so are zone and region unless --zones says otherwise.
    """
    if machines.options.zones == "0":
        raise click.BadParameter("the fleet gives every node a zone, unless it has none itself", param_hint="--zones")
    wanted = machines.shapes.count or 1 if count is None else count
    run(settings, lambda session: add_nodes(session, wanted, prefix, fleet, machines))


async def add_nodes(session: Session, count: int, prefix: str, fleet: str | None, machines: Machines) -> None:
    session.wait_for_each(count)
    existing = (await session.client.nodes.list()).items
    owner = fleet_of(existing, fleet)
    names = list(islice(free_names((node.metadata.name for node in existing), prefix), count))
    zoned = bool(machines.options.zones or machines.options.machines)
    with session.progress("adding nodes", count) as advance:
        for start in range(0, count, BATCH):
            batch = names[start : start + BATCH]
            numbered = enumerate(batch, start)
            made = [new_node(name, owner, machines.shapes.of(number), zoned=zoned) for number, name in numbered]
            outcomes = await session.client.nodes.create_batch(made)
            for name, outcome in zip(batch, outcomes, strict=True):
                if (error := error_of(outcome)) is not None:
                    session.failed(error)
                else:
                    out(f"{reference(NODES, name)} created\n")
            advance(len(batch))


@verb("list", examples="pinnace node list -o wide")
@options.selector
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]), help="How to show the nodes.")
def list_(settings: Settings, selector: str, output: str | None) -> None:
    """List the nodes: short for `pinnace get nodes`."""
    query = Query.of([NODES.plural], labels=selector)
    style = Style(chosen(output), View(wide=output == "wide"), headers=True)
    run(settings, lambda session: show(session, query, style))


@verb("fail", examples="pinnace node fail node-0        # until: pinnace node recover node-0")
@arguments.nodes
@options.selector
def fail(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Make virtual nodes fail, as if their machines had lost power.

    They fall silent and their containers are dead. Others find out: the nodes become NotReady, and their pods are
    replaced elsewhere.
    """
    change_nodes(settings, nodes, selector, failing("failed"))


@verb("freeze", examples="pinnace node freeze -l zone=a   # until: pinnace node recover -l zone=a")
@arguments.nodes
@options.selector
def freeze(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Cut virtual nodes off, as if the network to them had gone.

    They fall silent and hear nothing, but their containers go on.
    """
    change_nodes(settings, nodes, selector, failing("frozen"))


@verb("recover", examples="pinnace node recover node-0 node-1")
@arguments.nodes
@options.selector
def recover(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Take back what fail, freeze and pressure have done.

    Pods that were deleted meanwhile are stopped; the others of a node that had failed run again, restarted.
    """
    change_nodes(settings, nodes, selector, recovering)


@verb(
    "pressure",
    examples="""
        pinnace node pressure node-0                  # MemoryPressure
        pinnace node pressure node-0 --of memory=20Gi # as if something beside its pods used so much
        pinnace node pressure node-0 --of disk --of pid
    """,
)
@arguments.nodes
@options.selector
@click.option("--of", "kinds", type=Shortage(), multiple=True, default=("memory",), show_default=True, help="KIND[=AMOUNT].")
def pressure(settings: Settings, nodes: tuple[str, ...], selector: str, kinds: tuple[str, ...]) -> None:
    """Make virtual nodes run short of memory, disk or pids.

    They say so, take no more pods that this concerns, and evict pods, one after another: until what is left fits beside the
    AMOUNT; without an AMOUNT, until `pinnace node recover`.
    """
    change_nodes(settings, nodes, selector, pressing(kinds))


node.add_command(add)
node.add_command(list_)
node.add_command(fail)
node.add_command(freeze)
node.add_command(recover)
node.add_command(pressure)
