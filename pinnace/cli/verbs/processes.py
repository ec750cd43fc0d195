"""The verbs `status`, `start`, `restart`, `stop`, `kill` and `down`: the processes of a local cluster.

Processes are selected by name, by component, or as `leader`. A process that is started again has the same arguments,
environment variables and ports.
"""

import json
import os
import signal
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.errors import print_hint
from pinnace.cli.local import clusters, running
from pinnace.cli.local.running import Steps
from pinnace.cli.outcomes import ExitCode, Failure, Reported, usage_failure
from pinnace.cli.settings import SHOWN, Settings
from pinnace.cli.terminal import Table, one_line, print_note
from pinnace.cluster import certificates, inputs, processes, view
from pinnace.cluster.cluster import START_TIMEOUT, STOP_GRACE, Cluster
from pinnace.cluster.errors import ClusterError, FolderError, NoCluster, StartFailed
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ELECTION, SCHEDULER, ProcessRecord, data_dir_flag, fleet_node_names, pki_folder
from pinnace.cluster.view import ProcessStatus
from pinnace.runtime import procfs

LEADER = "leader"
"""The name of the process that leads the schedulers' election."""
ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Signals that end every process of a cluster."""


def complete_process(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the process names of the selected local cluster."""
    try:
        state = ClusterFolder(clusters.present_data_dir(ctx.ensure_object(Settings), ctx.params.get("data_dir"))).read()
    except (ClusterError, Failure):
        return []
    records = state.processes if state is not None else ()
    return [CompletionItem(record.name) for record in records if record.name.startswith(incomplete)]


names_argument = click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_process)


def bring_up(settings: Settings, data_dir: Path | None, names: Sequence[str], *, verb: str) -> None:
    """Start the named processes, or all stopped ones. `restart` then replaces those that run, one after the other."""
    folder = clusters.present_data_dir(settings, data_dir)
    timeout = settings.timeout or START_TIMEOUT
    with running.translate_cluster_errors(), Steps(settings) as steps:
        cluster = clusters.load_cluster(settings, folder, verb)
        check_names(cluster, names)
        _note_ignored_environment(cluster)
        renewed, damaged = _renew_certificates(cluster)
        if renewed:
            click.echo(f"certificates renewed: {', '.join(renewed)}")
        if names:
            wanted, live = running.run_coroutine(_split_by_state(cluster, list(dict.fromkeys(names)), steps))
            main: Coroutine[Any, Any, object] = cluster.restart(wanted, steps, timeout=timeout)
        else:
            running.run_coroutine(cluster.wait_until_stopped(steps))
            wanted, live = cluster.stopped_processes(), []
            main = cluster.resume(steps, timeout=timeout)
        if verb != "restart":
            for name in live:
                click.echo(f"{name} runs already (pid {cluster.pid(name)})")
            live = []
        try:
            if wanted:
                running.run_coroutine(main)
            else:
                main.close()
        except StartFailed as failed:
            _print_started(cluster, wanted, steps)
            if live:
                raise add_unrestarted_processes(failed, live) from None
            raise
        _print_started(cluster, wanted, steps)
        if live:
            running.run_coroutine(_restart_in_turn(cluster, live, steps, timeout))
        clusters.refresh_context(settings, cluster.config)
        if damaged:
            raise damaged
        suspended = [
            record.name
            for record in cluster.state.processes
            if (pid := processes.find_running(record)) and procfs.is_suspended(pid)
        ]
        if suspended:
            where = data_dir_flag(folder)
            print_note(f"suspended by a signal: `pinnace kill {' '.join(suspended)} --signal CONT{where}` has them go on")
        elif not wanted and not names and not renewed:
            click.echo(f"all {len(cluster.state.processes)} processes of the cluster in {folder} run: nothing to do")


def check_names(cluster: Cluster, names: Sequence[str]) -> None:
    """Raise Failure for an unknown process name."""
    known = [record.name for record in cluster.state.processes]
    for name in names:
        if name not in known:
            raise Failure(
                f'there is no process "{name}"{did_you_mean(name, known)}',
                hint=f"there are {', '.join(known)}",
                code=ExitCode.NOT_FOUND,
            )


