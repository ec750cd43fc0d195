"""Setting and removing labels or annotations of objects: what `label` and `annotate` share."""

from collections.abc import Callable, MutableMapping, Sequence

import click

from pinnace.api.resources import Object
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.changes.edits import PairEdits, Pairs
from pinnace.cli.objects.arguments import complete_target
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings

_ARGUMENTS = (
    click.argument(
        "words", nargs=-1, metavar="KIND NAME... | KIND/NAME...  KEY=VALUE... KEY-...", shell_complete=complete_target
    ),
    options.all_namespaces,
    options.selector,
    click.option("--all", "every", is_flag=True, help="All objects of the kind."),
    click.option("--overwrite", is_flag=True, help="Replace values that are there."),
)


def arguments(command: Callable[..., None]) -> Callable[..., None]:
    """Adds those of `edit` to a command."""
    for argument in reversed(_ARGUMENTS):
        command = argument(command)
    return command


def edit(
    settings: Settings,
    pairs: Pairs,
    of: Callable[[Object], MutableMapping[str, str]],
    *,
    words: Sequence[str],
    all_namespaces: bool,
    selector: str,
    every: bool,
    overwrite: bool,
) -> None:
    """`of`: where an object has them. Raises Failure."""
    split = next((i for i, word in enumerate(words) if i and ("=" in word or word.endswith("-"))), len(words))
    query = Query.of(words[:split], all_namespaces=all_namespaces, labels=selector, every=every)
    edits = PairEdits.parse(words[split:], pairs)
    if not edits.set and not edits.remove:
        raise usage(f"which {pairs.one}?", hint="KEY=VALUE sets one, KEY- removes it")
    if not (every or selector or all(target.names for target in query.targets)):
        raise usage("which objects?", hint="name them, select them with -l, or say --all")
    run(settings, lambda session: change_each(session, query, lambda obj: edits.apply(of(obj), overwrite=overwrite)))
