"""The verb `logs` for a component of a local cluster. The logs of containers are kubectl's.

Log files are read in chunks, so that their size does not matter.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import click

from pinnace.cli import kubectl
from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.kubectl import COMPONENT
from pinnace.cli.outcomes import ExitCode, Failure, Reported
from pinnace.cli.servers import load_configuration
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_bytes
from pinnace.runtime import process

MOST = 2**63 - 1
POD_TIMEOUT = 2.0
"""Seconds in which a server says whether a pod has the name of the component."""
POLL = 0.1
"""Seconds between two reads of a followed file."""
CHUNK = 1 << 16


@verb(
    "logs",
    examples="""
        pinnace logs scheduler-0 -f               # of a process of the local cluster
        pinnace logs component/scheduler-0        # even if a pod has this name
        pinnace logs web-1                        # of a pod: kubectl's, see `pinnace kubectl logs --help`
    """,
)
@click.argument("name", metavar="COMPONENT")
@click.option("-f", "--follow", is_flag=True, help="Stream new lines until an interrupt, or --timeout.")
@click.option("--tail", type=click.IntRange(-1, MOST), metavar="N", help="Only the last N lines; -1: all.")
def logs(settings: Settings, name: str, follow: bool, tail: int | None) -> None:
    """Print the log of a component: a process of a local cluster that `pinnace status` lists.

    If a pod has the same name, its log is printed by kubectl.
    """
    component = name.removeprefix(COMPONENT)
    if component == name and _is_pod(settings, name):
        kubectl.become_kubectl_or_exit(sys.argv[1:])
    show_component(settings, component, follow, None if tail == -1 else tail)


def _is_pod(settings: Settings, name: str) -> bool:
    """Return whether a server answers that a pod has this name."""
    from pinnace.cli.session import CommandSession, run_session  # imports gRPC
    from pinnace.client.errors import ApiError

    result: list[str] = []

    async def ask(session: CommandSession) -> None:
        result.append((await session.client.pods.get(name, session.namespace)).metadata.name)

    with suppress(ApiError, Failure, Reported, TimeoutError):
        run_session(replace(settings, timeout=POD_TIMEOUT), ask)
    return bool(result)


def show_component(settings: Settings, name: str, follow: bool, tail: int | None) -> None:
    path = find_log(settings, name)
    write = print_bytes()

    async def show() -> None:
        async for data in read_lines(path, tail, follow=follow):
            write(data)

    try:
        process.run_command(asyncio.wait_for(show(), settings.timeout))
    except TimeoutError:
        if not follow:
            raise TimeoutError(f"timed out after {settings.timeout:g} s") from None


def find_log(settings: Settings, name: str) -> Path:
    """Return the log file of a process of the selected local cluster. Raises Failure."""
    data_dir = load_configuration(settings).data_dir
    if data_dir is None:
        hint = "the logs of other clusters are where their processes run: `docker-compose logs`, for example"
        raise Failure("the logs of components are available for local clusters only", hint=hint, code=ExitCode.NOT_FOUND)
    known = list_components(data_dir)
    if name not in known:
        hint = f"there are {', '.join(known)}" if known else f"{data_dir / 'logs'} is empty: `pinnace up` starts a cluster"
        raise Failure(f'there is no component "{name}"{did_you_mean(name, known)}', hint=hint, code=ExitCode.NOT_FOUND)
    return data_dir / "logs" / f"{name}.log"


def list_components(data_dir: Path) -> list[str]:
    """Return the components with a log."""
    return sorted(path.stem for path in (data_dir / "logs").glob("*.log"))


async def read_lines(path: Path, lines: int | None, *, follow: bool) -> AsyncIterator[bytes]:
    """Yield the last lines of the file (None: the whole file), and with `follow` all later lines. A file that became shorter
    was truncated and is read from its start. Can be cancelled after each chunk. Raises OSError.
    """
    offset, end = _find_span(path, lines)
    while follow or offset < end:
        data, offset = _read_chunk(path, offset)
        if data:
            yield data
        elif not follow:
            return
        await asyncio.sleep(0 if data else POLL)


def _find_span(path: Path, lines: int | None) -> tuple[int, int]:
    """Return the offsets of the start and the end of the last lines."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        return 0 if lines is None else _find_start(file, end, lines), end


def _find_start(file: BinaryIO, end: int, lines: int) -> int:
    if not lines:
        return end
    position = end - 1  # a line feed there ends the last line
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        file.seek(position)
        data = file.read(step)
        here = data.count(b"\n")
        if here >= lines:
            return position + _find_nth_last_line_feed(data, lines) + 1
        lines -= here
    return 0


def _find_nth_last_line_feed(data: bytes, number: int) -> int:
    """Return the index of the n-th last line feed, which exists."""
    result = len(data)
    for _ in range(number):
        result = data.rfind(b"\n", 0, result)
    return result


def _read_chunk(path: Path, offset: int) -> tuple[bytes, int]:
    """Return the available data, and its end."""
    try:
        with path.open("rb") as file:
            file.seek(0 if file.seek(0, 2) < offset else offset)
            return file.read(CHUNK), file.tell()
    except FileNotFoundError:
        return b"", 0
