"""The verbs `logs` and `exec`: print logs of containers or of components of a local cluster, and run commands in containers.

Log files are read in chunks, so that their size does not matter.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
from click.shell_completion import CompletionItem

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import LabelSelector
from pinnace.api.pods_pb2 import ExecRequest, ExecResponse, ExecStart, LogOptions, LogsRequest
from pinnace.api.resources import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, SERVICES, Resource
from pinnace.api.scalars import parse_rfc3339, to_seconds
from pinnace.api.selectors import from_message
from pinnace.api.wellknown import DEFAULT_CONTAINER_ANNOTATION
from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.objects import arguments
from pinnace.cli.objects.arguments import items, names_of
from pinnace.cli.objects.query import parse_resource
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.servers import configuration
from pinnace.cli.session import DEFAULT_DEADLINE, Session, run
from pinnace.cli.settings import DURATION, SHOWN, Settings
from pinnace.cli.terminal import bytes_out, err, note
from pinnace.client.channel import Duplex
from pinnace.client.errors import ApiError, NotFound, Unavailable
from pinnace.runtime import process

SELECTING: tuple[Resource[Any], ...] = (DEPLOYMENTS, REPLICA_SETS, JOBS, SERVICES)
"""Kinds whose selector selects their pods. Selectors of claims and budgets have other purposes."""
ELSEWHERE = "name a pod: `pinnace get pods` lists them"


@contextmanager
def unbroken(lost: str, hint: str) -> Iterator[None]:
    """Converts the loss of the connection during a stream into a Failure with this hint."""
    try:
        yield
    except Unavailable as error:
        if error.reason:
            raise
        raise Failure(f"{lost} ({error.message})", hint=hint, code=ExitCode.UNAVAILABLE) from error


async def pods_of(session: Session, what: str, labels: str) -> list[Pod]:
    """The pod of this name, all pods of a selector, or one pod of a workload or service ("deployment/web"), selected as in
    kubectl: it preferably runs, is ready, is not being deleted, and has been ready for the longest time. Raises ApiError and
    Failure.
    """
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
    if not selected:  # the server would return all pods
        raise usage(f'"{what}" selects no pods: its selector is empty', hint=ELSEWHERE)
    found = (await pods.list(session.namespace, labels=selected)).items
    if not found:
        raise Failure(f'"{what}" has no pods', hint=f"`pinnace describe {what}` says why")
    chosen = min(found, key=_preference)
    if len(found) > 1:
        note(f"found {len(found)} pods, using pod/{chosen.metadata.name}")
    return [chosen]


def _preference(pod: Pod) -> tuple[bool, bool, bool, float, float, str]:
    """The preferred pod sorts first."""
    ready = conditions.find(pod.status.conditions, "Ready")
    is_ready = ready is not None and ready.status == "True"
    since = to_seconds(ready.lastTransitionTime) if ready is not None and is_ready else 0.0
    created = to_seconds(pod.metadata.creationTimestamp)
    ends = pod.metadata.HasField("deletionTimestamp")
    return pod.status.phase != "Running", not is_ready, ends, since, created, pod.metadata.name


def default_container(pod: Pod) -> str:
    """The default container. Prints a note if there are others."""
    names = [each.name for each in pod.spec.containers]
    annotated = pod.metadata.annotations.get(DEFAULT_CONTAINER_ANNOTATION, "")
    if annotated in names:
        return annotated
    if len(names) > 1:
        note(f'defaulted container "{names[0]}" out of: {", ".join(names)}')
    return names[0]


COMPONENT = "component"
MAX_FOLLOWED = 5
"""Default maximum of concurrently followed containers, as in kubectl."""
TAIL_OF_MANY = 10
"""Default number of lines of each container for a selector, as in kubectl."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = list[str]()
    with suppress(Failure):  # the context has no local cluster
        data_dir = configuration(ctx.ensure_object(Settings)).data_dir
        names = components(data_dir) if data_dir is not None else []
    found = items([f"{COMPONENT}/{name}" for name in names], (), incomplete)
    return found if incomplete.startswith(f"{COMPONENT}/") else [*names_of(PODS)(ctx, param, incomplete), *found]


