"""The verb `why`: explains the scheduling of a pod.

The explanation is computed by the process `pinnace.scheduler.explaining`, because the client does not import the scheduler's
code.
"""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress

import click
from google.rpc.status_pb2 import Status

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Event, Pod
from pinnace.api.pods import ended
from pinnace.api.records import (
    Answer,
    Asked,
    Explanation,
    Malformed,
    PreemptionProblem,
    Unexplained,
    format_list,
    from_json,
    to_json,
)
from pinnace.api.resources import NODES, PODS
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.cli.command import verb
from pinnace.cli.local import clusters
from pinnace.cli.local.schedulers import SchedulerOptions, read_scheduler_options
from pinnace.cli.objects import arguments
from pinnace.cli.objects.arguments import complete_names
from pinnace.cli.objects.query import find_pod, is_led, list_events_about
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.output import documents
from pinnace.cli.output.decisions import NAMED, ranking_table, refusals_table, rows_table, score_text, weight_suffix
from pinnace.cli.servers import load_configuration
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import one_line, print_result
from pinnace.client.config import HINT
from pinnace.client.errors import ApiError, NotFound, from_status
from pinnace.printers.cluster import event_count, event_time, format_occurrences
from pinnace.printers.columns import is_set

DEADLINE = 60.0
"""Default time limit, in seconds."""
EVENTS = 5
EXPLAIN_TIMEOUT = 50.0
"""Time limit for listing all objects, in seconds. The deadline of the command also applies."""


@verb(
    "why",
    examples="""
        pinnace why pod/a                       # why it is pending, or on its node
        pinnace why pod/a --node node-7         # why it is not on that node
        pinnace why pod/a -o json | jq '.refusals[] | select(.alone > 0)'
    """,
)
@arguments.pod
@click.option(
    "--node", default="", metavar="NAME", shell_complete=complete_names(NODES), help="Explain why the pod is not on this node."
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="As a document, with all nodes by name.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="Use this KubeSchedulerConfiguration.  [default: the configuration of the scheduler]",
)
@click.option("--plugin", "plugins", multiple=True, metavar="SPEC", help="Add this plugin, as --plugin of the scheduler does.")
def why(
    settings: Settings, what: tuple[str, ...], node: str, output: str | None, config: str | None, plugins: tuple[str, ...]
) -> None:
    """Explain why a pod is on its node, or why it is pending.

    The scheduling cycle is repeated with the current objects: all filters on all nodes, and all scores.
    A pod that has a node is first removed from it. The scheduler's configuration is the default one, that of the local
    cluster, or the one given with --config and --plugin. If it is unknown, the output contains a note.
    """
    name = find_pod(what, "why")
    run_session(
        settings,
        lambda session: show_explanation(session, name, node, output, settings, SchedulerOptions(config or "", plugins)),
    )


async def show_explanation(
    session: CommandSession, name: str, node: str, form: str | None, settings: Settings, given: SchedulerOptions
) -> None:
    session.wait_up_to(DEADLINE)
    session.waiting_for = "the explanation"
    pod = await session.client.pods.get(name, session.namespace)
    _check_needs_scheduling(pod)
    if node:
        await _check_node_exists(session, node)
    explanation = await run_explanation(settings, session.namespace, name, node, given, _local_scheduler_options(settings))
    events = await list_events_about(session.client, PODS, pod)
    told = [event for event in sorted(events, key=event_time) if _is_by_scheduler(event, pod)][-EVENTS:]
    if form:
        print_result(
            documents.dump_document(form, to_json(explanation) | {"events": [_event_document(event) for event in told]})
        )
        return
    leaderless = _waits_for_scheduler(pod) and not await is_led(session.client, SCHEDULER_ELECTION)
    for line in format_explanation(explanation, told, time.time(), leaderless=SCHEDULER_ELECTION if leaderless else ""):
        print_result(line + "\n")


