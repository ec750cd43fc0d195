"""Removes a cluster and unmounts its disks if the process that started it dies. It waits for the end of its stdin
(pinnace.cluster.links). If the cluster has already been removed, it does nothing.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import NoCluster
from pinnace.runtime import process
from pinnace.verification.chaos.host import unmount_disk


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="The cluster's data directory.")
@click.option("--disk", "disks", type=click.Path(path_type=Path), multiple=True, help="The mount point of a disk.")
def main(data_dir: Path, disks: tuple[Path, ...]) -> None:
    """Wait for the end of stdin, then remove the cluster if it exists."""
    asyncio.run(_remove_at_end_of_input(data_dir, disks))


async def _remove_at_end_of_input(data_dir: Path, disks: tuple[Path, ...]) -> None:
    await process.serve_requests({})
    with suppress(NoCluster):
        await Cluster.load(data_dir).down()
    for disk in disks:
        unmount_disk(disk)


if __name__ == "__main__":
    main()
