"""The command group: its help, its errors, and its lazy imports."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.main import cli, run_command_line
from pinnace.cli.settings import Settings
from pinnace.cli.table import KUBECTL_VERBS, OURS

VERBS = {verb: summary for verbs in OURS.values() for verb, summary in verbs.items()}


def leaves(command: click.Command) -> Iterator[click.Command]:
    """The command, or all commands below a group."""
    if not isinstance(command, click.Group):
        yield command
        return
    for item in command.commands.values():
        yield from leaves(item)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None and command.name == verb
    text = command.get_help(click.Context(command, info_name=verb))
    assert VERBS[verb].rstrip(".") in text, "the summary of the verb is missing in its help"
    for leave in leaves(command):
        text = leave.get_help(click.Context(leave, info_name=verb))
        assert "Examples:" in text and f"pinnace {verb}" in text and "--server" in text, leave.name


def test_help_lists_the_verbs_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"]):
        assert run_command_line(words) == 0
        text = capsys.readouterr().out
        assert all(title in text for title in OURS) and all(
            verb in text for verb in (*VERBS, *KUBECTL_VERBS - {"alpha", "options"})
        )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["gett", "pods"], 'error: unknown command "gett"; did you mean "get"?'),
        (["xyzzy"], 'error: unknown command "xyzzy"'),
        (["why", "pod/a", "--timeout", "soon"], "error: invalid value for '--timeout': \"soon\" is not a duration"),
        (["chaos", "kil-leader"], 'error: unknown command "kil-leader"; did you mean "kill-leader"?'),
        (["up", "--detach=perhaps"], "error: invalid value for '--detach': \"perhaps\" is neither true nor false"),
        (["up", "--detach="], "error: invalid value for '--detach': \"\" is neither true nor false"),
        (["leader", "show", "-=x"], "error: no such option"),
        (["completion", "tcsh"], "error: invalid value for"),
        (["why", "pod", "a", "b"], "error: you must specify exactly one pod"),
        (["why", "nodes/a"], "error: you must specify exactly one pod"),
        (["trace"], "error: you must specify exactly one pod"),
        (["node", "fail"], "error: you must specify a node or a selector"),
        (["pod", "crash", "a", "-l", "app=web"], "error: you must specify a pod or a selector"),
        (["etcd", "get", "podz", "a"], 'error: unknown resource "podz"; did you mean "pod"?'),
    ],
)
def test_usage_error_is_one_line_and_a_hint(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(words) == 2
    captured = capsys.readouterr()
    first, hint = captured.err.splitlines()
    assert first.lower().startswith(line.lower()) and hint.startswith("hint: ") and not captured.out


def test_misspelt_flag_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """The wording depends on the version of click."""
    assert run_command_line(["leader", "show", "--wacth"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: no such option") and "--wacth" in first and "--watch" in first


def test_usage_hint_contains_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["etcd", "get", "a", "--revision"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: option '--revision' requires an argument",
        "hint: `pinnace etcd get --help` shows the usage",
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("a", (True, False, ("a",))),
        ("--wait a", (True, False, ("a",))),
        ("a --wait", (True, False, ("a",))),
        ("a --wait=false", (False, False, ("a",))),
        ("-w=false a", (False, False, ("a",))),
        ("-w a", (True, False, ("a",))),
        ("--no-wait --wait=TRUE a", (True, False, ("a",))),
        ("--all=true a", (True, True, ("a",))),
        ("-A=0 a", (True, False, ("a",))),
        ("a=true -- --wait=false", (True, False, ("a=true", "--wait=false"))),
    ],
)
def test_boolean_flag_accepts_a_value_after_an_equals_sign(words: str, expected: object) -> None:
    """A flag never takes the next word, which may be the name of an object to delete."""
    seen = []

    @verb("probe")
    @click.argument("what", nargs=-1)
    @click.option("-w", "--wait/--no-wait", default=True)
    @click.option("-A", "--all", "every", is_flag=True)
    def probe(settings: Settings, what: tuple[str, ...], wait: bool, every: bool) -> None:
        seen.append((wait, every, what))

    probe.main(words.split(), standalone_mode=False, obj=Settings())
    assert seen == [expected]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-n=team", ("team", "", ())),
        ("a -n=team -l=app=web", ("team", "app=web", ("a",))),
        ("-n==team", ("=team", "", ())),
        ("-n=-team", ("-team", "", ())),
        ("-n=", ("=", "", ())),
        ("-nteam", ("team", "", ())),
        ("-lapp=web", ("", "app=web", ())),
        ("-ln=team", ("", "n=team", ())),
        ("-Avn=team", ("team", "", ())),
        ("-l -n=team", ("", "-n=team", ())),
        ("a=b -- -n=team", ("", "", ("a=b", "-n=team"))),
    ],
)
def test_short_option_accepts_an_equals_sign(words: str, expected: tuple[str, str, tuple[str, ...]]) -> None:
    """As a part of the value, the sign would select another namespace."""
    seen = []

    @verb("probe")
    @click.argument("what", nargs=-1)
    @click.option("-l", "labels", default="")
    @click.option("-A", "--all", "every", is_flag=True)
    def probe(settings: Settings, what: tuple[str, ...], labels: str, every: bool) -> None:
        seen.append((settings.namespace or "", labels, what))

    probe.main(words.split(), standalone_mode=False, obj=Settings())
    assert seen == [expected]


def test_optional_value_is_not_the_next_option() -> None:
    seen = []

    @verb("probe")
    @click.option("--save", is_flag=False, flag_value="here")
    @click.option("-o", "output", default="table")
    def probe(settings: Settings, save: str, output: str) -> None:
        seen.append((save, output, settings.no_color))

    probe.main(["--save", "--no-color=true", "-o=json"], standalone_mode=False, obj=Settings())
    probe.main(["--save", "-o=json"], standalone_mode=False, obj=Settings())
    probe.main(["--save", "there"], standalone_mode=False, obj=Settings())
    assert seen == [("here", "json", True), ("here", "json", False), ("there", "table", False)]


@pytest.mark.processes
def test_global_flags_with_an_equals_sign_before_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    cli.main(["-n=team", "--no-color=true", "version", "--client", "-o=json"], standalone_mode=False, obj=settings)
    assert settings.namespace == "team" and settings.no_color and capsys.readouterr().out.startswith("{")


def test_options_have_no_boolean_values() -> None:
    """Such an option would take the next word as its value."""
    commands = [command for name in VERBS if (command := cli.get_command(click.Context(cli), name)) is not None]
    assert len(commands) == len(VERBS)
    commands += [item for group in commands if isinstance(group, click.Group) for item in group.commands.values()]
    options = [param for command in commands for param in command.params if isinstance(param, click.Option)]
    assert [option.name for option in options if option.type is click.BOOL and not option.is_flag] == []


@pytest.mark.parametrize(
    "words",
    [
        ["logs", "a", "--tail", "9" * 20],
        ["why", "pod/a", "-n", "a", "--server", f"h:{'9' * 5000}"],
        ["leader", "--timeout", "9" * 5000],
        ["pod", "crash", "a", "--exit-code", "9" * 5000],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_number_out_of_range_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--server", "127.0.0.1:1", *words]) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ") and len(first) < 600 and hint.startswith("hint: ")


def test_group_without_a_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    context = click.Context(cli)
    several = [name for name in VERBS if type(cli.get_command(context, name)) is VerbGroup]
    assert {"node", "etcd"} <= set(several)
    for name in several:
        assert run_command_line([name]) == 2
        assert capsys.readouterr().err == f"error: missing command\nhint: `pinnace {name} --help` shows the usage\n"


@pytest.mark.processes
def test_version_flag_prints_the_client_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Pinnace Client Version: ")
    assert run_command_line(["version", "--client"]) == 0
    assert capsys.readouterr().out.endswith(said), "behind the lines of kubectl"


def test_garbage_collection_is_enabled_after_loading_a_verb() -> None:
    assert isinstance(cli.get_command(click.Context(cli), "version"), click.Command)
    assert gc.isenabled()


@pytest.mark.processes
def test_help_imports_no_heavy_modules() -> None:
    """gRPC, protobuf, NumPy and rich are imported only by verbs that need them, which keeps the start-up time short."""
    program = (
        "import sys; from pinnace.cli.main import run_command_line; "
        "run_command_line(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded and not loaded & {"grpc", "google.protobuf", "numpy", "rich", "yaml", "asyncio"}
