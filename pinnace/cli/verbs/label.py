"""`pinnace label`: sets and removes labels."""

from typing import Any

from pinnace.cli.changes.edits import LABELS
from pinnace.cli.changes.labelling import arguments, edit
from pinnace.cli.command import verb
from pinnace.cli.settings import Settings


@verb(
    "label",
    examples="""
        pinnace label pod a app=web tier=front      # set
        pinnace label node/node-0 zone-             # remove
        pinnace label pods --all app=web --overwrite
        pinnace label pods -l app=web tier=back
    """,
)
@arguments
def label(settings: Settings, **chosen: Any) -> None:
    """Set or remove labels."""
    edit(settings, LABELS, lambda obj: obj.metadata.labels, **chosen)
