"""`pinnace taint`: sets and removes the taints of nodes."""

import click

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import NODES, names
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.changes.edits import TaintEdits
from pinnace.cli.command import verb
from pinnace.cli.objects.arguments import targets_of
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings


@verb(
    "taint",
    examples="""
        pinnace taint node node-0 gpu=true:NoSchedule      # only pods that tolerate it come
        pinnace taint node node-0 node-1 gpu:NoExecute     # and others that are there must go
        pinnace taint node node-0 gpu:NoSchedule-          # remove it
        pinnace taint nodes -l zone=a gpu-                 # remove it with any effect
    """,
)
@click.argument(
    "words", nargs=-1, metavar="[node] NODE... KEY[=VALUE]:EFFECT... KEY[:EFFECT]-...", shell_complete=targets_of(NODES)
)
@options.selector
@click.option("--all", "every", is_flag=True, help="All nodes.")
@click.option("--overwrite", is_flag=True, help="Replace the values of taints that are there.")
def taint(settings: Settings, words: tuple[str, ...], selector: str, every: bool, overwrite: bool) -> None:
    """Set or remove taints of nodes.

    Effects: NoSchedule, PreferNoSchedule, NoExecute.
    """
    rest = words[1:] if words and words[0].lower() in names(NODES) else words
    split = next((i for i, word in enumerate(rest) if ":" in word or "=" in word or word.endswith("-")), len(rest))
    nodes = [word.removeprefix("node/") for word in rest[:split]]
    edits = TaintEdits.parse(rest[split:])
    if not edits.set and not edits.remove:
        raise usage("which taint?", hint="KEY=VALUE:EFFECT sets one, KEY:EFFECT- removes it")
    if not (nodes or selector or every):
        raise usage("which node?", hint="name nodes, select them with -l, or say --all")
    query = Query.of([NODES.plural, *nodes], labels=selector, every=every)

    def change(node: Node) -> str:
        return edits.apply(node, overwrite=overwrite)

    run(settings, lambda session: change_each(session, query, change))
