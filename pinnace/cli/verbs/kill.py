"""`pinnace kill`: sends a signal to processes of a local cluster."""

import signal
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from pinnace.cli.command import verb
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.local.starting import check_names, complete_process
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import SHOWN, Settings
from pinnace.cluster import processes, view
from pinnace.cluster.cluster import STOP_GRACE, Cluster
from pinnace.cluster.spec import ELECTION, data_dir_flag

LEADER = "leader"
"""Stands for the process that leads the schedulers' election."""
ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Signals by which every process of a cluster ends."""


class SignalName(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """ "KILL", "SIGKILL", "9"."""

    name = "signal"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> signal.Signals:
        if isinstance(value, signal.Signals):
            return value
        text = str(value).upper()
        try:
            return signal.Signals(int(text)) if text.isdigit() else signal.Signals[f"SIG{text.removeprefix('SIG')}"]
        except (ValueError, KeyError):
            self.fail(
                f'there is no signal "{str(value)[:SHOWN]}"; there are KILL, TERM, STOP, CONT and others (`kill -l`)',
                param,
                ctx,
            )


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    leader = [CompletionItem(LEADER)] if LEADER.startswith(incomplete) else []
    return [*leader, *complete_process(ctx, param, incomplete)]


@verb(
    "kill",
    examples="""
        pinnace kill leader             # the scheduler that leads: kill -9
        pinnace kill apiserver-0 kubelet-1
        pinnace kill leader --signal STOP; pinnace kill scheduler-0 --signal CONT
        pinnace start                   # starts what was killed
    """,
)
@contexts.data_dir_option
@click.option(
    "-s", "--signal", "number", type=SignalName(), default="KILL", show_default=True, help="KILL, TERM, STOP, CONT, ..."
)
@click.argument("names", nargs=-1, required=True, metavar="NAME|leader...", shell_complete=_complete)
def kill(settings: Settings, names: tuple[str, ...], number: signal.Signals, data_dir: Path | None) -> None:
    """Kill processes of a local cluster, or send them another signal.

    The names are those of `pinnace status`; `leader` is the scheduler that leads. Nothing is removed: `pinnace start` starts
    what was killed. A process is signalled only if it is the very one that the cluster has started, and no other that has its
    pid by now.
    """
    folder = contexts.present_data_dir(settings, data_dir)
    with running.translated(), Steps(settings) as steps:
        cluster = elsewhere.load(settings, folder, "kill")
        check_names(cluster, [name for name in names if name != LEADER])
        running.run(_kill(cluster, list(dict.fromkeys(names)), number, steps))


async def _kill(cluster: Cluster, names: Sequence[str], number: signal.Signals, steps: Steps) -> None:
    leader, token = await _leader(cluster) if LEADER in names else ("", 0)
    names = list(dict.fromkeys(leader if name == LEADER else name for name in names))
    hit = {name: process for name in names if (process := processes.running(cluster.state.find(name)))}
    for name, process in hit.items():
        cluster.kill(name, number)
        leads = f', which leads the election "{ELECTION}" with token {token}' if name == leader else ""
        click.echo(f"kill -{number.name.removeprefix('SIG')} {process.pid}: {name}{leads}")
    if number in ENDING:
        steps.waiting(f"{', '.join(hit)} to end")
        if not await processes.gone(hit.values(), STOP_GRACE):
            steps.warn(f"still there after {STOP_GRACE:g} s: {', '.join(hit)}")
    if dead := [name for name in names if name not in hit]:
        where, several = data_dir_flag(cluster.spec.data_dir), len(dead) > 1
        hint = f"`pinnace start{where} {' '.join(dead)}` starts {'them' if several else 'it'}"
        raise Failure(f"{', '.join(dead)} {'do' if several else 'does'} not run", hint=hint, code=ExitCode.CONFLICT)


async def _leader(cluster: Cluster) -> tuple[str, int]:
    """The name of the process that leads the schedulers' election, and its token. Raises Failure."""
    async with cluster.client() as client:
        election = await view.try_leader(client)
    if election is None or not election.holder:
        hint = f"`pinnace status{data_dir_flag(cluster.spec.data_dir)}` shows which processes run; or name one of them"
        raise Failure("no leader of the schedulers is known", hint=hint, code=ExitCode.NOT_FOUND)
    if election.holder not in [record.name for record in cluster.state.processes]:
        message = f"{election.holder} leads the schedulers, and is no process of the cluster in {cluster.spec.data_dir}"
        raise Failure(message, hint="end it where it was started", code=ExitCode.NOT_FOUND)
    return election.holder, election.token
