"""The command group: its help, its errors, and its lazy imports."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pinnace.api.resources import ALL
from pinnace.cli.command import VerbGroup, verb
from pinnace.cli.main import SECTIONS, cli, run
from pinnace.cli.settings import Settings
from pinnace.cli.unsupported import FLAGS, SUBCOMMANDS, UNSUPPORTED
from pinnace.cli.verbs.node import node

VERBS = {verb: summary for verbs in SECTIONS.values() for verb, summary in verbs.items()}


def leaves(command: click.Command) -> Iterator[click.Command]:
    """The command, or all commands below a group."""
    if not isinstance(command, click.Group):
        yield command
        return
    for each in command.commands.values():
        yield from leaves(each)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb: str) -> None:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None and command.name == verb
    text = command.get_help(click.Context(command, info_name=verb))
    assert VERBS[verb].rstrip(".") in text, "the summary of the verb is missing in its help"
    for each in leaves(command):
        text = each.get_help(click.Context(each, info_name=verb))
        assert "Examples:" in text and f"pinnace {verb}" in text and "--server" in text, each.name


def test_help_lists_the_verbs_by_section(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"]):
        assert run(words) == 0
        text = capsys.readouterr().out
        assert all(title in text for title in SECTIONS) and all(verb in text for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["gett", "pods"], 'error: unknown command "gett"; did you mean "get"?'),
        (["attach", "a"], 'error: pinnace has no "attach" (yet)'),
        (["autoscale", "deployment/web"], 'error: pinnace has no "autoscale" (yet)'),
        (["xyzzy"], 'error: unknown command "xyzzy"'),
        (["get", "pods", "--timeout", "soon"], "error: invalid value for '--timeout': \"soon\" is not a duration"),
        (["chaos", "kil-leader"], 'error: unknown command "kil-leader"; did you mean "kill-leader"?'),
        (["delete", "pod", "a", "--wait=perhaps"], "error: invalid value for '--wait': \"perhaps\" is neither true nor false"),
        (["delete", "pods", "--all="], "error: invalid value for '--all': \"\" is neither true nor false"),
        (["get", "pods", "-=x"], "error: no such option"),
        (["events", "--types", "Normal,Wrong"], 'error: --types: "Wrong" is not a type of event'),
        (["events", "--types", "Warning,"], 'error: --types: "" is not a type of event'),
        (["events", "--types", "Normal),reason in (Killing"], 'error: --types: "Normal)" is not a type of event'),
        (["completion", "tcsh"], "error: invalid value for"),
        (["create", "role", "reader", "--verb=get", "--resource=pods"], 'error: "role" needs a manifest'),
        (["create", "quota", "q", "--hard", "pods=1"], 'error: "quota" needs a manifest'),
        (["create", "secret", "generic", "s", "--from-literal=a"], "error: invalid literal source a, expected key=value"),
        (["create", "token", "me", "--duration", "1h"], "error: pinnace has no TokenRequests"),
        (["create", "xyzzy", "me"], 'error: unknown resource "xyzzy"'),
        (["apply", "--prune", "-f", "x"], "error: `pinnace apply` has no --prune (yet)"),
        (["scale", "-f", "web.yaml", "--replicas", "1"], "error: `pinnace scale` has no -f (yet)"),
        (["get", "pods", "--as-uid=me"], "error: `pinnace get` has no --as-uid (yet)"),
        (["run", "a", "--image=x", "--rm"], "error: `pinnace run` has no --rm (yet)"),
        (["rollout", "undo", "deployment/web", "--dry-run=server"], "error: `pinnace rollout undo` has no --dry-run (yet)"),
        (["delete", "pod", "a", "--force", "--grace-period", "5"], "error: --force and a grace period cannot be used together"),
        (
            ["logs", "a", "--since-time", "2026-11-22T11:45:59"],
            'error: --since-time: "2026-11-22T11:45:59" is not a valid time',
        ),
        (["delete", "pods", "--all", "-l", "app=web"], "error: selectors and --all cannot be used together"),
        (
            ["delete", "pods", "--all", "--field-selector", "spec.nodeName=n"],
            "error: selectors and --all cannot be used together",
        ),
        (["delete", "pods", "a", "--all"], "error: names and --all cannot be used together"),
        (["wait", "pods", "--all", "-l", "a", "--for", "delete"], "error: selectors and --all cannot be used together"),
        (["label", "pods", "--all", "-l", "app=web", "a=b"], "error: selectors and --all cannot be used together"),
        (["annotate", "pods", "a", "--all", "a=b"], "error: names and --all cannot be used together"),
        (["taint", "node", "n", "--all", "gpu:NoExecute"], "error: names and --all cannot be used together"),
        (["delete", "pod", "a", "--force", "--now"], "error: --force and a grace period cannot be used together"),
    ],
)
def test_usage_error_is_one_line_and_a_hint(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    captured = capsys.readouterr()
    first, hint = captured.err.splitlines()
    assert first.lower().startswith(line.lower()) and hint.startswith("hint: ") and not captured.out


def test_misspelt_flag_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    """The wording depends on the version of click."""
    assert run(["get", "pods", "--wacth"]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("error: no such option") and "--wacth" in first and "--watch" in first


def test_usage_hint_contains_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rollout", "status", "deployment/web", "--revision"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: option '--revision' requires an argument",
        "hint: `pinnace rollout status --help` shows the usage",
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


def test_global_flags_with_an_equals_sign_before_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    cli.main(["-n=team", "--no-color=true", "version", "--client", "-o=json"], standalone_mode=False, obj=settings)
    assert settings.namespace == "team" and settings.no_color and capsys.readouterr().out.startswith("{")


def test_no_option_has_a_boolean_value() -> None:
    """Such an option would take the next word as its value."""
    commands = [command for name in VERBS if (command := cli.get_command(click.Context(cli), name)) is not None]
    assert len(commands) == len(VERBS)
    commands += [each for group in commands if isinstance(group, click.Group) for each in group.commands.values()]
    options = [each for command in commands for each in command.params if isinstance(each, click.Option)]
    assert [each.name for each in options if each.type is click.BOOL and not each.is_flag] == []


@pytest.mark.parametrize(
    "words",
    [
        ["scale", "deployment/a", "--replicas", "2147483648"],
        ["delete", "pod", "a", "--grace-period", "9" * 20],
        ["drain", "a", "--grace-period", "9" * 20],
        ["logs", "a", "--tail", "9" * 20],
        ["logs", "a", "--limit-bytes", "9" * 20],
        ["logs", "a", "--since", "9" * 20],
        ["get", "pods", "-n", "a", "--server", f"h:{'9' * 5000}"],
        ["get", "pods", "--at-revision", "9" * 20],
        ["get", "pods", "--timeout", "9" * 5000],
        ["pod", "crash", "a", "--exit-code", "9" * 5000],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_number_out_of_range_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--server", "127.0.0.1:1", *words]) == 2
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ") and len(first) < 600 and hint.startswith("hint: ")


def test_group_without_a_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    context = click.Context(cli)
    several = [name for name in VERBS if type(cli.get_command(context, name)) is VerbGroup]
    assert {"node", "rollout"} <= set(several)
    for name in several:
        assert run([name]) == 2
        assert capsys.readouterr().err == f"error: missing command\nhint: `pinnace {name} --help` shows the usage\n"


def test_api_resources_lists_and_filters_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["api-resources"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in rows and len(rows) == len(ALL) + 1
    assert run(["api-resources", "--namespaced=false", "--api-group", "", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["namespaces", "nodes", "persistentvolumes"]
    assert run(["api-resources", "--namespaced", "--api-group", "apps", "--no-headers=true"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["deployments", "replicasets"]
    assert run(["api-resources", "--api-group", "apps", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["deployments.apps", "replicasets.apps"]


KUBECTL = """
    alpha annotate api-resources api-versions apply attach auth autoscale certificate cluster-info completion config cordon cp
    create debug delete describe diff drain edit events exec explain expose get kustomize label logs options patch plugin
    port-forward proxy replace rollout run scale set taint top uncordon version wait
