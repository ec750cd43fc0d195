"""`pinnace diff`: what `apply` would change."""

from collections.abc import Sequence

from pinnace.api.manifest import Manifest, Validate
from pinnace.cli import options
from pinnace.cli.changes.applier import Applier
from pinnace.cli.changes.apply_decisions import chunks, in_order
from pinnace.cli.command import verb
from pinnace.cli.errors import told
from pinnace.cli.objects.manifests import place_all, read, where
from pinnace.cli.objects.targets import reference
from pinnace.cli.outcomes import ExitCode, Reported, usage
from pinnace.cli.output.difference import coloured, difference
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import is_live, out


@verb(
    "diff",
    examples="""
        pinnace diff -f pods.yaml
        pinnace diff -f manifests/ -R || [ $? = 1 ] && echo "it can be applied"
    """,
)
@options.filenames
@options.recursive
@options.validate
def diff(settings: Settings, filenames: tuple[str, ...], recursive: bool, validate: Validate) -> None:
    """Show what `apply` would change.

    The server is asked what would become of each object, with defaults and all, and writes nothing. Ends with 0 when nothing
    would change, with 1 when something would, and with 2 or more when something is wrong.
    """
    if not filenames:
        raise usage("which manifests?", hint="name them with -f FILE; -f - reads stdin")
    found: list[str] = []

    async def compare(session: Session) -> None:
        await _compare(session, manifests, found, colours=is_live() and not settings.no_color)

    try:
        manifests = in_order(read(filenames, recursive=recursive, validate=validate, named=True))
        run(settings, compare)
    except BrokenPipeError:
        raise
    except Exception as error:
        raise Reported(max(told(error, settings), ExitCode.USAGE)) from error
    if found:
        raise Reported(ExitCode.DIFFERENT)


async def _compare(session: Session, manifests: Sequence[Manifest], found: list[str], *, colours: bool) -> None:
    """Prints the differences; `found` gets the names of what is different."""
    session.wait_for_each(len(manifests))
    place_all(manifests, session)
    applier = Applier(session.client, dry_run=True)
    for chunk in chunks(manifests):
        for desired, preview in zip(chunk, await applier.preview(chunk), strict=True):
            if isinstance(preview, Exception):
                session.failed(preview, where(desired.manifest))
                continue
            name = reference(desired.resource, desired.obj.metadata.name)
            if lines := difference(name, preview.before, preview.after):
                found.append(name)
                out("".join(f"{line}\n" for line in (coloured(lines) if colours else lines)), styled=colours)
