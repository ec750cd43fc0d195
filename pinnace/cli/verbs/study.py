"""The verb `study`: run scheduling studies offline, and write their reports."""

import secrets
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import click

from pinnace.cli.api_access import connect_cluster
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.local.running import Steps, run_coroutine, translate_cluster_errors
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.runtime.configuration import ConfigurationError
from pinnace.snapshot.api import ApiError
from pinnace.snapshot.documents import SnapshotError
from pinnace.study.dask_workers import WorkersError, dask_workers
from pinnace.study.execution import Run, execute_runs, local_processes, plan_runs, provenance, stored_key
from pinnace.study.importing import write_import
from pinnace.study.live import NODES as LIVE_NODES
from pinnace.study.live import LiveError, LiveOptions, run_live, sample
from pinnace.study.plan import Study, read_study
from pinnace.study.replay import RecordingError
from pinnace.study.report import (
    equal_profiles,
    format_estimate,
    read_results,
    shown_figures,
    statistics,
    write_report,
)
from pinnace.study.trace import Trace, TraceError

DOWNLOADS = "downloads"
SHOWN = 10
"""Maximum number of printed differences of a live run."""


@click.group("study", cls=VerbGroup)
def study() -> None:
    """Compare scheduling policies on traces, without a cluster.

    The scheduler's own decisions, queue, backoff and preemption run in virtual time. docs/studies.md is the guide.
    """


def _plan_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(
        (
            click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
            click.option(
                "--trace", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
                help="The folder of the trace's files. By default, the folder of the study.",
            ),
            click.option(
                "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
                help="The folder of the results. By default, the study's name with the suffix -results.",
            ),
        )
    ):  # fmt: skip
        function = option(function)
    return function


@verb(
    "run",
    examples="""
        pinnace study run examples/studies/small.yaml                     # generated traces, some seconds
        pinnace study run examples/studies/openb.yaml --trace openb/      # files of a trace in a folder
        pinnace study run mine.yaml --profile Mine --seed 1 --seed 2      # a part of the study
        pinnace study run mine.yaml --executor dask=tcp://10.0.0.1:8786   # on the machines of a dask cluster
        pinnace study run mine.yaml --profile Mine --seed 1 --live        # a sample on a cluster of processes
    """,
)
@_plan_options
@click.option("--profile", "profiles", multiple=True, metavar="NAME", help="Run only this profile. Repeatable.")
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(min=0), help="Run only this seed. Repeatable.")
@click.option(
    "--jobs", type=click.IntRange(min=0), default=0, metavar="N", help="Number of processes. By default, one for each core."
)
@click.option(
    "--executor",
    metavar="dask=ADDRESS",
    help="Run on the workers of a dask.distributed cluster, such as dask=tcp://10.0.0.1:8786.",
)
@click.option(
    "--live", is_flag=True, help="Run a sample on a temporary cluster of processes, and compare the nodes with a replay."
)
@click.option(
    "--live-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Maximum number of nodes with --live.  [default: {LIVE_NODES}]",
)
@click.option("--kill-leader", is_flag=True, help="With --live: kill the leading scheduler after half of the tasks.")
def run(
    settings: Settings,
    file: Path,
    folder: Path | None,
    out: Path | None,
    profiles: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    executor: str | None,
    live: bool,
    live_nodes: int | None,
    kill_leader: bool,
) -> None:
    """Run a study: all traces with all profiles and seeds.

    Workers of --executor need the same version of pinnace, and the files of the study at the same paths.

    Finished runs are kept in the folder of the results. After an interruption, the same command continues. It prints a table of
    means over the seeds with half of the 95 % confidence interval, and writes CSV files, plots and report.html.
    """
    chosen = _read(file, folder, out)
    if unknown := set(profiles) - set(chosen.profiles):
        raise usage_failure(f"no profile {', '.join(sorted(unknown))}", hint=f"profiles are {', '.join(chosen.profiles)}")
    chosen = replace(chosen, profiles=list(profiles) or chosen.profiles, seeds=sorted(seeds) or chosen.seeds)
    target = out or Path(f"{chosen.name}-results")
    if (kill_leader or live_nodes) and not live:
        raise usage_failure("--live-nodes and --kill-leader need --live")
    if live and executor is not None:
        raise usage_failure("--live starts a cluster on this machine: it cannot be combined with --executor")
    traces = _load(chosen)
    runs = plan_runs(chosen, traces)
    if live:
        _run_live(settings, runs, traces, target, LiveOptions(live_nodes or LIVE_NODES, kill_leader=kill_leader))
        return
    stored = sum(stored_key(target, item.name) == item.key for item in runs)
    print_note(f"{len(runs)} runs, {stored} of them already finished; results in {target}")
    progress = _Progress(len(runs), stored)
    errors: list[str] = []
    if stored < len(runs):
        try:
            with _executor(executor, jobs) as pool:
                errors = execute_runs(runs, target, pool, progress.show)
        except WorkersError as error:
            raise Failure(str(error), code=ExitCode.UNAVAILABLE) from error
        except KeyboardInterrupt:
            raise Failure(
                "interrupted", hint="the same command continues with the runs that are missing", code=ExitCode.INTERRUPTED
            ) from None
    _report(chosen, target, traces)
    if errors:
        raise Failure(f"{len(errors)} runs failed", details=errors, code=ExitCode.VERDICT)


