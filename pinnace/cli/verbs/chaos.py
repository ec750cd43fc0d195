"""`pinnace chaos`: run scenarios and random faults, print the timeline and the verdict.

Each run has a folder for its history and logs. The folder is deleted unless the verdict is bad, or --save names it.
"""

import json
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from pinnace.cli.command import Verb, VerbGroup, did_you_mean, verb
from pinnace.cli.local import running
from pinnace.cli.local.running import Steps, StoryPrinter
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_error_line
from pinnace.client.errors import ApiError
from pinnace.cluster.errors import ClusterError
from pinnace.cluster.spec import ClusterSpec
from pinnace.history.records import HistoryError
from pinnace.history.verdict import Status
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.cluster_under_test import NotPossible
from pinnace.verification.chaos.faults.base import FaultKind
from pinnace.verification.chaos.faults.table import KINDS
from pinnace.verification.chaos.load import LoadError
from pinnace.verification.chaos.perform import SCENARIOS, ScenarioReport, perform_scenario
from pinnace.verification.chaos.run import RunOptions, run_chaos
from pinnace.verification.chaos.scenarios.base import Scenario, ScenarioError
from pinnace.verification.chaos.scenarios.etcd import EtcdQuorum
from pinnace.verification.chaos.scenarios.figures import ScenarioMoment
from pinnace.verification.chaos.stage import STORED

COLUMN = 74
"""The width of the column with the invariants."""
SHOWN = 3
"""The maximum number of printed violations of an invariant."""
SECONDS = click.option(
    "--seconds", type=click.FloatRange(1, 60), default=6.0, show_default=True, help="How long etcd has no quorum."
)
POSITIVE = click.IntRange(min=1)


class SavedReport(Protocol):
    saved_folder: str
    """The folder with the history and the logs; "" if it was deleted."""

    @property
    def status(self) -> Status: ...
    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=SavedReport)


def create_run_folder(save: Path | None, prefix: str) -> Path:
    """Return the named folder, which must be empty, or a temporary one. Raises Failure."""
    if save is None:
        return Path(tempfile.mkdtemp(prefix=prefix))
    try:
        save.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise usage_failure(f"{save} cannot be used: {error.strerror}", hint="name another folder with --save") from error
    if any(save.iterdir()):
        raise usage_failure(f"{save} is not empty", hint="name another folder with --save")
    return save.resolve()


def finish_run(run: Coroutine[Any, Any, R], folder: Path, *, keep: bool) -> R:
    """Return the report of the run. Delete the folder, unless `keep` is set, the verdict is bad or the run failed. An error
    names the folder that is kept. Raises Failure, and ClusterError if the cluster did not start."""
    try:
        report = running.run_coroutine(run, hangup=True)
    except KeyboardInterrupt:
        if not keep:
            shutil.rmtree(folder)
            raise
        hint = f"`pinnace check {folder}/*.jsonl` checks the history up to the interruption"
        raise Failure("interrupted: the run has no verdict", hint=hint, code=ExitCode.INTERRUPTED) from None
    except (ChaosError, LoadError, ClusterError, ApiError, HistoryError, ScenarioError, NotPossible, OSError) as error:
        if isinstance(error, ClusterError) and not (folder / STORED).exists():  # the error already contains its logs
            if not keep:
                shutil.rmtree(folder)
            raise
        seen = [moment_line(moment) for moment in error.moments] if isinstance(error, ScenarioError) else []
        raise Failure(
            f"the run proves nothing: {error}", hint=f"history and logs are in {folder}", code=ExitCode.VERDICT, details=seen
        ) from error
    except BaseException as error:
        error.add_note(f"history and logs are in {folder}")
        raise
    if keep or report.status != "holds":
        report.saved_folder = str(folder)
        with suppress(OSError):  # a full disk must not suppress the verdict
            (folder / "report.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
    else:
        shutil.rmtree(folder)
    return report


def _print_timeline_command(report: SavedReport) -> None:
    """Print the command for the timeline of a kept run on stderr, beside a document on stdout."""
    if report.saved_folder:
        print_error_line(f"timeline: pinnace timeline open {report.saved_folder}/*.jsonl")


def moment_line(moment: ScenarioMoment) -> str:
    """Return a line of the timeline: milliseconds since the fault, and the event."""
    return f"{'t =' if moment.hit else '  +'} {moment.at * 1000:>6,.0f} ms  {moment.what}"


def scenario_verbs() -> Iterator[Verb]:
    for name, scenario in SCENARIOS.items():
        yield _scenario_verb(name, scenario)


def _scenario_verb(name: str, scenario: type[Scenario]) -> Verb:
    story = scenario.story.replace("\n", "\n    ")  # indented as the rest, or the whole of it is indented in the help

    def play(settings: Settings, output: str, seed: int, save: Path | None, **options: Any) -> None:
        _play_scenario(settings, scenario(**options), output, seed, save)

    play.__doc__ = f"""{scenario.title}.

    {story}

    Runs on a temporary cluster under load. The exit code is 10 when an invariant is violated, or when the run
    proves nothing.
    """
    for option in _scenario_options(scenario):
        play = option(play)
    return verb(name, examples=f"pinnace chaos {name}", short_help=f"{scenario.title}.")(play)


def _scenario_options(scenario: type[Scenario]) -> list[Callable[..., Any]]:
    folder = click.Path(path_type=Path, file_okay=False)
    shared = [
        click.option("--save", type=folder, metavar="DIR", help="Keep the history and the logs in DIR."),
        click.option("--seed", type=int, default=1, show_default=True, help="The seed of all random decisions."),
        click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="The output format."),
    ]
    return [*shared, SECONDS] if scenario is EtcdQuorum else shared


