"""`pinnace stop`: ends the processes of a local cluster, and keeps its data."""

from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.settings import Settings
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import data_dir_flag


@verb(
    "stop",
    examples="""
        pinnace stop
        pinnace start                   # goes on with it
    """,
)
@contexts.data_dir_option
def stop(settings: Settings, data_dir: Path | None) -> None:
    """Stop a local cluster, and keep all its data.

    Its processes are asked to end, and killed when they do not. Its objects, logs, certificates and configuration stay:
    `pinnace start` or `pinnace up` goes on with it, `pinnace down` removes it. Containers that are processes (--runtime
    process) end, too, and are started again by their restart policy. To end one process only: `pinnace kill NAME`.
    """
    folder = contexts.present_data_dir(settings, data_dir)
    with running.translated(), Steps(settings) as steps:
        cluster = elsewhere.load(settings, folder, "stop")
        running.run(_stop(cluster, steps))


async def _stop(cluster: Cluster, steps: Steps) -> None:
    folder = cluster.spec.data_dir
    where, count = data_dir_flag(folder), len(cluster.state.processes) - len(cluster.ended())
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
