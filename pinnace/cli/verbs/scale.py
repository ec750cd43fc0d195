"""`pinnace scale`: how many pods there are to be."""

from typing import Any

import click

from pinnace.api.resources import DEPLOYMENTS, REPLICA_SETS
from pinnace.cli import options
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import run
from pinnace.cli.settings import Settings

REPLICAS = click.IntRange(0, options.MOST_REPLICAS)
SCALABLE = (DEPLOYMENTS, REPLICA_SETS)


@verb(
    "scale",
    examples="""
        pinnace scale deployment/web --replicas 5
        pinnace scale --current-replicas 2 --replicas 3 deployment/web     # only if there are to be 2 now
        pinnace scale rs -l app=web --replicas 0
    """,
)
@arguments.what
@options.selector
@click.option("--replicas", type=REPLICAS, required=True, metavar="N", help="How many pods there are to be.")
@click.option("--current-replicas", type=REPLICAS, metavar="N", help="Change it only if it is this number now.")
def scale(settings: Settings, what: tuple[str, ...], selector: str, replicas: int, current_replicas: int | None) -> None:
    """Set how many pods a deployment or a replica set is to have."""
    query = Query.of(what, labels=selector)
    if not selector and not all(target.names for target in query.targets):
        raise usage("which objects?", hint="name them, such as deployment/web, or select them with -l")
    for target in query.targets:
        if target.resource not in SCALABLE:
            raise usage(f"{target.resource.plural} cannot be scaled", hint="deployments and replicasets can")

    def change(obj: Any) -> str:
        if current_replicas not in (None, obj.spec.replicas):
            message = f"Expected replicas to be {current_replicas}, was {obj.spec.replicas}"
            raise Failure(message, hint="it was not changed", code=ExitCode.CONFLICT)
        obj.spec.replicas = replicas
        return "scaled"

    run(settings, lambda session: change_each(session, query, change, needed=True))
