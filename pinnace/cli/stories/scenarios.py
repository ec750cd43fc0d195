"""The scenarios of `pinnace chaos` as commands: one each, that plays it, tells its timeline, and judges it."""

import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from pinnace.chaos.perform import SCENARIOS, Performance, perform
from pinnace.chaos.scenarios.base import Scenario
from pinnace.chaos.scenarios.etcd import EtcdQuorum
from pinnace.cli.command import Verb, verb
from pinnace.cli.local import running
from pinnace.cli.local.progress import Steps
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.stories.chaos_runs import judged, moment_line, new_folder
from pinnace.cli.stories.story import Story

COLUMN = 74
"""Width of what is judged, before the figures."""
SHOWN = 3
"""Violations of one invariant that are told."""
SECONDS = click.option(
    "--seconds", type=click.FloatRange(1, 60), default=6.0, show_default=True, help="How long there is no majority."
)


def scenario_verbs() -> Iterator[Verb]:
    for name, scenario in SCENARIOS.items():
        yield _verb(name, scenario)


def _verb(name: str, scenario: type[Scenario]) -> Verb:
    story = scenario.story.replace("\n", "\n    ")  # indented as the rest, or the whole of it is indented in the help

    def play(settings: Settings, output: str, seed: int, save: Path | None, **options: Any) -> None:
        _play(settings, scenario(**options), output, seed, save)

    play.__doc__ = f"""{scenario.title}.

    {story}

    Plays on a cluster of its own, in a temporary folder, under load. Exit code 10 when something did
    not hold, or nothing is proven.
    """
    for option in _options(scenario):
        play = option(play)
    return verb(name, examples=f"pinnace chaos {name}", short_help=f"{scenario.title}.")(play)


def _options(scenario: type[Scenario]) -> list[Callable[..., Any]]:
    folder = click.Path(path_type=Path, file_okay=False)
    shared = [
        click.option("--save", type=folder, metavar="DIR", help="Keep history and logs in DIR."),
        click.option("--seed", type=int, default=1, show_default=True, help="Seed for the load and for everything random."),
        click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print the result."),
    ]
    return [*shared, SECONDS] if scenario is EtcdQuorum else shared


def _play(settings: Settings, scenario: Scenario, output: str, seed: int, save: Path | None) -> None:
    folder = new_folder(save, f"pinnace-{scenario.name}-")
    with running.translated(), Steps(settings) as steps:
        story = Story(settings, steps)
        if output == "text":
            story.chapter(scenario.title, scenario.story)
        found = judged(perform(scenario, folder, steps, seed), folder, keep=save is not None)
        if output == "text":
            _tell(story, found)
    if output == "json":
        click.echo(json.dumps(found.to_json(), indent=2))
    if found.status != "holds":
        raise Failure(f"the verdict is {found.status}", hint=f"history and logs are in {found.kept}", code=ExitCode.VERDICT)


def _tell(story: Story, found: Performance) -> None:
    story.line("")
    for moment in found.moments:
        story.line(moment_line(moment), "bold" if moment.hit else "")
    calls = f"{sum(found.calls.values()):,} calls ({found.rate:.0f}/s)"
    story.chapter(
        "Verdict",
        f"By checkers that compare etcd's own history with the answers to {calls} and with all that watchers were told:",
    )
    for expectation in found.expectations:
        story.judgement(expectation.good, expectation.what, expectation.figure, COLUMN)
    for verdict in found.tested:
        good = verdict.status == "holds"
        story.judgement(
            good,
            f"{verdict.name:<4}{shortened(verdict.statement)}",
            f"{verdict.status}, tried {verdict.examined:,} times",
            COLUMN,
        )
        for violation in verdict.violations[:SHOWN]:
            story.line(f"      {violation.text}")
    for lacking in found.lacking[:SHOWN]:
        story.judgement(False, "what must not be", lacking, COLUMN)
    for reason in found.void:
        story.judgement(False, "the run proves nothing", reason, COLUMN)
    if found.kept:
        story.line(f"\n  To be judged again: pinnace check {found.kept}/*.jsonl")


def shortened(statement: str) -> str:
    """What fits into the column."""
    return textwrap.shorten(statement, COLUMN - 6, placeholder=" ...")
