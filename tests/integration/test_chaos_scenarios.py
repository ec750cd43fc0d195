"""Scenarios with real processes: the one in which the old leader's own binds reach etcd, and must be refused; and that of the
second kubelet, which must come to be one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.chaos


def test_leader_that_cannot_make_itself_heard_is_fenced(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ended = subprocess.run(
        [sys.executable, "-m", "pinnace.cli.entry", "chaos", "partition-leader", "-o", "json", "--save", kept],
        capture_output=True, text=True, timeout=55, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)
    assert result["status"] == "holds"
    told = [moment["what"] for moment in result["timeline"]]
    assert sum("is elected with fencing token" in what for what in told) == 1
    assert any("the fence has rejected" in what for what in told)
    assert result["timeline"][0]["fault"] and result["timeline"][0]["at_ms"] == 0
    assert {"chaos.jsonl", "etcd.jsonl", "logs"} <= {path.name for path in kept.iterdir()}


def test_second_kubelet_takes_over_once_and_the_first_one_after_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pinnace.cli.entry", "chaos", "duplicate-kubelet", "-o", "json"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["status"] == "holds"
