"""`pinnace pod`: lets pods crash."""

import click

from pinnace.api.resources import PODS
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.changes.faults import crashing
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings


@click.group("pod", cls=VerbGroup)
def pod() -> None:
    """Make pods crash."""


@verb(
    "crash",
    examples="""
        pinnace pod crash web-0
        pinnace pod crash web-0 -c app --exit-code 137
        pinnace pod crash -l app=web
    """,
)
@arguments.pods
@options.selector
@click.option("-c", "--container", default="", metavar="NAME", help="Only this one.  [default: all that run]")
@click.option("--exit-code", type=click.IntRange(0, 255), default=1, show_default=True, help="Of the containers.")
def crash(settings: Settings, pods: tuple[str, ...], selector: str, container: str, exit_code: int) -> None:
    """Make the containers of pods crash, once.

    What becomes of them then is up to the pod's restartPolicy. Containers that are processes are killed, with code 137.
    """
    if not pods and not selector:
        raise usage("which pod?", hint="name pods, or select them with -l")
    names = [name.removeprefix("pod/") for name in pods]
    query = Query.of([PODS.plural, *names], labels=selector)
    run(settings, lambda session: change_each(session, query, crashing(container, exit_code)))


pod.add_command(crash)
