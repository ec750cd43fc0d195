"""What the machine has, against what is needed."""

import os
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from pinnace.cli.doctor import machine
from pinnace.cli.doctor.machine import Finding, FindingLevel


def the_only(found: object) -> Finding:
    assert isinstance(found, list) and len(found) == 1
    assert isinstance(found[0], Finding)
    return found[0]


def test_this_machine_runs_these_tests() -> None:
    assert the_only(machine.check_python()).level is FindingLevel.OK
    assert the_only(machine.check_packages()).level is FindingLevel.OK
    assert the_only(machine.check_ports()).level is FindingLevel.OK


def test_python_that_is_too_old() -> None:
    result = the_only(machine.check_python((3, 9, 2)))
    assert (result.level, result.message) == (FindingLevel.PROBLEM, "3.9.2: 3.11 or later is required")


def version_of(name: str) -> str:
    if name == "gone":
        raise PackageNotFoundError
    return {"grpcio": "1.100.0", "protobuf": "7.9rc1"}[name]


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        ("grpcio>=1.83", "all 1 have a supported version"),
        ("grpcio<2,>=1.83", "all 1 have a supported version"),
        ("grpcio<1.100,>=1.83", "grpcio 1.100.0: a version before 1.100 is required"),
        ("protobuf>=7.35.1", "protobuf 7.9rc1: 7.35.1 or later is required"),
        ("gone>=1", "gone is not installed"),
        ('gone>=8; extra == "dev"', "all 0 have a supported version"),
    ],
)
def test_packages_are_compared_as_numbers_and_extras_are_left_out(needed: str, said: str) -> None:
    result = the_only(machine.check_packages([needed], version_of))
    assert (result.message, result.level is FindingLevel.OK) == (said, said.endswith("a supported version"))


def test_all_packages_that_are_wrong_are_named() -> None:
    result = the_only(machine.check_packages(["protobuf>=7.35.1", "gone>=1"], version_of))
    assert (result.level, result.message) == (
        FindingLevel.PROBLEM,
        "protobuf 7.9rc1: 7.35.1 or later is required; gone is not installed",
    )


def test_each_package_that_pinnace_needs_is_looked_at() -> None:
    needed = [require for require in metadata.requires("pinnace") or [] if ";" not in require]
    assert the_only(machine.check_packages()).message == f"all {len(needed)} have a supported version"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("version", "level"),
    [("3.4.23", FindingLevel.OK), ("3.5.1", FindingLevel.WARNING), ("3.5.9", FindingLevel.OK), ("", FindingLevel.PROBLEM)],
)
def test_etcd(version: str, level: FindingLevel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = tmp_path / "etcd"
    etcd.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    etcd.chmod(0o755)
    monkeypatch.setenv("ETCD_BIN", str(etcd))
    assert the_only(machine.check_etcd(elsewhere=False)).level is level
    if level is FindingLevel.PROBLEM:
        assert the_only(machine.check_etcd(elsewhere=True)).level is FindingLevel.WARNING, "nobody starts a cluster here"


@pytest.mark.parametrize(
    ("free", "level"), [(10 << 30, FindingLevel.OK), (1 << 30, FindingLevel.WARNING), (1 << 20, FindingLevel.PROBLEM)]
)
def test_room_on_the_disk(free: int, level: FindingLevel, tmp_path: Path) -> None:
    assert the_only(machine.check_disk(tmp_path / "not" / "there", free)).level is level


def test_memory_and_open_files() -> None:
    assert [the_only(machine.check_memory(size << 20)).level for size in (100, 500, 5000)] == [
        FindingLevel.PROBLEM,
        FindingLevel.WARNING,
        FindingLevel.OK,
    ]
    assert [the_only(machine.check_open_files(most)).level for most in (64, 512, 4096, -1)] == [
        FindingLevel.PROBLEM,
        FindingLevel.WARNING,
        FindingLevel.OK,
        FindingLevel.OK,
    ]
    assert the_only(machine.check_disk(Path(os.sep))).message.endswith("free for /")