@verb(
    "logs",
    examples="""
        pinnace logs web-1                              # the log of its container
        pinnace logs web-1 -c sidecar -f --tail 20      # then new lines, until interrupted or --timeout
        pinnace logs web-1 -p                           # of the previous attempt
        pinnace logs -l app=web --all-containers --prefix --since 5m
        pinnace logs deployment/web                     # of one of its pods
        pinnace logs component/scheduler-0 -f           # of a process of a local cluster
    """,
)
@click.argument("what", default="", metavar="POD | KIND/NAME | component/NAME", shell_complete=_complete)
@click.option("-f", "--follow", is_flag=True, help="Stream new lines until the log ends, an interrupt, or --timeout.")
@click.option("--tail", type=click.IntRange(-1, arguments.MOST), metavar="N", help="Only the last N lines; -1: all.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only lines newer than this duration, such as 5s or 2m.")
@click.option("--since-time", metavar="TIME", help="Only lines after this time (RFC 3339).")
@click.option("--timestamps", is_flag=True, help="Prefix each line with its timestamp.")
@click.option("-p", "--previous", is_flag=True, help="The log of the attempt before the latest.")
@click.option("-c", "--container", default="", metavar="NAME", help="Print the logs of this container.")
@click.option("--all-containers", is_flag=True, help="Get the logs of all containers in the pods.")
@click.option("--prefix", is_flag=True, help="Prefix each line with its pod and container.")
@click.option("--limit-bytes", type=click.IntRange(1, arguments.MOST), metavar="N", help="Print at most N bytes of each log.")
@click.option(
    "--max-log-requests", type=click.IntRange(min=1), default=MAX_FOLLOWED, help="The maximum number of logs to follow."
)
@arguments.selector
def logs(
    settings: Settings,
    what: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    since_time: str | None,
    timestamps: bool,
    previous: bool,
    container: str,
    all_containers: bool,
    prefix: bool,
    limit_bytes: int | None,
    max_log_requests: int,
    selector: str,
) -> None:
    """Print the logs of containers, or the log of a component.

    Containers of simulated nodes write no logs; those of `pinnace-kubelet --runtime process` do. Components are the processes
    of a local cluster that `pinnace status` lists.
    """
    kind, _, name = what.rpartition("/")
    if kind == COMPONENT:
        show_component(settings, name, follow, None if tail == -1 else tail)
        return
    if kind:
        parse_resource(kind)
    if bool(what) == bool(selector):
        raise usage("you must specify a pod or a selector", hint="name one, or select some with -l, but not both")
    if container and all_containers:
        raise usage("--container and --all-containers cannot be used together")
    if since is not None and since_time:
        raise usage("--since and --since-time cannot be used together")
    wanted = LogOptions(follow=follow, previous=previous, timestamps=timestamps)
    if tail is None and selector:
        tail = TAIL_OF_MANY
    if tail is not None and tail >= 0:
        wanted.tailLines = tail
    if since is not None:
        wanted.sinceSeconds = max(1, round(since))
    if since_time:
        wanted.sinceTime.seconds = _moment(since_time)
    if limit_bytes is not None:
        wanted.limitBytes = limit_bytes

    async def body(session: Session) -> None:
        try:
            pods = await pods_of(session, what, selector)
        except NotFound:
            look_elsewhere(configuration(settings).data_dir, what)
            raise
        if not pods:
            note(f"no resources found in {session.namespace} namespace")
        found = [source for pod in pods for source in sources(pod, container, all_containers)]
        if follow and len(found) > max_log_requests:
            hint = "use --max-log-requests to increase the limit"
            raise usage(f"{len(found)} logs are too many to follow, the limit is {max_log_requests}", hint=hint)
        showing = show(session, found, wanted, prefix)
        await (session.watch(showing) if follow else showing)

    run(settings, body)


def _moment(text: str) -> int:
    """Unix time. Raises Failure (usage), also without a time zone, because the local zone may differ from the server's."""
    try:
        return parse_rfc3339(text).seconds
    except ValueError:
        raise usage(f'--since-time: "{text[:SHOWN]}" is not a valid time', hint="such as 2026-11-22T11:45:59Z") from None


def show_component(settings: Settings, name: str, follow: bool, tail: int | None) -> None:
    path = find(settings, name)
    write = bytes_out()

    async def show() -> None:
        async for data in read(path, tail, follow=follow):
            write(data)

    try:
        process.run_command(asyncio.wait_for(show(), settings.timeout))
    except TimeoutError:
        if not follow:
            raise TimeoutError(f"timed out after {settings.timeout:g} s") from None


def find(settings: Settings, name: str) -> Path:
    """The log file of a process of the selected local cluster. Raises Failure."""
    data_dir = configuration(settings).data_dir
    if data_dir is None:
        hint = "the logs of other clusters are where their processes run: `docker-compose logs`, for example"
        raise Failure("the logs of components are available for local clusters only", hint=hint, code=ExitCode.NOT_FOUND)
    known = components(data_dir)
    if name not in known:
        hint = f"there are {', '.join(known)}" if known else f"{data_dir / 'logs'} is empty: `pinnace up` starts a cluster"
        raise Failure(f'there is no component "{name}"{did_you_mean(name, known)}', hint=hint, code=ExitCode.NOT_FOUND)
    return data_dir / "logs" / f"{name}.log"


def components(data_dir: Path) -> list[str]:
    """Components with a log."""
    return sorted(path.stem for path in (data_dir / "logs").glob("*.log"))


