"""`pinnace trace`: the way of one pod through the cluster, from its stored versions and its events.

    versions of the key in etcd --> created, bound, status changes        until etcd compacts them
    events of the pod           --> rejected attempts                     for an hour by default
    objects before the bind     --> filters and scores, computed again    until etcd compacts them

Facts that no component stores are not shown as steps: the queue of the scheduler, and the moment at which it assumed the pod.
A note lists the unknown steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import click

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import ContainerState, Event, Pod
from pinnace.api.keys_pb2 import KeyVersion
from pinnace.api.pods import ended
from pinnace.api.records import Explanation, Malformed, from_json, to_json
from pinnace.api.resources import PODS
from pinnace.api.scalars import to_seconds
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import find_pod, list_events_about
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.output import documents
from pinnace.cli.output.decisions import ranking_table, refusals_table
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, one_line, print_result
from pinnace.client.client import Client
from pinnace.client.config import HINT
from pinnace.client.errors import ApiError, Expired
from pinnace.printers.cluster import event_count
from pinnace.printers.columns import NONE
from pinnace.timeline.source import DecisionError, LiveTimelineSource

DEADLINE = 60.0
"""Default time limit, in seconds."""
SILENCE_TIMEOUT = 15.0
COMPACTED = "etcd has compacted the earlier versions of the pod"


@dataclass(frozen=True, slots=True)
class PodTraceStep:
    """A step of a pod. `seconds` are since its creation, with the precision of the stored time; None if no time is stored."""

    what: str
    by: str = ""
    detail: str = ""
    seconds: float | None = None
    revision: int = 0
    """0: unknown, or the step wrote nothing."""


@dataclass(frozen=True, slots=True)
class PodTrace:
    pod: str
    uid: str
    steps: Sequence[PodTraceStep] = ()
    decided: str = ""
    """The revision of the objects by which `decision` was computed."""
    decision: Explanation | None = None
    unknown: Sequence[str] = field(default_factory=list)
    """Notes on unknown steps, one sentence each."""


@verb(
    "trace",
    examples="""
        pinnace trace pod/a
        pinnace trace pod/a -o json | jq '.steps[] | select(.what == "bound")'
    """,
)
@arguments.pod
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="As a document.")
def trace(settings: Settings, what: tuple[str, ...], output: str | None) -> None:
    """Show the steps of a pod from its creation to its current status.

    The steps are the creation, rejected attempts, the decision, the bind, and changes of the status. They have revisions, and
    times since the creation of the pod. Times of objects have whole seconds. Filters and scores are computed again, with the
    objects at the revision before the bind. Etcd keeps old revisions until they are compacted; a note lists the unknown steps.
    The command needs the verbs list and watch of the resource "keys" in the group pinnace.io.
    """
    name = find_pod(what, "trace")
    run_session(settings, lambda session: show_trace(session, name, output))


async def show_trace(session: CommandSession, name: str, form: str | None) -> None:
    session.wait_up_to(DEADLINE)
    session.waiting_for = "the trace"
    client = session.client
    pod = await client.pods.get(name, session.namespace)
    events = await list_events_about(client, PODS, pod)
    versions, complete = await list_versions(client, pod)
    result = build_trace(pod, versions, complete, events, await _list_holders(client, pod))
    bind = next((step.revision for step in result.steps if step.what == "bound"), 0)
    result = await _add_decision(client, pod, bind, result)
    if form:
        print_result(documents.dump_document(form, to_json(result)))
        return
    for line in format_trace(result):
        print_result(f"{line}\n")


async def list_versions(client: Client, pod: Pod) -> tuple[list[tuple[int, Pod]], bool]:
    """Return the stored versions of the pod by their revisions, and whether they begin with its creation. Raises ApiError."""
    key = f"{PODS.prefix}{pod.metadata.namespace}/{pod.metadata.name}"
    present = await client.keys.get(key)
    if present is None:
        raise Failure(f'pods "{pod.metadata.name}" not found', code=ExitCode.NOT_FOUND)
    result: list[tuple[int, Pod]] = []
    try:
        async with aclosing(client.keys.watch([key], present.create_revision, SILENCE_TIMEOUT)) as responses:
            async for response in responses:
                result += [_as_pod_version(change) for change in response.changes if change.key == key and not change.deleted]
                if response.revision >= present.mod_revision:
                    return result, True
    except Expired:
        return [_as_pod_version(present)], present.version == 1
    raise Failure("the watch of the pod's versions ended", hint=HINT, code=ExitCode.UNAVAILABLE)


def _as_pod_version(item: KeyVersion) -> tuple[int, Pod]:
    return item.mod_revision, Pod.FromString(item.value)


async def _list_holders(client: Client, pod: Pod) -> Mapping[int, str]:
    """Return the holders of the terms of the pod's election by token; empty without permission."""
    election = fences.fence_of(pod).election
    if not election:
        return {}
    try:
        return {term.token: term.holder for term in await client.elections.list_terms(election)}
    except ApiError:
        return {}


