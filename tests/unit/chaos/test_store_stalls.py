"""Stalls of the store are read from etcd's logs.

In an hour of chaos on two busy cores, two leaders were replaced because etcd had stalled for 2.2 and 4.5 s. No injected fault
was near.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from pinnace.verification.chaos.log_scan import StoreStall, find_etcd_stalls


def line(at: float, message: str, **fields: str) -> str:
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"level": "warn", "ts": stamp, "msg": message} | fields) + "\n"


def slow(at: float, took: str) -> str:
    return line(at, "apply request took too long", took=took)


def waiting(at: float) -> str:
    return line(at, "waiting for ReadIndex response took too long, retrying")


def test_consecutive_delays_are_one_stall(tmp_path: Path) -> None:
    log = [waiting(100.5), waiting(101.0), waiting(101.5), slow(102.0, "1.9s"), slow(110.0, "588.5ms"), slow(120.0, "2.5s")]
    (tmp_path / "etcd-0.log").write_text("".join(log))
    assert find_etcd_stalls(tmp_path) == [StoreStall("etcd-0", 100.0, 102.0), StoreStall("etcd-0", 117.5, 120.0)]


def test_other_lines_and_processes_are_ignored(tmp_path: Path) -> None:
    other = ["no JSON: apply request took too long\n", slow(5.0, "long"), line(6.0, "elected leader"), "{}\n"]
    (tmp_path / "etcd-1.log").write_text("".join(other))
    (tmp_path / "apiserver-0.log").write_text(slow(9.0, "5s"))
    assert find_etcd_stalls(tmp_path) == []
