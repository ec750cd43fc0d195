"""The verb `plugin`: write and check plugins of the scheduler. `plugin list` becomes kubectl."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pinnace.cli import kubectl
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.outcomes import ExitCode, Failure, usage_failure
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import print_result
from pinnace.scheduler.framework.profile import PluginLoadError
from pinnace.verification.plugins.checks import TRIALS, check_plugin, find_plugins, format_report
from pinnace.verification.plugins.scaffold import FILTER, SCORE, ScaffoldError, write_plugin


@click.group("plugin", cls=VerbGroup)
def plugin() -> None:
    """Write and check plugins of the scheduler.

    `plugin list` is kubectl's, and lists the plugins of kubectl. docs/scheduler-plugins.md is the guide.
    """


@verb(
    "new",
    examples="""
        pinnace plugin new FullestFirst                # the folder fullest_first with the plugin, a test and a study
        pinnace plugin new KeepReserve --kind filter
    """,
)
@click.argument("name")
@click.option("--kind", type=click.Choice((SCORE, FILTER)), default=SCORE, show_default=True, help="The extension point.")
@click.option(
    "--dir", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="The folder of the files. By default, the name in lower case.",
)  # fmt: skip
def new(settings: Settings, name: str, kind: str, folder: Path | None) -> None:
    """Write a plugin with its test, and a study that compares it with the default scores. NAME is the name of a class.

    The plugin has two forms: a method for one node, and a method for all nodes with NumPy. Existing files are not changed.
    """
    try:
        files = write_plugin(name, kind, folder)
    except ScaffoldError as error:
        raise usage_failure(str(error)) from error
    source, test, _, study = files
    print_result("".join(f"wrote {path}\n" for path in files))
    print_result(f"\nnext:\n  pinnace plugin test {source}\n  pytest {test}\n  pinnace study run {study}\n")


@verb(
    "test",
    examples="""
        pinnace plugin test fullest_first/fullest_first.py
        pinnace plugin test examples/plugins/fast_disks.py --label disk=ssd,hdd --args '{"disk": "ssd"}'
    """,
)
@click.argument("sources", metavar="FILE.py[:CLASS]...", nargs=-1, required=True)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE[,...]", help="A label of nodes that the plugin reads. Repeatable."
)
@click.option("--args", "arguments", metavar="JSON", default="{}", help="The arguments of the plugin, as in pluginConfig.")
@click.option("--trials", type=click.IntRange(1, 100_000), default=TRIALS, show_default=True, help="Number of random clusters.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The seed of the random clusters.")
def test(settings: Settings, sources: Sequence[str], labels: Sequence[str], arguments: str, trials: int, seed: int) -> None:
    """Check plugins on random pods and nodes, and measure them with 5,000 nodes.

    Scores must be finite and from 0 to 100. Equal calls must give equal results and change nothing. If a plugin has a form for
    all nodes (`score`, `filter`) and one for a single node (`score_node`, `filter_node`), both must agree. Exit code 10: a
    check failed.
    """
    values = _parse_labels(labels)
    problems: list[str] = []
    try:
        for source in [found for given in sources for found in find_plugins(given)]:
            report = check_plugin(
                source, args=_parse_arguments(arguments), labels=values, trials=trials, seed=seed, measure=True
            )
            print_result("\n".join(format_report(report)) + "\n")
            problems += [f"{report.plugin}: {problem}" for problem in report.problems]
    except PluginLoadError as error:
        raise Failure(str(error), code=ExitCode.INVALID) from error
    if problems:
        raise Failure(f"{len(problems)} checks failed", details=problems, code=ExitCode.VERDICT)


def _parse_labels(labels: Sequence[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for label in labels:
        key, equals, texts = label.partition("=")
        if not key or not equals:
            raise usage_failure(f'--label: expected KEY=VALUE[,...], got "{label}"')
        values.setdefault(key, []).extend(texts.split(","))
    return values


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise usage_failure(f"--args: expected JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise usage_failure('--args: expected a JSON object, such as {"disk": "ssd"}')
    return arguments


@verb(
    "list",
    examples="pinnace plugin list --name-only",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def list_plugins(settings: Settings, words: Sequence[str]) -> None:
    """List the plugins of kubectl. The command is kubectl's."""
    kubectl.become_kubectl_or_exit(["plugin", "list", *words])


plugin.add_command(new)
plugin.add_command(list_plugins)
plugin.add_command(test)
