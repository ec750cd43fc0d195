import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.pki import Subject
from pinnace.pki.folder import ADMIN, CertificateSpec, PkiFolder, write_atomically
from pinnace.runtime.tls import REPLACEMENT_TIMEOUT, ReloadingCredentials, TlsFiles
from tests.clock import FakeClock
from tests.unprivileged import unprivileged

NOW = datetime.now(UTC)


def certificate(path: Path) -> TlsFiles:
    """Issue a new certificate in place of the existing one."""
    folder = PkiFolder(path)
    for ending in ("crt", "key"):
        (path / f"{ADMIN}.{ending}").unlink(missing_ok=True)
    folder.provide([CertificateSpec(ADMIN, Subject("me"))], NOW)
    return folder.files(ADMIN)


def test_replaced_certificate_is_loaded(tmp_path: Path) -> None:
    renewed = ReloadingCredentials(certificate(tmp_path))
    first = renewed.current
    assert not renewed.reload_if_changed() and renewed.current == first
    certificate(tmp_path)
    assert renewed.reload_if_changed() and renewed.current.cert != first.cert
    assert not renewed.reload_if_changed()


def test_replaced_key_is_not_used_before_its_certificate_is_replaced(tmp_path: Path) -> None:
    files = certificate(tmp_path / "a")
    renewed = ReloadingCredentials(files)
    first = renewed.current
    other = certificate(tmp_path / "b")
    write_atomically(files.key, other.key.read_bytes(), mode=0o600)
    assert not renewed.reload_if_changed() and renewed.current == first
    write_atomically(files.cert, other.cert.read_bytes(), mode=0o644)
    assert renewed.reload_if_changed() and renewed.current.cert == other.cert.read_bytes()


def test_removed_certificate_stays_in_use(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    renewed = ReloadingCredentials(files)
    files.cert.unlink()
    assert not renewed.reload_if_changed() and renewed.current.cert


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
def test_unusable_file_is_an_error_at_startup(tmp_path: Path, broken: str) -> None:
    files = certificate(tmp_path)
    path: Path = getattr(files, broken)
    path.write_text("no certificate")
    with pytest.raises(OSError, match=f"{path}: not a "):
        ReloadingCredentials(files)
    path.unlink()
    with pytest.raises(OSError, match=f"{path}: no such file"):
        ReloadingCredentials(files)


def test_partially_written_certificate_is_loaded_once_complete(tmp_path: Path) -> None:
    """This also holds if the modification time of the file stays the same."""
    files, other = certificate(tmp_path / "a"), certificate(tmp_path / "b")
    renewed = ReloadingCredentials(files)
    files.key.write_bytes(other.key.read_bytes())
    whole = other.cert.read_bytes()
    files.cert.write_bytes(whole[:100])
    assert not renewed.reload_if_changed()
    then = files.cert.stat().st_mtime_ns
    files.cert.write_bytes(whole)
    os.utime(files.cert, ns=(then, then))
    assert renewed.reload_if_changed() and renewed.current.cert == whole


def test_unreadable_key_is_loaded_once_readable() -> None:
    with unprivileged() as folder:
        files = certificate(folder)
        renewed = ReloadingCredentials(files)
        certificate(folder)
        files.key.chmod(0)
        assert not renewed.reload_if_changed()
        files.key.chmod(0o600)
        assert renewed.reload_if_changed() and renewed.current.key == files.key.read_bytes()


def test_files_that_stay_unusable_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, clock = certificate(tmp_path), FakeClock()
    renewed = ReloadingCredentials(files, clock)
    files.key.rename(tmp_path / "away")
    assert not renewed.reload_if_changed()
    clock.stall(REPLACEMENT_TIMEOUT)
    assert not any(renewed.reload_if_changed() for _ in range(3))
    (warning,) = caplog.records
    assert warning.message == f"{files.key}: no such file or directory; continuing with the previous certificates"
    (tmp_path / "away").rename(files.key)
    assert renewed.reload_if_changed()


def test_slow_replacement_logs_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, other, clock = certificate(tmp_path / "a"), certificate(tmp_path / "b"), FakeClock()
    renewed = ReloadingCredentials(files, clock)
    files.cert.write_bytes(other.cert.read_bytes())
    assert not renewed.reload_if_changed()
    clock.stall(REPLACEMENT_TIMEOUT / 2)
    assert not renewed.reload_if_changed() and not caplog.records
    files.key.write_bytes(other.key.read_bytes())
    assert renewed.reload_if_changed() and renewed.current.cert == other.cert.read_bytes()
