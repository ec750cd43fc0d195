"""`pinnace label`: sets and removes labels."""

import click

from pinnace.api.resources import Object
from pinnace.cli import options
from pinnace.cli.changing import change_each
from pinnace.cli.command import verb
from pinnace.cli.edits import LabelEdits
from pinnace.cli.outcomes import usage
from pinnace.cli.query import Query
from pinnace.cli.session import run
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
@click.argument("words", nargs=-1, metavar="KIND NAME... | KIND/NAME...  KEY=VALUE... KEY-...")
@options.all_namespaces
@options.selector
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@click.option("--overwrite", is_flag=True, help="Replace values that are there.")
def label(
    settings: Settings, words: tuple[str, ...], all_namespaces: bool, selector: str, every: bool, overwrite: bool
) -> None:
    """Set or remove labels."""
    split = next((i for i, word in enumerate(words) if i and ("=" in word or word.endswith("-"))), len(words))
    query = Query.of(words[:split], all_namespaces=all_namespaces, labels=selector)
    edits = LabelEdits.parse(words[split:])
    if not edits.set and not edits.remove:
        raise usage("which label?", hint="KEY=VALUE sets one, KEY- removes it")
    if not (every or selector or all(target.names for target in query.targets)):
        raise usage("which objects?", hint="name them, select them with -l, or say --all")

    def change(obj: Object) -> str:
        return edits.apply(obj.metadata.labels, overwrite=overwrite)

    run(settings, lambda session: change_each(session, query, change))
