"""The study file: traces, profiles, seeds, metrics.

    name: gpus
    seeds: 42..51                      # or a list
    traces:
    - name: default
      format: openb                    # or csv: files, whose relative paths begin at --trace or at the folder of the study
      nodes: openb_node_list_gpu_node.csv
      tasks: openb_pod_list_default.csv
      inflate: 130                     # percent of the capacity; without it, tasks arrive and end by the trace's times
    - name: day
      format: generated                # parameters of pinnace.study.trace.Generated
      generate: {nodes: 30, hours: 24, load: 0.7}
      stages: stages.yaml              # KWOK's Stages: durations of tasks without one
      hold: 0.5                        # the first half of the tasks is only for policies that learn
    - name: production
      format: snapshot                 # the nodes and pods of a cluster
      file: cluster.json
    profiles: policies.yaml            # a KubeSchedulerConfiguration; each profile is one policy
    only: [FGD, BestFit]               # of its profiles; default: all
    metrics: ["metrics.py:idle_nodes"]
    interval: 3600                     # seconds between samples

A file may also be a URL with http or https. An unknown field is an error that names it.
"""

import hashlib
import importlib.util
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from pinnace.kubelet.runtime.stages import SETS
from pinnace.runtime.configuration import ConfigurationError, parse_fields, parse_list, parse_seconds, parse_text
from pinnace.scheduler.config import Configuration, configuration_digest, read_configuration
from pinnace.study.recording import METRICS, Metric
from pinnace.study.snapshots import read_snapshot, with_durations
from pinnace.study.trace import (
    HOUR,
    Generated,
    Trace,
    TraceError,
    generate,
    inflate_demand,
    read_csv,
    read_openb,
    split_past_tasks,
)

FORMATS = {"openb": read_openb, "csv": read_csv}
SNAPSHOT, GENERATED = "snapshot", "generated"
DOWNLOAD_TIMEOUT = 60.0
MAX_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class TracePlan:
    """One trace of a study. `nodes` and `tasks` are paths of a trace in CSV, and `file` that of a snapshot. The others are
    empty."""

    name: str
    format: str
    nodes: str = ""
    tasks: str = ""
    file: str = ""
    stages: str = ""
    """A file of stages, or the name of a set; empty: tasks without a duration do not end."""
    inflate: float = 0.0
    hold: float = 0.0
    generated: Generated = field(default_factory=Generated)

    def load(self) -> Trace:
        """Read or generate the trace. It is the same for all seeds. Raise TraceError."""
        if self.format == GENERATED:
            trace = generate(self.name, self.generated)
        elif self.format == SNAPSHOT:
            trace = read_snapshot(self.name, Path(self.file))
        else:
            trace = FORMATS[self.format](self.name, Path(self.nodes), Path(self.tasks))
        if self.stages:
            trace = with_durations(trace, self.stages)
        if self.inflate and not any(map(trace.demand_of, trace.tasks)):
            raise TraceError(f"{self.name}: no task requests {trace.resource}, so the trace cannot be inflated")
        return split_past_tasks(trace, self.hold) if self.hold else trace

    def trace_for_seed(self, trace: Trace, seed: int) -> Trace:
        """Return the loaded trace as it is played with a seed."""
        return inflate_demand(trace, self.inflate, seed) if self.inflate else trace


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    seeds: Sequence[int]
    traces: Sequence[TracePlan]
    profiles: Sequence[str]
    configuration: Configuration
    metrics: Sequence[str] = ()
    """`FILE.py:FUNCTION`."""
    interval: float = HOUR
    file: str = ""
    """The path of the KubeSchedulerConfiguration."""

    def configuration_of(self, profile: str) -> Configuration:
        """Return the configuration with one profile."""
        chosen = tuple(item for item in self.configuration.profiles if item.scheduler_name == profile)
        return replace(self.configuration, profiles=chosen)

    def digest_of(self, profile: str) -> str:
        return configuration_digest(self.configuration_of(profile))


def read_study(file: Path, *, folder: Path | None = None, downloads: Path | None = None) -> Study:
    """Read a study. `folder`: where relative paths of traces begin. `downloads`: where files of URLs are stored.

    Raise ConfigurationError or TraceError.
    """
    try:
        raw = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"expected YAML: {error}") from None
    top = parse_fields(raw, "", ("name", "seeds", "traces", "profiles", "only", "metrics", "interval"))
    base = file.parent
    source = parse_text(top.get("profiles"), "profiles")
    path = base / source
    configuration = read_configuration(path)
    names = [profile.scheduler_name for profile in configuration.profiles]
    only = [parse_text(item, "only") for item in parse_list(top.get("only", names), "only")]
    for name in only:
        if name not in names:
            raise ConfigurationError(f"only: {path} has no profile {name}; its profiles are {', '.join(names)}")
    traces = [
        _parse_trace(item, f"traces[{index}]", folder or base, downloads)
        for index, item in enumerate(parse_list(top.get("traces"), "traces"))
    ]
    if not traces or len({trace.name for trace in traces}) < len(traces):
        raise ConfigurationError("traces: expected at least one, with different names")
    metrics = [str(base / parse_text(item, "metrics")) for item in parse_list(top.get("metrics", []), "metrics")]
    load_metrics(metrics)
    return Study(
        name=parse_text(top.get("name", file.stem), "name"),
        seeds=_parse_seeds(top.get("seeds", [0])),
        traces=traces,
        profiles=only,
        configuration=configuration,
        metrics=metrics,
        interval=parse_seconds(top.get("interval", HOUR), "interval"),
        file=str(path),
    )


