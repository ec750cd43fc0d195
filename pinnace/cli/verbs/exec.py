"""`pinnace exec`: a command in a container."""

import asyncio
import sys

import click

from pinnace.api.pods_pb2 import ExecRequest, ExecResponse, ExecStart
from pinnace.api.resources import PODS
from pinnace.cli.command import verb
from pinnace.cli.objects import containers
from pinnace.cli.objects.arguments import names_of
from pinnace.cli.outcomes import Failure, usage
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import stdin
from pinnace.cli.terminal.console import err
from pinnace.client.channel import Duplex

LOST = "the connection ended before the command did: nobody knows what became of it"
AGAIN = "see what it has done, and run it again"


@verb(
    "exec",
    examples="""
        pinnace exec web-1 -- ls -l
        pinnace exec web-1 -c sidecar -- sh -c 'echo $HOSTNAME'
        tar c site | pinnace exec -i web-1 -- tar x
    """,
)
@click.argument("what", metavar="POD | KIND/NAME", shell_complete=names_of(PODS))
@click.argument("command", nargs=-1, metavar="-- COMMAND [ARGUMENT...]")
@click.option("-c", "--container", default="", metavar="NAME", help="In this container of the pod.")
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass standard input on to it.")
@click.option("-t", "--tty", is_flag=True, help="(There are no terminals here yet.)")
def exec(  # noqa: A001 (verbs are called as they are)
    settings: Settings, what: str, command: tuple[str, ...], container: str, has_input: bool, tty: bool
) -> int:
    """Run a command in a container, and end as it does: with its exit code.

    It runs where the container's own command does, with the same variables. It is killed when this one ends.
    """
    if tty:
        raise usage("-t: a command gets no terminal here", hint="leave it out; -i passes standard input on")
    if not command:
        raise usage("which command?", hint="write it behind --: pinnace exec POD -- ls")
    codes: list[int] = []

    async def body(session: Session) -> None:
        (pod,) = await containers.pods_of(session, what, "")
        metadata = pod.metadata
        start = ExecStart(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            container=container or containers.default_container(pod),
            command=command,
            stdin=has_input,
        )
        session.waiting_for = "the command to end"
        session.wait_for_ever()
        await converse(session, start, codes)

    run(settings, body)
    if codes[0]:
        err(f"command terminated with exit code {codes[0]}")
    return codes[0]


async def converse(session: Session, start: ExecStart, codes: list[int]) -> None:
    """Appends the exit code. Input that cannot be read ends it: the command would wait for it for ever."""
    stream = await session.client.pods.exec()
    try:
        await stream.write(ExecRequest(start=start))
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(stream)) if start.stdin else None
            codes.append(await _copy(stream))
            if feeding is not None:
                feeding.cancel()
    finally:
        stream.cancel()


async def _copy(stream: Duplex[ExecRequest, ExecResponse]) -> int:
    """Writes what the command writes, until it ends. Its exit code."""
    with containers.unbroken(LOST, AGAIN):
        while (response := await stream.read()) is not None:
            if response.HasField("exit"):
                return response.exit.code
            for file, data in ((sys.stdout, response.stdout), (sys.stderr, response.stderr)):
                if data:
                    file.buffer.write(data)
                    file.flush()
    raise Failure(LOST, hint=AGAIN)


async def _feed(stream: Duplex[ExecRequest, ExecResponse]) -> None:
    """As fast as the command takes it."""
    async for data in stdin.chunks():
        await stream.write(ExecRequest(stdin=data), patience=None)
    await stream.write(ExecRequest(closeStdin=True), patience=None)
