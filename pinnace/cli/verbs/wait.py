"""`pinnace wait`: waits until objects are as wanted."""

import click

from pinnace.cli import options
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import PATIENCE, Settings
from pinnace.cli.waiting import conditions
from pinnace.cli.waiting.until import wait_for


@verb(
    "wait",
    examples="""
        pinnace wait --for=condition=Ready pod/a pod/b --timeout 2m
        pinnace wait --for=condition=Ready=False nodes --all
        pinnace wait --for=jsonpath='{.status.phase}'=Running pods -l app=web
        pinnace wait --for=create --for=condition=Available deployment/web
        pinnace wait --for=delete pods -l app=web
    """,
)
@arguments.what
@options.all_namespaces
@options.selector
@options.field_selector
@click.option("--all", "every", is_flag=True, help="All objects of the kind.")
@click.option(
    "--for",
    "wanted",
    required=True,
    multiple=True,
    metavar="CONDITION",
    shell_complete=arguments.one_of(
        "condition=Ready", "condition=Available", "condition=Complete", conditions.CREATE, conditions.DELETE, "jsonpath="
    ),
    help="condition=TYPE[=STATUS], jsonpath=PATH[=VALUE], create or delete. Several are waited for one after the other.",
)
@click.option(
    "--timeout",
    type=PATIENCE,
    metavar="DURATION",
    help="Give up after this long, such as 10s or 2m; 0: look once; less than 0: wait for a week.",
)
def wait(
    settings: Settings,
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    every: bool,
    wanted: tuple[str, ...],
    timeout: float | None,
) -> None:
    """Wait until objects are as wanted.

    At most 30 s, or --timeout: then the exit code is 6. What is selected is what is there at the beginning; an object that is
    not there, or that is deleted meanwhile, is an error, unless that is what is waited for.
    """
    if timeout is not None:
        settings.timeout = timeout
    query = Query.of(what, all_namespaces=all_namespaces, labels=selector, fields=field_selector, every=every)
    if not (every or selector or field_selector or all(target.names for target in query.targets)):
        raise usage("which objects?", hint="name them, select them with -l or --field-selector, or say --all")
    in_turn = conditions.in_turn(wanted)

    async def wait_for_all(session: Session) -> None:
        for target in query.targets:
            await wait_for(session, query, target, in_turn)

    run(settings, wait_for_all)
