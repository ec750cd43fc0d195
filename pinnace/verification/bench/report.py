"""Benchmark results: runs, machine, percentiles, JSON, and tables."""

import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from pinnace.runtime.build import build_commit
from pinnace.runtime.procfs import ProcessUsage
from pinnace.verification.bench.calibration import Calibration


@dataclass(frozen=True, slots=True)
class MachineInfo:
    cores: int
    memory_gb: float
    kernel: str
    python: str
    commit: str
    """The commit of this build, from pinnace.runtime.build."""


def describe_machine() -> MachineInfo:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return MachineInfo(
        len(os.sched_getaffinity(0)), round(memory, 1), platform.release(), platform.python_version(), build_commit()
    )


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Statistics of samples in seconds."""

    count: int
    p50: float
    p99: float
    max: float


def summarize(samples: Sequence[float]) -> LatencySummary:
    """Compute statistics. Raises ValueError without samples, because a missing measurement is not zero."""
    ordered = sorted(samples)
    return LatencySummary(len(ordered), percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the nearest-rank percentile: the smallest sample such that at least this fraction of all samples is not larger.

    Source: https://en.wikipedia.org/wiki/Percentile#The_nearest-rank_method
    """
    if not ordered:
        raise ValueError("no samples")
    return ordered[max(math.ceil(fraction * len(ordered)), 1) - 1]


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The result of one kind of work. `rate`: items per second. `static_rate`: requests per second of the same client against a
    static answer, measured immediately before and after the work, or None. `cpu_us`: microseconds of CPU per item by
    process."""

    rate: float
    static_rate: float | None
    cpu_us: Mapping[str, float]

    @property
    def ratio(self) -> float | None:
        return self.rate / self.static_rate if self.static_rate else None

    def to_json(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "rate": round(self.rate, 1),
            "cpu_us": {name: round(us, 1) for name, us in self.cpu_us.items()},
        }
        if self.static_rate is not None and self.ratio is not None:
            result |= {"static_rate": round(self.static_rate, 1), "ratio": round(self.ratio, 4)}
        return result


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run on one cluster. `items`: the number of items. `rate`: items per second, or 0.0 in benchmarks that measure latency
    only. `samples`: seconds by stage. `violations`: invariant violations by name. `counts`: other counters."""

    calibration: Calibration
    usage: Mapping[str, ProcessUsage]
    samples: Mapping[str, Sequence[float]]
    items: int
    rate: float = 0.0
    violations: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    stage_cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the API servers by stage (pinnace.apiserver.stage_cpu), or {} if they were not measured."""
    works: Mapping[str, WorkResult] = field(default_factory=dict)
    """The kinds of work of a row that measures several."""

    @property
    def per_1000_transactions(self) -> float:
        """Items per 1,000 calibrated etcd transactions. Unlike the rate, the value is comparable between machines."""
        return self.rate / self.calibration.transactions_per_s * 1000


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All runs of one row. `unit`: the unit of the rate, for example "pods/s", or "". `headline`: the stage whose percentiles
    are the result of the row, or "". `date`: RFC 3339."""

    row: str
    unit: str
    headline: str
    options: Mapping[str, Any]
    runs: Sequence[BenchRun]
    machine: MachineInfo
    date: str

    @property
    def stages(self) -> dict[str, LatencySummary]:
        """Statistics of each stage over the samples of all runs."""
        return {
            stage: summarize([sample for run in self.runs for sample in run.samples[stage]])
            for stage in self.runs[0].samples
            if self.runs[0].samples[stage]
        }

    @property
    def median_run(self) -> BenchRun:
        """The run with the median rate. For an even number of runs, the lower of the two."""
        return sorted(self.runs, key=lambda run: run.rate)[(len(self.runs) - 1) // 2]

    @property
    def violations(self) -> dict[str, int]:
        """Violations by name, summed over all runs."""
        return _sum_counts([run.violations for run in self.runs])

    @property
    def counts(self) -> dict[str, int]:
        """Counters by name, summed over all runs."""
        return _sum_counts([run.counts for run in self.runs])

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data. Units: seconds, megabytes (10^6 bytes), items per second; `stage_cpu_us`:
        microseconds per item; `works`: see Work.to_json. Process figures and works are from the median run."""
        stages = {stage: _summary_fields(summary) for stage, summary in self.stages.items()}
        return {
            "row": self.row,
            "date": self.date,
            "options": dict(self.options),
            **self._rate_figures(),
            **stages.get(self.headline, {}),
            "stages": stages,
            "violations": self.violations,
            **self.counts,
            **_process_figures(self.median_run),
            "runs": [_run_to_json(run) for run in self.runs],
            "machine": asdict(self.machine),
        }

    def _rate_figures(self) -> dict[str, Any]:
        if not self.unit:
            return {}
        rates = [run.rate for run in self.runs]
        return {
            "unit": self.unit,
            "rate": round(self.median_run.rate, 1),
            "rate_min": round(min(rates), 1),
            "rate_max": round(max(rates), 1),
            "per_1000_transactions": round(statistics.median(run.per_1000_transactions for run in self.runs), 1),
        }

    def render(self) -> RenderableType:
        m, counts = self.machine, {**self.violations, **self.counts}
        parts: list[RenderableType] = [
            f"{self.row}: {_format_options(self.options)}",
            *([self._rates_table()] if self.unit else []),
            self._latencies_table(),
            self._processes_table(),
            *([self._works_table()] if self.median_run.works else []),
            *([self._stage_cpu()] if self.median_run.stage_cpu else []),
            ", ".join(f"{name.replace('_', ' ')}: {count:,}" for name, count in counts.items()),
            f"machine: {m.cores} cores, {m.memory_gb:g} GB, Linux {m.kernel}, Python {m.python}; commit {m.commit or '?'}",
        ]
        return Group(*(line for part in parts if part for line in (part, "")))

    def _rates_table(self) -> Table:
        table = _create_table(f"{len(self.runs)} run{'s' if len(self.runs) > 1 else ''}", "median", "min", "max")
        for name, values in (
            (self.unit, [run.rate for run in self.runs]),
            ("etcd transactions/s (calibration)", [run.calibration.transactions_per_s for run in self.runs]),
            (f"{self.unit.partition('/')[0]} per 1,000 transactions", [run.per_1000_transactions for run in self.runs]),
        ):
            table.add_row(name, *(f"{value:,.0f}" for value in (statistics.median(values), min(values), max(values))))
        return table

    def _latencies_table(self) -> Table:
        table = _create_table("seconds", "p50", "p99", "max", "samples")
        for stage, s in self.stages.items():
            table.add_row(stage, f"{s.p50:.3f}", f"{s.p99:.3f}", f"{s.max:.3f}", f"{s.count:,}")
        return table

    def _processes_table(self) -> Table:
        run = self.median_run
        table = _create_table("process", "CPU s", "CPU s per 1,000", "peak MB")
        for name, usage in run.usage.items():
            table.add_row(name, f"{usage.cpu_s:.2f}", f"{usage.cpu_s / run.items * 1000:.3f}", f"{usage.peak_rss_mb:.0f}")
        total = sum(usage.cpu_s for usage in run.usage.values())
        table.add_row("all", f"{total:.2f}", f"{total / run.items * 1000:.3f}", "")
        return table

    def _works_table(self) -> Table:
        works = self.median_run.works
        processes = list(dict.fromkeys(name for work in works.values() for name in work.cpu_us))
        table = _create_table("work", "per second", "HAProxy, static", "ratio", *(f"{name}, µs" for name in processes))
        for name, work in works.items():
            static = f"{work.static_rate:,.0f}" if work.static_rate is not None else ""
            ratio = f"{work.ratio:.3f}" if work.ratio is not None else ""
            table.add_row(
                name, f"{work.rate:,.0f}", static, ratio, *(f"{work.cpu_us.get(process, 0):,.0f}" for process in processes)
            )
        return table

    def _stage_cpu(self) -> Table:
        run = self.median_run
        spent = sum(run.stage_cpu.values())
        table = _create_table("stage in the API servers", f"CPU µs per {self._item}", "share")
        for stage, seconds in sorted(run.stage_cpu.items(), key=lambda item: -item[1]):
            table.add_row(stage, f"{seconds / run.items * 1e6:.1f}", f"{seconds / spent:.0%}")
        table.add_row("all", f"{spent / run.items * 1e6:.1f}", "")
        return table

    @property
    def _item(self) -> str:
        """The unit of items in the singular."""
        return self.unit.partition("/")[0].removesuffix("s")


def _run_to_json(run: BenchRun) -> dict[str, Any]:
    return {
        **({"rate": round(run.rate, 1), "per_1000_transactions": round(run.per_1000_transactions, 1)} if run.rate else {}),
        "items": run.items,
        "stages": {stage: _summary_fields(summarize(samples)) for stage, samples in run.samples.items() if samples},
        "violations": dict(run.violations),
        **run.counts,
        **_process_figures(run),
    }


def _process_figures(run: BenchRun) -> dict[str, Any]:
    stage_cpu = {stage: round(seconds / run.items * 1e6, 2) for stage, seconds in run.stage_cpu.items()}
    return {
        "calibration": asdict(run.calibration),
        "cpu_s": {name: round(usage.cpu_s, 2) for name, usage in run.usage.items()},
        "peak_rss_mb": {name: round(usage.peak_rss_mb, 1) for name, usage in run.usage.items()},
        **({"stage_cpu_us": stage_cpu} if stage_cpu else {}),
        **({"works": {name: work.to_json() for name, work in run.works.items()}} if run.works else {}),
    }


def _sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(count[name] for count in counts) for name in counts[0]}


def _summary_fields(summary: LatencySummary) -> dict[str, float]:
    return {"p50_s": round(summary.p50, 4), "p99_s": round(summary.p99, 4), "max_s": round(summary.max, 4)}


def _create_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for other in others:
        table.add_column(other, justify="right", no_wrap=True)
    return table


def _format_options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in options.items())
