"""`pinnace logs`: what the containers of pods write, and the logs of the components of a local cluster."""

import asyncio
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from pinnace.api.pods_pb2 import LogOptions
from pinnace.api.resources import PODS
from pinnace.api.scalars import parse_rfc3339
from pinnace.cli import options
from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.logs import files
from pinnace.cli.logs.pods import show, sources
from pinnace.cli.objects.arguments import items, names_of
from pinnace.cli.objects.containers import pods_of
from pinnace.cli.objects.targets import parse_resource
from pinnace.cli.outcomes import ExitCode, Failure, usage
from pinnace.cli.servers import configuration
from pinnace.cli.session import Session, run
from pinnace.cli.settings import DURATION, SHOWN, Settings
from pinnace.cli.terminal.console import bytes_out, note
from pinnace.client.errors import NotFound
from pinnace.runtime import process

COMPONENT = "component"
MAX_FOLLOWED = 5
"""Containers that are followed at once, if nothing else is asked for; kubectl's."""
TAIL_OF_MANY = 10
"""Lines of each that a selector finds, if nothing else is asked for; kubectl's."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = list[str]()
    with suppress(Failure):  # it is no local cluster, or none at all
        data_dir = configuration(ctx.ensure_object(Settings)).data_dir
        names = components(data_dir) if data_dir is not None else []
    found = items([f"{COMPONENT}/{name}" for name in names], (), incomplete)
    return found if incomplete.startswith(f"{COMPONENT}/") else [*names_of(PODS)(ctx, param, incomplete), *found]


@verb(
    "logs",
    examples="""
        pinnace logs web-1                              # what its container has written
        pinnace logs web-1 -c sidecar -f --tail 20      # and what it goes on to write, until interrupted or --timeout
        pinnace logs web-1 -p                           # before it was started again
        pinnace logs -l app=web --all-containers --prefix --since 5m
        pinnace logs deployment/web                     # of one of its pods
        pinnace logs component/scheduler-0 -f           # of a process of a local cluster
    """,
)
@click.argument("what", default="", metavar="POD | KIND/NAME | component/NAME", shell_complete=_complete)
@click.option("-f", "--follow", is_flag=True, help="Then show what is added, until it ends, interrupted or --timeout.")
@click.option("--tail", type=click.IntRange(-1, options.MOST), metavar="N", help="Only the last N lines; -1: all.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only what was written in this time, such as 5s or 2m.")
@click.option("--since-time", metavar="TIME", help="Only what was written since then (RFC 3339).")
@click.option("--timestamps", is_flag=True, help="Begin each line with when it was written.")
@click.option("-p", "--previous", is_flag=True, help="The log of the attempt before the latest.")
@click.option("-c", "--container", default="", metavar="NAME", help="Only this container of the pod.")
@click.option("--all-containers", is_flag=True, help="All containers of the pod.")
@click.option("--prefix", is_flag=True, help="Begin each line with its pod and container.")
@click.option("--limit-bytes", type=click.IntRange(1, options.MOST), metavar="N", help="No more than N bytes of each.")
@click.option(
    "--max-log-requests", type=click.IntRange(min=1), default=MAX_FOLLOWED, help="How many logs are followed at most."
)
@options.selector
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
    """Show what containers write, or the log of a component.

    The containers of simulated nodes write nothing; those of `pinnace-kubelet --runtime process` do. Components are the
    processes of a local cluster that `pinnace status` lists.
    """
    kind, _, name = what.rpartition("/")
    if kind == COMPONENT:
        show_component(settings, name, follow, None if tail == -1 else tail)
        return
    if kind:
        parse_resource(kind)
    if bool(what) == bool(selector):
        raise usage("which pod?", hint="name one, or select some with -l, but not both")
    if container and all_containers:
        raise usage("--container and --all-containers exclude one another")
    if since is not None and since_time:
        raise usage("--since and --since-time exclude one another")
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
    """In Unix time. Raises Failure (usage), also where no zone is said: the machine's own would be meant here only."""
    try:
        return parse_rfc3339(text).seconds
    except ValueError:
        raise usage(f'--since-time: "{text[:SHOWN]}" is no moment', hint="such as 2026-11-22T11:45:59Z") from None


def show_component(settings: Settings, name: str, follow: bool, tail: int | None) -> None:
    path = find(settings, name)
    write = bytes_out()

    async def show() -> None:
        async for data in files.read(path, tail, follow=follow):
            write(data)

    try:
        process.run_command(asyncio.wait_for(show(), settings.timeout))
    except TimeoutError:
        if not follow:
            raise TimeoutError(f"timed out after {settings.timeout:g} s") from None


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


def look_elsewhere(data_dir: Path | None, name: str) -> None:
    """Of what is no pod. Raises Failure when it is a component."""
    if data_dir is not None and name in components(data_dir):
        hint = f"`pinnace logs {COMPONENT}/{name}` shows the log of the component"
        raise Failure(f'there is no pod "{name}"', hint=hint, code=ExitCode.NOT_FOUND) from None
