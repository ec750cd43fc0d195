"""Certificates for tests."""

from datetime import UTC, datetime
from pathlib import Path

from pinnace.pki import Subject
from pinnace.pki.folder import CertificateSpec, PkiFolder


def certificates(path: Path, *hosts: str, made: datetime | None = None) -> PkiFolder:
    """A folder with a CA and two certificates that it issued: `server`, valid for the hosts, and `client`.

    `made`: the time of issue, by default now.
    """
    folder = PkiFolder(path)
    folder.provide(
        [CertificateSpec("server", Subject("server"), hosts), CertificateSpec("client", Subject("client"))],
        made or datetime.now(UTC),
    )
    return folder