"""


def test_unsupported_verbs_are_absent() -> None:
    assert not set(UNSUPPORTED) & set(VERBS)
    page = (Path(__file__).parents[3] / "docs/kubectl.md").read_text()
    assert [verb for verb in UNSUPPORTED if f"`{verb}`" not in page] == []
    assert set(KUBECTL.split()) <= {*UNSUPPORTED, *VERBS}, "a command of kubectl has no hint"


def test_unsupported_flags_are_absent() -> None:
    for words, flags in FLAGS.items():
        command: click.Command = cli
        for word in words.split():
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None
            command = found
        assert not set(flags) & {name for param in command.params for name in param.opts}, words


@pytest.mark.parametrize(("verb", "name"), [(verb, name) for verb, names in SUBCOMMANDS.items() for name in names])
def test_unsupported_subcommand_has_a_hint(verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, name, "pod/x"]) == 2
    printed = capsys.readouterr().err
    assert f'`pinnace {verb}` has no "{name}" (yet)' in printed and SUBCOMMANDS[verb][name] in printed


def test_client_dry_run_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["apply", "-f", "pod.yaml", "--dry-run=client"]) == 2
    assert "use --dry-run=server" in capsys.readouterr().err


def test_version_flag_prints_the_client_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--client"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Client Version: ")
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == said


def test_garbage_collection_is_enabled_after_loading_a_verb() -> None:
    assert isinstance(cli.get_command(click.Context(cli), "version"), click.Command)
    assert gc.isenabled()


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_of_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_PINNACE_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_verbs_and_kinds_are_completed() -> None:
    assert [item.value for item in cli.shell_complete(click.Context(cli), "un")] == ["uncordon"]
    assert node.list_commands(click.Context(node)) == ["add", "fail", "freeze", "list", "pressure", "recover"]


@pytest.mark.processes
def test_help_imports_no_heavy_modules() -> None:
    """gRPC, protobuf, NumPy and rich are imported only by verbs that need them, which keeps the start-up time short."""
    program = "import sys; from pinnace.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded and not loaded & {"grpc", "google.protobuf", "numpy", "rich", "yaml", "asyncio"}
