"""`pinnace up`: a local cluster."""

import asyncio
import time
from importlib.resources import files
from pathlib import Path
from shlex import quote

import click

from pinnace.cli.command import verb
from pinnace.cli.local import contexts, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import Failure
from pinnace.cli.settings import Settings
from pinnace.client.flags import Machines, check_registering
from pinnace.client.flags import machines as machine_options
from pinnace.cluster import strays
from pinnace.cluster.cluster import START_TIMEOUT, Cluster
from pinnace.cluster.errors import Busy, NoCluster
from pinnace.cluster.follow import follow
from pinnace.cluster.spec import FAKE, PROCESS, STAGES, ClusterSpec, default_data_dir

POSITIVE = click.IntRange(min=1)


@verb(
    "up",
    examples="""
        pinnace up                            # 10 nodes; stays and tells what changes; Ctrl-C takes it down
        pinnace up --detach --nodes 1000      # returns when it is ready; `pinnace down` takes it down
        pinnace up --etcd-members 3 --data-dir /tmp/big
        pinnace up --cpu 16 --memory 64Gi --zones 5 # larger machines; --machines FILE has nodes differ
        pinnace up --stages chaos             # containers crash and hang; see docs/stages.md
        pinnace up --nodes 3 --runtime process # containers run their commands, on this machine: see docs/process-runtime.md
    """,
)
@click.option("--nodes", type=POSITIVE, default=10, show_default=True, help="Virtual nodes.")
@click.option("--kubelets", type=POSITIVE, default=1, show_default=True, help="Kubelet processes that share the nodes.")
@click.option("--schedulers", type=POSITIVE, default=3, show_default=True, help="One leads, the others stand by.")
@click.option("--controllers", type=click.IntRange(min=0), default=2, show_default=True, help="One leads, the others stand by.")
@click.option("--apiservers", type=POSITIVE, default=2, show_default=True, help="All serve.")
@click.option("--etcd-members", type=click.IntRange(min=1), default=1, show_default=True, help="1 or 3.")
@click.option(
    "--runtime",
    type=click.Choice([FAKE, PROCESS]),
    default=FAKE,
    show_default=True,
    help="What containers are: pretended; or processes of this machine, which run as you.",
)
@click.option(
    "--stages",
    default="",
    metavar="SET|FILE",
    callback=lambda context, option, given: _stages(given),
    help=f"What containers pretend to do: {', '.join(STAGES)}, or a file.",
)
@machine_options
@contexts.data_dir_option
@click.option("--detach", is_flag=True, help="Return when the cluster is ready, and leave it running.")
def up(
    settings: Settings,
    nodes: int,
    kubelets: int,
    schedulers: int,
    controllers: int,
    apiservers: int,
    etcd_members: int,
    runtime: str,
    stages: str,
    data_dir: Path | None,
    detach: bool,
    machines: Machines,
) -> None:
    """Start a local cluster of real processes.

    The processes run on their own: they outlive the terminal, and this command when it is killed. Other commands find the
    cluster by the client configuration, in which it becomes the current context: in every terminal, unless PINNACE_CONFIG names
    another file there.
    """
    with running.translated():
        folder = data_dir or default_data_dir()
        check_registering(machines)
        spec = ClusterSpec(
            nodes, kubelets, schedulers, apiservers, etcd_members, controllers, folder, runtime, stages, machines.options
        )
        running.run(_up(settings, spec, detach))


def _stages(given: str) -> str:
    """A file by its full path: kubelets run elsewhere."""
    if given in ("", *STAGES):
        return given
    if not Path(given).is_file():
        raise click.BadParameter(f'"{given}" is no file, and none of {", ".join(STAGES)}')
    return str(Path(given).resolve())


async def _up(settings: Settings, spec: ClusterSpec, detach: bool) -> None:
    cluster = Cluster(spec)
    contexts.check_writable()
    with Steps(settings) as steps:
        await cluster.up(steps, timeout=settings.timeout or START_TIMEOUT)
        try:
            displaced = contexts.write_context(cluster.config)
            before = await cluster.status()
            steps.quiet()
            click.echo(_welcome(cluster, detach, displaced))
            if detach:
                return
            await follow(cluster, before, _tell)
        except BaseException:
            await _down(cluster, steps)
            raise
        if why := await _down(cluster, steps):
            raise why
        _tell("the cluster has been brought down by another command")


def _tell(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {line}")


async def _down(cluster: Cluster, steps: Steps) -> Failure | None:
    """Takes it down and forgets it. What it means when nobody has asked for that; None: somebody else does so, or has done."""
    folder = cluster.spec.data_dir
    why = Failure("every process of the cluster had ended", hint="was it you? otherwise `dmesg` may know who")
    steps.waiting("the processes to end")
    try:
        try:
            await cluster.reloaded().end()
        except NoCluster:
            if not await strays.end(folder):
                return None
            why = Failure(f"the state of the cluster was removed from {folder}", hint="`pinnace down` ends a cluster")
    except Busy:
        return None
    except asyncio.CancelledError:  # it is down all the same
        contexts.remove_context(folder)
        raise
    contexts.remove_context(folder)
    steps.done("the cluster is down; nothing is left of it")
    return why


def example_pods() -> Path | None:
    """A manifest that can be applied from here: that of the repository, or the one that is installed."""
    ours = Path("examples/pods.yaml")
    packaged = Path(str(files("pinnace.cli.stories").joinpath("demo.yaml")))
    return next((path for path in (ours, packaged) if path.is_file()), None)


def _welcome(cluster: Cluster, detach: bool, displaced: str) -> str:
    """`displaced`: the context that commands used until now, or ""."""
    spec, example = cluster.spec, example_pods()
    commands = [
        ("pinnace status", "its processes, and which of them lead"),
        ("pinnace get nodes", "its nodes"),
        *([(f"pinnace apply -f {example}", "some pods")] if example else []),
        ("pinnace get pods -w", "what becomes of them"),
        ("pinnace down" if detach else "Ctrl-C, or pinnace down", "the end"),
    ]
    first = f"The cluster is up: {len(cluster.state.processes)} processes, {spec.nodes:,} nodes. Its folder is {spec.data_dir}"
    width = max(40, *(len(command) + 2 for command, _ in commands))
    return "\n".join([first, *_warning(displaced), "", *(f"  {command:<{width}}{purpose}" for command, purpose in commands)])


def _warning(displaced: str) -> list[str]:
    """Who works with another cluster in another terminal works with this one from now on."""
    if not displaced:
        return []
    return [
        f"Commands in all terminals talk to it now, and no longer to {displaced}: that takes --context {quote(displaced)}.",
        "A terminal whose PINNACE_CONFIG names a file of its own is not concerned.",
    ]