def _local_scheduler_options(settings: Settings) -> SchedulerOptions:
    """Return the scheduler options of the local cluster; empty for another cluster."""
    with suppress(Failure):
        return read_scheduler_options(clusters.present_data_dir(settings, None))
    return SchedulerOptions()


def _check_needs_scheduling(pod: Pod) -> None:
    """Raise Failure if the pod does not need scheduling."""
    name = f"pod/{pod.metadata.name}"
    if ended(pod):
        raise Failure(f"{name} has finished ({pod.status.phase})", hint=f"`pinnace describe {name}` shows where it ran")
    if not pod.spec.nodeName and is_set(pod.metadata.deletionTimestamp):
        raise Failure(f"{name} is being deleted, and will not be scheduled", hint=f"`pinnace describe {name}` shows its state")


async def _check_node_exists(session: CommandSession, name: str) -> None:
    """Raise Failure if the node does not exist."""
    try:
        await session.client.nodes.get(name)
    except NotFound as error:
        raise Failure(f'node "{name}" not found', hint="`pinnace get nodes` lists them", code=ExitCode.NOT_FOUND) from error


def _is_by_scheduler(event: Event, pod: Pod) -> bool:
    """Return whether the event is from the scheduler of the pod, or from the controller that reports an unknown profile."""
    return event.reason == "FailedScheduling" or (event.reportingComponent or event.source.component) == (
        pod.spec.schedulerName or wellknown.DEFAULT_SCHEDULER
    )


def _event_document(event: Event) -> dict[str, object]:
    return {"type": event.type, "reason": event.reason, "message": event.message, "count": event_count(event)}


async def run_explanation(
    settings: Settings, namespace: str, name: str, node: str, given: SchedulerOptions, kept: SchedulerOptions
) -> Explanation:
    """Run the explanation process. `kept` are the scheduler options of the local cluster. Raises Failure, or the ApiError of a
    request of the process."""
    arguments = ["--timeout", str(EXPLAIN_TIMEOUT), "--node", node]
    for flag, value in (("--server", settings.server), ("--context", settings.context)):
        arguments += [flag, value] if value else []
    if settings.acting_as:
        known = load_configuration(settings)
        if known.tls is not None and known.tls.cert is None:
            raise usage_failure("--as is not possible with a token here", hint="use a context with a certificate")
        arguments += ["--server", ",".join(known.endpoints), "--as", settings.acting_as]
        arguments += [f"--as-group={group}" for group in settings.acting_groups]
        arguments += ["--tls", *map(str, (known.tls.ca, known.tls.cert, known.tls.key))] if known.tls is not None else []
    arguments += ["--config", given.config, *(f"--plugin={plugin}" for plugin in given.plugins)]
    if kept.config or kept.plugins:
        plugins = (f"--kept-plugin={plugin}" for plugin in kept.plugins)
        arguments += ["--kept", kept.source, "--kept-config", kept.config, *plugins]
    python_path = ":".join(filter(None, (kept.python_path, os.environ.get("PYTHONPATH", ""))))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pinnace.scheduler.explaining", *arguments, "--", namespace, name,
        stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE,
        env=os.environ | ({"PYTHONPATH": python_path} if python_path else {}),
    )  # fmt: skip
    try:
        said, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return parse_explanation(said, complaints)


def parse_explanation(said: bytes, complaints: bytes) -> Explanation:
    """Parse the output of the process. Raises the errors of `run_explanation`."""
    try:
        answer = from_json(Answer, json.loads(said))
    except Malformed as error:
        raise _internal_error(str(error)) from None
    except ValueError:
        last = complaints.decode(errors="replace").strip().splitlines()[-1:]
        raise _internal_error(last[0] if last else "no output") from None
    if answer.unexplained is not None:
        raise _why_not(answer.unexplained)
    if answer.explanation is None:
        raise _internal_error("no output")
    return answer.explanation


def _internal_error(message: str) -> Failure:
    return Failure(f"the explanation failed: {message}", hint="this is a bug: please report it")


