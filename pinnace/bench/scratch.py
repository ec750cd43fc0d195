"""A cluster for one purpose: in a folder of its own that is gone afterwards, and unknown to the user's configuration."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pinnace.cluster.cluster import Cluster, Hook
from pinnace.cluster.fittings import PLAIN, Fittings
from pinnace.cluster.progress import Progress
from pinnace.cluster.spec import ClusterSpec

START_TIMEOUT = 180.0
"""Seconds; thousands of nodes take their time."""


@asynccontextmanager
async def scratch_cluster(
    spec: ClusterSpec, progress: Progress, with_etcd: Hook | None = None, fittings: Fittings = PLAIN
) -> AsyncIterator[Cluster]:
    """`spec` says how many of each; its folder is not used. `with_etcd` as in `Cluster.up`."""
    with tempfile.TemporaryDirectory(prefix="pinnace-") as folder:
        cluster = Cluster(replace(spec, data_dir=Path(folder) / "cluster"), fittings)
        await cluster.up(progress, timeout=START_TIMEOUT, with_etcd=with_etcd)
        try:
            yield cluster
        finally:
            progress.waiting("the processes to end")
            await cluster.end()
