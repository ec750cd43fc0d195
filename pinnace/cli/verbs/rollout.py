"""The verbs `rollout` and `scale`: the rollouts of deployments, and the number of replicas.

Source: kubectl, pkg/polymorphichelpers (rollout_status.go, history.go, rollback.go), including the messages.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pinnace.api import conditions
from pinnace.api.apps_v1_pb2 import Deployment, ReplicaSet
from pinnace.api.quantities import equal
from pinnace.api.resources import DEPLOYMENTS, REPLICA_SETS
from pinnace.api.rollouts import CHANGE_CAUSE_ANNOTATION, OWN_ANNOTATIONS, bare, by_revision, revision
from pinnace.api.scalars import format_rfc3339, to_time
from pinnace.cli.changes import change_each
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.describe.text import render
from pinnace.cli.describe.workloads import template
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, Selection, fetch, reference, tell_none
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, note, out
from pinnace.cli.waiting import Follower

WAIT = 600.0
"""Default timeout in seconds, equal to the default progress deadline."""


@click.group("rollout", cls=VerbGroup)
def rollout() -> None:
    """Manage the rollout of deployments."""


def query_of(what: Sequence[str], selector: str = "") -> Query:
    """Named or selected deployments. Raises Failure (usage)."""
    query = Query.of(what, labels=selector)
    if not selector and not all(target.names for target in query.targets):
        raise usage("you must specify a deployment", hint="name it, such as deployment/web, or select with -l")
    for target in query.targets:
        if target.resource is not DEPLOYMENTS:
            raise usage(f"{target.resource.plural} are not rolled out", hint="deployments are")
    return query


@verb(
    "status",
    examples="""
        pinnace rollout status deployment/web --timeout 2m
        pinnace rollout status deployments -l app=web --watch=false     # the current status
    """,
)
@arguments.what
@arguments.selector
@click.option("-w", "--watch/--no-watch", default=True, show_default="watch", help="Watch the rollout until it ends.")
@click.option("--revision", type=click.IntRange(min=0), default=0, help="Fail if the deployment gets another revision.")
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
    told = RolloutReporter()

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
@arguments.selector
@click.option("--revision", type=click.IntRange(min=0), default=0, help="Show the pod template of this revision.")
def history(settings: Settings, what: tuple[str, ...], selector: str, revision: int) -> None:
    """Show the revisions that a deployment can be rolled back to.

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
                found = revisions[chosen(deployment, revisions, revision)]
                lines = render({"Pod Template": template(found.spec.template)})
                out(f"{name} with revision #{revision}\n" + "".join(f"{line}\n" for line in lines))
            else:
                out(f"{name}\n{Table(HEADERS).render([row(*each) for each in revisions.items()])}\n")

    run(settings, show)


@verb(
    "undo",
    examples="""
        pinnace rollout undo deployment/web                     # to the previous revision
        pinnace rollout undo deployment/web --to-revision 3
    """,
)
@arguments.what
@arguments.selector
@click.option(
    "--to-revision",
    type=click.IntRange(min=0),
    default=0,
    help="The revision to roll back to; 0 is the previous one.",
    show_default=True,
)
def undo(settings: Settings, what: tuple[str, ...], selector: str, to_revision: int) -> None:
    """Roll back to a previous revision of a deployment: restores its template and annotations."""
    query = query_of(what, selector)

    async def undo_all(session: Session) -> None:
        sets = await replica_sets(session, query)

        def change(deployment: Deployment) -> str:
            revisions = by_revision(deployment, sets)
            return roll_back(deployment, revisions[chosen(deployment, revisions, to_revision)])

        await change_each(session, query, change)

    run(settings, undo_all)


async def replica_sets(session: Session, query: Query) -> Sequence[ReplicaSet]:
    """The replica sets of all deployments in the query."""
    return (await session.client.of(REPLICA_SETS).list(query.namespace(REPLICA_SETS, session))).items


async def revisions_of(session: Session, query: Query) -> list[tuple[Any, dict[int, ReplicaSet]]]:
    """The deployments of the query, each with its replica sets by revision. Reports and omits errors."""
    sets = await replica_sets(session, query)
    found: list[Any] = [each for target in query.targets for each in await fetch(session, query, target)]
    return [(deployment, by_revision(deployment, sets)) for deployment in found]


