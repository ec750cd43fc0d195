"""Certificates for tests."""

from datetime import UTC, datetime
from pathlib import Path

from pinnace.pki import Subject
from pinnace.pki.folder import Folder, Wanted


def certificates(path: Path, *hosts: str) -> Folder:
    """A folder with a CA, and of it: `server`, found at the hosts, and `client`."""
    folder = Folder(path)
    folder.provide([Wanted("server", Subject("server"), hosts), Wanted("client", Subject("client"))], datetime.now(UTC))
    return folder
