"""Shell completion: kubectl's completion for the name pinnace, with our verbs.

kubectl's scripts run `pinnace __complete WORD... INCOMPLETE`. The answer is a value and a description in each line, and the
directive of cobra in the last one. What our command line does not know, kubectl answers.
Source: https://github.com/spf13/cobra/blob/main/site/content/completions/_index.md
"""

import sys
from pathlib import Path

from pinnace.cli import kubectl, table

DEFAULT, NO_FILES, DIRECTORIES = 0, 4, 16
"""Directives: complete file names if there is no value; no file names; names of directories only."""


def print_completions(words: list[str]) -> None:
    """Print the completions and exit, or become kubectl. `words`: the request, and the words of the command line."""
    request, *line = words
    before, incomplete = line[:-1], line[-1] if line else ""
    at = table.find_first_argument(before)
    verb = before[at] if at < len(before) else ""
    try:
        if verb in table.OUR_VERBS:
            _complete_own_verbs(before, incomplete)
        elif not verb and not incomplete.startswith("-") and before[-1:] not in [[flag] for flag in table.VALUED]:
            _complete_verbs(request, line, incomplete)
        elif verb == table.LOGS and not incomplete.startswith("-"):
            _complete_logs(request, line, incomplete)
        else:
            kubectl.become_kubectl(
                [request, *(word for index, word in enumerate(line) if (index, word) != (at, table.KUBECTL))]
            )
    except kubectl.HandOverError:  # completion does not report errors
        print(f":{NO_FILES}")
    sys.exit(0)


def _complete_verbs(request: str, line: list[str], incomplete: str) -> None:
    ours = {verb: text for section in table.OURS.values() for verb, text in section.items()}
    ours[table.KUBECTL] = "Run kubectl."
    _print_completions(ours, incomplete)
    try:
        lines = kubectl.read_kubectl_output([request, *line]).splitlines()
    except kubectl.HandOverError:
        lines = [verb for verb in sorted(table.KUBECTL_VERBS) if verb.startswith(incomplete)] + [f":{NO_FILES}"]
    print("\n".join(item for item in lines if item.partition("\t")[0] not in ours))


def _complete_logs(request: str, line: list[str], incomplete: str) -> None:
    """Return the pods of kubectl, and the components of the local cluster."""
    from pinnace.client.config import ConfigError, load_config

    said = kubectl.find_flag(line, "--context")
    try:
        data_dir: Path | None = load_config(context=said[1] if said else None).data_dir
    except ConfigError:
        data_dir = None
    if data_dir is not None:
        _print_completions(
            {path.stem: "A component of the local cluster." for path in (data_dir / "logs").glob("*.log")}, incomplete
        )
    print(kubectl.read_kubectl_output([request, *line]), end="")


def _complete_own_verbs(before: list[str], incomplete: str) -> None:
    from click.shell_completion import ShellComplete

    from pinnace.cli.main import cli

    completions = ShellComplete(cli, {}, "pinnace", "_PINNACE_COMPLETE").get_completions(before, incomplete)
    _print_completions(
        {
            completion_item.value: (completion_item.help or "").partition("\n")[0]
            for completion_item in completions
            if completion_item.type == "plain"
        },
        "",
    )
    kinds = {completion_item.type for completion_item in completions}
    print(f":{DEFAULT if 'file' in kinds else DIRECTORIES if 'dir' in kinds else NO_FILES}")


def _print_completions(values: dict[str, str], incomplete: str) -> None:
    for value, text in sorted(values.items()):
        if value.startswith(incomplete):
            print(f"{value}\t{text}".rstrip("\t"))