def load_metrics(specs: Sequence[str]) -> dict[str, Metric]:
    """Return the functions by name. Raise ConfigurationError."""
    found: dict[str, Metric] = {}
    for spec in specs:
        path, _, name = spec.rpartition(":")
        if not path.endswith(".py") or not Path(path).is_file():
            raise ConfigurationError(f"metrics: expected FILE.py:FUNCTION of a file that exists, got {spec}")
        loader = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert loader is not None and loader.loader is not None  # the name ends with .py
        module = importlib.util.module_from_spec(loader)
        try:
            loader.loader.exec_module(module)
        except Exception as error:  # user code
            raise ConfigurationError(f"metrics: cannot import {path}: {type(error).__name__}: {error}") from error
        function = getattr(module, name, None)
        if not callable(function) or name in METRICS or name in found:
            raise ConfigurationError(f"metrics: {spec}: expected a function with a name of its own")
        found[name] = function
    return found


def _parse_seeds(raw: Any) -> list[int]:
    if isinstance(raw, str) and len(ends := raw.split("..")) == 2 and all(end.isdecimal() for end in ends):
        raw = list(range(int(ends[0]), int(ends[1]) + 1)) if int(ends[1]) - int(ends[0]) < MAX_SEEDS else None
    if not isinstance(raw, list) or not raw or not all(type(seed) is int and seed >= 0 for seed in raw):
        raise ConfigurationError(f"seeds: expected a list of integers or FIRST..LAST, at most {MAX_SEEDS}")
    return sorted(set(raw))


def _parse_trace(raw: Any, where: str, folder: Path, downloads: Path | None) -> TracePlan:
    given = parse_fields(raw, where, ("name", "format", "nodes", "tasks", "file", "stages", "inflate", "hold", "generate"))
    form = parse_text(given.get("format"), f"{where}.format")
    if form not in (*FORMATS, SNAPSHOT, GENERATED):
        raise ConfigurationError(f"{where}.format: expected {', '.join(FORMATS)}, {SNAPSHOT} or {GENERATED}, got {form}")
    name = parse_text(given.get("name", form), f"{where}.name")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ConfigurationError(f'{where}.name: expected letters, digits, "-" and "_", got {name}')
    plan = TracePlan(
        name,
        form,
        inflate=_parse_number(given.get("inflate", 0), f"{where}.inflate", 1000),
        hold=_parse_number(given.get("hold", 0), f"{where}.hold", 0.99),
    )
    if "stages" in given:
        stages = parse_text(given["stages"], f"{where}.stages")
        plan = replace(plan, stages=stages if stages in SETS else str(_local_file(stages, folder, downloads)))
    if form == GENERATED:
        return replace(plan, generated=_parse_generated(given.get("generate", {}), f"{where}.generate"))
    if form == SNAPSHOT:
        return replace(plan, file=str(_local_file(parse_text(given.get("file"), f"{where}.file"), folder, downloads)))
    nodes, tasks = (parse_text(given.get(key), f"{where}.{key}") for key in ("nodes", "tasks"))
    return replace(plan, nodes=str(_local_file(nodes, folder, downloads)), tasks=str(_local_file(tasks, folder, downloads)))


def _parse_generated(raw: Any, where: str) -> Generated:
    given = parse_fields(raw, where, [item.name for item in fields(Generated)])
    for key, value in given.items():
        if key == "labels":
            ok = isinstance(value, dict) and all(isinstance(item, list) and item for item in value.values())
        else:
            ok = type(value) in (int, float) and value >= 0 and (key not in ("nodes", "seed") or type(value) is int)
        if not ok:
            raise ConfigurationError(f"{where}.{key}: invalid value {value!r}")
    if "labels" in given:
        given = {**given, "labels": {str(key): [str(item) for item in items] for key, items in given["labels"].items()}}
    return Generated(**given)


def _parse_number(raw: Any, where: str, most: float) -> float:
    if type(raw) not in (int, float) or not 0 <= raw <= most:
        raise ConfigurationError(f"{where}: expected a number from 0 to {most:g}, got {raw!r}")
    return float(raw)


def _local_file(source: str, folder: Path, downloads: Path | None) -> Path:
    """Return the path of a file, after a download if it is a URL."""
    if not source.startswith(("http://", "https://")):
        return folder / source
    if downloads is None:
        raise ConfigurationError(f"{source}: downloads are not possible here")
    target = downloads / f"{hashlib.sha256(source.encode()).hexdigest()[:12]}-{source.rpartition('/')[2]}"
    if not target.exists():
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            with urllib.request.urlopen(source, timeout=DOWNLOAD_TIMEOUT) as response:
                part = target.with_suffix(".part")
                part.write_bytes(response.read())
                part.replace(target)
        except OSError as error:
            raise TraceError(f"{source}: cannot be downloaded: {error}") from error
    return target
