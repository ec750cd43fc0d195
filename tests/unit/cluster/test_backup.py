"""What a restore refuses, and the state of a cluster that moves. tests/integration/test_backup.py restores a real one."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pinnace.cluster.backup import BackupError, move_state, restore_backup
from pinnace.cluster.errors import AlreadyRunning
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, ClusterState, ProcessPlan, encode_state, initial_state
from pinnace.runtime.procfs import ProcessIdentity

ETCD = EtcdBinary(Path("/opt/etcd/etcd"), (3, 5, 9), fallback=False)


def make_state(folder: Path) -> ClusterState:
    command = ("python", "-m", "a", "--stay-on-cpu", "9999", "--config", f"{folder}/config/a.yaml", f"{folder}er")
    variables = (("PYTHONPATH", f"/lib:{folder}/config/modules"),)
    plans = [
        ProcessPlan("etcd", "etcd-0", "127.0.0.1:1", "127.0.0.1:2", ("/old/etcd", f"--data-dir={folder}/etcd/etcd-0")),
        ProcessPlan("scheduler", "scheduler-0", "127.0.0.1:3", "127.0.0.1:3", command, variables),
    ]
    state = initial_state(ClusterSpec(data_dir=folder), plans, [], 1000.5)
    return state.with_process("scheduler-0", ProcessIdentity(7, 42, "boot"))


def write_archive(path: Path, contents: Mapping[str, bytes], **fields: object) -> Path:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = {"format": 1, "pinnace": "0.1.0", "etcd": "3.5.1", "created": 1.0, "files": digests} | fields
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"manifest.json": json.dumps(manifest).encode(), **contents}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return {"cluster.json": encode_state(make_state(tmp_path / "old")).encode(), "pki/ca.key": b"key", "etcd.db": b"db"}


def test_moved_state_names_the_new_folder_and_etcd_and_no_process(tmp_path: Path) -> None:
    state, moved = move_state(make_state(Path("/data/one")), tmp_path, ETCD, [])
    etcd, scheduler = (record.plan for record in state.processes)
    assert etcd.argv == ("/opt/etcd/etcd", f"--data-dir={tmp_path}/etcd/etcd-0")
    assert scheduler.argv[3:] == ("--config", f"{tmp_path}/config/a.yaml", "/data/oneer")
    assert dict(scheduler.environment)["PYTHONPATH"] == f"/lib:{tmp_path}/config/modules"
    assert state.stopped and not any(record.process for record in state.processes)
    assert set(moved) == {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}


@pytest.mark.parametrize(
    "damage",
    [
        {"etcd.db": b"other"},
        {"pki/ca.key": b"other"},
        {"pki/later.key": b"x"},
        {"cluster.json": b"{}"},
    ],
)
def test_changed_file_is_refused_and_nothing_is_left(tmp_path: Path, files: dict[str, bytes], damage: dict[str, bytes]) -> None:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    path = write_archive(tmp_path / "backup", files | damage, files=digests)
    with pytest.raises(BackupError, match="is damaged"):
        restore_backup(path, tmp_path / "new", ETCD)
    assert {item.name for item in tmp_path.iterdir()} == {"backup"}


@pytest.mark.parametrize("name", ["pki/../../escaped", "logs/a.log", "cluster.json/a"])
def test_file_of_another_folder_is_refused(tmp_path: Path, files: dict[str, bytes], name: str) -> None:
    path = write_archive(tmp_path / "backup", files | {name: b"x"})
    with pytest.raises(BackupError, match="does not belong to it"):
        restore_backup(path, tmp_path / "new", ETCD)
    assert {item.name for item in tmp_path.iterdir()} == {"backup"}


def test_missing_file_is_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} | {"pki/ca.crt": "0"}
    path = write_archive(tmp_path / "backup", files, files=digests)
    with pytest.raises(BackupError, match="it has no pki"):
        restore_backup(path, tmp_path / "new", ETCD)


@pytest.mark.parametrize("size", [0, 10, 200])
def test_truncated_file_is_refused(tmp_path: Path, files: dict[str, bytes], size: int) -> None:
    path = write_archive(tmp_path / "backup", files)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BackupError):
        restore_backup(path, tmp_path / "new", ETCD)
    assert not (tmp_path / "new").exists()


def test_other_format_and_newer_etcd_are_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(BackupError, match="format 2"):
        restore_backup(write_archive(tmp_path / "backup", files, format=2), tmp_path / "new", ETCD)
    with pytest.raises(BackupError, match=r"cannot read it"):
        restore_backup(write_archive(tmp_path / "backup", files, etcd="3.6.0"), tmp_path / "new", ETCD)


def test_existing_cluster_is_kept(tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    before = replace(make_state(folder), identity="mine")
    ClusterFolder(folder).write(before)
    with pytest.raises(AlreadyRunning):
        restore_backup(write_archive(tmp_path / "backup", files), folder, ETCD)
    assert ClusterFolder(folder).read() == before
