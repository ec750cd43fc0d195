"""`pinnace restart`: the processes of a local cluster that have ended, started again."""

from collections.abc import Sequence
from pathlib import Path

import click

from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cluster import certificates
from pinnace.cluster.cluster import START_TIMEOUT, Cluster
from pinnace.cluster.errors import StartFailed
from pinnace.cluster.spec import fleets, pki_folder


@verb(
    "restart",
    examples="""
        pinnace restart                 # whatever does not run
        pinnace restart scheduler-1     # only this one
    """,
)
@contexts.data_dir_option
@click.argument("names", nargs=-1, metavar="[NAME...]")
def restart(settings: Settings, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Start processes of a local cluster again, and renew its certificates.

    Those that are named, or all that do not run. They come back at their old addresses, with etcd's data as it was; the command
    returns when they are ready. A process that runs is not touched, and one that cannot start keeps back only those that cannot
    do without it. What starts is the version that this command has, whichever the cluster was begun with.

    Certificates that have ended, or end within 30 days, are made anew before; processes that run take them up. What keeps them
    from being renewed is told at the end: who can start without that does.
    """
    folder = contexts.present_data_dir(settings, data_dir)
    with running.translated(), Steps(settings) as steps:
        cluster = elsewhere.load(settings, folder, "restart")
        wanted, others = chosen(cluster, names)
        renewed, damaged = _renew(cluster)
        if renewed:
            click.echo(f"certificates renewed: {', '.join(renewed)}")
        elif not wanted and not others and not damaged:
            click.echo(f"all {len(cluster.state.processes)} processes of the cluster in {folder} run: nothing to do")
        try:
            running.run(cluster.restart(wanted, steps, timeout=settings.timeout or START_TIMEOUT))
        except StartFailed:
            _tell(cluster, wanted, steps)
            raise
        _tell(cluster, wanted, steps)
        if damaged:
            raise damaged
        if others:
            raise _running(cluster, others)


def chosen(cluster: Cluster, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The processes to start, each once, and those that were named and run. Raises Failure for a name that is not there."""
    ended = cluster.ended()
    known = [record.name for record in cluster.state.processes]
    for name in names:
        if name not in known:
            raise Failure(
                f'there is no process "{name}"{did_you_mean(name, known)}',
                hint=f"there are {', '.join(known)}",
                code=ExitCode.NOT_FOUND,
            )
    named = list(dict.fromkeys(names)) or ended
    return [name for name in named if name in ended], [name for name in named if name not in ended]


def _renew(cluster: Cluster) -> tuple[list[str], Failure | None]:
    """The names of the certificates that were made anew, and what kept others from it. Raises ClusterError."""
    try:
        with cluster.folder.locked(), cluster.folder.usable():
            return certificates.renew(pki_folder(cluster.spec.data_dir), fleets(cluster.reloaded().spec)), None
    except ValueError as error:
        hint = "put back what was there; `pinnace doctor` looks into all of them"
        return [], Failure(f"certificates cannot be renewed: {error}", hint=hint)


def _tell(cluster: Cluster, wanted: Sequence[str], steps: Steps) -> None:
    steps.quiet()
    for name in wanted:
        if pid := cluster.pid(name):
            click.echo(f"{name} started again (pid {pid})")


def _running(cluster: Cluster, names: Sequence[str]) -> Failure:
    pids = [cluster.pid(name) for name in names]
    message = ", ".join(f"{name} runs (pid {pid})" for name, pid in zip(names, pids, strict=True))
    hint = f"`pinnace restart` starts what has ended; to end it first: kill {' '.join(map(str, pids))}"
    return Failure(message, hint=hint, code=ExitCode.CONFLICT)
