"""What the verbs of local clusters show, and how their errors end."""

import json
import os
import socket
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Group
from rich.table import Table

from pinnace.cli.local import clusters, running
from pinnace.cli.main import run_command_line
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.cli.verbs.processes import format_process_table as status_table
from pinnace.cli.verbs.up import example_pods
from pinnace.client import kubeconfig_file
from pinnace.client.config import ClientConfig, current_context, load_config
from pinnace.client.contexts import write_context
from pinnace.client.kubeconfig_file import kubectl_paths
from pinnace.cluster import errors
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import STAGES, ClusterSpec, ClusterState, ProcessPlan, ProcessRecord, default_data_dir, initial_state
from pinnace.cluster.view import ProcessStatus
from pinnace.kubelet.runtime.stages import SETS
from pinnace.runtime import procfs
from pinnace.verification.bench import BenchError


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PINNACE_SERVER", "KUBECONFIG", "PINNACE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_status_table_has_processes_readiness_and_leaders() -> None:
    result = [
        ProcessStatus("scheduler", "scheduler-0", 12, "127.0.0.1:1", "127.0.0.1:91", ready=True, leader=True),
        ProcessStatus(
            "scheduler", "scheduler-1", 0, "127.0.0.1:2", "127.0.0.1:92", ready=False, leader=False, problem="not running"
        ),
    ]
    assert [line.split() for line in status_table(result).splitlines()] == [
        ["NAME", "PID", "ADDRESS", "HTTP", "READY", "LEADER"],
        ["scheduler-0", "12", "127.0.0.1:1", "127.0.0.1:91", "yes", "leads"],
        ["scheduler-1", "-", "127.0.0.1:2", "127.0.0.1:92", "no"],
        [],
        ["scheduler-1:", "not", "running"],
    ]


def test_table_fits_a_terminal_of_80_columns_and_says_what_the_processes_were_configured_with() -> None:
    options = {"--config": "/data/config/scheduler.yaml", "--plugin": ["/a.py:A", "b:B"], "PINNACE_SCHEDULER_SEED": "7"}
    result = [
        ProcessStatus(
            component, f"{component}-0", 4_194_304, "127.0.0.1:31999", "127.0.0.1:31998",
            ready=True, leader=component == "controllers", options=options if component == "scheduler" else {},
        )
        for component in ("etcd", "scheduler", "controllers")
    ]  # fmt: skip
    table, configured = status_table(result).split("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert configured.splitlines() == [
        "scheduler: --config /data/config/scheduler.yaml",
        "scheduler: --plugin /a.py:A",
        "scheduler: --plugin b:B",
        "scheduler: PINNACE_SCHEDULER_SEED=7",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SpecError("x"), ExitCode.USAGE),
        (errors.FolderError("x"), ExitCode.USAGE),
        (errors.NoCluster("x"), ExitCode.NOT_FOUND),
        (errors.OtherOptions("x"), ExitCode.CONFLICT),
        (errors.AlreadyRunning("x"), ExitCode.CONFLICT),
        (errors.ClusterBusy("x"), ExitCode.CONFLICT),
        (errors.StartTimeout("x"), ExitCode.UNAVAILABLE),
        (errors.StartFailed("x"), ExitCode.SERVER),
        (BenchError("x"), ExitCode.SERVER),
        (ExceptionGroup("g", [ExceptionGroup("h", [errors.ClusterBusy("x")])]), ExitCode.CONFLICT),
    ],
)
def test_errors_end_with_the_exit_codes_of_the_interface(error: Exception, code: ExitCode) -> None:
    with pytest.raises(Failure) as failed, running.translate_cluster_errors():
        raise error
    assert failed.value.report.code == code
    assert failed.value.report.lines == ("x",)


def test_lines_are_not_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "word " * 99 + "end"
    with running.Steps(Settings()) as steps:
        steps.line(long)
        steps.done(long)
    running.create_console(Settings()).print(Group(long, Table("a", box=None)))
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [long, f"✓ {long}"]
    assert captured.out.splitlines()[0] == long
    assert all(len(line) <= len(long) for line in captured.out.splitlines()), "nothing is padded"


def test_log_of_what_failed_to_start_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.StartFailed("etcd-0 exited with 1", logs={"etcd-0": ["no space left"], "etcd-1": []})
    with pytest.raises(Failure), running.translate_cluster_errors():
        raise error
    assert capsys.readouterr().err == "Last lines of the log of etcd-0:\n  | no space left\n"


def test_example_that_is_named_can_be_applied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    packaged = example_pods()
    assert packaged is not None and packaged.is_absolute() and packaged.is_file()
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "pods.yaml").touch()
    assert example_pods() == Path("examples/pods.yaml")


def test_commands_find_the_cluster_that_was_started_last(tmp_path: Path) -> None:
    settings = Settings()
    assert clusters.present_data_dir(settings, None) == default_data_dir()
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "big"))
    assert clusters.present_data_dir(settings, None) == tmp_path / "big"
    assert clusters.present_data_dir(settings, tmp_path / "named") == tmp_path / "named"
    clusters.remove_context(settings, tmp_path / "big", [])
    assert clusters.present_data_dir(settings, None) == default_data_dir()


