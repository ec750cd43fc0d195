"""`pinnace uncordon`: the opposite of `cordon`."""

from pinnace.cli import options
from pinnace.cli.changes.nodes import change_nodes, marking
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.settings import Settings


@verb(
    "uncordon",
    examples="""
        pinnace uncordon node-0
        pinnace uncordon -l zone=a
    """,
)
@arguments.nodes
@options.selector
def uncordon(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Let new pods onto nodes again."""
    change_nodes(settings, nodes, selector, marking(unschedulable=False))
