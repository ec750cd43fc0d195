"""`pinnace up`: starts or resumes a local cluster, and prints its changes until it is interrupted."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource

from pinnace.cli.command import verb
from pinnace.cli.local import clusters, running
from pinnace.cli.local.links import local_link, open_browser
from pinnace.cli.local.running import Steps
from pinnace.cli.outcomes import Failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_note
from pinnace.client.contexts import WrittenContext
from pinnace.client.flags import NodeShapeOptions, check_node_labels
from pinnace.client.flags import machine_options as machine_options
from pinnace.cluster import inputs, processes, view
from pinnace.cluster.cluster import START_TIMEOUT, Cluster
from pinnace.cluster.errors import ClusterBusy, FolderError, NoCluster, OtherOptions, SpecError
from pinnace.cluster.spec import (
    DNS,
    ELECTIONS,
    FAKE,
    PROCESS,
    PROXY,
    SLOW_LEASE,
    STAGES,
    ClusterSpec,
    config_folder,
    data_dir_flag,
    default_data_dir,
)
from pinnace.cluster.view import ProcessStatus

POSITIVE = click.IntRange(min=1)
CHECK_TIMEOUT = 30.0
"""Seconds in which a scheduler must have loaded its plugins."""
INTERVAL = 0.5


@verb(
    "up",
    examples="""
        pinnace up                            # 10 nodes; prints changes until Ctrl-C stops the cluster
        pinnace up --detach --nodes 1000      # returns when it is ready; `pinnace stop` stops it
        pinnace up --detach                   # resumes the existing cluster
        pinnace up --detach --open            # opens its timeline in a browser
        pinnace up --fresh --detach           # deletes the existing cluster and starts a new one
        pinnace up --etcd-members 3 --data-dir /tmp/big
        pinnace up --cpu 16 --memory 64Gi --zones 5 # larger machines; --machines FILE mixes shapes
        pinnace up --scheduler-config examples/plugins/cheap.yaml
        pinnace up --slow-motion              # leases of ten seconds: watch one expire
        pinnace up --stages chaos             # containers crash and hang; see docs/kubelet.md
        pinnace up --nodes 3 --runtime process # containers run their commands, on this machine: see docs/process-runtime.md
    """,
)
@click.option("--nodes", type=POSITIVE, default=10, show_default=True, help="Virtual nodes.")
@click.option("--kubelets", type=POSITIVE, default=1, show_default=True, help="Kubelet processes that share the nodes.")
@click.option("--schedulers", type=POSITIVE, default=3, show_default=True, help="One leads, the others are on standby.")
@click.option(
    "--controllers", type=click.IntRange(min=0), default=2, show_default=True, help="One leads, the others are on standby."
)
@click.option("--gateways", type=POSITIVE, default=1, show_default=True, help="Serve the Kubernetes API, all on one port.")
@click.option(
    "--proxy/--no-proxy", default=None, help="Run a service proxy.  [default: with --runtime process]", show_default=False
)
@click.option("--apiservers", type=POSITIVE, default=2, show_default=True, help="API servers; all of them serve requests.")
@click.option("--etcd-members", type=click.IntRange(min=1), default=1, show_default=True, help="1 or 3.")
@click.option(
    "--runtime",
    type=click.Choice([FAKE, PROCESS]),
    default=FAKE,
    show_default=True,
    help="Run containers as simulated ones, or as processes of this machine with your user ID.",
)
@click.option(
    "--stages",
    default="",
    metavar="SET|FILE",
    callback=lambda context, option, given: _list_stages(given),
    help=f"How simulated containers behave: {', '.join(STAGES)}, or a file.",
)
@click.option("--images", default="", metavar="FILE", help="The commands of images, for --runtime process.")
@machine_options
@click.option("--scheduler-config", default="", metavar="FILE", help="A KubeSchedulerConfiguration for the schedulers.")
@click.option(
    "--scheduler-plugin",
    "scheduler_plugins",
    multiple=True,
    metavar="SPEC",
    help="A plugin of your own: module:Class or path/to/file.py:Class. May be repeated.",
)
@click.option(
    "--slow-motion",
    is_flag=True,
    help=f"Use leases of {SLOW_LEASE} s in elections, so that you can watch them expire. A frozen leader is replaced after "
    f"{SLOW_LEASE / 2:g} s.",
)
@clusters.data_dir_option
@click.option("--fresh", is_flag=True, help="Delete the existing cluster with all its objects, and start a new one.")
@click.option("--open", "opens", is_flag=True, help="Open the timeline of the cluster in a browser.")
@click.option("--detach", is_flag=True, help="Run the cluster in the background and return when it is ready.")
def up(
    settings: Settings,
    data_dir: Path | None,
    fresh: bool,
    opens: bool,
    detach: bool,
    machines: NodeShapeOptions,
    **options: Any,
) -> None:
    """Start a local cluster, or resume an existing one.

    A cluster that was stopped, or whose processes were killed, resumes with its objects, size and configuration. Only `pinnace
    down` and --fresh delete a cluster. Files that options name are copied into the cluster's folder. Environment variables
    such as PINNACE_SCHEDULER_SEED are stored there. Later starts use the copies.

    The processes run in the background. They outlive the terminal, and this command if it is killed. The cluster becomes the
    current context of the kubeconfig, so that kubectl and pinnace use it in all terminals, unless KUBECONFIG names another file
    there. --kubeconfig writes to another file.
    """
    with running.translate_cluster_errors():
        folder = data_dir or default_data_dir()
        check_node_labels(machines)
        if options["proxy"] is None:
            options["proxy"] = options["runtime"] == PROCESS
        sharing = options["gateways"] > 1
        spec = ClusterSpec(**options, gateways_share_port=sharing, data_dir=folder, machine=machines.options)
        if spec.images and spec.runtime != PROCESS:
            raise SpecError(
                "--images can only be used with --runtime process", hint=f"use --runtime {PROCESS}, or omit --images"
            )
        running.run_coroutine(
            _start_or_resume(settings, spec, _list_given_options(spec), fresh=fresh, opens=opens, detach=detach)
        )


def _list_given_options(spec: ClusterSpec) -> dict[str, Any]:
    """Return the options on the command line."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in inputs.options_by_name(spec).items() if source(name) is ParameterSource.COMMANDLINE}


