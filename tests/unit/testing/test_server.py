"""Folders that a killed server has left."""

import fcntl
import os
from pathlib import Path

import pytest

from pinnace.testing.server import LOCK, UNLOCKED_AGE, is_abandoned, remove_leftovers


def lock(folder: Path) -> int:
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def test_folder_of_running_server_stays(tmp_path: Path) -> None:
    folder = tmp_path / "cluster-1"
    folder.mkdir()
    handle = lock(folder)
    remove_leftovers(tmp_path)
    assert folder.exists()
    os.close(handle)
    remove_leftovers(tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize(("age", "abandoned"), [(0.0, False), (2 * UNLOCKED_AGE, True)])
def test_folder_without_lock_is_abandoned_when_it_is_old(tmp_path: Path, age: float, abandoned: bool) -> None:
    """Between its creation and its lock, a folder belongs to a server that starts."""
    folder = tmp_path / "cluster-1"
    folder.mkdir()
    made = folder.stat().st_mtime - age
    os.utime(folder, (made, made))
    assert is_abandoned(folder) == abandoned


def test_foreign_files_beside_clusters_stay(tmp_path: Path) -> None:
    """--pinnace-data-dir may name a folder that has other things."""
    (tmp_path / "notes.txt").touch()
    other = tmp_path / "other"
    other.mkdir()
    os.utime(other, (0, 0))
    remove_leftovers(tmp_path)
    assert (tmp_path / "notes.txt").exists()
    assert other.exists()
