"""`pinnace apply`: makes the cluster's objects match manifests."""

from collections.abc import Sequence
from typing import Literal

from pinnace.api.manifest import Manifest, Validate
from pinnace.cli import options
from pinnace.cli.changes.applier import Applier
from pinnace.cli.changes.apply_decisions import chunks, in_order
from pinnace.cli.command import verb
from pinnace.cli.objects.manifests import place_all, read, where
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import err, out


@verb(
    "apply",
    examples="""
        pinnace apply -f pods.yaml
        pinnace apply -f manifests/ -R                  # a directory, and those in it
        generate-pods | pinnace apply -f -
        pinnace apply -f pods.yaml --dry-run=server     # would it be accepted?
    """,
)
@options.filenames
@options.recursive
@options.dry_run
@options.validate
def apply(
    settings: Settings,
    filenames: tuple[str, ...],
    recursive: bool,
    dry_run: Literal["none", "server"],
    validate: Validate,
) -> None:
    """Create or change objects to match manifests.

    An object that is there is merged three ways: what the manifest wants is set, what an earlier apply set and the manifest no
    longer has is removed, and what others have set is left alone.
    """
    if not filenames:
        raise usage("which manifests?", hint="name them with -f FILE; -f - reads stdin")
    manifests = in_order(read(filenames, recursive=recursive, validate=validate, named=True))
    run(settings, lambda session: apply_all(session, manifests, dry_run == "server"))


async def apply_all(session: Session, manifests: Sequence[Manifest], dry_run: bool) -> None:
    session.wait_for_each(len(manifests))
    place_all(manifests, session)
    applier = Applier(session.client, dry_run=dry_run, warn=lambda text: err(f"Warning: {text}"))
    suffix = options.DRY_RUN_SAID if dry_run else ""
    with session.progress("applying", len(manifests)) as advance:
        for chunk in chunks(manifests):
            outcomes = await applier.apply(chunk)
            for manifest, outcome in zip((desired.manifest for desired in chunk), outcomes, strict=True):
                if isinstance(outcome, Exception):
                    session.failed(outcome, where(manifest))
                else:
                    out(f"{reference(manifest.resource, manifest.obj.metadata.name)} {outcome}{suffix}\n")
            advance(len(chunk))