def _list_stages(given: str) -> str:
    if given not in ("", *STAGES) and not Path(given).is_file():
        raise click.BadParameter(f'"{given}" is no file, and none of {", ".join(STAGES)}')
    return given


async def _start_or_resume(
    settings: Settings, spec: ClusterSpec, given: Mapping[str, Any], *, fresh: bool, opens: bool, detach: bool
) -> None:
    clusters.check_writable(settings)
    with Steps(settings) as steps:
        cluster, names = await _start_cluster(settings, spec, given, steps, fresh=fresh)
        try:
            context = clusters.write_context(settings, cluster.config)
            clusters.refresh_context(settings, cluster.config)
            before = await cluster.status()
            link, problem = await _create_timeline_link(cluster, wanted=opens)
            steps.quiet()
            greet = partial(
                _print_welcome, _format_welcome(cluster, detach, context, resumed=names), link, problem, opens=opens
            )
            if not detach:
                greet()
                await follow_processes(cluster, before, _print_timestamped)
        except BaseException:
            await _stop_cluster(settings, cluster, steps)
            raise
        if detach:  # the cluster runs, also if its output can no longer be written: `pinnace up --detach | head -1`
            greet()
            return
        if why := await _stop_cluster(settings, cluster, steps):
            raise why
        _print_timestamped("another command has stopped the cluster")