@verb("report", examples="pinnace study report examples/studies/small.yaml --out small-results")
@_plan_options
def report(settings: Settings, file: Path, folder: Path | None, out: Path | None) -> None:
    """Print the table and write the report of the finished runs again."""
    chosen = _read(file, folder, out)
    target = out or Path(f"{chosen.name}-results")
    _report(chosen, target, _load(chosen))


@verb(
    "import",
    examples="""
        pinnace study import --kubeconfig ~/.kube/config --context production -o production
        pinnace study import -o local --seed team                  # the current pinnace cluster, with repeatable pseudonyms
    """,
)
@click.option(
    "-o",
    "--output",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of the files.",
)
@click.option("--seed", metavar="TEXT", help="Equal seeds give equal pseudonyms. By default, a random one that is not stored.")
def import_cluster(settings: Settings, folder: Path, seed: str | None) -> None:
    """Read the nodes and pods of a cluster through its API, and write them with pseudonyms, and a study of them.

    Names and most values of labels are replaced consistently, so that affinities still match. Resources, taints, affinities,
    priorities and distances in time are kept. All else is omitted, such as images, commands and annotations. docs/studies.md
    has the list.
    """
    try:
        with connect_cluster(settings) as api:
            kinds = [kind for kind in api.discover_kinds() if kind.full_name in ("nodes", "pods")]
            objects = [thing for kind in kinds for thing in api.list_objects(kind)]
        trace, files = write_import(objects, seed if seed is not None else secrets.token_hex(16), folder)
    except SnapshotError as error:
        raise usage_failure(str(error)) from error
    except ApiError as error:
        raise Failure(f"the API server refuses: {error}") from error
    except TraceError as error:
        raise Failure(str(error), code=ExitCode.INVALID) from error
    print_result("".join(f"wrote {file}\n" for file in files))
    print_note(
        f"{len(trace.machines):,} nodes and {len(trace.tasks):,} pods without DaemonSets; next: pinnace study run {files[-1]}"
    )


def _executor(executor: str | None, jobs: int) -> AbstractContextManager[Executor]:
    """Return the local processes, or the workers that --executor names."""
    if executor is None:
        return local_processes(jobs)
    kind, _, address = executor.partition("=")
    if kind != "dask" or not address:
        raise usage_failure(f"--executor: expected dask=ADDRESS, got {executor}")
    if jobs:
        raise usage_failure("--jobs is the number of local processes: it cannot be combined with --executor")
    return dask_workers(address)


