"""Takes a cluster down, and unmounts its disks, when whoever started it has died without doing so: a process that waits for the
end of its stdin (pinnace.cluster.links). When the cluster has been taken down by then, there is nothing to do.
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
