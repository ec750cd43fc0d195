"""Setting and removing labels or annotations of objects: what `label` and `annotate` share."""

from collections.abc import Callable, MutableMapping, Sequence

from pinnace.api.resources import Object
from pinnace.cli.changing import change_each
from pinnace.cli.edits import PairEdits, Pairs
from pinnace.cli.outcomes import usage
from pinnace.cli.query import Query
from pinnace.cli.session import run
from pinnace.cli.settings import Settings

WORDS = "KIND NAME... | KIND/NAME...  KEY=VALUE... KEY-..."
"""What both take."""


def edit(
    settings: Settings,
    words: Sequence[str],
    pairs: Pairs,
    of: Callable[[Object], MutableMapping[str, str]],
    *,
    all_namespaces: bool,
    selector: str,
    every: bool,
    overwrite: bool,
) -> None:
    """`of`: where an object has them. Raises Failure."""
    split = next((i for i, word in enumerate(words) if i and ("=" in word or word.endswith("-"))), len(words))
    query = Query.of(words[:split], all_namespaces=all_namespaces, labels=selector)
    edits = PairEdits.parse(words[split:], pairs)
    if not edits.set and not edits.remove:
        raise usage(f"which {pairs.one}?", hint="KEY=VALUE sets one, KEY- removes it")
    if not (every or selector or all(target.names for target in query.targets)):
        raise usage("which objects?", hint="name them, select them with -l, or say --all")
    run(settings, lambda session: change_each(session, query, lambda obj: edits.apply(of(obj), overwrite=overwrite)))
