"""The results of a study: one table, CSV, plots and an HTML page.

    OUT/results.csv     a line per trace, profile and metric: mean, deviation, 95 % confidence interval, number of seeds
    OUT/provenance.json
    OUT/TRACE-METRIC.svg  the metric over demand or time, mean over the seeds (needs matplotlib)
    OUT/report.html     all of it in one file

The confidence interval is that of the mean, by Student's t. Equal results give equal files.
"""

import csv
import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from pinnace.scheduler.framework import FloatArray
from pinnace.study.plan import Study

_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantile of Student's distribution for 1 to 30 degrees of freedom. Above: 1.96."""
_DIGITS = re.compile(r"(\d\.\d)\d+")
"""Numbers of an SVG with more digits than a screen shows."""
SHOWN = (
    "allocated",
    "fragmentation",
    "not placed",
    "mean wait",
    "99% wait",
    "evictions",
    "used nodes",
    "imbalance",
    "zone share",
)
"""The figures of the printed table, in this order; and all metrics of the study's own."""
PLOTTED = ("allocated", "fragmentation", "fragmentation of free", "pending", "cpu", "used nodes")
POINTS = 140
"""Maximum number of points of a plotted line."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Statistics over the seeds. `half` is half of the confidence interval; with one seed it is 0."""

    mean: float
    deviation: float
    half: float
    seeds: int


@dataclass(frozen=True, slots=True)
class Results:
    """Figures of the finished runs by (trace, profile), then by seed."""

    figures: Mapping[tuple[str, str], Mapping[int, Mapping[str, float]]]
    placements: Mapping[tuple[str, str], Mapping[int, str]]
    """The hash of all placements."""
    seconds: Mapping[tuple[str, str], Sequence[float]]
    """CPU seconds of each run."""
    peak: float
    """The largest peak of memory of a process, in MiB."""


def estimate(values: Sequence[float]) -> Estimate:
    number = len(values)
    deviation = stdev(values) if number > 1 else 0.0
    quantile = _T[number - 2] if 2 <= number <= len(_T) + 1 else 1.96
    return Estimate(fmean(values), deviation, quantile * deviation / math.sqrt(number) if number > 1 else 0.0, number)


def read_results(study: Study, out: Path) -> Results:
    """Read the runs that have finished."""
    figures: dict[tuple[str, str], dict[int, Mapping[str, float]]] = {}
    placements: dict[tuple[str, str], dict[int, str]] = {}
    seconds: dict[tuple[str, str], list[float]] = {}
    peak = 0.0
    for trace in study.traces:
        for profile in study.profiles:
            for seed in study.seeds:
                folder = out / "runs" / trace.name / profile / str(seed)
                if not (folder / "result.json").exists():
                    continue
                result = json.loads((folder / "result.json").read_text())
                timing = json.loads((folder / "timing.json").read_text())
                figures.setdefault((trace.name, profile), {})[seed] = result["figures"]
                placements.setdefault((trace.name, profile), {})[seed] = result["placements"]
                seconds.setdefault((trace.name, profile), []).append(timing["cpu"])
                peak = max(peak, timing["peak_mib"])
    return Results(figures, placements, seconds, peak)


def equal_profiles(results: Results) -> list[tuple[str, str, str]]:
    """Return (trace, profile, profile) for profiles that place every task alike with all seeds."""
    found = []
    items = list(results.placements.items())
    for index, ((trace, profile), placed) in enumerate(items):
        for (other_trace, other), others in items[index + 1 :]:
            if trace == other_trace and placed == others:
                found.append((trace, profile, other))
    return found


def statistics(results: Results) -> dict[tuple[str, str], dict[str, Estimate]]:
    return {
        key: {name: estimate([seeds[seed][name] for seed in sorted(seeds)]) for name in next(iter(seeds.values()))}
        for key, seeds in results.figures.items()
    }


def shown_figures(results: Results) -> list[str]:
    """Return the figures of the printed table. Figures that are 0 everywhere are left out."""
    found = statistics(results)
    names = dict.fromkeys(name for figures in found.values() for name in figures)
    own = [name for name in names if name not in SHOWN and name not in _BUILT_IN]
    return [name for name in (*SHOWN, *own) if any(figures[name].mean or figures[name].deviation for figures in found.values())]


_BUILT_IN = (*SHOWN, "demand", "fragmentation of free", "cpu", "pending")


def write_report(study: Study, out: Path, provenance: Mapping[str, Any]) -> list[Path]:
    """Write all files from the finished runs. Return their paths. Plots are left out without matplotlib."""
    results = read_results(study, out)
    files = {"provenance.json": json.dumps(provenance, indent=2) + "\n", "results.csv": _results_csv(results)}
    plots = _plots(study, results, out)
    files |= {f"{name}.svg": text for name, text in plots.items()}
    files["report.html"] = _page(study, results, plots, provenance)
    for name, text in files.items():
        (out / name).write_text(text)
    return [out / name for name in files]