def build_trace(
    pod: Pod, versions: Sequence[tuple[int, Pod]], complete: bool, events: Sequence[Event], holders: Mapping[int, str]
) -> PodTrace:
    """Compute the steps. `versions` are in the order of revisions, and `complete` states that they begin with the creation."""
    born = to_seconds(pod.metadata.creationTimestamp)
    steps: list[PodTraceStep] = []
    unknown: list[str] = []
    if complete:
        revision, first = versions[0]
        gates = ", ".join(gate.name for gate in first.spec.schedulingGates)
        steps.append(
            PodTraceStep("created", seconds=0.0, revision=revision, detail=f"scheduling gates: {gates}" if gates else "")
        )
    else:
        steps.append(PodTraceStep("created", seconds=0.0))
        unknown.append(f"{COMPACTED}: the revisions of its creation and of earlier changes are unknown.")
    rejections = [event for event in events if event.reason == "FailedScheduling"]
    steps += [_rejection_step(event, born) for event in rejections]
    if rejections:
        unknown.append("The event that moved the pod back to the active queue is not stored.")
    known = Pod()
    if not complete:  # the present version has all that is still known
        if pod.spec.nodeName:
            steps.append(_bind_step(pod, 0, born, holders))
        if pod.status.phase not in ("", "Pending"):
            revision, present = versions[-1]
            steps += _status_steps(known, present, revision, born)
    for revision, version in versions if complete else ():
        if version.spec.nodeName and not known.spec.nodeName:
            steps.append(_bind_step(version, revision, born, holders))
        steps += _status_steps(known, version, revision, born)
        known = version
    if pod.spec.nodeName and fences.fence_of(pod).election:
        unknown.append(
            "The scheduler assumed the pod on its node before the bind, in memory only: no time or revision is stored."
        )
    if complete:  # the revision of a rejection is that of its last write
        steps.sort(key=lambda step: step.revision)
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return PodTrace(name, pod.metadata.uid, steps, unknown=unknown)


def _rejection_step(event: Event, born: float) -> PodTraceStep:
    first = to_seconds(event.eventTime) or to_seconds(event.firstTimestamp)
    times = f" ({event_count(event)} times)" if event_count(event) > 1 else ""
    by = event.reportingInstance or event.source.host or event.reportingComponent
    revision = int(event.metadata.resourceVersion or 0)
    return PodTraceStep("rejected", by, f"{event.message}{times}", max(0.0, first - born), revision)


def _bind_step(pod: Pod, revision: int, born: float, holders: Mapping[int, str]) -> PodTraceStep:
    fence = fences.fence_of(pod)
    scheduled = next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)
    seconds = to_seconds(scheduled.lastTransitionTime) - born if scheduled else None
    if not fence.election:
        return PodTraceStep(
            "bound", "", f"to {pod.spec.nodeName}, without a fence: no elected scheduler wrote spec.nodeName", seconds, revision
        )
    detail = f"to {pod.spec.nodeName}, under the fence {fence.election}/{fence.token}"
    return PodTraceStep("bound", holders.get(fence.token, ""), detail, seconds, revision)


