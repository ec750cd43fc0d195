"""What each process of a cluster, and the load generator, uses while something is measured."""

import os
from collections.abc import Mapping

from pinnace.cluster.state import ClusterState
from pinnace.runtime import procfs
from pinnace.runtime.procfs import Usage

LOAD = "load generator"


class Meter:
    """Reads now, and again with `read`: CPU seconds between the two, and the peak memory since each process began."""

    def __init__(self, state: ClusterState) -> None:
        own = procfs.identify(os.getpid())
        assert own is not None
        self._processes = {record.name: record.process for record in state.processes if record.process} | {LOAD: own}
        self._before = self._read()

    def read(self) -> dict[str, Usage]:
        """Processes that have ended meanwhile are left out."""
        return difference(self._before, self._read())

    def _read(self) -> dict[str, Usage]:
        return {name: found for name, process in self._processes.items() if (found := procfs.usage(process))}


def difference(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, Usage]:
    return {
        name: Usage(usage.cpu_s - before[name].cpu_s, usage.peak_rss_mb, usage.rss_mb)
        for name, usage in after.items()
        if name in before
    }
