"""`pinnace logs`: the log of a component of a local cluster. (Simulated containers write none, and it says so.)"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import click

from pinnace.api.resources import PODS
from pinnace.cli import logfile
from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.console import note
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.reaching import configuration
from pinnace.cli.session import Session, run
from pinnace.cli.settings import Settings
from pinnace.cli.targets import parse_resource
from pinnace.client.errors import NotFound

COMPONENT = "component"


@verb(
    "logs",
    examples="""
        pinnace logs component/scheduler-0              # all of it
        pinnace logs component/apiserver-1 --tail 20
        pinnace logs component/scheduler-0 -f           # and what comes, until interrupted or --timeout
    """,
)
@click.argument("what", metavar="component/NAME | POD")
@click.option("-f", "--follow", is_flag=True, help="Then show what is added, until interrupted or --timeout.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
def logs(settings: Settings, what: str, follow: bool, tail: int | None) -> None:
    """Show the log of a component of a local cluster.

    Components are the processes that `pinnace status` lists. The containers of pods are simulated and write nothing.
    """
    kind, slash, name = what.rpartition("/")
    if kind == COMPONENT:
        show(settings, name, follow, tail)
    elif slash and parse_resource(kind) is not PODS:
        raise usage(f'"{what}" has no log', hint="`pinnace logs component/NAME` shows that of a process")
    else:
        run(settings, lambda session: explain_silence(session, name, configuration(settings).data_dir))


def show(settings: Settings, name: str, follow: bool, tail: int | None) -> None:
    path = find(settings, name)
    stdout = sys.stdout.buffer
    data, offset = logfile.tail(path, tail)
    stdout.write(data)
    stdout.flush()

    async def print_additions() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.timeout):
                async for more in logfile.follow(path, offset):
                    stdout.write(more)
                    stdout.flush()

    if follow:
        asyncio.run(print_additions())


def find(settings: Settings, name: str) -> Path:
    """The log file of a process of the local cluster that is configured. Raises Failure."""
    data_dir = configuration(settings).data_dir
    if data_dir is None:
        hint = "the logs of other clusters are where their processes run: `docker-compose logs`, for example"
        raise Failure("this is no local cluster, so its logs are not here", hint=hint, code=ExitCode.NOT_FOUND)
    known = components(data_dir)
    if name not in known:
        hint = f"there are {', '.join(known)}" if known else f"{data_dir / 'logs'} is empty: `pinnace up` starts a cluster"
        raise Failure(f'there is no component "{name}"{did_you_mean(name, known)}', hint=hint, code=ExitCode.NOT_FOUND)
    return data_dir / "logs" / f"{name}.log"


def components(data_dir: Path) -> list[str]:
    """Those that have a log."""
    return sorted(path.stem for path in (data_dir / "logs").glob("*.log"))


async def explain_silence(session: Session, name: str, data_dir: Path | None) -> None:
    """Says that the pod is silent, and where to look instead. Raises NotFound when there is no such pod; Failure when that is
    the name of a component."""
    try:
        await session.client.pods.get(name, session.namespace)
    except NotFound:
        if data_dir is None or name not in components(data_dir):
            raise
        hint = f"`pinnace logs {COMPONENT}/{name}` shows the log of the component"
        raise Failure(f'there is no pod "{name}"', hint=hint, code=ExitCode.NOT_FOUND) from None
    space = f" -n {session.namespace}" if session.namespace != "default" else ""
    note(
        f'the containers of pod "{name}" are simulated and write nothing: '
        f"see `pinnace describe pod {name}{space}` or `pinnace events --for pod/{name}{space}`"
    )
