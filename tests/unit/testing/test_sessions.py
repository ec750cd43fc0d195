"""The folder of a cluster, and what a user reads if there is none."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from pinnace.testing import sessions
from pinnace.testing.sessions import ClusterFailed, choose_parent, describe_failure, new_folder, private_folder


def test_small_shared_memory_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Docker's /dev/shm has 64 MB, and etcd allocates 128 MB at its start."""
    monkeypatch.setattr(sessions.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=16_000, f_frsize=4096))
    assert choose_parent() == tmp_path


def test_missing_shared_memory_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sessions.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(sessions, "SHARED_MEMORY", tmp_path / "missing")
    assert choose_parent() == tmp_path


def test_private_folder_is_for_owner_only(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_folder(tmp_path) == folder


@pytest.mark.parametrize("trap", ["link", "open"])
def test_private_folder_that_others_can_reach_is_refused(tmp_path: Path, trap: str) -> None:
    """/dev/shm is writable for everybody: another user may have made the folder first."""
    path = tmp_path / f"pinnace-{os.getuid()}"
    if trap == "link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir(mode=0o777)
        path.chmod(0o777)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        private_folder(tmp_path)


def test_unusable_base_names_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClusterFailed, match="--pinnace-data-dir"):
        new_folder(tmp_path / "file" / "below")


def test_failure_shows_hint_and_logs() -> None:
    answer = {"error": "etcd-0 exited with 1", "hint": "free some space", "logs": {"etcd-0": ["no space left"]}}
    assert describe_failure(answer).splitlines() == [
        "the cluster did not start: etcd-0 exited with 1",
        "hint: free some space",
        "last lines of the log of etcd-0:",
        "  no space left",
    ]
