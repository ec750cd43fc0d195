"""`pinnace cordon`: marks nodes."""

from pinnace.cli import options
from pinnace.cli.changes.nodes import change_nodes, marking
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.settings import Settings


@verb(
    "cordon",
    examples="""
        pinnace cordon node-0
        pinnace cordon -l zone=a
    """,
)
@arguments.nodes
@options.selector
def cordon(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Keep new pods off nodes.

    Pods that are on a node stay; pods that tolerate node.kubernetes.io/unschedulable still come.
    """
    change_nodes(settings, nodes, selector, marking(unschedulable=True))