def _print_welcome(welcome: str, link: str | None, problem: str, *, opens: bool) -> None:
    click.echo(welcome)
    if link:
        click.echo(f"\nIts timeline, by a link that works once:\n\n  {link}")
        open_browser(link, opens)
    elif problem:
        print_note(f"there is no link to the timeline: {problem}")


async def _start_cluster(
    settings: Settings, spec: ClusterSpec, given: Mapping[str, Any], steps: Steps, *, fresh: bool
) -> tuple[Cluster, list[str] | None]:
    """Return the cluster, and the names of the processes that were started; None for a new cluster."""
    timeout = settings.timeout or START_TIMEOUT
    try:
        there = Cluster.load(spec.data_dir)
    except NoCluster:
        there = None
    if there is not None and not fresh:
        check_options(there, given, os.environ, Path.cwd())
        steps.done(f"going on with the cluster in {spec.data_dir}, which was made with {describe_spec(there.spec)}")
        return there, await there.resume(steps, timeout=timeout)
    if there is not None:
        inputs.read_inputs(spec, os.environ, Path.cwd())  # what cannot be used is refused before anything is removed
        await _check_scheduler(inputs.with_environment(spec, os.environ))
        await running.remove_cluster(there, steps)
    cluster = Cluster(spec)
    await cluster.up(steps, timeout=timeout)
    return cluster, None


