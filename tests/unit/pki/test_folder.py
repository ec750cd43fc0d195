import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
from cryptography import x509

from pinnace.pki import Subject
from pinnace.pki.authority import Authority
from pinnace.pki.folder import ADMIN, APISERVER, ETCD_CA, ETCD_CLIENT, ETCD_SERVER, CertificateSpec, PkiFolder

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = CertificateSpec(APISERVER, Subject("kube-apiserver"), ("localhost", "127.0.0.1"))
STORE = CertificateSpec(ETCD_SERVER, Subject("kube-etcd"), ("localhost",))
ITS_CLIENT = CertificateSpec(ETCD_CLIENT, Subject("kube-apiserver-etcd-client"))
PERSON = CertificateSpec(ADMIN, Subject("kubernetes-admin", ("system:masters",)))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_certificates_are_created_once(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path / "pki")
    assert folder.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]
    before = contents(folder.path)
    assert sorted(before) == sorted(f"{name}.{ending}" for name in ("ca", APISERVER, ADMIN) for ending in ("crt", "key"))
    assert folder.provide([SERVER, PERSON], NOW) == [] and contents(folder.path) == before


def test_address_may_be_written_in_several_ways(tmp_path: Path) -> None:
    wanted = CertificateSpec(APISERVER, SERVER.subject, ("0:0:0::1", "127.0.0.1"))
    assert PkiFolder(tmp_path).provide([wanted], NOW) == [APISERVER]
    assert PkiFolder(tmp_path).provide([wanted], NOW) == []


def test_keys_are_readable_by_the_owner_only(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path / "pki")
    folder.provide([SERVER], NOW)
    PkiFolder(tmp_path / "pki", ETCD_CA).provide([STORE], NOW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.path / "etcd")} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.path.rglob("*.key")} == {0o600}


def test_expiring_certificates_are_renewed_and_the_authority_kept(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([SERVER], NOW)
    before = contents(tmp_path)
    assert folder.provide([SERVER], NOW + timedelta(days=330)) == []
    assert folder.provide([SERVER], NOW + timedelta(days=340)) == [APISERVER]
    after = contents(tmp_path)
    assert after["ca.crt"] == before["ca.crt"] and after["apiserver.crt"] != before["apiserver.crt"]


@pytest.mark.parametrize(
    "other",
    [
        CertificateSpec(APISERVER, Subject("kube-apiserver"), ("localhost", "127.0.0.1", "apiserver")),
        CertificateSpec(APISERVER, Subject("somebody-else"), ("localhost", "127.0.0.1")),
    ],
)
def test_certificate_for_other_names_is_renewed(tmp_path: Path, other: CertificateSpec) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([SERVER], NOW)
    assert folder.provide([other], NOW) == [APISERVER]


def test_renewed_certificate_replaces_the_file(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([CertificateSpec(APISERVER, SERVER.subject, ("localhost", "10.0.0.1", "api.example"))], NOW)
    later = NOW + timedelta(days=340)
    assert folder.provide([SERVER], later) == [APISERVER]
    names = x509.load_pem_x509_certificate((tmp_path / "apiserver.crt").read_bytes()).extensions
    result = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(result.get_values_for_type(x509.DNSName)) == {"localhost", "api.example"}
    assert {str(value) for value in result.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "10.0.0.1"}
    assert folder.provide([SERVER], later) == []


def test_new_authority_signs_all_certificates_again(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([SERVER, PERSON], NOW)
    for ending in ("crt", "key"):
        (tmp_path / f"ca.{ending}").unlink()
    assert folder.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]


def test_two_authorities_share_a_folder_and_no_certificate(tmp_path: Path) -> None:
    cluster, etcd = PkiFolder(tmp_path / "pki"), PkiFolder(tmp_path / "pki", ETCD_CA)
    assert etcd.provide([STORE, ITS_CLIENT], NOW) == [ETCD_SERVER, ETCD_CLIENT]
    assert cluster.provide([SERVER, PERSON], NOW) == [APISERVER, ADMIN]
    assert etcd.provide([STORE, ITS_CLIENT], NOW) == cluster.provide([SERVER, PERSON], NOW) == []
    assert etcd.files(ETCD_CLIENT).ca == tmp_path / "pki/etcd/ca.crt" != cluster.files(ADMIN).ca
    assert cluster.provide([ITS_CLIENT], NOW) == [ETCD_CLIENT], "what another authority has signed will not do"


@pytest.mark.parametrize("key", [None, b"", b"no key"], ids=["another's", "empty", "none"])
def test_key_that_does_not_match_its_certificate_is_replaced(tmp_path: Path, key: bytes | None) -> None:
    """As when somebody was killed after he had written the key."""
    folder, other = PkiFolder(tmp_path / "pki"), PkiFolder(tmp_path / "other")
    for item in (folder, other):
        item.provide([SERVER, PERSON], NOW)
    folder.files(ADMIN).key.write_bytes(other.files(ADMIN).key.read_bytes() if key is None else key)
    assert folder.provide([SERVER, PERSON], NOW) == [ADMIN]
    folder.files(ADMIN).read()


def test_incomplete_authority_is_replaced(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([PERSON], NOW)
    (tmp_path / "ca.crt").unlink()
    assert folder.provide([PERSON], NOW) == [ADMIN]
    folder.files(ADMIN).read()


def test_certificate_of_an_authority_without_its_key_stays(tmp_path: Path) -> None:
    """Whom others trust is not replaced: the key may be kept elsewhere."""
    folder = PkiFolder(tmp_path)
    folder.provide([PERSON], NOW)
    (tmp_path / "ca.key").unlink()
    before = contents(tmp_path)
    with pytest.raises(FileNotFoundError):
        folder.provide([PERSON, SERVER], NOW)
    assert contents(tmp_path) == before


def test_concurrent_creators_write_certificates_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meet = Barrier(2)

    def create(name: str, now: datetime) -> Authority:
        with suppress(BrokenBarrierError):
            meet.wait(0.05)  # for another who makes an authority, if there can be one
        return made_by(name, now)

    made_by = Authority.create
    monkeypatch.setattr(Authority, "create", create)
    folders = [PkiFolder(tmp_path / "pki") for _ in range(2)]
    with ThreadPoolExecutor(len(folders)) as pool:
        made = list(pool.map(lambda folder: folder.provide([SERVER, PERSON], NOW), folders))
    assert sorted(made) == [[], [APISERVER, ADMIN]]


def test_certificate_is_reissued_with_its_subject_and_hosts_and_another_key(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide([SERVER, PERSON], NOW)
    before = contents(tmp_path)
    folder.reissue([APISERVER], NOW, timedelta(seconds=3))
    after = contents(tmp_path)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {f"{APISERVER}.crt", f"{APISERVER}.key"}
    certificate = x509.load_pem_x509_certificate(after[f"{APISERVER}.crt"])
    assert certificate.not_valid_after_utc == NOW + timedelta(seconds=3)
    folder.reissue([APISERVER], NOW)
    assert folder.provide([SERVER, PERSON], NOW) == [], "it is what is wanted"
