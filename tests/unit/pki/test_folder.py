import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.pki import Subject
from pinnace.pki.folder import ADMIN, APISERVER, ETCD_CA, ETCD_CLIENT, ETCD_SERVER, Folder, Wanted

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = Wanted(APISERVER, Subject("kube-apiserver"), ("localhost", "127.0.0.1"))
STORE = Wanted(ETCD_SERVER, Subject("kube-etcd"), ("localhost",))
ITS_CLIENT = Wanted(ETCD_CLIENT, Subject("kube-apiserver-etcd-client"))
PERSON = Wanted(ADMIN, Subject("kubernetes-admin", ("system:masters",)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_made_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "pki")
    assert folder.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]
    before = contents(folder.path)
    assert sorted(before) == sorted(f"{name}.{ending}" for name in ("ca", APISERVER, ADMIN) for ending in ("crt", "key"))
    assert folder.provide([SERVER, PERSON], NOW) == [] and contents(folder.path) == before


def test_nobody_else_reads_the_keys(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "pki")
    folder.provide([SERVER], NOW)
    Folder(tmp_path / "pki", ETCD_CA).provide([STORE], NOW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.path / "etcd")} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*.key")} == {0o600}


def test_what_ends_soon_is_made_anew_and_the_authority_stays(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.provide([SERVER], NOW)
    before = contents(tmp_path)
    assert folder.provide([SERVER], NOW + timedelta(days=330)) == []
    assert folder.provide([SERVER], NOW + timedelta(days=340)) == [APISERVER]
    after = contents(tmp_path)
    assert after["ca.crt"] == before["ca.crt"] and after["apiserver.crt"] != before["apiserver.crt"]


@pytest.mark.parametrize(
    "other",
    [
        Wanted(APISERVER, Subject("kube-apiserver"), ("localhost", "127.0.0.1", "apiserver")),
        Wanted(APISERVER, Subject("somebody-else"), ("localhost", "127.0.0.1")),
    ],
)
def test_what_is_about_others_is_made_anew(tmp_path: Path, other: Wanted) -> None:
    folder = Folder(tmp_path)
    folder.provide([SERVER], NOW)
    assert folder.provide([other], NOW) == [APISERVER]


def test_a_new_authority_signs_everything_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.provide([SERVER, PERSON], NOW)
    for ending in ("crt", "key"):
        (tmp_path / f"ca.{ending}").unlink()
    assert folder.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]


def test_two_authorities_share_a_folder_and_no_certificate(tmp_path: Path) -> None:
    cluster, etcd = Folder(tmp_path / "pki"), Folder(tmp_path / "pki", ETCD_CA)
    assert etcd.provide([STORE, ITS_CLIENT], NOW) == [ETCD_SERVER, ETCD_CLIENT]
    assert cluster.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]
    assert etcd.provide([STORE, ITS_CLIENT], NOW) == cluster.provide([SERVER, PERSON], NOW) == []
    assert etcd.files(ETCD_CLIENT).ca == tmp_path / "pki/etcd/ca.crt" != cluster.files(ADMIN).ca
    assert cluster.provide([ITS_CLIENT], NOW) == [ETCD_CLIENT], "what another authority has signed will not do"