def look_elsewhere(data_dir: Path | None, name: str) -> None:
    """The error for a pod that does not exist. Raises Failure if it is a component."""
    if data_dir is not None and name in components(data_dir):
        hint = f"`pinnace logs {COMPONENT}/{name}` shows the log of the component"
        raise Failure(f'there is no pod "{name}"', hint=hint, code=ExitCode.NOT_FOUND) from None


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
    """Prints logs one after the other; followed logs concurrently. An error of one log is reported, and the others continue."""

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
    """Prints chunks immediately, or as whole lines, so that lines of several logs are not mixed. The last chunk is empty."""
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
                    session.wait_up_to(DEFAULT_DEADLINE)  # continue while there is more
        write(b"")
    finally:
        stream.cancel()


POLL = 0.1
"""Seconds between two reads of a followed file."""
CHUNK = 1 << 16


async def read(path: Path, lines: int | None, *, follow: bool) -> AsyncIterator[bytes]:
    """Yields the last lines of the file (None: the whole file), and with `follow` all later lines. A file that became shorter
    was truncated and is read from its start. Can be cancelled after each chunk. Raises OSError.
    """
    offset, end = _span(path, lines)
    while follow or offset < end:
        data, offset = _piece(path, offset)
        if data:
            yield data
        elif not follow:
            return
        await asyncio.sleep(0 if data else POLL)


def _span(path: Path, lines: int | None) -> tuple[int, int]:
    """The offsets of the start and the end of the last lines."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        return 0 if lines is None else _start(file, end, lines), end


def _start(file: BinaryIO, end: int, lines: int) -> int:
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
            return position + _nth_last(data, lines) + 1
        lines -= here
    return 0


def _nth_last(data: bytes, number: int) -> int:
    """The index of the n-th last line feed, which exists."""
    found = len(data)
    for _ in range(number):
        found = data.rfind(b"\n", 0, found)
    return found


def _piece(path: Path, offset: int) -> tuple[bytes, int]:
    """The available data, and its end."""
    try:
        with path.open("rb") as file:
            file.seek(0 if file.seek(0, 2) < offset else offset)
            return file.read(CHUNK), file.tell()
    except FileNotFoundError:
        return b"", 0


LOST = "the connection was lost before the command ended: its exit code is unknown"
AGAIN = "check what it has done before you run it again"


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
@click.option("-c", "--container", default="", metavar="NAME", help="Container name.")
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass stdin to the container.")
@click.option("-t", "--tty", is_flag=True, help="Not supported: containers have no terminals.")
def exec_verb(settings: Settings, what: str, command: tuple[str, ...], container: str, has_input: bool, tty: bool) -> int:
    """Execute a command in a container. Exits with the exit code of the command.

    The command runs in the directory and with the environment of the container's process. It is killed when this command ends.
    """
    if tty:
        raise usage("-t: terminals are not supported", hint="omit -t; -i passes stdin")
    if not command:
        raise usage("you must specify a command", hint="write it behind --: pinnace exec POD -- ls")
    codes: list[int] = []

    async def body(session: Session) -> None:
        (pod,) = await pods_of(session, what, "")
        metadata = pod.metadata
        start = ExecStart(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            container=container or default_container(pod),
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
    """Appends the exit code. If the input cannot be read, the command is ended, because it would wait for input."""
    stream = await session.client.pods.exec()
    try:
        await stream.write(ExecRequest(start=start))
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(stream)) if start.stdin else None
            codes.append(await _copy_output(stream))
            if feeding is not None:
                feeding.cancel()
    finally:
        stream.cancel()


async def _copy_output(stream: Duplex[ExecRequest, ExecResponse]) -> int:
    """Copies the output until the command ends, and returns its exit code."""
    with unbroken(LOST, AGAIN):
        while (response := await stream.read()) is not None:
            if response.HasField("exit"):
                return response.exit.code
            for file, data in ((sys.stdout, response.stdout), (sys.stderr, response.stderr)):
                if data:
                    file.buffer.write(data)
                    file.flush()
    raise Failure(LOST, hint=AGAIN)


async def _feed(stream: Duplex[ExecRequest, ExecResponse]) -> None:
    """Copies the input at the speed of the command."""
    async for data in chunks():
        await stream.write(ExecRequest(stdin=data), patience=None)
    await stream.write(ExecRequest(closeStdin=True), patience=None)


async def chunks() -> AsyncIterator[bytes]:
    """Reads stdin in a thread, one chunk in advance. The thread is a daemon. Raises Failure (usage) if stdin cannot be read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    taken = threading.Semaphore(1)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        found: bytes | OSError = b"first"
        while found and not isinstance(found, OSError):
            taken.acquire()
            try:
                found = os.read(descriptor, CHUNK)
            except OSError as error:
                found = error
            with suppress(RuntimeError):  # the loop is closed and no task waits for the result
                loop.call_soon_threadsafe(ready.put_nowait, found)

    threading.Thread(target=read, daemon=True).start()
    while data := await ready.get():
        if isinstance(data, OSError):
            message = f"standard input cannot be read: {(data.strerror or str(data)).lower()}"
            raise usage(message, hint="without -i it is not read") from data
        yield data
        taken.release()