async def _split_by_state(cluster: Cluster, names: Sequence[str], steps: Steps) -> tuple[list[str], list[str]]:
    """Return the processes that do not run, and those that do."""
    await cluster.wait_until_stopped(steps, names)
    ended = cluster.stopped_processes()
    return [name for name in names if name in ended], [name for name in names if name not in ended]


async def _restart_in_turn(cluster: Cluster, names: Sequence[str], steps: Steps, timeout: float) -> None:
    """Restart running processes, the next when the one before is ready. Raises ClusterError, and StartFailed: the later ones
    then run on."""
    rest = list(names)
    while rest:
        name = choose_next_to_restart(rest, cluster.state.processes, await _find_leaders(cluster, rest))
        rest.remove(name)
        try:
            await _restart_process(cluster, name, steps, timeout)
        except StartFailed as failed:
            raise add_unrestarted_processes(failed, rest) if rest else failed from None


def choose_next_to_restart(names: Collection[str], records: Sequence[ProcessRecord], leaders: Collection[str]) -> str:
    """Return the process to restart before the others: in starting order, and a leader after all others of its component."""
    first, *others = [record for record in records if record.name in names]
    same = [first.name, *(record.name for record in others if record.component == first.component)]
    return next((name for name in same if name not in leaders), first.name)


def add_unrestarted_processes(failed: StartFailed, untouched: Sequence[str]) -> StartFailed:
    """Return the failure with the processes that were not restarted because of it."""
    failed.hint = f"{failed.hint}; not restarted, and running on: {', '.join(untouched)}".removeprefix("; ")
    return failed


