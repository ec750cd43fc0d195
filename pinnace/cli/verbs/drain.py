"""The verbs `drain`, `cordon` and `uncordon`: evict the pods of nodes, and mark nodes as unschedulable or schedulable.

The rules for pods that may be evicted, and the messages, are kubectl's. Unlike kubectl, all evictions of a node are sent in one
call. Refused evictions are repeated after the delay that the server requests.

Source: kubectl, pkg/drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import ended
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.resources import NODES, PODS
from pinnace.api.selectors import parse_labels
from pinnace.cli.changes import BATCH, change_nodes, change_one, marking
from pinnace.cli.command import verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.query import Query, fetch, reference, some_of
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import err, out
from pinnace.cli.waiting import PendingDeletion, wait_until_gone
from pinnace.client.errors import ApiError, Conflict, Exhausted, Forbidden, NotFound, error_of
from pinnace.client.resource import delete_request

WAIT = 600.0
"""The default timeout in seconds. Disruption budgets can delay evictions."""


@verb(
    "drain",
    examples="""
        pinnace drain node-0
        pinnace drain node-0 --force --grace-period 5 --timeout 2m
        pinnace drain -l zone=a --pod-selector app=web
    """,
)
@arguments.nodes
@arguments.selector
@click.option("--pod-selector", default="", metavar="LABELS", help="Label selector to filter the pods on the node.")
@click.option(
    "--force", is_flag=True, help="Continue even if there are pods that no controller manages. They are deleted for good."
)
@click.option(
    "--delete-emptydir-data",
    is_flag=True,
    help="Continue even if there are pods that use emptyDir. Their local data is deleted.",
)
@click.option(
    "--grace-period",
    type=click.IntRange(-1, arguments.MOST),
    default=-1,
    metavar="SECONDS",
    help="Seconds that each pod gets to terminate; -1: the value in the pod.",
)
@click.option("--ignore-daemonsets", is_flag=True, expose_value=False, help="Has no effect: there are no DaemonSets.")
def drain_verb(
    settings: Settings,
    nodes: tuple[str, ...],
    selector: str,
    pod_selector: str,
    force: bool,
    delete_emptydir_data: bool,
    grace_period: int,
) -> None:
    """Drain nodes in preparation for maintenance.

    Each node is cordoned first. Its pods are then evicted, as their disruption budgets allow. Refused evictions are retried
    for ten minutes or --timeout. The command returns when the pods are gone.
    """
    if not nodes and not selector:
        raise usage("you must specify a node", hint="name nodes, or select them with -l")
    parse_labels(pod_selector)
    how = DrainOptions(force, delete_emptydir_data, grace_period if grace_period >= 0 else None, pod_selector)
    query = Query.of([NODES.plural, *(name.removeprefix("node/") for name in nodes)], labels=selector)
    run(settings, lambda session: drain_all(session, query, how))


async def drain_all(session: Session, query: Query, how: DrainOptions) -> None:
    """Cordons all nodes before the first is drained, so that no pod moves twice. If a node does not exist, none is cordoned."""
    session.wait_up_to(WAIT)
    client = session.client.of(NODES)
    found: list[Any] = list(await fetch(session, query, query.targets[0]))
    session.finish()
    if not found:
        raise query.unmatched()
    for node in found:
        said = await change_one(client, node, marking(unschedulable=True))
        out(f"{reference(NODES, node.metadata.name)} {said}\n")
    for node in found:
        try:
            await drain_node(session, node.metadata.name, how)
        except (Failure, ApiError) as error:
            session.failed(error)


@verb(
    "cordon",
    examples="""
        pinnace cordon node-0
        pinnace cordon -l zone=a
    """,
)
@arguments.nodes
@arguments.selector
def cordon(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Mark nodes as unschedulable.

    Running pods stay on the node. Pods that tolerate node.kubernetes.io/unschedulable can still be scheduled to it.
    """
    change_nodes(settings, nodes, selector, marking(unschedulable=True))


@verb(
    "uncordon",
    examples="""
        pinnace uncordon node-0
        pinnace uncordon -l zone=a
    """,
)
@arguments.nodes
@arguments.selector
def uncordon(settings: Settings, nodes: tuple[str, ...], selector: str) -> None:
    """Mark nodes as schedulable."""
    change_nodes(settings, nodes, selector, marking(unschedulable=False))


REMINDER = 10.0
"""Seconds."""
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class DrainOptions:
    force: bool = False
    """Also pods without a controller."""
    delete_empty_dirs: bool = False
    """Also pods with local data."""
    grace: int | None = None
    """Seconds; None: the pod's own."""
    pod_selector: str = ""


@dataclass(slots=True)
class Sorted:
    """The pods to evict, warnings, and obstacles."""

    evict: list[Pod] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)


