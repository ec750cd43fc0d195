"""A start on a full disk fails with a hint and leaves no files."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.folder import MB, ClusterFolder
from pinnace.cluster.spec import ClusterSpec
from pinnace.cluster.startup import exited_during_start
from pinnace.pki import folder as pki
from tests.unit.cluster.test_strays import nothing_in

NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
MKDIR = Path.mkdir


def half_a_file(path: Path, data: str) -> int:
    path.write_bytes(data.encode()[:9])
    raise NO_ROOM


def no_logs(path: Path, *arguments: Any, **options: Any) -> None:
    if path.name == "logs":
        raise NO_ROOM
    MKDIR(path, *arguments, **options)


def no_certificate(path: Path, data: bytes, *, mode: int) -> None:
    if path.suffix == ".crt":
        raise NO_ROOM
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("owner", "call", "full"),
    [(Path, "write_text", half_a_file), (Path, "mkdir", no_logs), (pki, "write_atomically", no_certificate)],
)
async def test_start_on_a_full_disk_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, full: Any
) -> None:
    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: EtcdBinary(Path("/bin/false"), (3, 5, 21), False))
    monkeypatch.setattr(owner, call, full)
    with pytest.raises(FolderError, match="No space left on device") as refused:
        await Cluster(ClusterSpec(nodes=1, data_dir=tmp_path / "made" / "cluster")).up()
    assert refused.value.hint == "free some space"
    assert nothing_in(tmp_path)


PANIC = """\
{"level":"panic","msg":"failed to create WAL","error":"no space left on device"}
panic: failed to create WAL

goroutine 1 [running]:
go.uber.org/zap/zapcore.(*CheckedEntry).Write(0xc00022c000)
\tgo.uber.org/zap/zapcore/entry.go:234 +0x58d
"""


def test_error_quotes_an_etcd_that_ended_on_a_full_disk(tmp_path: Path) -> None:
    """The error quotes the panic, not the stack trace that follows it."""
    folder = ClusterFolder(tmp_path)
    folder.logs.mkdir()
    folder.log("etcd-0").write_text(PANIC + "main.main()\n" * 15)
    failure = exited_during_start("etcd-0", 2, folder)
    assert failure.logs == {"etcd-0": PANIC.splitlines()[:3]}
    assert failure.hint.startswith("free disk space: ")
    folder.log("etcd-0").write_text(PANIC + "2026-11-26 02:56:03.084313 I | etcdserver: starting server\n")
    assert exited_during_start("etcd-0", 2, folder).logs["etcd-0"][-1].endswith("starting server")


@pytest.mark.parametrize(("left", "log", "hint"), [(10, "", "free disk"), (10, "bad flag", ""), (100, "", "")])
def test_process_that_could_not_write_its_log_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, log: str, hint: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=left * MB))
    folder = ClusterFolder(tmp_path)
    folder.logs.mkdir()
    folder.log("etcd-0").write_text(log)
    assert exited_during_start("etcd-0", 1, folder).hint[:9] == hint
