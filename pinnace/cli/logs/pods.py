"""What the containers of pods write, printed: of one, of several, as it comes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import LogOptions, LogsRequest
from pinnace.cli.objects.containers import default_container, unbroken
from pinnace.cli.outcomes import Failure
from pinnace.cli.session import DEFAULT_DEADLINE, Session
from pinnace.cli.terminal.console import bytes_out
from pinnace.client.errors import ApiError

Print = Callable[[bytes], None]


class Source(NamedTuple):
    pod: Pod
    container: str

    @property
    def prefix(self) -> bytes:
        return f"[pod/{self.pod.metadata.name}/{self.container}] ".encode()


def sources(pod: Pod, container: str, everything: bool) -> list[Source]:
    if everything:
        return [Source(pod, each.name) for each in (*pod.spec.initContainers, *pod.spec.containers)]
    return [Source(pod, container or default_container(pod))]


async def show(session: Session, found: Sequence[Source], options: LogOptions, prefixed: bool) -> None:
    """One after the other; those that are followed, all at once. What cannot be had of one is told, and the others go on."""

    async def one(source: Source) -> None:
        try:
            await _copy(session, source, options, printer(source, prefixed, whole_lines=len(found) > 1))
        except (ApiError, Failure) as error:
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
    write = bytes_out()

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
    again = "run it again" + ", with --since or --tail for what came meanwhile" * options.follow
    try:
        with unbroken(f"the connection was lost while the log of {metadata.name} was read", again):
            while (response := await stream.read()) is not None:
                write(response.data)
                if not options.follow:
                    session.wait_up_to(DEFAULT_DEADLINE)  # as long as it comes
        write(b"")
    finally:
        stream.cancel()
