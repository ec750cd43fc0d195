"""`pinnace annotate`: sets and removes annotations."""

import click

from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.edits import ANNOTATIONS
from pinnace.cli.pairing import WORDS, edit
from pinnace.cli.settings import Settings


@verb(
    "annotate",
    examples="""
        pinnace annotate deployment/web kubernetes.io/change-cause='a new image' --overwrite
        pinnace annotate pod a pinnace.io/memory-usage=6Gi     # set
        pinnace annotate pods -l app=web note-                 # remove
    """,
)
@click.argument("words", nargs=-1, metavar=WORDS)
@options.all_namespaces
@options.selector
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@click.option("--overwrite", is_flag=True, help="Replace values that are there.")
def annotate(
    settings: Settings, words: tuple[str, ...], all_namespaces: bool, selector: str, every: bool, overwrite: bool
) -> None:
    """Set or remove annotations."""
    edit(
        settings,
        words,
        ANNOTATIONS,
        lambda obj: obj.metadata.annotations,
        all_namespaces=all_namespaces,
        selector=selector,
        every=every,
        overwrite=overwrite,
    )