async def _check_scheduler(spec: ClusterSpec) -> None:
    """Raise Failure if a scheduler cannot use the configuration or a plugin."""
    if not spec.scheduler_config and not spec.scheduler_plugins:
        return
    arguments = ["--config", spec.scheduler_config] if spec.scheduler_config else []
    arguments += [f"--plugin={scheduler_plugin}" for scheduler_plugin in spec.scheduler_plugins]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pinnace.scheduler.main", *arguments, "--write-config-to", os.devnull,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            _, said = await process.communicate()
    except TimeoutError:
        raise Failure(f"the scheduler did not load its plugins within {CHECK_TIMEOUT:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        (*_, problem) = said.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        message = problem.removeprefix("Error: ")
        raise Failure(f"the scheduler cannot start: {message}", hint="nothing was removed; correct it and try again")


async def _create_timeline_link(cluster: Cluster, *, wanted: bool) -> tuple[str, str]:
    """Return a link to the timeline, or the reason why there is none. Both are "" without a gateway, unless a link is
    `wanted`."""
    if not cluster.spec.gateways and not wanted:
        return "", ""
    try:
        return await asyncio.to_thread(local_link, cluster), ""
    except Failure as failure:
        return "", str(failure)


def describe_spec(spec: ClusterSpec) -> str:
    """Return the size and the configuration of the cluster, by the options of `up`."""
    return " ".join(
        find_option(name, value)
        for name, value in inputs.options_by_name(spec).items()
        if value is not False and value not in ("", (), FAKE)
    )


def check_options(cluster: Cluster, given: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> None:
    """Raise OtherOptions when the cluster was started with other options than those that are given now, on the command line
    or by variables of the environment."""
    spec, state = cluster.spec, cluster.state
    sizes = {name: value for name, value in given.items() if name not in inputs.FLAGS}
    files = {name: value for name, value in given.items() if name in inputs.FLAGS}
    bare = ClusterSpec(data_dir=spec.data_dir, runtime=FAKE if files.get("stages") else spec.runtime)
    asked = inputs.with_environment(inputs.with_options(bare, files), environ)
    digests, before = inputs.file_digests(asked, cwd), inputs.options_by_name(spec)
    wanted = inputs.options_by_name(inputs.with_absolute_paths(asked, cwd))
    had, now, changed = [], [], []
    for name, new in sizes.items():
        if before[name] != new:
            had.append(find_option(name, before[name]))
            now.append(find_option(name, new))
    for name in inputs.FLAGS:
        old, new = before[name], wanted[name]
        if (new or name in files) and digests.get(name) != state.digests.get(name):
            had.append(find_option(name, old))
            now.append(find_option(name, new) + (" with other contents" if old == new else ""))
            changed.append(name)
    for variable, stored in inputs.changed_variables([record.plan for record in state.processes], environ, cwd).items():
        had.append(f"no {variable}" if stored is None else f"{variable}={quote(stored)}")
        now.append(f"{variable}={quote(environ[variable])}")
    if not had:
        return
    where = data_dir_flag(spec.data_dir)
    are, them = ("is", "it") if len(now) == 1 else ("are", "them")
    ways = [_describe_way_to_change(cluster, name) for name in changed if before[name]]
    raise OtherOptions(
        f"the cluster in {spec.data_dir} was started with {_join_words(had)}, and now {_join_words(now)} {are} given",
        hint="".join(ways)
        + f"`pinnace up{where}` without {them} goes on with that cluster; with --fresh it is removed with all "
        "its objects, and a new one is started; --data-dir names another folder for another cluster",
    )


def _describe_way_to_change(cluster: Cluster, name: str) -> str:
    """How a cluster that stays takes up a changed file of this option. "" if it has no copy of it."""
    copy, component = inputs.COPIES.get(name, ("", ""))
    path = config_folder(cluster.spec.data_dir) / copy
    if not copy or not path.is_file():
        return ""
    names = " ".join(record.name for record in cluster.state.processes_of(component))
    where = data_dir_flag(cluster.spec.data_dir)
    return f"to change it in that cluster, edit its copy {path}, then `pinnace restart{where} {names}`; "


def find_option(name: str, value: object) -> str:
    """Return the option of `up` that sets this field of ClusterSpec."""
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{name.replace('_', '-')}"
    flag = inputs.FLAGS[name][0] if name in inputs.FLAGS else f"--{name.replace('_', '-')}"
    values = value if isinstance(value, tuple) else (value,) if value != "" else ()
    return " ".join(f"{flag} {quote(str(item))}" for item in values) or f"no {flag}"


def _join_words(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def _print_timestamped(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {line}")


async def _stop_cluster(settings: Settings, cluster: Cluster, steps: Steps) -> Failure | None:
    """Stop the cluster and keep its data. Return the error if its processes failed; None if a command ended them."""
    folder, written = cluster.spec.data_dir, cluster.folder.kubeconfigs()
    steps.waiting("the processes to end")
    try:
        result = cluster.reload()
        stopped, ran = result.state.stopped, len(result.stopped_processes()) < len(result.state.processes)
        await result.stop_at_exit()
    except NoCluster:
        if not await processes.end_processes(folder):
            return None
        clusters.remove_context(settings, folder, written)
        steps.done("its processes were killed")
        return Failure(f"the state of the cluster was removed from {folder}", hint="`pinnace down` ends a cluster")
    except ClusterBusy:
        return None
    finally:
        steps.quiet()
    where = data_dir_flag(folder)
    if stopped:
        return None
    ways = f"`pinnace up{where}` goes on with it, `pinnace down{where}` removes it"
    steps.done(f"the cluster is stopped; its data is in {folder}: {ways}")
    if ran:
        return None
    return Failure("every process of the cluster had ended", hint=f"`dmesg` may say why; `pinnace up{where}` goes on with it")


def example_pods() -> Path | None:
    """Return the path of an example manifest, in the repository or in the installation."""
    ours = Path("examples/pods.yaml")
    packaged = Path(str(files("pinnace.cli").joinpath("demo.yaml")))
    return next((path for path in (ours, packaged) if path.is_file()), None)


def _format_welcome(cluster: Cluster, detach: bool, context: WrittenContext, *, resumed: Sequence[str] | None) -> str:
    """Return the text after the start. `resumed`: the processes that were started of a cluster that was there; None: it is
    new."""
    spec, example = cluster.spec, example_pods()
    commands = [
        ("pinnace status", "its processes, and which of them lead"),
        ("pinnace get nodes", "its nodes"),
        *([(f"pinnace apply -f {example}", "some pods")] if example else []),
        ("pinnace get pods -w", "changes of pods, as they happen"),
        *([("pinnace ui", "its timeline in a browser: elections, nodes, decisions")] if spec.gateways else []),
        *_format_dns_example(cluster),
        (
            "pinnace stop" if detach else "Ctrl-C, or pinnace stop",
            "stops it and keeps its data; `pinnace start` resumes it",
        ),
        ("pinnace down", "deletes it with all its objects"),
    ]
    count = len(cluster.state.processes)
    if resumed is None:
        size = f"{count} processes, {spec.nodes:,} nodes"
    else:
        size = f"{len(resumed)} of {count} processes were started again" if resumed else f"all {count} processes ran already"
    first = f"The cluster is up: {size}. Its folder is {spec.data_dir}"
    width = max(40, *(len(command) + 2 for command, _ in commands))
    return "\n".join(
        [first, *_format_context(context), "", *(f"  {command:<{width}}{purpose}" for command, purpose in commands)]
    )


def _format_dns_example(cluster: Cluster) -> list[tuple[str, str]]:
    """Return an example request to the DNS server of the service proxy."""
    for record in cluster.state.processes_of(PROXY):
        argv = record.plan.argv
        host, _, port = argv[argv.index(DNS) + 1].rpartition(":")
        return [(f"dig @{host} -p {port} NAME.NAMESPACE.svc.cluster.local", "the addresses of a service")]
    return []


def _format_context(written: WrittenContext) -> list[str]:
    """Name the context, and the one that it replaces."""
    lines = [f'kubectl and pinnace use it: context "{written.context}" in {written.path}']
    if written.previous:
        lines.append(f"They use {written.previous} with --context {quote(written.previous)}, and again after `pinnace down`.")
    return lines


async def follow_processes(cluster: Cluster, before: Sequence[ProcessStatus], say: Callable[[str], None]) -> None:
    """Print changes of the processes after `before`. Return when all processes have ended, or the state or the certificates
    were deleted (a later cluster in the folder is another one)."""
    with suppress(NoCluster, FolderError):
        async with cluster.client() as client:
            while True:
                after = await view.cluster_status(cluster.reload().state, client)
                for line in list_process_changes(before, after):
                    say(line)
                if not any(process.pid for process in after):
                    return
                before = after
                await asyncio.sleep(INTERVAL)


def list_process_changes(before: Sequence[ProcessStatus], after: Sequence[ProcessStatus]) -> list[str]:
    """Return a line for each difference."""
    known = {process.name: process for process in before}
    lines = [line for new in after if (line := _format_process_change(known[new.name], new))]
    return lines + [
        line
        for component in ELECTIONS
        for line in _format_leader_change(
            _list_component_processes(component, before), _list_component_processes(component, after)
        )
    ]


def _format_process_change(old: ProcessStatus, new: ProcessStatus) -> str | None:
    if old.pid and not new.pid:
        return f"{new.name} has ended (was pid {old.pid})"
    if new.pid != old.pid:
        return f"{new.name} has been started (pid {new.pid})"
    if not new.pid:
        return None
    if old.ready and not new.ready:
        return f"{new.name} is not ready: {new.problem}"
    return f"{new.name} is ready" if new.ready and not old.ready else None


def _list_component_processes(component: str, processes: Sequence[ProcessStatus]) -> Sequence[ProcessStatus]:
    return [process for process in processes if process.component == component]


def _format_leader_change(before: Sequence[ProcessStatus], after: Sequence[ProcessStatus]) -> list[str]:
    old, new = _find_leader(before), _find_leader(after)
    if new == old:
        return []
    return [f"{new} leads{f' (before: {old})' if old else ''}"] if new else [f"no leader (before: {old})"]


def _find_leader(processes: Sequence[ProcessStatus]) -> str:
    return next((process.name for process in processes if process.leader), "")
