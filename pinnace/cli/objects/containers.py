"""Which pods and containers `pinnace logs` and `pinnace exec` mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, SERVICES, Resource
from pinnace.api.scalars import to_seconds
from pinnace.api.selectors import from_message
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.cli.objects.targets import parse_resource
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import note
from pinnace.client.errors import Unavailable

SELECTING: tuple[Resource[Any], ...] = (DEPLOYMENTS, REPLICA_SETS, JOBS, SERVICES)
"""Whose selector says which pods are theirs. Those of claims and budgets are for something else."""
ELSEWHERE = "name a pod: `pinnace get pods` lists them"


@contextmanager
def unbroken(lost: str, hint: str) -> Iterator[None]:
    """While a stream that has begun is read: what is told when its connection is lost, which no server says. Raises Failure."""
    try:
        yield
    except Unavailable as error:
        if error.reason:
            raise
        raise Failure(f"{lost} ({error.message})", hint=hint, code=ExitCode.UNAVAILABLE) from error


async def pods_of(session: Session, what: str, labels: str) -> list[Pod]:
    """The pod of that name; all that carry the labels; or one of a workload or service ("deployment/web"), as kubectl chooses
    it: one that runs, is ready, stays, and has been ready for longest, as far as any is. Raises ApiError and Failure."""
    pods = session.client.pods
    if not what:
        return (await pods.list(session.namespace, labels=labels)).items
    kind, _, name = what.rpartition("/")
    resource = parse_resource(kind) if kind else PODS
    if resource is PODS:
        return [await pods.get(name, session.namespace)]
    if resource not in SELECTING:
        raise usage(f'"{what}" has no pods of its own', hint=ELSEWHERE)
    spec = (await session.client.of(resource).get(name, session.namespace)).spec
    selector = LabelSelector(matchLabels=spec.selector) if resource is SERVICES else spec.selector
    selected = str(from_message(selector))
    if not selected:  # for the server this is every pod
        raise usage(f'"{what}" selects no pods: its selector is empty', hint=ELSEWHERE)
    found = (await pods.list(session.namespace, labels=selected)).items
    if not found:
        raise Failure(f'"{what}" has no pods', hint=f"`pinnace describe {what}` says why")
    chosen = min(found, key=_preference)
    if len(found) > 1:
        note(f"found {len(found)} pods, using pod/{chosen.metadata.name}")
    return [chosen]


def _preference(pod: Pod) -> tuple[bool, bool, bool, float, float, str]:
    """The least goes first."""
    ready = conditions.find(pod.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    since = to_seconds(ready.lastTransitionTime) if ready is not None and is_ready else 0.0
    created = to_seconds(pod.metadata.creationTimestamp)
    ends = pod.metadata.HasField("deletionTimestamp")
    return pod.status.phase != "Running", not is_ready, ends, since, created, pod.metadata.name


def default_container(pod: Pod) -> str:
    """The one that is meant when none is named; says which, when there are others."""
    names = [each.name for each in pod.spec.containers]
    annotated = pod.metadata.annotations.get(DEFAULT_CONTAINER_ANNOTATION, "")
    if annotated in names:
        return annotated
    if len(names) > 1:
        note(f'defaulted container "{names[0]}" out of: {", ".join(names)}')
    return names[0]
