"""`pinnace why`: why a pod is where it is, or nowhere."""

import time
from contextlib import suppress

import click

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Event, Pod
from pinnace.api.pods import ended
from pinnace.api.records import to_json
from pinnace.api.resources import NODES, PODS
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.cli.command import verb
from pinnace.cli.describe.pods import waits_for_scheduler
from pinnace.cli.local import contexts
from pinnace.cli.local.schedulers import Given, configured
from pinnace.cli.objects.arguments import names_of, targets_of
from pinnace.cli.objects.query import Query
from pinnace.cli.objects.related import events_about, is_led
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.output import documents
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import out
from pinnace.cli.why import text
from pinnace.cli.why.process import ask
from pinnace.client.errors import NotFound
from pinnace.printers.cluster import count, when
from pinnace.printers.columns import is_set

DEADLINE = 60.0
"""Seconds, unless `--timeout` says otherwise."""
EVENTS = 5


@verb(
    "why",
    examples="""
        pinnace why pod/a                       # why it is pending, or why it is where it is
        pinnace why pod/a --node node-7         # why not there
        pinnace why pod/a -o json | jq '.refusals[] | select(.alone > 0)'
    """,
)
@click.argument("what", nargs=-1, metavar="pod/NAME", shell_complete=targets_of(PODS))
@click.option("--node", default="", metavar="NAME", shell_complete=names_of(NODES), help="Say why the pod is not on this node.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="As a document, with all nodes by name.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="Follow this KubeSchedulerConfiguration.  [default: that of the scheduler that decides]",
)
@click.option("--plugin", "plugins", multiple=True, metavar="SPEC", help="Add this plugin, as the scheduler's --plugin.")
def why(
    settings: Settings, what: tuple[str, ...], node: str, output: str | None, config: str | None, plugins: tuple[str, ...]
) -> None:
    """Explain why a pod is on its node, or why it is pending.

    The decision is made again from what the API servers know now: every filter on every node, every score. A pod that has a
    node is first taken off it. The configuration is that of the scheduler that decides, if it is the default one, or that of
    the local cluster, or is given with --config and --plugin. Otherwise the answer says that it is not known.
    """
    query = Query.of(what)
    if [target.resource for target in query.targets] != [PODS] or len(query.targets[0].names) != 1:
        raise usage("expected one pod", hint="name it, such as `pinnace why pod/a`")
    run(
        settings, lambda session: show(session, query.targets[0].names[0], node, output, settings, Given(config or "", plugins))
    )


async def show(session: Session, name: str, node: str, form: str | None, settings: Settings, given: Given) -> None:
    session.wait_up_to(DEADLINE)
    session.waiting_for = "the explanation"
    pod = await session.client.pods.get(name, session.namespace)
    _check(pod)
    if node:
        await _node(session, node)
    found = await ask(settings, session.namespace, name, node, given, _kept(settings))
    (events,) = await events_about(session.client, PODS, [pod])
    told = [event for event in sorted(events, key=when) if _by_scheduler(event, pod)][-EVENTS:]
    if form:
        out(documents.dump(form, to_json(found) | {"events": [_document(event) for event in told]}))
        return
    leaderless = waits_for_scheduler(pod) and not await is_led(session.client, SCHEDULER_ELECTION)
    for line in text.lines(found, told, time.time(), leaderless=SCHEDULER_ELECTION if leaderless else ""):
        out(line + "\n")


def _kept(settings: Settings) -> Given:
    """What the schedulers of the local cluster were started with; empty where no local cluster is meant."""
    with suppress(Failure):
        return configured(contexts.present_data_dir(settings, None))
    return Given()


def _check(pod: Pod) -> None:
    """Raises Failure for a pod that is not to be scheduled any more."""
    name = f"pod/{pod.metadata.name}"
    if ended(pod):
        raise Failure(f"{name} has finished ({pod.status.phase})", hint=f"`pinnace describe {name}` shows where it ran")
    if not pod.spec.nodeName and is_set(pod.metadata.deletionTimestamp):
        raise Failure(
            f"{name} is being deleted, and gets no node any more", hint=f"`pinnace describe {name}` shows what is known"
        )


async def _node(session: Session, name: str) -> None:
    """Raises Failure when there is no such node."""
    try:
        await session.client.nodes.get(name)
    except NotFound as error:
        raise Failure(f'there is no node "{name}"', hint="`pinnace get nodes` lists them", code=ExitCode.NOT_FOUND) from error


def _by_scheduler(event: Event, pod: Pod) -> bool:
    """Also that no scheduler has its profile, which a controller says."""
    return event.reason == "FailedScheduling" or (event.reportingComponent or event.source.component) == (
        pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER
    )


def _document(event: Event) -> dict[str, object]:
    return {"type": event.type, "reason": event.reason, "message": event.message, "count": count(event)}
