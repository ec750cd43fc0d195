"""`pinnace study run --live`: a sample on a real cluster, whose decisions a replay repeats, also after a leader was killed."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.stories, pytest.mark.timeout(240)]
TIMEOUT = 200.0
"""Seconds that a command may take on a busy machine."""
STUDY = """
seeds: [1]
profiles: profiles.yaml
traces:
- name: gpus
  format: generated
  generate: {nodes: 6, hours: 6, load: 0.5, gpus: 0.5, high: 0.1}
  inflate: 130
"""
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: FGD
  plugins:
    multiPoint: {enabled: [{name: GpuShare}]}
    score: {disabled: [{name: "*"}], enabled: [{name: "pinnace.study.policies.fgd:FGD"}]}
"""


def test_live_study_places_as_its_replay_after_a_killed_leader(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    command = [
        sys.executable,
        "-m",
        "pinnace.cli.entry",
        "study",
        "run",
        "study.yaml",
        "--live",
        "--kill-leader",
        "--out",
        "out",
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stderr

    folder = tmp_path / "out" / "live" / "gpus" / "FGD" / "1"
    result = json.loads((folder / "live.json").read_text())
    assert result["nodes"] == 6 and 0 < result["placed"] <= result["tasks"]
    assert result["different"] == result["unexplained"] == []
    assert sum(result["schedulers"].values()) == result["placed"]
    assert set(result["schedulers"]) == {"scheduler-0", "scheduler-1"}  # both have led
    with (folder / "placements.csv").open() as file:
        assert len({row["task"] for row in csv.DictReader(file)}) == result["placed"]
    assert not list(tmp_path.glob("pinnace-*"))  # the clusters are removed


def test_live_options_need_live(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    command = [sys.executable, "-m", "pinnace.cli.entry", "study", "run", "study.yaml", "--kill-leader"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 2 and "need --live" in ended.stderr
