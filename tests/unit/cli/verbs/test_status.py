"""`pinnace status` of a cluster whose folder is not whole."""

from pathlib import Path

import pytest

from pinnace.cli.main import run_command_line
from pinnace.cluster.folder import ClusterFolder
from pinnace.cluster.spec import ClusterSpec, ProcessPlan, initial_state

ADDRESS = "127.0.0.1:1"


def test_status_lists_processes_when_the_leader_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It said what is wrong with the certificates, and nothing else; and to end the cluster, which is the end of its data."""
    plan = ProcessPlan("apiserver", "apiserver-0", ADDRESS, ADDRESS, ("sh",))
    ClusterFolder(tmp_path).write(initial_state(ClusterSpec(data_dir=tmp_path), [plan], [], 0.0))
    assert run_command_line(["status", "--data-dir", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "apiserver-0" in told.out and "apiserver-0: not running" in told.out
    assert "note: the leaders are unknown: the certificates in" in told.err and "restore missing files" in told.err