def _changing(name: str, text: str, change: Callable[[Deployment], str]) -> Any:
    """A subcommand that changes the given deployments."""

    @arguments.what
    @arguments.selector
    def run_it(settings: Settings, what: tuple[str, ...], selector: str) -> None:
        query = query_of(what, selector)
        run(settings, lambda session: change_each(session, query, change))

    run_it.__doc__ = text
    return verb(name, examples=f"pinnace rollout {name} deployment/web")(run_it)


pause = _changing(
    "pause", "Pause a rollout. Later changes of the template wait until it is resumed.", lambda found: pause_deployment(found)
)
resume = _changing("resume", "Resume a paused rollout.", lambda found: resume_deployment(found))
restart = _changing(
    "restart", "Replace all pods, as if the template had changed.", lambda found: restart_deployment(found, time.time())
)

for each in (status, history, undo, pause, resume, restart):
    rollout.add_command(each)


REPLICAS = click.IntRange(0, arguments.MOST_REPLICAS)
SCALABLE = (DEPLOYMENTS, REPLICA_SETS)


@verb(
    "scale",
    examples="""
        pinnace scale deployment/web --replicas 5
        pinnace scale --current-replicas 2 --replicas 3 deployment/web     # only if spec.replicas is 2
        pinnace scale rs -l app=web --replicas 0
    """,
)
@arguments.what
@arguments.selector
@click.option("--replicas", type=REPLICAS, required=True, metavar="N", help="The new number of replicas.")
@click.option("--current-replicas", type=REPLICAS, metavar="N", help="Fail unless the current number of replicas is N.")
def scale(settings: Settings, what: tuple[str, ...], selector: str, replicas: int, current_replicas: int | None) -> None:
    """Set a new size for a deployment or replica set."""
    query = Query.of(what, labels=selector)
    if not selector and not all(target.names for target in query.targets):
        raise usage("you must specify resources", hint="name them, such as deployment/web, or select them with -l")
    for target in query.targets:
        if target.resource not in SCALABLE:
            raise usage(f"{target.resource.plural} cannot be scaled", hint="deployments and replicasets can")

    def change(obj: Any) -> str:
        if current_replicas not in (None, obj.spec.replicas):
            message = f"Expected replicas to be {current_replicas}, was {obj.spec.replicas}"
            raise Failure(message, hint="the object was not changed", code=ExitCode.CONFLICT)
        obj.spec.replicas = replicas
        return "scaled"

    run(settings, lambda session: change_each(session, query, change, needed=True))


RESTARTED_ANNOTATION = "kubectl.kubernetes.io/restartedAt"
"""An annotation of templates. Changing it changes the template."""
HEADERS = ("REVISION", "CHANGE-CAUSE")


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    text: str
    done: bool


def progress(deployment: Deployment) -> RolloutProgress:
    """Raises Failure if the rollout has exceeded its deadline."""
    name, wanted, status = deployment.metadata.name, deployment.spec.replicas, deployment.status
    if deployment.metadata.generation > status.observedGeneration:
        return RolloutProgress("Waiting for deployment spec update to be observed...", False)
    said = conditions.find(status.conditions, "Progressing")
    if said is not None and said.reason == "ProgressDeadlineExceeded":
        raise _late(name)
    waiting = f'Waiting for deployment "{name}" rollout to finish:'
    if status.updatedReplicas < wanted:
        text = f"{waiting} {status.updatedReplicas} out of {wanted} new replicas have been updated..."
    elif status.replicas > status.updatedReplicas:
        text = f"{waiting} {status.replicas - status.updatedReplicas} old replicas are pending termination..."
    elif status.availableReplicas < status.updatedReplicas:
        text = f"{waiting} {status.availableReplicas} of {status.updatedReplicas} updated replicas are available..."
    else:
        return RolloutProgress(f'deployment "{name}" successfully rolled out', True)
    return RolloutProgress(text, False)