def test_foreign_current_context_never_selects_one_of_several_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pinnace down` took down the default cluster while the current context was that of a cluster of somebody else."""
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "big"))
    (config,) = kubectl_paths()
    staging = "contexts:\n- {name: staging, context: {cluster: staging, user: me}}\n"
    written = config.read_text().replace("contexts:\n", staging)
    config.write_text(written.replace('current-context: "pinnace-big"', "current-context: staging"))
    assert clusters.present_data_dir(Settings(), None) == tmp_path / "big"
    assert f"this is about the cluster in {tmp_path / 'big'}" in capsys.readouterr().err
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:2",), data_dir=tmp_path / "other"), make_current=False)
    for verb in ("down", "kill", "stop"):
        assert run_command_line([verb, *(["leader"] if verb == "kill" else [])]) == ExitCode.USAGE
        assert "choose one with --context: pinnace-big, pinnace-other" in capsys.readouterr().err
    assert clusters.present_data_dir(Settings(context="pinnace-other"), None) == tmp_path / "other"


def test_server_that_is_named_is_no_reason_to_end_another_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "big"))
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:2",), data_dir=tmp_path / "present"))
    big = "pinnace-big"
    for name in ("PINNACE_SERVER", "PINNACE_DATA_DIR"):
        monkeypatch.setenv(name, "127.0.0.1:9")
        for words in (["--context", big, "down"], ["down", "--context", big, "--server", "127.0.0.1:8"]):
            assert clusters.present_data_dir(Settings(context=big), None) == tmp_path / "big"
            assert run_command_line(words) == ExitCode.OK
            assert capsys.readouterr().out == f"there is no cluster in {tmp_path / 'big'}: nothing to do\n"
            clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "big"))


@pytest.mark.parametrize("verb", ["down", "restart", "status"])
@pytest.mark.parametrize(("context", "code"), [("far", ExitCode.NOT_FOUND), ("nowhere", ExitCode.USAGE)])
def test_context_without_a_folder_is_not_taken_for_the_default_cluster(
    verb: str, context: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    write_context("far", ClientConfig(("far.example:1",)), file=kubectl_paths()[0])
    assert run_command_line([verb, "--context", context]) == code
    assert context in capsys.readouterr().err


def test_default_folder_has_one_name_though_there_is_a_link_on_the_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`up` named one, `down --data-dir` resolved it, and neither the context nor the processes were those of the other."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "link"))
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=default_data_dir()))
    assert current_context() == "pinnace"
    assert run_command_line(["down", "--data-dir", str(tmp_path / "link" / "pinnace" / "default")]) == ExitCode.OK
    assert current_context() == ""


def ours(data_dir: Path) -> Path:
    """A cluster of which one process runs: this one."""
    record = ProcessRecord(
        ProcessPlan("etcd", "etcd-0", "127.0.0.1:1", "127.0.0.1:1", ("etcd",)), procfs.identify_process(os.getpid())
    )
    data_dir.mkdir()
    ClusterFolder(data_dir).write(ClusterState(ClusterSpec(data_dir=data_dir), 0.0, (), (record,)))
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=data_dir))
    return data_dir


@pytest.mark.parametrize("verb", ["down", "status", "restart"])
def test_missing_cluster_error_lists_running_clusters(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bare `down` said "nothing to do" while a cluster ran in another folder."""
    folders = [ours(tmp_path / name) for name in ("one", "two")]
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path / "gone"))
    assert run_command_line([verb]) == ExitCode.NOT_FOUND
    said = capsys.readouterr().err
    assert all(f"`pinnace {verb} --data-dir {folder}`" in said for folder in folders)
    assert current_context() == ("pinnace-two" if verb == "down" else "pinnace-gone"), "the deleted cluster has no context"


@pytest.mark.parametrize("verb", ["down", "status"])
def test_unknown_folder_error_suggests_data_dir(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`down` said that there was nothing to do, while it ran."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        write_context("mine", ClientConfig((address,)), file=kubectl_paths()[0])
        threading.Thread(target=greet, args=(listening,), daemon=True).start()
        assert run_command_line([verb]) == ExitCode.NOT_FOUND
    said = capsys.readouterr().err
    assert address in said and f"`pinnace {verb} --data-dir DIR`" in said and str(default_data_dir()) in said


def greet(listening: socket.socket) -> None:
    """An API server speaks first."""
    with listening.accept()[0] as connection:
        connection.sendall(b".")


def test_missing_cluster_error_names_the_searched_places(capsys: pytest.CaptureFixture[str]) -> None:
    write_context("dead", ClientConfig(("127.0.0.1:1",)), file=kubectl_paths()[0])
    assert run_command_line(["down"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said == f"there is no cluster in {default_data_dir()}: nothing to do (--data-dir DIR names another)\n"


def test_folder_that_was_named_may_be_empty_whatever_runs_elsewhere(tmp_path: Path) -> None:
    ours(tmp_path / "one")
    assert run_command_line(["down", "--data-dir", str(tmp_path / "two")]) == ExitCode.OK


def test_down_deletes_nothing_if_the_kubeconfig_is_locked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It deleted the cluster, failed, and kept the context of a cluster that did not exist."""
    data_dir = tmp_path / "one"
    data_dir.mkdir()
    ClusterFolder(data_dir).write(ClusterState(ClusterSpec(data_dir=data_dir), 0.0, (), ()))
    clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=data_dir))
    lock = Path(f"{kubectl_paths()[0]}.lock")
    lock.touch()
    monkeypatch.setattr(
        kubeconfig_file, "time", SimpleNamespace(monotonic=count(0.0, 1.0).__next__, sleep=lambda seconds: None)
    )
    assert run_command_line(["down"]) == ExitCode.SERVER
    assert f"remove {lock}" in capsys.readouterr().err and ClusterFolder(data_dir).read() is not None
    lock.unlink()
    assert run_command_line(["down"]) == ExitCode.OK
    assert ClusterFolder(data_dir).read() is None and current_context() == ""


@pytest.mark.processes
def test_doctor_reports_a_stopped_cluster_as_one_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It listed every process and every API server."""
    data_dir = tmp_path / "one"
    data_dir.mkdir()
    endpoints = ("127.0.0.1:1", "127.0.0.1:2")
    plans = [ProcessPlan("apiserver", f"apiserver-{number}", each, each, ("sh",)) for number, each in enumerate(endpoints)]
    state = initial_state(ClusterSpec(data_dir=data_dir), plans, [], 0.0)
    ClusterFolder(data_dir).write(replace(state, stopped=True))
    clusters.write_context(Settings(), ClientConfig(endpoints, data_dir=data_dir))
    assert run_command_line(["doctor", "-o", "json"]) == ExitCode.VERDICT
    result = json.loads(capsys.readouterr().out)
    problems = [item for item in result if item["check"] in ("processes", "server") and item["level"] == "problem"]
    assert [problem["message"] for problem in problems] == [f"the cluster in {data_dir} is stopped"]
    assert problems[0]["hint"].startswith("pinnace start")


def test_down_removes_the_context_from_every_file_that_up_has_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up` in a terminal with KUBECONFIG, `down` in one without."""
    elsewhere = tmp_path / "elsewhere"
    write_context("far", ClientConfig(("far.example:1",)), file=elsewhere)
    before = elsewhere.read_bytes()
    monkeypatch.setenv("KUBECONFIG", str(elsewhere))
    data_dir = ours(tmp_path / "one")
    monkeypatch.delenv("KUBECONFIG")
    written = ClusterFolder(data_dir).kubeconfigs()
    assert written == [elsewhere] and elsewhere.read_bytes() != before
    clusters.refresh_context(Settings(), ClientConfig(("127.0.0.1:9",), data_dir=data_dir))
    assert not kubectl_paths()[0].exists(), "a start adds no second context"
    assert load_config(file=elsewhere).endpoints == ("127.0.0.1:9",)
    clusters.remove_context(Settings(), data_dir, written)
    assert elsewhere.read_bytes() == before
    assert 'use the context "far" again' in capsys.readouterr().err


def test_configuration_that_cannot_be_written_is_a_failure_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "file" / "config"))
    with pytest.raises(Failure) as failed:
        clusters.write_context(Settings(), ClientConfig(("127.0.0.1:1",), data_dir=tmp_path))
    assert "KUBECONFIG" in failed.value.report.hint


@pytest.mark.parametrize(
    ("content", "said"), [("a: [1,\nb: 2", ":3: invalid YAML: while parsing a flow sequence"), (None, ": is a directory")]
)
def test_up_reports_an_unreadable_configuration_before_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    path = tmp_path / "broken"
    path.mkdir() if content is None else path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert run_command_line(["up", "--nodes", "1", "--data-dir", str(tmp_path / "cluster"), "--detach"]) != 0
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {path}{said}") and hint.startswith("hint: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--data-dir", ""), '"" is not a directory'),
        (("down", "--data-dir", ""), '"" is not a directory'),
        (("up", "--stages", "nope"), '"nope" is no file, and none of fast, realistic, chaos'),
        (("pki", "folder", "--user", ""), '"": must consist of at most 64'),
    ],
)
def test_invalid_command_line_starts_nothing(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    """An empty one is a variable that is not set."""
    assert run_command_line(arguments) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_sets_of_stages_are_those_that_kubelets_know() -> None:
    assert STAGES == SETS


def test_certificates_of_a_local_cluster_are_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Others beside them would be of an authority that its processes do not know."""
    (tmp_path / "cluster.json").touch()
    assert run_command_line(["pki", str(tmp_path), "--server", "127.0.0.1:1"]) == ExitCode.USAGE
    assert "`pinnace restart` renews" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_to_see_whether_it_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    """A start that fails after it shall not either."""
    clusters.check_writable(Settings())
    assert not list(tmp_path.iterdir())
