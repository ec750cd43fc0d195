"""`pinnace ui` and `pinnace timeline`: the timeline of a cluster in a browser, and recordings of it."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import click

from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local import clusters
from pinnace.cli.local.clusters import data_dir_option
from pinnace.cli.local.links import local_link, open_browser
from pinnace.cli.local.running import translate_cluster_errors
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.servers import load_configuration
from pinnace.cli.session import CommandSession, run_session
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_error_line, print_result
from pinnace.history.records import HistoryError
from pinnace.runtime import process

_output = click.Path(path_type=Path, dir_okay=False)
_histories = click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="FILE...")


@verb(
    "ui",
    examples="""
        pinnace ui                      # prints a link that works once, and opens it
        pinnace ui --no-open
        pinnace ui --terminal           # the same in this terminal
        pinnace ui --gateway 127.0.0.1:6443
    """,
)
@click.option("--open/--no-open", "opens", default=None, help="Open a browser.  [default: in a terminal]")
@click.option("--terminal", is_flag=True, help="Show the timeline in this terminal instead of a browser.")
@click.option("--gateway", metavar="HOST:PORT", help="A gateway.  [default: that of the local cluster]")
@data_dir_option
def ui(settings: Settings, opens: bool | None, terminal: bool, gateway: str | None, data_dir: Path | None) -> None:
    """Open the timeline of a cluster in a browser, or show it in the terminal.

    The timeline shows terms and failovers, nodes, scheduling decisions and the keys of etcd, live. The printed link works once,
    and the page stays open in its tab as the user of this client.
    """
    if terminal:
        _check_terminal(opens)
    url = _local_link(settings, data_dir) if gateway is None else _create_link(gateway, settings)
    if terminal:
        _show_terminal_timeline(url)
        return
    print_result(f"{url}\n")
    open_browser(url, opens)


@click.group("timeline", cls=VerbGroup)
def timeline() -> None:
    """Record a timeline, or open recordings.

    A recording is a history, as `pinnace chaos run --save` writes it, too.
    """


@verb(
    "record",
    examples="""
        pinnace timeline record failover.jsonl               # until Ctrl-C
        pinnace timeline record lesson.jsonl --seconds 60
    """,
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--seconds", type=click.FloatRange(min=0.1), help="Stop after this time.  [default: at Ctrl-C]")
def record(settings: Settings, file: Path, seconds: float | None) -> None:
    """Record the keys of a cluster into a new file, with the objects from which decisions are computed.

    Values of Secrets are not recorded.
    """

    async def body(session: CommandSession) -> None:
        from pinnace.timeline import recording
        from pinnace.timeline.source import KeyReader

        session.wait_for_ever()
        changes = 0
        try:
            async with (
                asyncio.timeout(seconds),
                aclosing(recording.record_cluster(KeyReader(session.client.connection), file, "")) as made,
            ):
                async for count in made:
                    changes = count
        except TimeoutError:
            pass
        except FileExistsError:
            raise usage_failure(f"{file} exists", hint="give the name of a new file") from None
        finally:
            print_error_line(f"recorded {changes:,} changes; open them with `pinnace timeline open {file}`")

    run_session(settings, body)


@verb(
    "open",
    examples="""
        pinnace timeline open failover.jsonl
        pinnace timeline open results/*.jsonl            # of `pinnace chaos run --save results`
        pinnace timeline open failover.jsonl --html failover.html
        pinnace timeline open failover.jsonl --perfetto failover.json    # for https://ui.perfetto.dev
    """,
)
@_histories
@click.option("--html", type=_output, metavar="FILE", help="Write one HTML file, and serve nothing.")
@click.option("--perfetto", type=_output, metavar="FILE", help="Write a trace for Perfetto, and serve nothing.")
@click.option("--open/--no-open", "opens", default=None, help="Open a browser.  [default: in a terminal]")
@click.option("--title", default="", help="The title of the page.")
def open_(
    settings: Settings, files: Sequence[Path], html: Path | None, perfetto: Path | None, opens: bool | None, title: str
) -> None:
    """Open recordings in a browser, until Ctrl-C. The files of one run are merged, and their invariants are checked.

    A trace for Perfetto has the terms, faults, refused binds and scheduling decisions in the Trace Event Format.
    """
    from pinnace.timeline import site
    from pinnace.timeline.recording import RecordedSource
    from pinnace.verification.check.check import check_history

    try:
        source = RecordedSource(files, title, check_history)
    except HistoryError as error:
        raise Failure(
            str(error), hint="give files that `pinnace timeline record` or --save wrote", code=ExitCode.INVALID
        ) from None
    if not source.log.last:
        raise Failure("the files have nothing to show", hint="a history begins with the records of etcd", code=ExitCode.INVALID)
    exports = [(html, site.export_page), (perfetto, site.export_trace)]
    if any(file for file, _ in exports):
        for file, export in exports:
            if file is not None:
                _write_file(file, export(source))
        return

    async def serve() -> None:
        sessions = site.ViewerSessions()
        page = site.TimelineSite(source, sessions)
        runner, url = await site.serve_site(page, "127.0.0.1", 0)
        try:
            link = sessions.create_link(url, site.Viewer("you"))
            print_result(f"{link}\n")
            print_error_line("serving the recording; press Ctrl-C to stop")
            open_browser(link, opens)
            await page.run()
        finally:
            await runner.cleanup()

    process.run_command(serve())


timeline.add_command(record)
timeline.add_command(open_)


def _write_file(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}") from None
    print_result(f"{file}\n")


def _check_terminal(opens: bool | None) -> None:
    if opens:
        raise usage_failure("--open cannot be used with --terminal")
    if find_spec("textual") is None:
        raise Failure("Textual is not installed", hint="`pip install 'pinnace[ui]'` installs it")
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise usage_failure("stdin and stdout must be a terminal", hint="`pinnace timeline record FILE` records without one")


def _show_terminal_timeline(url: str) -> None:
    from pinnace.timeline.terminal import TerminalTimeline, stream_frames

    if reason := TerminalTimeline(stream_frames(url)).run():
        raise Failure(reason, hint="`pinnace ui --terminal` connects again", code=ExitCode.UNAVAILABLE)


def _local_link(settings: Settings, data_dir: Path | None) -> str:
    from pinnace.cluster.cluster import Cluster

    with translate_cluster_errors():
        cluster = Cluster.load(clusters.present_data_dir(settings, data_dir))
    return local_link(cluster)


def _create_link(gateway: str, settings: Settings) -> str:
    from pinnace.timeline.link import LinkError, request_link

    config = load_configuration(settings)
    if config.tls is None:
        raise usage_failure("the context has no certificate", hint="`kubectl config view` shows the contexts")
    try:
        return request_link(gateway, config.tls)
    except (LinkError, OSError, ValueError) as error:
        raise Failure(str(error), code=ExitCode.UNAVAILABLE) from None