class RolloutReporter:
    """What has been told of one rollout: each step once, whatever comes and goes. Times are of any clock, in seconds.

    Pods that are refused and replaced count as progress for the controller, again and again, so that it never calls the rollout
    late: here it is, when nothing new has been seen for its progress deadline.
    """

    def __init__(self) -> None:
        self._generation = 0
        self._said = set[str]()
        self._since = 0.0

    def step(self, deployment: Deployment, now: float) -> tuple[str, bool]:
        """The new step or "", and whether the rollout is complete. Raises Failure if it has exceeded its deadline."""
        found = progress(deployment)
        if deployment.metadata.generation != self._generation:
            self._generation, self._said = deployment.metadata.generation, set()
        if found.text not in self._said:
            self._said.add(found.text)
            self._since = now
            return found.text, found.done
        spec = deployment.spec
        if spec.HasField("progressDeadlineSeconds") and not spec.paused and now - self._since > spec.progressDeadlineSeconds:
            raise _late(deployment.metadata.name)
        return "", found.done


def _late(name: str) -> Failure:
    hint = f"`pinnace describe deployment {name}` and its replica sets say why; `pinnace rollout undo` goes back"
    return Failure(f'deployment "{name}" exceeded its progress deadline', hint=hint)


def row(number: int, replica_set: ReplicaSet) -> tuple[str, str]:
    return str(number), replica_set.metadata.annotations.get(CHANGE_CAUSE_ANNOTATION, "") or "<none>"


def chosen(deployment: Deployment, revisions: Mapping[int, ReplicaSet], number: int) -> int:
    """The revision to restore: `number`, or for 0 the previous one. Raises Failure."""
    name, present = deployment.metadata.name, revision(deployment.metadata.annotations)
    if number:
        if number in revisions:
            return number
        hint = f"`pinnace rollout history deployment/{name}` shows what there is"
        raise Failure(f"unable to find specified revision {number} in history", hint=hint, code=ExitCode.NOT_FOUND)
    earlier = [each for each in revisions if each != present]
    if not earlier:
        hint = "there is no other revision to go back to"
        raise Failure(f'no rollout history found for deployment "{name}"', hint=hint, code=ExitCode.NOT_FOUND)
    return max(earlier)


def roll_back(deployment: Deployment, to: ReplicaSet) -> str:
    """Restores the template and the annotations of an earlier revision. Raises Failure if the deployment is paused."""
    if deployment.spec.paused:
        message = "you cannot rollback a paused deployment; resume it first and try again"
        raise Failure(message, hint=f"`pinnace rollout resume deployment/{deployment.metadata.name}`", code=ExitCode.CONFLICT)
    template = bare(to.spec.template)
    if equal(bare(deployment.spec.template), template):
        number = revision(to.metadata.annotations)
        return f"skipped rollback (current template already matches revision {number})"
    deployment.spec.template.CopyFrom(template)
    annotations = deployment.metadata.annotations
    own = {key: value for key, value in annotations.items() if key in OWN_ANNOTATIONS}
    earlier = {key: value for key, value in to.metadata.annotations.items() if key not in OWN_ANNOTATIONS}
    annotations.clear()
    annotations.update({**own, **earlier})
    return "rolled back"


def pause_deployment(deployment: Deployment) -> str:
    """Raises Failure if it is paused."""
    if deployment.spec.paused:
        raise Failure("is already paused", code=ExitCode.CONFLICT)
    deployment.spec.paused = True
    return "paused"


def resume_deployment(deployment: Deployment) -> str:
    """Raises Failure if it is not paused."""
    if not deployment.spec.paused:
        raise Failure("is not paused", code=ExitCode.CONFLICT)
    deployment.spec.paused = False
    return "resumed"


def restart_deployment(deployment: Deployment, now: float) -> str:
    """`now` is Unix time. Raises Failure if it is paused, or was restarted within the same second, because nothing would
    change.
    """
    if deployment.spec.paused:
        raise Failure("can't restart paused deployment (run rollout resume first)", code=ExitCode.CONFLICT)
    annotations, instant = deployment.spec.template.metadata.annotations, format_rfc3339(to_time(now))
    if annotations.get(RESTARTED_ANNOTATION) == instant:
        raise Failure("was already restarted within this second", hint="try again in a second", code=ExitCode.CONFLICT)
    annotations[RESTARTED_ANNOTATION] = instant
    return "restarted"