def sort_out(pods: Iterable[Pod], how: DrainOptions) -> Sorted:
    """Finished pods can always be evicted. Mirror pods are not evicted."""
    found = Sorted()
    ownerless, local = list[str](), list[str]()
    for pod in pods:
        if MIRROR_ANNOTATION in pod.metadata.annotations:
            continue
        found.evict.append(pod)
        if ended(pod):
            continue
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if not any(owner.controller for owner in pod.metadata.ownerReferences):
            ownerless.append(name)
        if any(volume.volumeSource.HasField("emptyDir") for volume in pod.spec.volumes):
            local.append(name)
    for names, allowed, what, option in (
        (ownerless, how.force, "Pods that declare no controller", "--force"),
        (local, how.delete_empty_dirs, "Pods with local storage", "--delete-emptydir-data"),
    ):
        if names and allowed:
            found.warnings.append(f"deleting {what}: {', '.join(names)}")
        elif names:
            found.obstacles.append(f"cannot delete {what} (use {option} to override): {', '.join(names)}")
    return found


async def drain_node(session: Session, node: str, how: DrainOptions) -> None:
    """Evicts the pods of one node, and waits until they are gone. Permanent refusals are reported and do not affect other pods.
    Raises Failure if there are obstacles, and ApiError.
    """
    listing = await session.client.pods.list(labels=how.pod_selector, fields=f"spec.nodeName={node}")
    found = sort_out(listing.items, how)
    if found.obstacles:
        message = f'unable to drain node "{node}": {found.obstacles[0]}'
        hint = f"no pod was evicted from it, and it stays cordoned: `pinnace uncordon {node}`"
        raise Failure(message, hint=hint, code=ExitCode.CONFLICT, details=found.obstacles[1:])
    for warning in found.warnings:
        err(f"Warning: {warning}")
    evicted = list[PendingDeletion]()
    try:
        stay = await _evict(session, found.evict, how, evicted)
        await wait_until_gone(session, evicted)
    except asyncio.CancelledError:
        done = some_of([f"{one.namespace}/{one.name}" for one in evicted]) or "none"
        err(f"evicted from {node} before the end: {done} ({len(evicted)} of {len(found.evict)} pods)")
        raise
    for one in evicted:
        out(f"{reference(PODS, one.name)} evicted\n")
    if not stay:
        out(f"{reference(NODES, node)} drained\n")


async def _evict(session: Session, pods: Sequence[Pod], how: DrainOptions, evicted: list[PendingDeletion]) -> bool:
    """Evicts pods until all evictions are accepted, or until the timeout. Adds accepted evictions to `evicted` immediately.
    Returns whether evictions were refused permanently. Evictions that conflict with a change of the pod are retried.
    """
    refusals, stay = _Refusals(), False
    left = list(pods)
    for pod in left:
        err(f"evicting pod {pod.metadata.namespace}/{pod.metadata.name}")
    while left:
        session.waiting_for = f"{len(left)} of {len(pods)} pods to be evicted{refusals.latest}"
        refused, wait = [], 0.0
        for start in range(0, len(left), BATCH):
            batch = left[start : start + BATCH]
            for pod, error in zip(batch, await _asked(session, batch, how), strict=True):
                metadata = pod.metadata
                if error is None:
                    evicted.append(PendingDeletion(PODS, metadata.namespace, metadata.name, metadata.uid))
                elif isinstance(error, Exhausted | Conflict) and error.retry_after is not None:
                    refused.append(pod)
                    wait = max(wait, error.retry_after)
                    refusals.tell(pod, error)
                elif not isinstance(error, NotFound) and error.reason != "UIDMismatch":
                    session.failed(error, where=f"error when evicting {_named(pod)}")
                    stay = True
        left = refused
        if left:
            await asyncio.sleep(wait)
    return stay


async def _asked(session: Session, pods: Sequence[Pod], how: DrainOptions) -> list[ApiError | None]:
    """Requests evictions of all pods in a batch. If the batch is forbidden, because the pods have several namespaces, each pod
    is evicted individually.
    """
    try:
        outcomes = await session.client.pods.evict_batch([_eviction(pod, how) for pod in pods])
    except Forbidden as error:
        if len(pods) == 1:
            return [error]
        return [each for pod in pods for each in await _asked(session, [pod], how)]
    return list(map(error_of, outcomes))


class _Refusals:
    """Reports why a pod cannot be evicted yet, for each new reason and after REMINDER."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}
        """The last reported reason and its time, by uid."""
        self.latest = ""
        """A suffix for the timeout message."""

    def tell(self, pod: Pod, error: ApiError) -> None:
        metadata, now = pod.metadata, asyncio.get_running_loop().time()
        cause = dict(error.metadata).get("cause", "")
        why = f"{error.message} {cause}".rstrip()
        if cause:
            self.latest = f": {cause.rstrip('.')} (`pinnace get pdb -n {metadata.namespace}` shows what it allows)"
        said, since = self._told.get(metadata.uid, ("", now))
        if why != said or now - since >= REMINDER:
            self._told[metadata.uid] = why, now
            err(f"error when evicting {_named(pod)} (will retry after {error.retry_after:g}s): {why}")


def _named(pod: Pod) -> str:
    return f'pods/"{pod.metadata.name}" -n "{pod.metadata.namespace}"'


def _eviction(pod: Pod, how: DrainOptions) -> Eviction:
    made = Eviction(deleteOptions=delete_request("", grace=how.grace, uid=pod.metadata.uid).options)
    made.metadata.namespace, made.metadata.name = pod.metadata.namespace, pod.metadata.name
    return made
