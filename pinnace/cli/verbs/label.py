"""`pinnace label`: sets and removes labels."""

import click

from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.edits import LABELS
from pinnace.cli.pairing import WORDS, edit
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
@click.argument("words", nargs=-1, metavar=WORDS)
@options.all_namespaces
@options.selector
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@click.option("--overwrite", is_flag=True, help="Replace values that are there.")
def label(
    settings: Settings, words: tuple[str, ...], all_namespaces: bool, selector: str, every: bool, overwrite: bool
) -> None:
    """Set or remove labels."""
    edit(
        settings,
        words,
        LABELS,
        lambda obj: obj.metadata.labels,
        all_namespaces=all_namespaces,
        selector=selector,
        every=every,
        overwrite=overwrite,
    )
