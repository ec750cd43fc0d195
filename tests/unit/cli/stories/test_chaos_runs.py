"""What becomes of the folder of a chaos run, however it ends: it is removed, or named."""

from pathlib import Path
from typing import Any

import pytest

from pinnace.api.status import Code, Refusal
from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.verbs.chaos import finish_run
from pinnace.client.errors import Unavailable
from pinnace.cluster.errors import ClusterError, StartFailed
from pinnace.cluster.links import HelperError
from pinnace.history.verdict import Status
from pinnace.verification.chaos import ChaosError
from pinnace.verification.chaos.load import LoadError
from pinnace.verification.chaos.scenarios.base import ScenarioError
from pinnace.verification.chaos.stage import JOURNAL, STORED


class FakeReport:
    def __init__(self, status: Status) -> None:
        self.status: Status = status
        self.saved_folder = ""

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a run leaves it whose cluster did not start."""
    made = tmp_path / "run"
    made.mkdir()
    (made / JOURNAL).touch()
    return made


def play(folder: Path, end: BaseException | FakeReport, *, keep: bool = False) -> FakeReport:
    async def run() -> FakeReport:
        if isinstance(end, BaseException):
            raise end
        return end

    return finish_run(run(), folder, keep=keep)


@pytest.mark.parametrize(
    ("status", "keep", "kept"), [("holds", False, False), ("holds", True, True), ("violated", False, True)]
)
def test_bad_run_is_kept(folder: Path, status: Status, keep: bool, kept: bool) -> None:
    report = play(folder, FakeReport(status), keep=keep)
    assert (folder / "report.json").exists() == folder.exists() == kept
    assert report.saved_folder == (str(folder) if kept else "")


def test_unwritable_report_is_printed(folder: Path) -> None:
    (folder / "report.json").mkdir()
    assert play(folder, FakeReport("violated")).saved_folder == str(folder)


def test_failed_start_of_a_temporary_cluster_leaves_nothing(folder: Path) -> None:
    with pytest.raises(StartFailed):
        play(folder, StartFailed("etcd did not start"))
    assert not folder.exists()


def test_folder_that_was_named_stays(folder: Path) -> None:
    with pytest.raises(StartFailed):
        play(folder, StartFailed("etcd did not start"), keep=True)
    assert folder.exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        ChaosError("the history cannot be written"),
        LoadError("the load cannot begin"),
        HelperError("the links are gone"),
        ClusterError("kubelet-0 did not start again"),
        ScenarioError("waited in vain"),
        Unavailable(Refusal(Code.UNAVAILABLE, "", "no answer")),
    ],
)
def test_whatever_ends_a_run_the_folder_is_named(folder: Path, error: Exception) -> None:
    (folder / STORED).touch()
    with pytest.raises(Failure) as raised:
        play(folder, error)
    report = raised.value.report
    assert report.lines[0].startswith("the run proves nothing: ") and str(error) in report.lines[0]
    assert (report.hint, report.code) == (f"history and logs are in {folder}", ExitCode.VERDICT)
    assert folder.exists()


def test_bug_says_so_too(folder: Path) -> None:
    with pytest.raises(RuntimeError) as raised:
        play(folder, RuntimeError("a bug"))
    assert raised.value.__notes__ == [f"history and logs are in {folder}"]


def test_interrupt_leaves_nothing(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(folder, KeyboardInterrupt())
    assert not folder.exists()