def _play_scenario(settings: Settings, scenario: Scenario, output: str, seed: int, save: Path | None) -> None:
    folder = create_run_folder(save, f"pinnace-{scenario.name}-")
    with running.translate_cluster_errors(), Steps(settings) as steps:
        story = StoryPrinter(settings, steps)
        if output == "text":
            story.print_chapter(scenario.title, scenario.story)
        scenario_report = finish_run(perform_scenario(scenario, folder, steps, seed), folder, keep=save is not None)
        if output == "text":
            _print_verdict(story, scenario_report)
    if output == "json":
        click.echo(json.dumps(scenario_report.to_json(), indent=2))
        _print_timeline_command(scenario_report)
    if scenario_report.status != "holds":
        raise Failure(
            f"the verdict is {scenario_report.status}",
            hint=f"history and logs are in {scenario_report.saved_folder}",
            code=ExitCode.VERDICT,
        )


def _print_verdict(story: StoryPrinter, found: ScenarioReport) -> None:
    story.print_line("")
    for moment in found.moments:
        story.print_line(moment_line(moment), "bold" if moment.hit else "")
    calls = f"{sum(found.calls.values()):,} calls ({found.rate:.0f}/s)"
    story.print_chapter(
        "Verdict",
        f"By checkers that compare etcd's own history with the answers to {calls} and with all that watchers were told:",
    )
    for expectation in found.expectations:
        story.print_verdict_line(expectation.good, expectation.what, expectation.figure, COLUMN)
    for verdict in found.tested:
        good = verdict.status == "holds"
        story.print_verdict_line(
            good,
            f"{verdict.name:<4}{shorten_statement(verdict.statement)}",
            f"{verdict.status}, tried {verdict.examined:,} times",
            COLUMN,
        )
        for violation in verdict.violations[:SHOWN]:
            story.print_line(f"      {violation.text}")
    for lacking in found.lacking[:SHOWN]:
        story.print_verdict_line(False, "what must not be", lacking, COLUMN)
    for reason in found.void:
        story.print_verdict_line(False, "the run proves nothing", reason, COLUMN)
    if found.saved_folder:
        story.print_line("")
        story.print_line(f"To be judged again: pinnace check {found.saved_folder}/*.jsonl")
        story.print_line(f"Its timeline:       pinnace timeline open {found.saved_folder}/*.jsonl")


def shorten_statement(statement: str) -> str:
    """Return the text, shortened to the width of the column."""
    return textwrap.shorten(statement, COLUMN - 6, placeholder=" ...")


@click.group("chaos", cls=VerbGroup)
def chaos() -> None:
    """Inject faults into a cluster and check the history.

    Each run starts a cluster in a temporary folder. The history consists of the events of etcd and of every call of every
    client. Checkers that do not share code with the cluster examine it. The exit code is 10 when an invariant is violated, or
    when the run proves nothing.
    """


@verb("faults", examples="pinnace chaos faults")
def faults_verb(settings: Settings) -> None:
    """List the faults that `pinnace chaos run` can inject."""
    for kind in KINDS.values():
        click.echo(f"{kind.name:<28}{kind.what}")


