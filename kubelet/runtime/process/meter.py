"""Measures what the containers of the process runtime use.

`ProcessMeter` counts everything that descends from a container's shim. CPU is the average since the last measurement, or since
the start. Memory is the resident memory of its processes; shared pages count for each.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pinnace.kubelet.runtime.process import files
from pinnace.kubelet.runtime.process.root import RuntimeRoot
from pinnace.kubelet.stats import ResourceUsage, RunningPod
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessEntry

LEAST_WINDOW = 1.0
"""Seconds for which a result is reused. The kernel counts in hundredths of a second."""
Shim = tuple[int, int]
"""Pid and start time identify a process."""


class _UsageSample(NamedTuple):
    age: float
    """CPU time of the shim, in seconds."""
    cpu_s: float
    """CPU time of the container since its start."""
    told: int
    """Nanocores."""
    window: float


class ProcessMeter:
    def __init__(self, root: RuntimeRoot) -> None:
        self._root = root
        self._samples: dict[Shim, _UsageSample] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meter")
        """One measurement at a time, even if a caller was cancelled."""

    async def measure(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._measure_in_thread, running)

    def _measure_in_thread(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        table = procfs.read_process_table()
        children: dict[int, list[ProcessEntry]] = {}
        for entry in table.values():
            children.setdefault(entry.parent, []).append(entry)
        result: list[Mapping[str, ResourceUsage]] = []
        for pod, names in running:
            shims = {name: table.get(self._shim_pid(pod.metadata.uid, name)) for name in names}
            result.append({name: self._read_usage(shim, children) for name, shim in shims.items() if shim is not None})
        self._samples = {
            key: each for key, each in self._samples.items() if key[0] in table and table[key[0]].started == key[1]
        }
        return result

    def _shim_pid(self, uid: str, container: str) -> int:
        """The pid; 0: unknown."""
        attempts = self._root.attempt_directories(uid, container)
        try:
            return int((attempts[-1] / files.LOCK).read_text() or "0") if attempts else 0
        except (OSError, ValueError):
            return 0

    def _read_usage(self, shim: ProcessEntry, children: Mapping[int, Sequence[ProcessEntry]]) -> ResourceUsage:
        processes = list(_descendants_of(shim.pid, children))
        memory = sum(process.rss for process in processes)
        cpu_s, age = shim.waited_s + sum(process.cpu_s + process.waited_s for process in processes), shim.age
        before = self._samples.get((shim.pid, shim.started), _UsageSample(0.0, 0.0, 0, 0.0))
        window = age - before.age
        if window < LEAST_WINDOW and before.window:
            return ResourceUsage(before.told, memory, before.window)
        told = round(max(0.0, cpu_s - before.cpu_s) / max(window, 0.01) * 1e9)
        self._samples[shim.pid, shim.started] = _UsageSample(age, cpu_s, told, window)
        return ResourceUsage(told, memory, window)


def _descendants_of(pid: int, children: Mapping[int, Sequence[ProcessEntry]]) -> Iterator[ProcessEntry]:
    """All descendants."""
    waiting = [*children.get(pid, ())]
    while waiting:
        entry = waiting.pop()
        yield entry
        waiting += children.get(entry.pid, ())
