"""Folders that a killed server has left."""

import fcntl
import os
from pathlib import Path

import pytest

from pinnace.cluster.folder import SEGMENT
from pinnace.testing.server import LOCK, UNLOCKED_AGE, free_preallocated, has_ended, remove_leftovers


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
    assert has_ended(folder) == abandoned


def test_foreign_files_beside_clusters_stay(tmp_path: Path) -> None:
    """--pinnace-data-dir may name a folder that has other things."""
    (tmp_path / "notes.txt").touch()
    other = tmp_path / "other"
    other.mkdir()
    os.utime(other, (0, 0))
    remove_leftovers(tmp_path)
    assert (tmp_path / "notes.txt").exists()
    assert other.exists()


def test_log_of_etcd_on_tmpfs_is_sparse(tmp_path: Path) -> None:
    """Only zeros are freed: the file keeps its size and what etcd has written."""
    wal = tmp_path / "cluster" / "etcd" / "etcd-0" / "member" / "wal"
    wal.mkdir(parents=True)
    path, small = wal / "0-0.wal", wal / "small"
    path.write_bytes(b"entry" + bytes(SEGMENT - 5))
    small.write_bytes(b"entry")
    free_preallocated(tmp_path)
    assert path.read_bytes() == b"entry" + bytes(SEGMENT - 5)
    assert path.stat().st_blocks * 512 < SEGMENT // 2
    assert small.read_bytes() == b"entry"
