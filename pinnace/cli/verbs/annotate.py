"""`pinnace annotate`: sets and removes annotations."""

from typing import Any

from pinnace.cli.changes.edits import ANNOTATIONS
from pinnace.cli.changes.labelling import arguments, edit
from pinnace.cli.command import verb
from pinnace.cli.settings import Settings


@verb(
    "annotate",
    examples="""
        pinnace annotate deployment/web kubernetes.io/change-cause='a new image' --overwrite
        pinnace annotate pod a pinnace.io/memory-usage=6Gi     # set
        pinnace annotate pods -l app=web note-                 # remove
    """,
)
@arguments
def annotate(settings: Settings, **chosen: Any) -> None:
    """Set or remove annotations."""
    edit(settings, ANNOTATIONS, lambda obj: obj.metadata.annotations, **chosen)
