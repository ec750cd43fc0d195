"""The logs of pods: which containers are meant, and printing what they write."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.pods_pb2 import LogOptions, LogsRequest
from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, SERVICES, Resource
from pinnace.api.selectors import from_message
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.cli.console import note
from pinnace.cli.outcomes import Failure, usage
from pinnace.cli.session import DEFAULT_DEADLINE, Session
from pinnace.cli.targets import parse_resource
from pinnace.client.errors import ApiError

Print = Callable[[bytes], None]

SELECTING: tuple[Resource[Any], ...] = (DEPLOYMENTS, REPLICA_SETS, JOBS, SERVICES)
"""Whose selector says which pods are theirs. Those of claims and budgets are for something else."""
ELSEWHERE = "name a pod: `pinnace get pods` lists them"


class Source(NamedTuple):
    pod: Pod
    container: str

    @property
    def prefix(self) -> bytes:
        return f"[pod/{self.pod.metadata.name}/{self.container}] ".encode()


async def pods_of(session: Session, what: str, labels: str) -> list[Pod]:
    """The pod of that name; all that carry the labels; or one of a workload or service ("deployment/web"), as kubectl chooses
    it: one that runs, if any does. Raises ApiError and Failure."""
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
    chosen = min(found, key=lambda pod: (pod.status.phase != "Running", pod.metadata.name))
    if len(found) > 1:
        note(f"found {len(found)} pods, using pod/{chosen.metadata.name}")
    return [chosen]


def default_container(pod: Pod) -> str:
    """The one that is meant when none is named; says which, when there are others."""
    names = [each.name for each in pod.spec.containers]
    annotated = pod.metadata.annotations.get(DEFAULT_CONTAINER_ANNOTATION, "")
    if annotated in names:
        return annotated
    if len(names) > 1:
        note(f'defaulted container "{names[0]}" out of: {", ".join(names)}')
    return names[0]


def sources(pod: Pod, container: str, everything: bool) -> list[Source]:
    if everything:
        return [Source(pod, each.name) for each in (*pod.spec.initContainers, *pod.spec.containers)]
    return [Source(pod, container or default_container(pod))]


async def show(session: Session, found: Sequence[Source], options: LogOptions, prefixed: bool) -> None:
    """One after the other; those that are followed, all at once. What cannot be had of one is told, and the others go on."""

    async def one(source: Source) -> None:
        try:
            await _copy(session, source, options, printer(source, prefixed, whole_lines=len(found) > 1))
        except ApiError as error:
            session.failed(error)

    if options.follow:
        async with asyncio.TaskGroup() as group:
            for source in found:
                group.create_task(one(source))
        return
    for source in found:
        await one(source)


def printer(source: Source, prefixed: bool, *, whole_lines: bool) -> Print:
    """How chunks are printed: as they come; or, so that lines of several do not mix, by whole lines. The last one is empty."""
    rest = b""

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def write_lines(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        write(b"".join((source.prefix if prefixed else b"") + line + b"\n" for line in lines))

    return write_lines if prefixed or whole_lines else write


async def _copy(session: Session, source: Source, options: LogOptions, write: Print) -> None:
    metadata = source.pod.metadata
    request = LogsRequest(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, options=options)
    request.options.container = source.container
    stream = await session.client.pods.logs(request)
    try:
        while (response := await stream.read()) is not None:
            write(response.data)
            if not options.follow:
                session.wait_up_to(DEFAULT_DEADLINE)  # as long as it comes
        write(b"")
    finally:
        stream.cancel()
