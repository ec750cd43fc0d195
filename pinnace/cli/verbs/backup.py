"""The verbs `backup` and `restore`: a local cluster as one file (pinnace.cluster.backup)."""

import asyncio
from pathlib import Path

import click

from pinnace.cli.command import verb
from pinnace.cli.local import clusters, running
from pinnace.cli.local.running import Steps
from pinnace.cli.settings import Settings
from pinnace.cluster import backup as backups
from pinnace.cluster.cluster import find_etcd_binary
from pinnace.cluster.spec import data_dir_flag, default_data_dir

MB = 1_000_000
file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@verb(
    "backup",
    examples="""
        pinnace backup monday.tar.gz
        pinnace backup --data-dir /tmp/big monday.tar.gz
    """,
)
@clusters.data_dir_option
@file_argument
def backup(settings: Settings, file: Path, data_dir: Path | None) -> None:
    """Write a running local cluster to one file: a snapshot of etcd, the certificates and keys, and the configuration.

    The cluster continues. The file contains the keys of the certificate authorities and the values of Secrets, and only its
    owner can read it. It does not contain logs and the volumes of pods. An existing file is not overwritten.
    """
    folder = clusters.present_data_dir(settings, data_dir)
    with running.translate_cluster_errors(), Steps(settings) as steps:
        cluster = clusters.load_cluster(settings, folder, "backup")
        steps.waiting("the snapshot of etcd")
        summary = running.run_coroutine(asyncio.to_thread(backups.write_backup, cluster.state, file.absolute()))
        steps.quiet()
    click.echo(
        f"wrote {file} ({summary.size / MB:,.1f} MB, etcd {summary.etcd}): `pinnace restore --data-dir DIR {file}` restores it"
    )


@verb(
    "restore",
    examples="""
        pinnace restore --data-dir /tmp/monday monday.tar.gz
        pinnace start --data-dir /tmp/monday
    """,
)
@clusters.data_dir_option
@file_argument
def restore(settings: Settings, file: Path, data_dir: Path | None) -> None:
    """Create a local cluster from a backup, in a folder without a cluster. `pinnace start` starts it.

    The cluster has the identity, certificates, objects and options of the saved one. It can be another machine, if its etcd is
    not older. Ports in use are replaced. Volumes of pods are not restored. The cluster that was saved is not changed; end it
    before you start the copy, if clients know both. Restore only files that you trust: a backup contains commands.
    """
    folder = (data_dir or default_data_dir()).resolve()
    with running.translate_cluster_errors(), Steps(settings) as steps:
        steps.waiting("the restore of etcd")
        binary = find_etcd_binary(steps)
        state = running.run_coroutine(asyncio.to_thread(backups.restore_backup, file.absolute(), folder, binary))
        steps.quiet()
    click.echo(f"restored {len(state.processes)} processes in {folder}; `pinnace start{data_dir_flag(folder)}` starts them")
