from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.pki import Subject
from pinnace.pki.folder import ADMIN, Folder, Wanted, replace
from pinnace.runtime.tls import Renewed, TlsFiles

NOW = datetime.now(UTC)


def certificate(path: Path) -> TlsFiles:
    """A new one, in place of what was there."""
    folder = Folder(path)
    for ending in ("crt", "key"):
        (path / f"{ADMIN}.{ending}").unlink(missing_ok=True)
    folder.provide([Wanted(ADMIN, Subject("me"))], NOW)
    return folder.files(ADMIN)


def test_what_is_replaced_is_taken(tmp_path: Path) -> None:
    renewed = Renewed(certificate(tmp_path))
    first = renewed.current
    assert not renewed.renew() and renewed.current == first
    certificate(tmp_path)
    assert renewed.renew() and renewed.current.cert != first.cert
    assert not renewed.renew()


def test_a_key_without_its_certificate_is_not_taken_until_both_are_there(tmp_path: Path) -> None:
    files = certificate(tmp_path / "a")
    renewed = Renewed(files)
    first = renewed.current
    other = certificate(tmp_path / "b")
    replace(files.key, other.key.read_bytes(), mode=0o600)
    assert not renewed.renew() and renewed.current == first
    replace(files.cert, other.cert.read_bytes(), mode=0o644)
    assert renewed.renew() and renewed.current.cert == other.cert.read_bytes()


def test_what_is_gone_is_used_on(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    renewed = Renewed(files)
    files.cert.unlink()
    assert not renewed.renew() and renewed.current.cert


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
def test_what_cannot_be_used_to_begin_with(tmp_path: Path, broken: str) -> None:
    files = certificate(tmp_path)
    path: Path = getattr(files, broken)
    path.write_text("no certificate")
    with pytest.raises(OSError):
        Renewed(files)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        Renewed(files)
