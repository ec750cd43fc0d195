"""Changing nodes that are named or selected: what `cordon`, `uncordon` and `node` share."""

from collections.abc import Sequence

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import NODES
from pinnace.cli.changes.compare_and_swap import Change, change_each
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings


def change_nodes(settings: Settings, nodes: Sequence[str], selector: str, change: Change) -> None:
    """Changes the nodes that are named or selected. Raises Failure when that is none."""
    if not nodes and not selector:
        raise usage("which node?", hint="name nodes, or select them with -l")
    names = [name.removeprefix("node/") for name in nodes]
    query = Query.of([NODES.plural, *names], labels=selector)
    run(settings, lambda session: change_each(session, query, change, needed=True))


def marking(*, unschedulable: bool) -> Change:
    word = "cordoned" if unschedulable else "uncordoned"

    def change(node: Node) -> str:
        if node.spec.unschedulable == unschedulable:
            return f"already {word}"
        node.spec.unschedulable = unschedulable
        return word

    return change
