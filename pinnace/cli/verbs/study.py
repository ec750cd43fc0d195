"""The verb `study`: run scheduling studies offline, and write their reports."""

import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import click

from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, print_note, print_result
from pinnace.runtime.configuration import ConfigurationError
from pinnace.study.dask_workers import WorkersError, dask_workers
from pinnace.study.execution import Run, execute_runs, local_processes, plan_runs, provenance, stored_key
from pinnace.study.plan import Study, read_study
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
def run(
    settings: Settings,
    file: Path,
    folder: Path | None,
    out: Path | None,
    profiles: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    executor: str | None,
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
    traces = _load(chosen)
    runs = plan_runs(chosen, traces)
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
