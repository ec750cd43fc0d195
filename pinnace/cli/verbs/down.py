"""`pinnace down`: the end of a local cluster."""

from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.local import contexts, elsewhere, running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cluster import strays
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import NoCluster
from pinnace.cluster.folder import Folder


@verb(
    "down",
    examples="""
        pinnace down
        pinnace down --data-dir /tmp/big
    """,
)
@contexts.data_dir_option
def down(settings: Settings, data_dir: Path | None) -> None:
    """Stop a local cluster, and remove it with all its objects. `pinnace stop` keeps them.

    Its processes are asked to end, and killed when they do not. etcd's data, the logs, the certificates and the context in the
    client configuration are removed, and so is the folder if `pinnace up` has made it; commands then talk to the other local
    cluster that runs, if it is the only one. Files in the folder that the cluster has not made are kept, and named. Without a
    cluster there is nothing to do, which is no error, unless you name none while another one runs. Where somebody has removed
    the folder of a cluster that ran, its processes are found all the same.
    """
    folder = contexts.present_data_dir(settings, data_dir)
    named, left = data_dir or settings.context, None
    with running.translated(), Steps(settings) as steps:
        try:
            cluster = Cluster.load(folder)
        except NoCluster as nothing:
            if ran_on := running.run(strays.end(folder)):
                steps.done(f"the state of a cluster in {folder} is gone; its processes ran on, and were killed: {ran_on}")
            elif (made := Folder(folder).forget_failed_start()) is not None:
                Folder(folder).prune(made)
                steps.done(f"removed the logs of a start that failed from {folder}")
            elif not named and (others := elsewhere.hint(settings, folder, "down")):
                left = Failure(nothing.message, hint=others, code=ExitCode.NOT_FOUND)
            else:
                click.echo(f"{nothing.message}: nothing to do{'' if named else ' (--data-dir DIR names another)'}")
        else:
            running.run(running.remove(cluster, steps))
    contexts.remove_context(folder)
    if left:
        raise left
