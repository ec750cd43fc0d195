"""The runs of a study: one for each trace, profile and seed, in several processes. Finished runs are kept.

    OUT/runs/TRACE/PROFILE/SEED/result.json     the figures, and the key of the run
                                decisions.csv.gz
                                samples.csv
                                timing.json     seconds; the only file that differs between equal runs

The key of a run is a hash of everything that its result depends on: the trace, the profile with its plugins, the seed, the
metrics, and the version of the sources. A run with the same key is not repeated, so that an interrupted study continues. A run
whose plugin fails has an error instead of figures, and the others go on.
"""

import csv
import gzip
import hashlib
import io
import json
import logging
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from pinnace.runtime.build import build_version
from pinnace.runtime.configuration import ConfigurationError
from pinnace.scheduler.config import configuration_digest, read_configuration
from pinnace.scheduler.framework.results import PluginError
from pinnace.study.plan import Study, TracePlan, load_metrics
from pinnace.study.recording import DECISIONS, Recorder
from pinnace.study.simulation import Simulation
from pinnace.study.trace import Trace, TraceError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. It is sent to another process."""

    plan: TracePlan
    profile: str
    seed: int
    file: str
    """The path of the KubeSchedulerConfiguration."""
    metrics: tuple[str, ...]
    interval: float
    key: str

    @property
    def name(self) -> str:
        return f"{self.plan.name}/{self.profile}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Output:
    """The files of a run by name."""

    name: str
    files: dict[str, bytes]
    error: str = ""


def plan_runs(study: Study, traces: dict[str, Trace]) -> list[Run]:
    """Return all runs, ordered so that every profile gets results early. `traces` are the loaded traces by name."""

    facts = {profile: _profile_facts(study, profile) for profile in study.profiles}

    def run(plan: TracePlan, profile: str, seed: int) -> Run:
        key = _key(facts[profile], plan, traces[plan.name], seed)
        return Run(plan, profile, seed, study.file, tuple(study.metrics), study.interval, key)

    return [run(plan, profile, seed) for plan in study.traces for seed in study.seeds for profile in study.profiles]


def _profile_facts(study: Study, profile: str) -> list[Any]:
    """Return what all runs of a profile depend on."""
    metrics = [[spec.rpartition(":")[2], _hash(Path(spec.rpartition(":")[0]).read_bytes())] for spec in study.metrics]
    return [profile, study.digest_of(profile), metrics, study.interval, build_version()]


def _key(facts: list[Any], plan: TracePlan, trace: Trace, seed: int) -> str:
    """Return the hash of everything that the result of a run depends on."""
    return _hash(json.dumps([*facts, trace.digest, plan.inflate, plan.hold, seed]).encode())


def execute_runs(runs: Sequence[Run], out: Path, executor: Executor, done: Callable[[Run, str], None]) -> list[str]:
    """Execute the runs that have no result yet. `done` is called after each run with its error, or an empty text.

    Return the errors.
    """
    errors: list[str] = []
    waiting = [run for run in runs if stored_key(out, run.name) != run.key]
    for run in waiting:
        (out / "runs" / run.name / "result.json").unlink(missing_ok=True)
    futures: dict[Future[Output], Run] = {executor.submit(execute_run, run): run for run in waiting}
    try:
        while futures:
            finished, _ = wait(futures, return_when=FIRST_COMPLETED)
            for future in finished:
                run, output = futures.pop(future), future.result()
                if output.error:
                    errors.append(f"{output.name}: {output.error}")
                else:
                    _write_output(out, output)
                done(run, output.error)
    finally:
        for future in futures:
            future.cancel()
    return errors


@contextmanager
def local_processes(jobs: int) -> Iterator[Executor]:
    """Run in this number of processes; 0 means one for each core."""
    with ProcessPoolExecutor(jobs or len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def execute_run(run: Run) -> Output:
    """Execute one run in this process. If it fails, the output has an error and no files."""
    try:
        return _execute(run)
    except ConfigurationError as error:
        return Output(run.name, {}, f"{run.file}: {error}")
    except (PluginError, TraceError, OSError) as error:
        return Output(run.name, {}, str(error))


def _execute(run: Run) -> Output:
    began, cpu = time.perf_counter(), time.process_time()
    configuration = read_configuration(Path(run.file))
    study = Study(run.plan.name, (run.seed,), (run.plan,), (run.profile,), configuration, run.metrics, run.interval)
    loaded = _load_trace(run.plan)
    if _key(_profile_facts(study, run.profile), run.plan, loaded, run.seed) != run.key:
        return Output(run.name, {}, f"the files or the version of pinnace on {platform.node()} differ from those of the study")
    trace = run.plan.trace_for_seed(loaded, run.seed)
    recorder = Recorder(trace, load_metrics(run.metrics), inflated=bool(run.plan.inflate), interval=run.interval)
    simulation = Simulation(study.configuration_of(run.profile), trace, recorder, seed=run.seed)
    simulation.run()
    figures = recorder.finish(simulation)
    decisions = _csv(DECISIONS, recorder.decisions)
    samples = _csv(recorder.columns, [[f"{value:.6g}" for value in row] for row in recorder.samples])
    result = {
        "key": run.key,
        "trace": run.plan.name,
        "profile": run.profile,
        "seed": run.seed,
        "tasks": len(trace.tasks),
        "nodes": len(trace.machines),
        "placements": _hash(_csv(("task", "node"), [(row[1], row[3]) for row in recorder.decisions if row[2] == "placed"])),
        "figures": {name: round(value, 6) for name, value in figures.items()},
    }
    seconds = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    timing = {**seconds, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    return Output(
        run.name,
        {
            "decisions.csv.gz": gzip.compress(decisions, mtime=0),
            "samples.csv": samples,
            "timing.json": _json(timing),
            "result.json": _json(result),
        },
    )


def stored_key(out: Path, name: str) -> str:
    """Return the key of a stored run, or an empty text."""
    try:
        return str(json.loads((out / "runs" / name / "result.json").read_text())["key"])
    except (OSError, ValueError, KeyError):
        return ""


def provenance(study: Study, traces: dict[str, Trace]) -> dict[str, Any]:
    """Return the provenance: the data that one needs to repeat the study."""
    return {
        "study": study.name,
        "version": build_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seeds": list(study.seeds),
        "traces": {
            plan.name: {
                "format": plan.format,
                "sha256": traces[plan.name].digest,
                "nodes": len(traces[plan.name].machines),
                "tasks": len(traces[plan.name].tasks),
                "inflate": plan.inflate,
                "hold": plan.hold,
            }
            for plan in study.traces
        },
        "profiles": {
            profile.scheduler_name: configuration_digest(study.configuration_of(profile.scheduler_name))
            for profile in study.configuration.profiles
            if profile.scheduler_name in study.profiles
        },
    }


@lru_cache(maxsize=4)
def _load_trace(plan: TracePlan) -> Trace:
    """Load a trace once for each process."""
    return plan.load()


def _write_output(out: Path, output: Output) -> None:
    """Write the files of a run. The result is last, so that a run with a result is complete."""
    folder = out / "runs" / output.name
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in output.files.items():
        part = folder / f".{name}.part"
        part.write_bytes(content)
        part.replace(folder / name)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
