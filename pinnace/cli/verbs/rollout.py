"""`pinnace rollout`: rollouts of deployments."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.resources import DEPLOYMENTS, REPLICA_SETS
from pinnace.api.rollouts import by_revision, revision
from pinnace.cli import options
from pinnace.cli.changes import rollouts
from pinnace.cli.changes.compare_and_swap import change_each
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.describe.templates import template
from pinnace.cli.describe.text import render
from pinnace.cli.objects import arguments
from pinnace.cli.objects.follower import Follower
from pinnace.cli.objects.query import Query, fetch, tell_none
from pinnace.cli.objects.targets import Selection, reference
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note, out
from pinnace.cli.terminal.table import Table

WAIT = 600.0
"""Seconds for a rollout, unless --timeout says otherwise: its own deadline is as long, if nothing else is said."""


@click.group("rollout", cls=VerbGroup)
def rollout() -> None:
    """Follow, undo, pause or restart rollouts of deployments."""


def query_of(what: Sequence[str], selector: str = "") -> Query:
    """Deployments, named or selected. Raises Failure (usage)."""
    query = Query.of(what, labels=selector)
    if not selector and not all(target.names for target in query.targets):
        raise usage("which deployment?", hint="name it, such as deployment/web, or select with -l")
    for target in query.targets:
        if target.resource is not DEPLOYMENTS:
            raise usage(f"{target.resource.plural} are not rolled out", hint="deployments are")
    return query


@verb(
    "status",
    examples="""
        pinnace rollout status deployment/web --timeout 2m
        pinnace rollout status deployments -l app=web --watch=false     # how it is now
    """,
)
@arguments.what
@options.selector
@click.option("-w", "--watch/--no-watch", default=True, show_default="watch", help="Follow it to its end.")
@click.option("--revision", type=click.IntRange(min=0), default=0, help="Fail if another revision comes meanwhile.")
def status(settings: Settings, what: tuple[str, ...], selector: str, watch: bool, revision: int) -> None:
    """Follow a rollout until it is complete.

    A rollout that has made no progress for spec.progressDeadlineSeconds has failed.
    """
    query = query_of(what, selector)

    async def follow_all(session: Session) -> None:
        session.wait_up_to(WAIT)
        names = [name for target in query.targets for name in target.names]
        if query.selects:
            names = [found.metadata.name for target in query.targets for found in await fetch(session, query, target)]
            if not names:
                tell_none(session, query)
        for name in names:
            await follow(session, query.namespace(DEPLOYMENTS, session), name, watch, revision)

    run(settings, follow_all)


async def follow(session: Session, namespace: str, name: str, watch: bool, number: int) -> None:
    """Prints each step."""
    client = session.client.of(DEPLOYMENTS)
    follower = Follower(client, Selection.named(namespace, [name]), note=note)
    told = rollouts.Told()

    def done() -> bool:
        deployment = next(iter(follower.store.values()), None)
        if deployment is None:
            message = f'deployment "{name}" was deleted'
            raise Failure(message, code=ExitCode.NOT_FOUND)
        if number and revision(deployment.metadata.annotations) not in (0, number):
            message = f"desired revision ({number}) is different from the running revision "
            raise Failure(message + f"({revision(deployment.metadata.annotations)})", code=ExitCode.CONFLICT)
        news, complete = told.step(deployment, time.monotonic())
        if news:
            out(f"{news}\n")
        session.waiting_for = f'deployment "{name}" to be rolled out'
        return complete or not watch

    await client.get(name, namespace)
    await follower.until(done)


@verb(
    "history",
    examples="""
        pinnace rollout history deployment/web
        pinnace rollout history deployment/web --revision 3     # its template
    """,
)
@arguments.what
@options.selector
@click.option("--revision", type=click.IntRange(min=0), default=0, help="Show the template of this one.")
def history(settings: Settings, what: tuple[str, ...], selector: str, revision: int) -> None:
    """Show the revisions that a deployment can go back to.

    The cause of a change is the annotation kubernetes.io/change-cause.
    """
    query = query_of(what, selector)

    async def show(session: Session) -> None:
        deployments = await revisions_of(session, query)
        if query.selects and not deployments:
            tell_none(session, query)
        for deployment, revisions in deployments:
            name = reference(DEPLOYMENTS, deployment.metadata.name)
            if revision:
                found = revisions[rollouts.chosen(deployment, revisions, revision)]
                lines = render({"Pod Template": template(found.spec.template)})
                out(f"{name} with revision #{revision}\n" + "".join(f"{line}\n" for line in lines))
            else:
                out(f"{name}\n{Table(rollouts.HEADERS).render([rollouts.row(*each) for each in revisions.items()])}\n")

    run(settings, show)


@verb(
    "undo",
    examples="""
        pinnace rollout undo deployment/web                     # to the revision before
        pinnace rollout undo deployment/web --to-revision 3
    """,
)
@arguments.what
@options.selector
@click.option("--to-revision", type=click.IntRange(min=0), default=0, help="Which one; 0 is the one before.", show_default=True)
def undo(settings: Settings, what: tuple[str, ...], selector: str, to_revision: int) -> None:
    """Go back to an earlier revision of a deployment: its template and annotations become the present ones again."""
    query = query_of(what, selector)

    async def undo_all(session: Session) -> None:
        sets = await replica_sets(session, query)

        def change(deployment: Deployment) -> str:
            revisions = by_revision(deployment, sets)
            return rollouts.roll_back(deployment, revisions[rollouts.chosen(deployment, revisions, to_revision)])

        await change_each(session, query, change)

    run(settings, undo_all)


async def replica_sets(session: Session, query: Query) -> Sequence[ReplicaSet]:
    """Of all deployments that a query can mean."""
    return (await session.client.of(REPLICA_SETS).list(query.namespace(REPLICA_SETS, session))).items


async def revisions_of(session: Session, query: Query) -> list[tuple[Any, dict[int, ReplicaSet]]]:
    """The deployments that a query means, each with its replica sets by revision. What cannot be had is told, and left out."""
    sets = await replica_sets(session, query)
    found: list[Any] = [each for target in query.targets for each in await fetch(session, query, target)]
    return [(deployment, by_revision(deployment, sets)) for deployment in found]


def _changing(name: str, text: str, change: Callable[[Deployment], str]) -> Any:
    @arguments.what
    @options.selector
    def run_it(settings: Settings, what: tuple[str, ...], selector: str) -> None:
        query = query_of(what, selector)
        run(settings, lambda session: change_each(session, query, change))

    run_it.__doc__ = text
    return verb(name, examples=f"pinnace rollout {name} deployment/web")(run_it)


pause = _changing("pause", "Stop the rollout where it is: changes of the template wait.", rollouts.pause)
resume = _changing("resume", "Go on with a rollout that was paused.", rollouts.resume)
restart = _changing(
    "restart", "Replace all pods, as if the template had changed.", lambda found: rollouts.restart(found, time.time())
)

for each in (status, history, undo, pause, resume, restart):
    rollout.add_command(each)
