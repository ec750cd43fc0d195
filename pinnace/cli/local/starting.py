"""The processes of a local cluster by their names, and starting them again with everything that they had."""

import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pinnace.cli.command import did_you_mean
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal.console import note
from pinnace.cluster import certificates, inputs, processes
from pinnace.cluster.cluster import START_TIMEOUT, Cluster
from pinnace.cluster.errors import ClusterError, StartFailed
from pinnace.cluster.folder import Folder
from pinnace.cluster.spec import data_dir_flag, fleets, pki_folder
from pinnace.runtime import procfs


def complete_process(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the processes of the local cluster that is meant."""
    try:
        state = Folder(contexts.present_data_dir(ctx.ensure_object(Settings), ctx.params.get("data_dir"))).read()
    except (ClusterError, Failure):
        return []
    records = state.processes if state is not None else ()
    return [CompletionItem(record.name) for record in records if record.name.startswith(incomplete)]


names_argument = click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_process)


def bring_up(settings: Settings, data_dir: Path | None, names: Sequence[str], *, verb: str) -> None:
    """Starts the named processes, or all that do not run. As `restart`, it ends those first that are named and run."""
    folder = contexts.present_data_dir(settings, data_dir)
    timeout = settings.timeout or START_TIMEOUT
    with running.translated(), Steps(settings) as steps:
        cluster = elsewhere.load(settings, folder, verb)
        check_names(cluster, names)
        _note_what_is_ignored(cluster)
        renewed, damaged = _renew(cluster)
        if renewed:
            click.echo(f"certificates renewed: {', '.join(renewed)}")
        if names:
            wanted = running.run(_prepared(cluster, list(dict.fromkeys(names)), steps, end=verb == "restart"))
            main: Coroutine[Any, Any, object] = cluster.restart(wanted, steps, timeout=timeout)
        else:
            running.run(cluster.settle(steps))
            wanted = cluster.ended()
            main = cluster.resume(steps, timeout=timeout)
        try:
            if wanted:
                running.run(main)
            else:
                main.close()
        except StartFailed:
            _tell(cluster, wanted, steps)
            raise
        contexts.refresh(cluster.config)
        _tell(cluster, wanted, steps)
        if damaged:
            raise damaged
        suspended = [
            record.name for record in cluster.state.processes if (pid := processes.running(record)) and procfs.suspended(pid)
        ]
        if suspended:
            where = data_dir_flag(folder)
            note(f"suspended by a signal: `pinnace kill {' '.join(suspended)} --signal CONT{where}` has them go on")
        elif not wanted and not names and not renewed:
            click.echo(f"all {len(cluster.state.processes)} processes of the cluster in {folder} run: nothing to do")


def check_names(cluster: Cluster, names: Sequence[str]) -> None:
    """Raises Failure for a name that no process of the cluster has."""
    known = [record.name for record in cluster.state.processes]
    for name in names:
        if name not in known:
            raise Failure(
                f'there is no process "{name}"{did_you_mean(name, known)}',
                hint=f"there are {', '.join(known)}",
                code=ExitCode.NOT_FOUND,
            )


async def _prepared(cluster: Cluster, names: Sequence[str], steps: Steps, *, end: bool) -> list[str]:
    """Those of these processes that are to be started: with `end` all of them, ended; otherwise those that do not run."""
    await cluster.settle(steps, names)
    run = [name for name in names if name not in cluster.ended()]
    if end and run:
        steps.waiting(f"{', '.join(run)} to end")
        if killed := await cluster.stop(names=run):
            steps.line(f"did not end when asked, and had to be killed: {', '.join(killed)}")
        return list(names)
    for name in run:
        click.echo(f"{name} runs already (pid {cluster.pid(name)})")
    return [name for name in names if name not in run]


def _note_what_is_ignored(cluster: Cluster) -> None:
    """Variables of the environment that would configure a process otherwise than the cluster was started with."""
    plans, environ = [record.plan for record in cluster.state.processes], os.environ
    names = list(inputs.differing(plans, environ, Path.cwd()))
    names += [variable for _, variable in inputs.FLAGS.values() if variable in environ]
    if names:
        note(f"the cluster keeps the configuration that it was started with: {', '.join(names)} of the environment is not used")


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