def _status_steps(before: Pod, after: Pod, revision: int, born: float) -> Iterator[PodTraceStep]:
    by = f"kubelet of {after.spec.nodeName}" if after.spec.nodeName else ""
    if not before.metadata.HasField("deletionTimestamp") and after.metadata.HasField("deletionTimestamp"):
        yield PodTraceStep("deletion requested", revision=revision)
    states = {
        container_status.name: _describe_state(container_status.state) for container_status in before.status.containerStatuses
    }
    changes = [
        f"{container_status.name} {state}"
        for container_status in after.status.containerStatuses
        if (state := _describe_state(container_status.state)) and state != states.get(container_status.name)
    ]
    ready, was = _is_ready(after), _is_ready(before)
    if ready[0] != was[0]:
        changes.append("ready" if ready[0] else "not ready")
    phase = after.status.phase
    if phase not in ("", before.status.phase) and (phase, before.status.phase) != ("Pending", ""):
        yield PodTraceStep(phase, by, "; ".join(changes), _time_since_creation(after, born), revision)
    elif changes:
        yield PodTraceStep("status", by, "; ".join(changes), _time_since_creation(after, born), revision)


def _describe_state(state: ContainerState) -> str:
    if state.HasField("running"):
        return "running"
    if state.HasField("terminated"):
        return f"terminated ({state.terminated.exitCode})"
    return f"waiting ({state.waiting.reason})" if state.HasField("waiting") else ""


def _is_ready(pod: Pod) -> tuple[bool, float]:
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            return condition.status == "True", to_seconds(condition.lastTransitionTime)
    return False, 0.0


def _time_since_creation(pod: Pod, born: float) -> float | None:
    """Return the time of the last change of a condition or a container, since the creation."""
    times = [to_seconds(condition.lastTransitionTime) for condition in pod.status.conditions]
    for container_status in pod.status.containerStatuses:
        times += [
            to_seconds(container_status.state.running.startedAt),
            to_seconds(container_status.state.terminated.finishedAt),
        ]
    return max(0.0, max(times) - born) if times else None


async def _add_decision(client: Client, pod: Pod, bind: int, found: PodTrace) -> PodTrace:
    """Add the decision, computed again by the objects before the bind, or by the present ones if the pod waits."""
    if (ended(pod) and not bind) or (pod.spec.nodeName and not fences.fence_of(pod).election):
        return found
    if pod.spec.nodeName and not bind:
        return _set_decision(
            found, None, "", "The filters and scores of the decision are unknown: etcd has compacted the objects."
        )
    revision = bind - 1 if bind else 0
    try:
        document = await LiveTimelineSource(client.connection, "").explain_decision(found.pod, revision)
        explanation = from_json(Explanation, document)
    except (DecisionError, Malformed) as error:
        return _set_decision(found, None, "", f"The filters and scores of the decision are unknown: {error}.")
    return _set_decision(found, explanation, f"revision {revision}" if revision else "the present revision", "")


def _set_decision(found: PodTrace, decision: Explanation | None, decided: str, unknown: str) -> PodTrace:
    return PodTrace(found.pod, found.uid, found.steps, decided, decision, [*found.unknown, *filter(None, (unknown,))])


def format_trace(found: PodTrace) -> Iterator[str]:
    """Yield the trace as lines without newlines."""
    yield f"pod {found.pod}, uid {found.uid}"
    yield ""
    rows = [
        (_format_step_time(step), str(step.revision or NONE), step.what, step.by or NONE, step.detail) for step in found.steps
    ]
    yield from Table(("TIME", "REVISION", "STEP", "BY", "DETAIL")).render(rows).splitlines()
    if found.decision is not None:
        yield from _format_decision(found.decision, found.decided)
    for index, sentence in enumerate(found.unknown):
        if not index:
            yield ""
            yield "Not known:"
        yield f"  {one_line(sentence)}"


def _format_decision(decision: Explanation, decided: str) -> Iterator[str]:
    yield ""
    configuration = decision.configuration or "the default configuration"
    yield f"The decision, computed again by the objects at {decided} and {configuration}:"
    if decision.unconfirmed:
        yield f"  The scheduler may use another configuration: {one_line(decision.unconfirmed)}."
    if decision.unknown:
        yield f"  {one_line(decision.unknown)}"
        return
    if decision.problem:
        yield f"  {one_line(decision.problem)}"
    yield f"  {decision.feasible} of {decision.nodes} nodes pass the filters."
    if decision.refusals:
        yield from refusals_table(decision)
    if decision.ranking:
        yield from ranking_table(decision)
        if decision.best > 1:
            yield f"  {decision.best} nodes have the best score: the scheduler selects one of them at random."


def _format_step_time(step: PodTraceStep) -> str:
    return NONE if step.seconds is None else f"+{step.seconds:.3f}s".replace(".000s", "s")
