"""The commit from which a build was made."""

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from pinnace.runtime import build

pytestmark = pytest.mark.processes


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A source tree with the module `build` at its usual path."""
    folder = tmp_path / "pinnace" / "runtime"
    folder.mkdir(parents=True)
    shutil.copy(build.__file__, folder)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def commit_of(sources: Path) -> str:
    result: str = runpy.run_path(str(sources / "pinnace" / "runtime" / "build.py"))["build_commit"]()
    return result


def test_commit_of_a_checkout_comes_from_git(sources: Path) -> None:
    git(sources, "init")
    git(sources, "add", ".")
    git(sources, "commit", "--message", "first")
    head = git(sources, "rev-parse", "--short", "HEAD")
    assert commit_of(sources) == head
    with (sources / "pinnace" / "runtime" / "build.py").open("a") as file:
        file.write("\n")
    assert commit_of(sources) == f"{head}-dirty"


def test_commit_ignores_the_repository_of_a_running_git_hook(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sources / "other"
    other.mkdir()
    for folder in (other, sources):
        git(folder, "init")
        (folder / "name").write_text(folder.name)
        git(folder, "add", "name")
        git(folder, "commit", "--message", folder.name)
    head = git(sources, "rev-parse", "--short", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert commit_of(sources).removesuffix("-dirty") == head


def test_commit_of_a_wheel_comes_from_the_build(sources: Path) -> None:
    """The result is the same if the wheel is installed inside another Git repository."""
    git(sources.parent, "init")
    assert commit_of(sources) == ""
    (sources / "pinnace" / "runtime" / "commit.txt").write_text("73b2091\n")
    assert commit_of(sources) == "73b2091"


@pytest.mark.parametrize(("commit", "version"), [("73b2091-dirty", "0.1.0+73b2091-dirty"), ("", "0.1.0")])
def test_version_contains_the_commit(monkeypatch: pytest.MonkeyPatch, commit: str, version: str) -> None:
    monkeypatch.setattr(build, "build_commit", lambda: commit)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.1.0")
    assert build.build_version.__wrapped__() == version
