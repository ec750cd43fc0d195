"""Takes a cluster down, and unmounts its disks, if the process that started it died without doing so. It waits for the end of
its stdin (pinnace.cluster.links). If the cluster has been taken down by then, it does nothing.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from pinnace.chaos.host import unmount
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import NoCluster
from pinnace.runtime import process


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="The cluster's folder.")
@click.option("--disk", "disks", type=click.Path(path_type=Path), multiple=True, help="Where a disk of it is mounted.")
def main(data_dir: Path, disks: tuple[Path, ...]) -> None:
    """Wait for the end of stdin, then take the cluster down if it is still there."""
    asyncio.run(_guard(data_dir, disks))


async def _guard(data_dir: Path, disks: tuple[Path, ...]) -> None:
    await process.serve({})
    with suppress(NoCluster):
        await Cluster.load(data_dir).down()
    for disk in disks:
        unmount(disk)


if __name__ == "__main__":
    main()