def _why_not(unexplained: Unexplained) -> Failure | ApiError:
    match unexplained.kind:
        case PreemptionProblem.USAGE:
            return usage_failure(
                unexplained.error, hint="specify the configuration of the scheduler with --config FILE and --plugin"
            )
        case PreemptionProblem.REFUSED:
            return from_status(Status.FromString(b64decode(unexplained.status)))
        case PreemptionProblem.TOO_SLOW:
            return Failure(unexplained.error, hint=HINT, code=ExitCode.UNAVAILABLE)


def format_explanation(explanation: Explanation, events: Sequence[Event], now: float, *, leaderless: str = "") -> Iterator[str]:
    """Yield lines without a newline. `events` are the events of the scheduler for the pod. `leaderless` is the election of the
    scheduler, if it has no leader."""
    yield from map(one_line, _format_headline(explanation, leaderless))
    for section in _format_sections(explanation):
        text = [line for line in section if line]
        if text:
            yield ""
            yield from text
    yield ""
    yield from _format_events(events, now)


def _format_events(events: Sequence[Event], now: float) -> Iterator[str]:
    """Yield the events as `kubectl describe` prints them."""
    headers = ("Type", "Reason", "Age", "From", "Message")
    rows = [
        (
            event.type,
            event.reason,
            format_occurrences(event, now),
            event.reportingComponent or event.source.component,
            event.message.strip(),
        )
        for event in sorted(events, key=event_time)
    ]
    yield f"Events of its scheduler:{'' if rows else '  <none>'}"
    lines = [headers, tuple("-" * len(header) for header in headers), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines if rows else ():
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _waits_for_scheduler(pod: Pod) -> bool:
    """Return whether the pod has no node but can have one, and the default scheduler is responsible for it."""
    waits = not pod.spec.nodeName and pod.status.phase in ("", "Pending") and not pod.spec.schedulingGates
    is_ours = pod.spec.schedulerName in ("", wellknown.DEFAULT_SCHEDULER)
    return waits and is_ours and not is_set(pod.metadata.deletionTimestamp)


def _format_headline(explanation: Explanation, leaderless: str) -> Iterator[str]:
    pod, bound = f"pod {explanation.pod}", explanation.bound
    place = _describe_node(explanation) or f"{pod} is pending"
    if explanation.unknown:
        yield f"{place}. Further information is not available: {explanation.unknown}."
        return
    if explanation.filters_only:
        yield f"{place}. The configuration of its scheduler is unknown: {explanation.unconfirmed}."
        yield f"The results are valid only for filters of {explanation.configuration} that the scheduler also uses:"
        passing = f"{explanation.feasible} of {_format_node_count(explanation.nodes)} pass these filters."
        yield f"{passing} Other filters, scores and preemption are unknown."
        return
    if explanation.unconfirmed:
        based_on = explanation.configuration
        yield f"The results are based on {based_on}, which the scheduler may not use: {explanation.unconfirmed}."
    if bound:
        yield f"{_describe_node(explanation)}. If it were removed and scheduled again:"
    if explanation.problem:
        yield f"{'It would not be scheduled' if bound else f'{pod} is pending'}: {explanation.problem}."
    elif not bound and not explanation.feasible:
        yield f"{pod} is pending: no node is feasible."
    elif not bound and leaderless:
        yield f'{pod} is pending: election "{leaderless}" has no leader, so no pods are scheduled.'
    elif not bound and explanation.extenders:
        yield f"{pod} is pending. The plugins accept at least one node, but extenders can reject it."
    elif not bound:
        yield f"{pod} is pending, and at least one node is feasible: it will be scheduled when its turn comes in the queue."
    if leaderless and (bound or explanation.problem or not explanation.feasible):
        yield f'Election "{leaderless}" has no leader, so no pods are scheduled.'
    if explanation.message:
        yield explanation.message
    if explanation.feasible:
        count = _format_node_count(explanation.nodes)
        yield f"Feasible: {explanation.feasible} of {count}. {_describe_best_node(explanation)}".rstrip()
    if explanation.extenders:
        asked = ", ".join(explanation.extenders)
        yield f"Extenders can reject nodes and add scores. This command does not call them: {asked}."


def _describe_node(explanation: Explanation) -> str:
    """Return a sentence about the node of the pod; empty if it has none."""
    pod, bound = f"pod {explanation.pod}", explanation.bound
    if explanation.node_is_gone:
        return f"{pod} is bound to {bound}, which does not exist; pods of a deleted node are deleted within a minute"
    return f"{pod} is on {bound}" if bound else ""


def _describe_best_node(explanation: Explanation) -> str:
    ranking = explanation.ranking
    if not ranking:
        return ""
    equal = f" and {explanation.best - 1} more" if explanation.best > 1 else ""
    own = next((ranked for ranked in ranking if ranked.node == explanation.bound), None)
    if own is not None and own.rank == 1:
        chance = "" if explanation.extenders else ": one of them is selected at random"
        others = f", like {_format_node_count(explanation.best - 1, 'other')}{chance}" if explanation.best > 1 else ""
        return f"{own.node} has the best score{' of the plugins' if explanation.extenders else ''}{others}."
    first = f"The best score is that of {ranking[0].node}{equal}"
    if own is not None:
        return f"{first}; {own.node} has rank {own.rank}."
    if explanation.bound and not explanation.node_is_gone:
        return f"{first}; {explanation.bound} is no longer feasible."
    return f"{first}."


def _format_sections(explanation: Explanation) -> Iterator[Iterator[str]]:
    if explanation.asked:
        yield _describe_requested_node(explanation, explanation.asked)
    else:
        if explanation.refusals:
            yield refusals_table(explanation)
        yield _format_remedies(explanation)
        yield _format_preemption(explanation)
    if explanation.ranking and not (explanation.asked and explanation.asked.objections):
        yield ranking_table(explanation)


def _format_remedies(explanation: Explanation) -> Iterator[str]:
    if explanation.remedies:
        several = len(explanation.remedies) > 1
        changes, alternatives = ("changes", " (alternatives)") if several else ("change", "")
        yield f"The smallest {changes} that would make a node feasible{alternatives}:"
        for remedy in explanation.remedies:
            then = f"  -> {format_list(remedy.nodes, NAMED)}" if remedy.nodes else ""
            yield f"  * {one_line(remedy.text)}{then}"


def _format_preemption(explanation: Explanation) -> Iterator[str]:
    if explanation.preemption:
        yield f"Preemption: {one_line(explanation.preemption)}."


def _describe_requested_node(explanation: Explanation, asked: Asked) -> Iterator[str]:
    if asked.objections:
        yield f"{asked.node} is not feasible:"
        yield from rows_table(
            ["PLUGIN", "WHY"], [(objection.plugin, detail) for objection in asked.objections for detail in objection.details]
        )
        return
    ranked = next((item for item in explanation.ranking if item.node == asked.node), None)
    if ranked is None:
        yield f"{asked.node} is feasible."
        return
    best = explanation.ranking[0]
    if ranked.rank == 1:
        yield f"{asked.node} is feasible and has the best score."
        return
    total, most = score_text(ranked.total), score_text(best.total)
    yield f"{asked.node} is feasible and has rank {ranked.rank}: its score is {total}, and the score of {best.node} is {most}."
    behind = {plugin: (best.scores[plugin] - score) * explanation.weights[plugin] for plugin, score in ranked.scores.items()}
    plugin = max(behind, key=lambda plugin: behind[plugin])
    here, there = score_text(ranked.scores[plugin]), score_text(best.scores[plugin])
    yield f"The largest difference is {plugin}: {here} instead of {there}{weight_suffix(explanation, plugin)}."


def _format_node_count(number: int, kind: str = "") -> str:
    return f"{number} {kind + ' ' if kind else ''}{'node' if number == 1 else 'nodes'}"
