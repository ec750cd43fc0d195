"""`pinnace delete`: deletes objects and waits for their deletion."""

import click

from pinnace.cli.changes import CLIENT, SERVER, DeleteOptions, delete_all
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.manifests import place_all, read
from pinnace.cli.objects.query import Query, fetch
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import err, note
from pinnace.cli.waiting import PendingDeletion

HOW_TO_NAME = "name them, select them with -l or --field-selector, say --all, or give manifests with -f"


@verb(
    "delete",
    examples="""
        pinnace delete pod a b
        pinnace delete -f pods.yaml
        pinnace delete pods -l app=web --now
        pinnace delete pods --all --wait=false
    """,
)
@arguments.what
@arguments.filenames
@arguments.recursive
@arguments.all_namespaces
@arguments.selector
@arguments.field_selector
@click.option("--all", "every", is_flag=True, help="Select all resources of the kind in the namespace.")
@click.option(
    "--grace-period",
    type=click.IntRange(0, arguments.MOST),
    metavar="SECONDS",
    help="Seconds that pods get to terminate gracefully. At least 1 without --force.",
)
@click.option("--force", is_flag=True, help="Remove pods immediately, without waiting until their containers have terminated.")
@click.option("--now", is_flag=True, help="The same as --grace-period 1.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return once the objects are gone.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "orphan", "foreground"]),
    default="background",
    show_default=True,
    help="Whether dependents are deleted afterwards, orphaned, or deleted first.",
)
@click.option(
    "--dry-run",
    type=click.Choice(["none", CLIENT, SERVER]),
    default="none",
    help="client: only print what would be deleted. server: submit a request that the server does not persist.",
)
@click.option("--ignore-not-found", is_flag=True, help='Treat "not found" as a successful delete.')
def delete(
    settings: Settings,
    what: tuple[str, ...],
    filenames: tuple[str, ...],
    recursive: bool,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    every: bool,
    grace_period: int | None,
    force: bool,
    now: bool,
    wait: bool,
    cascade: str,
    dry_run: str,
    ignore_not_found: bool,
) -> None:
    """Delete resources by file name, name, or selector.

    Running pods get their grace period to stop. The command waits until the objects are gone, for two minutes or --timeout.
    """
    how = DeleteOptions(grace_of(grace_period, force=force, now=now), ignore_not_found, wait, cascade.capitalize(), dry_run)
    if force:
        err("Warning: immediate deletion does not wait for the containers to stop. They may continue to run for some time")
    selected = bool(selector or field_selector or every)
    if filenames:
        if what or selected:
            raise usage("-f cannot be used with names, selectors or --all")
        manifests = read(filenames, recursive=recursive, validate="name", named=True)

        async def in_files(session: Session) -> None:
            place_all(manifests, session)
            await delete_all(
                session, [PendingDeletion(m.resource, m.obj.metadata.namespace, m.obj.metadata.name) for m in manifests], how
            )

        run(settings, in_files)
        return
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector, every=every)
    if not selected and not all(target.names for target in query.targets):
        raise usage("you must specify resources", hint=HOW_TO_NAME)
    run(settings, lambda session: _matching(session, query, how))


def grace_of(period: int | None, *, force: bool, now: bool) -> int | None:
    """Seconds; None: the default of the object. A grace period of 0 requires `force`, to prevent accidental loss of data.
    Raises Failure (usage).
    """
    if now and period is not None:
        raise usage("--now and --grace-period cannot be used together")
    grace = 1 if now else period
    if not force:
        return 1 if grace == 0 else grace
    if grace:
        raise usage("--force and a grace period cannot be used together", hint="--force deletes immediately")
    return 0


async def _matching(session: Session, query: Query, how: DeleteOptions) -> None:
    doomed = []
    for target in query.targets:
        if target.names:
            namespace = query.namespace(target.resource, session)
            doomed += [PendingDeletion(target.resource, namespace, name) for name in target.names]
        else:
            metas = [obj.metadata for obj in await fetch(session, query, target)]
            doomed += [PendingDeletion(target.resource, meta.namespace, meta.name, meta.uid) for meta in metas]
    if doomed:
        await delete_all(session, doomed, how)
    else:
        note("no resources found: nothing was deleted")
