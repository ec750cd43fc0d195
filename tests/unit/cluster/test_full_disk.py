"""A start for which the disk has no room: it is told with the way out, and nothing is left of it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import FolderError
from pinnace.cluster.etcd import EtcdBinary
from pinnace.cluster.spec import ClusterSpec
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
    ("owner", "call", "full"), [(Path, "write_text", half_a_file), (Path, "mkdir", no_logs), (pki, "replace", no_certificate)]
)
async def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, full: Any) -> None:
    monkeypatch.setattr("pinnace.cluster.cluster.find_etcd", lambda: EtcdBinary(Path("/bin/false"), (3, 5, 21), False))
    monkeypatch.setattr(owner, call, full)
    with pytest.raises(FolderError, match="No space left on device") as refused:
        await Cluster(ClusterSpec(nodes=1, data_dir=tmp_path / "made" / "cluster")).up()
    assert refused.value.hint == "free some space"
    assert nothing_in(tmp_path)