def _run_live(settings: Settings, runs: Sequence[Run], traces: dict[str, Trace], target: Path, options: LiveOptions) -> None:
    """Run each of the runs on a cluster of its own. Raise Failure if a replay chose another node."""
    rows, errors = [], []
    for item in runs:
        trace = item.plan.trace_for_seed(sample(traces[item.plan.name], options.nodes), item.seed)
        try:
            with translate_cluster_errors(), Steps(settings) as steps:
                result = run_coroutine(run_live(item, trace, options, target / "live" / item.name, steps))
        except (LiveError, RecordingError) as error:
            errors.append(f"{item.name}: {error}")
            continue
        shares = ", ".join(f"{name} {number}" for name, number in sorted(result.schedulers.items()))
        same = result.attempts - len(result.different)
        counts = (result.nodes, result.tasks, result.placed, shares, result.attempts, same, f"{result.gap:.1f}")
        rows.append((item.plan.name, item.profile, item.seed, *counts))
        errors += [
            f"{item.name}: {x.pod}: {x.recorded or 'no node'}, replayed {x.replayed or 'no node'}"
            for x in result.different[:SHOWN]
        ]
        errors += [f"{item.name}: {name}: no decision for its node" for name in result.unexplained[:SHOWN]]
    head = ("TRACE", "PROFILE", "SEED", "NODES", "TASKS", "PLACED", "BY", "ATTEMPTS", "REPLAYED ALIKE", "LONGEST GAP S")
    print_result(Table(head).render([tuple(map(str, row)) for row in rows]))
    if errors:
        raise Failure("the replay differs from the cluster", details=errors, code=ExitCode.VERDICT)


class _Progress:
    """Prints the number of finished runs; on a terminal, in one line that is updated."""

    def __init__(self, runs: int, finished: int) -> None:
        self._runs = runs
        self._finished = finished

    def show(self, run: Run, error: str) -> None:
        self._finished += 1
        line = f"{self._finished}/{self._runs} {run.name}{': failed' if error else ''}"
        if sys.stderr.isatty():
            click.echo(f"\r{line}\033[K", err=True, nl=self._finished == self._runs)
        else:
            click.echo(line, err=True)


def _read(file: Path, folder: Path | None, out: Path | None) -> Study:
    try:
        return read_study(file, folder=folder, downloads=(out or file.parent) / DOWNLOADS)
    except (ConfigurationError, TraceError) as error:
        raise Failure(f"{file}: {error}", code=ExitCode.INVALID) from error


def _load(chosen: Study) -> dict[str, Trace]:
    try:
        return {plan.name: plan.load() for plan in chosen.traces}
    except TraceError as error:
        raise Failure(str(error), hint="`--trace DIR` names the folder of the files", code=ExitCode.INVALID) from error


def _report(chosen: Study, target: Path, traces: dict[str, Trace]) -> None:
    results = read_results(chosen, target)
    if not results.figures:
        raise Failure(f"{target} has no finished run", code=ExitCode.NOT_FOUND)
    found, shown = statistics(results), shown_figures(results)
    table = Table(("TRACE", "PROFILE", *(name.upper() for name in shown), "CPU S"))
    rows = [
        (
            *key,
            *(format_estimate(figures[name]) for name in shown),
            f"{sum(results.seconds[key]) / len(results.seconds[key]):.1f}",
        )
        for key, figures in found.items()
    ]
    print_result(table.render(rows))
    for trace, one, other in equal_profiles(results):
        print_note(f"warning: {trace}: {one} and {other} place every task alike, so this trace does not distinguish them")
    files = write_report(chosen, target, provenance(chosen, traces))
    print_note(f"report: {target / 'report.html'} ({len(files)} files)")
    if not any(path.suffix == ".svg" for path in files):
        print_note("no plots: `pip install 'pinnace[study]'` installs matplotlib")


study.add_command(run)
study.add_command(report)
study.add_command(import_cluster)