async def _find_leaders(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """Return the leaders among the processes. Empty if one process is left, or if no API server answers."""
    if len(names) < 2:
        return []
    try:
        async with cluster.client() as client:
            return await view.election_leaders(client)
    except FolderError:
        return []


async def _restart_process(cluster: Cluster, name: str, steps: Steps, timeout: float) -> None:
    """Stop a running process and start it again, or have its successor take over its listeners. Return when it is ready."""
    if cluster.can_replace_by_successor(name):
        steps.waiting(f"the successor of {name}")
        await cluster.replace_by_successor(name)
        click.echo(f"{name} was replaced without interruption (pid {cluster.pid(name)})")
        return
    steps.waiting(f"{name} to end")
    if killed := await cluster.stop(names=[name]):
        steps.line(f"did not end when asked, and had to be killed: {', '.join(killed)}")
    try:
        await cluster.restart([name], steps, timeout=timeout)
    finally:
        _print_started(cluster, [name], steps)


def _note_ignored_environment(cluster: Cluster) -> None:
    """Print a note about environment variables that differ from the stored configuration."""
    plans, environ = [record.plan for record in cluster.state.processes], os.environ
    names = list(inputs.changed_variables(plans, environ, Path.cwd()))
    names += [variable for _, variable in inputs.FLAGS.values() if variable in environ]
    if names:
        print_note(
            f"the cluster keeps the configuration that it was started with: {', '.join(names)} of the environment is not used"
        )


def _renew_certificates(cluster: Cluster) -> tuple[list[str], Failure | None]:
    """Renew certificates. Return the names of renewed ones, and print problems. Raises ClusterError."""
    try:
        with cluster.folder.locked(), cluster.folder.translate_os_errors():
            return certificates.renew_certificates(
                pki_folder(cluster.spec.data_dir), fleet_node_names(cluster.reload().spec)
            ), None
    except ValueError as error:
        hint = "put back what was there; `pinnace doctor` looks into all of them"
        return [], Failure(f"certificates cannot be renewed: {error}", hint=hint)


def _print_started(cluster: Cluster, wanted: Sequence[str], steps: Steps) -> None:
    steps.quiet()
    for name in wanted:
        if pid := cluster.pid(name):
            click.echo(f"{name} started again (pid {pid})")


@verb(
    "start",
    examples="""
        pinnace start                   # all stopped processes
        pinnace start scheduler-1       # only this one
    """,
)
@clusters.data_dir_option
@names_argument
def start(settings: Settings, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Start the stopped processes of a local cluster.

    The cluster keeps its objects, size and configuration: after `pinnace stop`, after a reboot, and after processes were
    killed. Running processes are not touched. If a process is terminating, the command waits for it first. `pinnace restart
    NAME` restarts a running process.
    """
    bring_up(settings, data_dir, names, verb="start")


@verb(
    "restart",
    examples="""
        pinnace restart                 # all stopped processes, as `pinnace start` does
        pinnace restart scheduler-1     # stops it if it runs, and starts it again
        pinnace restart scheduler-0 scheduler-1 scheduler-2   # one after the other, the leader last
    """,
)
@clusters.data_dir_option
@names_argument
def restart(settings: Settings, names: tuple[str, ...], data_dir: Path | None) -> None:
    """Restart processes of a local cluster, and renew its certificates.

    Named processes are stopped if they run, and started again: one after the other, the leader of an election after its
    standbys, the next one when the one before is ready. So a component with several processes serves all the time. A service
    proxy ends when its successor has taken over its listeners. Without names, only the processes that do not run are started.

    The processes keep the arguments and the configuration that the cluster was created with, and the data of etcd. They run the
    version of this command. The command returns when all are ready.

    A process that fails to start blocks only the processes that depend on it. If another program uses the port of a process,
    the process gets another port.

    Certificates that have expired or expire within 30 days are renewed first. Running processes reload them.
    """
    bring_up(settings, data_dir, names, verb="restart")


@verb(
    "stop",
    examples="""
        pinnace stop
        pinnace start                   # resumes it
    """,
)
@clusters.data_dir_option
def stop(settings: Settings, data_dir: Path | None) -> None:
    """Stop a local cluster and keep its data.

    The processes receive SIGTERM, and SIGKILL if they do not end in time. The objects, logs, certificates and configuration
    stay. `pinnace start` or `pinnace up` resumes the cluster, `pinnace down` deletes it. Containers that are processes
    (--runtime process) end, too, and are restarted as their restart policy says. To stop a single process, use `pinnace kill
    NAME`.
    """
    folder = clusters.present_data_dir(settings, data_dir)
    with running.translate_cluster_errors(), Steps(settings) as steps:
        cluster = clusters.load_cluster(settings, folder, "stop")
        running.run_coroutine(_stop_cluster(cluster, steps))


async def _stop_cluster(cluster: Cluster, steps: Steps) -> None:
    folder = cluster.spec.data_dir
    where, count = data_dir_flag(folder), len(cluster.state.processes) - len(cluster.stopped_processes())
    steps.waiting(f"{count} processes to end")
    killed = await cluster.stop()
    steps.quiet()
    if killed:
        steps.line(f"did not end when asked, and had to be killed: {', '.join(killed)}")
    if count:
        click.echo(f"the cluster in {folder} is stopped ({count} process{'es' * (count > 1)}); its data is kept")
    else:
        click.echo(f"no process of the cluster in {folder} runs: nothing to do; its data is kept")
    click.echo(f"`pinnace start{where}` goes on with it, `pinnace down{where}` removes it")


@verb(
    "down",
    examples="""
        pinnace down
        pinnace down --data-dir /tmp/big
    """,
)
@clusters.data_dir_option
def down(settings: Settings, data_dir: Path | None) -> None:
    """Stop a local cluster and delete it with all its objects. `pinnace stop` keeps them.

    The processes receive SIGTERM, and SIGKILL if they do not end in time. The data of etcd, the logs, the certificates and the
    context in the client configuration are deleted. The folder is deleted if `pinnace up` created it and it is empty. Other
    files are kept, and those in the cluster's own folders are listed. If exactly one other local cluster runs, its context
    becomes the current one.

    It is no error if there is no cluster, unless no cluster is named and another one runs. Processes of a cluster whose folder
    was deleted are found and stopped.
    """
    folder = clusters.present_data_dir(settings, data_dir)
    named, left = data_dir or settings.context, None
    written = ClusterFolder(folder).kubeconfigs()
    clusters.check_removable(settings, folder, written)
    with running.translate_cluster_errors(), Steps(settings) as steps:
        try:
            cluster = Cluster.load(folder)
        except NoCluster as nothing:
            if ran_on := running.run_coroutine(processes.end_processes(folder)):
                steps.done(f"the state of a cluster in {folder} is gone; its processes ran on, and were killed: {ran_on}")
            elif (made := ClusterFolder(folder).remove_failed_start()) is not None:
                ClusterFolder(folder).remove_empty_directories(made)
                steps.done(f"removed the logs of a start that failed from {folder}")
            elif not named and (others := clusters.hint_at_other_clusters(settings, folder, "down")):
                left = Failure(nothing.message, hint=others, code=ExitCode.NOT_FOUND)
            else:
                click.echo(f"{nothing.message}: nothing to do{'' if named else ' (--data-dir DIR names another)'}")
        else:
            running.run_coroutine(running.remove_cluster(cluster, steps))
    clusters.remove_context(settings, folder, written)
    if left:
        raise left


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


def _complete_process_or_leader(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    leader = [CompletionItem(LEADER)] if LEADER.startswith(incomplete) else []
    return [*leader, *complete_process(ctx, param, incomplete)]


@verb(
    "kill",
    examples="""
        pinnace kill leader             # kill -9 the leading scheduler
        pinnace kill apiserver-0 kubelet-1
        pinnace kill leader --signal STOP; pinnace kill leader --signal CONT
        pinnace start                   # starts the killed processes again
    """,
)
@clusters.data_dir_option
@click.option(
    "-s", "--signal", "number", type=SignalName(), default="KILL", show_default=True, help="KILL, TERM, STOP, CONT, ..."
)
@click.argument("names", nargs=-1, required=True, metavar="NAME|leader...", shell_complete=_complete_process_or_leader)
def kill(settings: Settings, names: tuple[str, ...], number: signal.Signals, data_dir: Path | None) -> None:
    """Kill processes of a local cluster, or send another signal.

    NAME is a name from `pinnace status`; `leader` is the leading scheduler. With --signal CONT, it is the frozen scheduler,
    because another one leads by then. No data is deleted: `pinnace start` starts killed processes again. A process that reuses
    the PID of a process of the cluster is never signaled.
    """
    folder = clusters.present_data_dir(settings, data_dir)
    with running.translate_cluster_errors(), Steps(settings) as steps:
        cluster = clusters.load_cluster(settings, folder, "kill")
        check_names(cluster, [name for name in names if name != LEADER])
        running.run_coroutine(_kill_processes(cluster, list(dict.fromkeys(names)), number, steps))


async def _kill_processes(cluster: Cluster, names: Sequence[str], number: signal.Signals, steps: Steps) -> None:
    leader, token = "", 0
    if LEADER in names:
        leader, token = (_find_frozen_scheduler(cluster), 0) if number is signal.SIGCONT else await _find_leader(cluster)
    names = list(dict.fromkeys(leader if name == LEADER else name for name in names))
    hit = {name: process for name in names if (process := processes.find_running(cluster.state.find_process(name)))}
    for name, process in hit.items():
        cluster.kill(name, number)
        leads = f', which leads the election "{ELECTION}" with token {token}' if name == leader and token else ""
        click.echo(f"kill -{number.name.removeprefix('SIG')} {process.pid}: {name}{leads}")
    if number in ENDING:
        steps.waiting(f"{', '.join(hit)} to end")
        if not await processes.wait_ended(hit.values(), STOP_GRACE):
            steps.warn(f"still there after {STOP_GRACE:g} s: {', '.join(hit)}")
    if dead := [name for name in names if name not in hit]:
        where, several = data_dir_flag(cluster.spec.data_dir), len(dead) > 1
        hint = f"`pinnace start{where} {' '.join(dead)}` starts {'them' if several else 'it'}"
        raise Failure(f"{', '.join(dead)} {'do' if several else 'does'} not run", hint=hint, code=ExitCode.CONFLICT)


def _find_frozen_scheduler(cluster: Cluster) -> str:
    """Return the name of the frozen scheduler. Raises Failure."""
    suspended_processes = processes.suspended_processes(cluster.state.processes_of(SCHEDULER))
    if len(suspended_processes) == 1:
        return suspended_processes[0]
    if suspended_processes:
        raise usage_failure(f"several schedulers are frozen: {', '.join(suspended_processes)}", hint="name one of them")
    hint = f"`pinnace kill leader{data_dir_flag(cluster.spec.data_dir)} --signal STOP` freezes the leading one"
    raise Failure("no scheduler is frozen", hint=hint, code=ExitCode.CONFLICT)


async def _find_leader(cluster: Cluster) -> tuple[str, int]:
    """Return the name of the leading scheduler, and its token. Raises Failure."""
    async with cluster.client() as client:
        election = await view.try_scheduler_leader(client)
    if election is None or not election.holder:
        hint = f"`pinnace status{data_dir_flag(cluster.spec.data_dir)}` shows which processes run; or name one of them"
        raise Failure("no scheduler leads", hint=hint, code=ExitCode.NOT_FOUND)
    if election.holder not in [record.name for record in cluster.state.processes]:
        message = f"{election.holder} leads the schedulers, and is no process of the cluster in {cluster.spec.data_dir}"
        raise Failure(message, hint="end it where it was started", code=ExitCode.NOT_FOUND)
    return election.holder, election.token


@verb(
    "status",
    examples="""
        pinnace status
        pinnace status -o json | jq '.[] | select(.leader)'
        pinnace status -o json | jq '.[] | {name, options}'   # what each was configured with
    """,
)
@clusters.data_dir_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="The output format.")
def status(settings: Settings, data_dir: Path | None, output: str) -> None:
    """Show the processes of a local cluster: which run, which are ready, which of them lead.

    The exit code is 0 when all are ready, and 1 otherwise. For other clusters, use `pinnace leader` and `pinnace get nodes`.
    """
    with running.translate_cluster_errors():
        cluster = clusters.load_cluster(settings, clusters.present_data_dir(settings, data_dir), "status")
        try:
            process_statuses = running.run_coroutine(cluster.status())
        except FolderError as error:
            print_note(f"the leaders are unknown: {error.message}")
            print_hint(error.hint)
            process_statuses = running.run_coroutine(view.cluster_status(cluster.state, None))
    if output == "json":
        click.echo(json.dumps([asdict(process) for process in process_statuses], indent=2))
    else:
        click.echo(format_process_table(process_statuses), nl=False)
    if not all(process.ready for process in process_statuses):
        raise Reported(ExitCode.SERVER)


def format_process_table(found: Sequence[ProcessStatus]) -> str:
    """Return one line per process, followed by problems and configuration."""
    rows = [
        (
            process.name,
            str(process.pid or "-"),
            process.address,
            process.http,
            "yes" if process.ready else "no",
            "leads" if process.leader else "",
        )
        for process in found
    ]
    text = Table(["NAME", "PID", "ADDRESS", "HTTP", "READY", "LEADER"]).render(rows)
    wrong: dict[str, list[str]] = {}
    for process in found:
        wrong.setdefault(process.problem, []).append(process.name)
    lines = [f"{', '.join(names)}: {problem}" for problem, names in wrong.items() if problem]
    options = dict.fromkeys(
        f"{process.component}: {name}{' ' if name.startswith('-') else '='}{item}"
        for process in found
        for name, value in process.options.items()
        for item in ([value] if isinstance(value, str) else value)
    )
    for part in (lines, list(options)):
        if part:
            text += "\n" + "".join(f"{one_line(line)}\n" for line in part)
    return text
