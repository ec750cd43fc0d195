"""Measurements of processes during a benchmark: metrics, CPU time, memory, and the CPU time of the API servers by stage
(`--profile-stages`).
"""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from http.client import HTTPException
from typing import Self
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from pinnace.cluster.spec import APISERVER, ClusterState
from pinnace.runtime import procfs
from pinnace.runtime.procfs import ProcessIdentity, ProcessUsage
from pinnace.verification.bench import BenchError

TIMEOUT = 5.0
_direct = build_opener(ProxyHandler({}))
"""An opener that ignores http_proxy, for loopback addresses."""
LOAD = "load generator"
STAGE_CPU_METRIC = "pinnace_stage_cpu_seconds_total"


async def read_metric(http: str, name: str, /, **labels: str) -> int | None:
    """Return the sum of the samples with this name and these labels, or None if the process does not export the metric. Raises
    BenchError."""
    return sum_metric(await asyncio.to_thread(_fetch_metrics, http), name, **labels)


def sum_metric(text: str, name: str, /, **labels: str) -> int | None:
    """Return the sum like `read_metric` from a text in Prometheus' format."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    values = [sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()]
    return int(sum(values)) if values else None


async def read_metric_by(http: str, name: str, label: str) -> dict[str, float]:
    """Return the samples with this name by the value of a label. Raises BenchError."""
    families = text_string_to_metric_families(await asyncio.to_thread(_fetch_metrics, http))
    return {sample.labels[label]: sample.value for family in families for sample in family.samples if sample.name == name}


def _fetch_metrics(http: str) -> str:
    try:
        with _direct.open(f"http://{http}/metrics", timeout=TIMEOUT) as answer:
            text: str = answer.read().decode()
    except (HTTPException, OSError) as error:
        raise BenchError(f"unable to read metrics from {http}: {error}") from error
    return text


class ProcessMeter:
    """Measures processes from its creation to `read_usage`: CPU seconds in between, and the peak memory since the start of each
    process. The running descendants of a process of the cluster count as parts of it."""

    def __init__(self, state: ClusterState) -> None:
        own = procfs.identify_process(os.getpid())
        assert own is not None
        self._processes = {record.name: record.process for record in state.processes if record.process} | {LOAD: own}
        self._before = self._read()

    def read_usage(self) -> dict[str, ProcessUsage]:
        """Return the usage by process. Processes that have ended are omitted."""
        return subtract_samples(self._before, self._read())

    def _read(self) -> dict[str, ProcessUsage]:
        return {
            name: process_usage
            for name, process in self._processes.items()
            if (process_usage := self._usage_of_process(name, process))
        }

    def _usage_of_process(self, name: str, process: ProcessIdentity) -> ProcessUsage | None:
        below = () if name == LOAD else procfs.find_descendants([process])
        usages = [usage for item in (process, *below) if (usage := procfs.read_usage(item))]
        if not usages or not procfs.is_running(process):
            return None
        return ProcessUsage(*(sum(getattr(usage, field.name) for usage in usages) for field in fields(ProcessUsage)))


def subtract_samples(before: Mapping[str, ProcessUsage], after: Mapping[str, ProcessUsage]) -> dict[str, ProcessUsage]:
    return {
        name: ProcessUsage(usage.cpu_s - before[name].cpu_s, usage.peak_rss_mb, usage.rss_mb)
        for name, usage in after.items()
        if name in before
    }


class StageMeter:
    """The CPU time of API servers by stage, from `start_stage_meter` to `read_stage_cpu`. Both raise BenchError."""

    def __init__(self, addresses: list[str], before: Mapping[str, float]) -> None:
        self._addresses = addresses
        self._before = before

    @classmethod
    async def start_stage_meter(cls, state: ClusterState) -> Self:
        addresses = [record.plan.http for record in state.processes_of(APISERVER)]
        return cls(addresses, await _sum_usage(addresses))

    async def read_stage_cpu(self) -> dict[str, float]:
        """Return the CPU seconds by stage since the start, summed over all API servers, or {} if they are not measured."""
        return {stage: seconds - self._before[stage] for stage, seconds in (await _sum_usage(self._addresses)).items()}


async def _sum_usage(addresses: list[str]) -> Mapping[str, float]:
    total = Counter[str]()
    for address in addresses:
        total.update(await read_metric_by(address, STAGE_CPU_METRIC, "stage"))
    return total