def _results_csv(results: Results) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("trace", "profile", "metric", "mean", "deviation", "low", "high", "seeds"))
    for (trace, profile), figures in statistics(results).items():
        for name, item in figures.items():
            numbers = (item.mean, item.deviation, item.mean - item.half, item.mean + item.half)
            writer.writerow((trace, profile, name, *(f"{number:.4f}" for number in numbers), item.seeds))
    return text.getvalue()


# --- plots


def read_samples(out: Path, trace: str, profile: str, seeds: Sequence[int]) -> tuple[list[str], list[FloatArray]]:
    """Return the columns, and the samples [sample, column] of each finished run."""
    columns: list[str] = []
    found = []
    for seed in seeds:
        file = out / "runs" / trace / profile / str(seed) / "samples.csv"
        if file.exists():
            columns, *rows = list(csv.reader(io.StringIO(file.read_text())))
            found.append(np.array(rows, np.float64).reshape(len(rows), len(columns)))
    return columns, found


def _plots(study: Study, results: Results, out: Path) -> dict[str, str]:
    """Return SVG documents by name."""
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]  # the extra `study`
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]  # as above
    except ImportError:
        return {}
    style: Any = {"svg.hashsalt": "pinnace", "svg.fonttype": "none", "path.simplify": True}
    plots: dict[str, str] = {}
    for plan in study.traces:
        lines = {}
        for profile in study.profiles:
            if (plan.name, profile) in results.figures:
                lines[profile] = read_samples(out, plan.name, profile, study.seeds)
        columns = next((columns for columns, _ in lines.values()), [])
        own = [name for name in columns[1:] if name not in _BUILT_IN]
        for metric in (*PLOTTED, *own):
            if metric not in columns or not any(
                samples[:, columns.index(metric)].any() for _, runs in lines.values() for samples in runs
            ):
                continue
            with matplotlib.rc_context(style):
                figure = Figure(figsize=(6.4, 3.6), layout="constrained")
                axes: Any = figure.subplots()
                _draw(axes, lines, columns.index(metric), columns.index("demand") if plan.inflate else 0)
                axes.set_xlabel("arrived demand (% of capacity)" if plan.inflate else "hours")
                axes.set_ylabel(metric if metric in ("pending", *own) else f"{metric} (%)")
                axes.grid(visible=True, alpha=0.3)
                axes.legend(fontsize="small", frameon=False)
                text = io.StringIO()
                figure.savefig(text, format="svg", metadata={"Date": None})
            plots[f"{plan.name}-{metric.replace(' ', '-')}"] = _DIGITS.sub(r"\1", text.getvalue())
    return plots


def _draw(axes: Any, lines: Mapping[str, tuple[list[str], list[FloatArray]]], column: int, over: int) -> None:
    """Draw the mean of each profile, with a band of one standard deviation."""
    for profile, (_, runs) in lines.items():
        end = min(float(samples[-1, over]) for samples in runs)
        start = max(float(samples[0, over]) for samples in runs)
        places = np.linspace(start, end, min(POINTS, max(len(samples) for samples in runs)))
        values = np.array([np.interp(places, samples[:, over], samples[:, column]) for samples in runs])
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        (line,) = axes.plot(np.round(places, 2), np.round(mean, 2), label=profile, linewidth=1.4)
        if len(runs) > 1:
            axes.fill_between(places, mean - deviation, mean + deviation, alpha=0.15, color=line.get_color(), linewidth=0)


# --- the page


def _page(study: Study, results: Results, plots: Mapping[str, str], provenance: Mapping[str, Any]) -> str:
    parts = [f"<h1>{html.escape(study.name)}</h1>"]
    found, shown = statistics(results), shown_figures(results)
    for plan in study.traces:
        rows = [(profile, found[plan.name, profile]) for profile in study.profiles if (plan.name, profile) in found]
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in ("profile", *shown, "seeds"))
        body = "".join(
            f"<tr><td>{html.escape(profile)}</td>"
            + "".join(f"<td>{format_estimate(figures[name])}</td>" for name in shown)
            + f"<td>{next(iter(figures.values())).seeds}</td></tr>"
            for profile, figures in rows
        )
        parts.append(f"<h2>{html.escape(plan.name)}</h2><table><tr>{heads}</tr>{body}</table>")
        parts += [_inline(text) for name, text in plots.items() if name.startswith(f"{plan.name}-")]
    for trace, one, other in equal_profiles(results):
        parts.append(f"<p>{html.escape(f'{trace}: {one} and {other} place every task alike.')}</p>")
    if not plots:
        parts.append("<p>There are no plots, because matplotlib is not installed.</p>")
    parts.append("<p>Mean over the seeds ± half of the 95 % confidence interval.</p>")
    parts.append(f"<h2>Provenance</h2><pre>{html.escape(json.dumps(provenance, indent=2))}</pre>")
    style = (
        "body{font:15px sans-serif;max-width:75em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}pre{font-size:12px}"
    )
    title = html.escape(study.name)
    return f'<!doctype html><meta charset="utf-8"><title>{title}</title><style>{style}</style>{"".join(parts)}\n'


def _inline(svg: str) -> str:
    return svg[svg.index("<svg") :]


def format_estimate(item: Estimate) -> str:
    return f"{item.mean:.2f} ± {item.half:.2f}" if item.seeds > 1 else f"{item.mean:.2f}"
