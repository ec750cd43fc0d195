"""What is said of the processes of a local cluster that are not well."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pinnace.cli.doctor import servers
from pinnace.cluster import etcd, view
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, ClusterState, ProcessPlan, initial_state
from pinnace.runtime import procfs

ADDRESS = "127.0.0.1:1"
LOST = "member 4329bc03adae7f1a has already been bootstrapped"


@pytest.fixture
def member(tmp_path: Path) -> Callable[..., ClusterState]:
    """A cluster of one member of etcd."""

    def make(log: str, *, runs: bool) -> ClusterState:
        ClusterFolder(tmp_path).logs.mkdir()
        ClusterFolder(tmp_path).log("etcd-0").write_text(log)
        state = initial_state(
            ClusterSpec(data_dir=tmp_path), [ProcessPlan("etcd", "etcd-0", ADDRESS, ADDRESS, ("sh",))], [], 0.0
        )
        myself = procfs.identify_process(os.getpid())
        return state.with_process("etcd-0", myself if runs else procfs.ProcessIdentity(1, 1, "an earlier boot"))

    return make


@pytest.mark.parametrize(
    ("alarms", "message", "hint"),
    [
        ([], "no answer: connection refused", "log"),
        (["NOSPACE"], "out of space, only reads and deletes are possible", "defragment"),
        (["CORRUPT"], "alarm CORRUPT", "log"),
    ],
)
async def test_alarms_of_etcd(
    member: Callable[..., ClusterState], monkeypatch: pytest.MonkeyPatch, alarms: list[str], message: str, hint: str
) -> None:
    monkeypatch.setattr(etcd, "read_alarms", lambda endpoint, tls: alarms)
    (result,) = await servers.check_processes(member("", runs=True))
    assert result.message == f"etcd-0 is not ready: {message}" and hint in result.hint


async def test_status_tells_alarms_too(member: Callable[..., ClusterState], monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of etcd 3.4 that is full says no more than that it is not healthy."""
    monkeypatch.setattr(etcd, "read_alarms", lambda endpoint, tls: ["NOSPACE"])
    assert await view.process_problems(member("", runs=True)) == ["alarm NOSPACE"]


async def test_member_that_has_ended(member: Callable[..., ClusterState]) -> None:
    (result,) = await servers.check_processes(member(LOST, runs=False))
    assert result.message == "etcd-0 is not running" and "docs/storage.md" in result.hint