@verb(
    "run",
    examples="""
        pinnace chaos run                                        # 3 minutes
        pinnace chaos run --minutes 60 --seed 7 --save results
        pinnace chaos run --faults kill-leader,compact --report junit > chaos.xml
    """,
)
@click.option("--faults", "names", default="all", show_default=True, metavar="NAME,...", help="See `pinnace chaos faults`.")
@click.option(
    "--minutes", type=click.FloatRange(0.1, 7 * 24 * 60), default=3.0, show_default=True, help="How long faults are injected."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the fault schedule.")
@click.option("--report", "output", type=click.Choice(["text", "json", "junit"]), default="text", help="The output format.")
@click.option(
    "--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the history and the logs in DIR."
)
@click.option(
    "--nodes",
    type=click.IntRange(min=10),
    default=20,
    show_default=True,
    help="Virtual nodes; the load fills 18 at most.",
)
@click.option("--kubelets", type=POSITIVE, default=2, show_default=True, help="Kubelet processes that share the nodes.")
@click.option(
    "--schedulers", type=click.IntRange(min=2), default=3, show_default=True, help="One leads, the others are on standby."
)
@click.option(
    "--apiservers", type=click.IntRange(min=2), default=2, show_default=True, help="API servers; all of them serve requests."
)
@click.option("--gateways", type=click.IntRange(min=0), default=0, show_default=True, help="Gateways; their clients use HTTP.")
@click.option("--proxy", is_flag=True, help="Start a service proxy; clients send requests through it.")
@click.option(
    "--etcd-members",
    type=click.Choice(["1", "3"]),
    default="3",
    show_default=True,
    help="With one, faults of single members hit all of etcd, and those that need three are left out.",
)
def run_verb(
    settings: Settings,
    names: str,
    minutes: float,
    seed: int,
    output: str,
    save: Path | None,
    nodes: int,
    kubelets: int,
    schedulers: int,
    apiservers: int,
    gateways: int,
    proxy: bool,
    etcd_members: str,
) -> None:
    """Inject faults into a cluster under load, and check its history.

    Faults that are named must all be injected, or the run proves nothing. Injecting all faults takes about six minutes. Faults
    that are not possible on this machine (not root, no libfaketime, a single etcd member) are skipped, and the report gives
    the reason. The history and the logs are kept when the verdict is bad, and with --save.
    """
    members = int(etcd_members)
    spec = ClusterSpec(nodes, kubelets, schedulers, apiservers, etcd_members=members, gateways=gateways, proxy=proxy)
    repeat = f"pinnace chaos run --faults {names} --minutes {minutes:g} --seed {seed}"
    repeat += f" --gateways {gateways}" if gateways else ""
    repeat += " --proxy" if proxy else ""
    repeat += "" if spec.etcd_members == 3 else f" --etcd-members {etcd_members}"
    options = RunOptions(spec, select_fault_kinds(names), names != "all", minutes * 60, seed, repeat)
    folder = create_run_folder(save, f"pinnace-chaos-{seed}-")
    with running.translate_cluster_errors(), Steps(settings) as steps:
        report = finish_run(run_chaos(options, folder, steps, steps.line), folder, keep=save is not None)
    text = report.to_junit() if output == "junit" else json.dumps(report.to_json(), indent=2) if output == "json" else None
    click.echo(report.to_text() if text is None else text)
    if text is not None:
        _print_timeline_command(report)
    if report.status != "holds":
        raise Failure(f"the verdict is {report.status}", hint=f"look at {report.saved_folder}", code=ExitCode.VERDICT)


chaos.add_command(faults_verb)
chaos.add_command(run_verb)
for command in scenario_verbs():
    chaos.add_command(command)


def select_fault_kinds(names: str) -> list[FaultKind]:
    """Return the kinds of faults with these names, in the order of the table. Raises Failure."""
    if names == "all":
        return list(KINDS.values())
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in KINDS:
            raise usage_failure(
                f'there is no fault "{name}"{did_you_mean(name, list(KINDS))}', hint="`pinnace chaos faults` lists them"
            )
    if not wanted:
        raise usage_failure("no fault is named", hint="`pinnace chaos faults` lists them")
    return [kind for kind in KINDS.values() if kind.name in wanted]
