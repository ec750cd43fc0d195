"""Tokens of people, from a file: one a line, as kube-apiserver's --token-auth-file.

    token,user,uid[,"group1,group2"]

The file is read again when it has changed. A line is for itself, whatever quotes it lacks: one that cannot be used is logged by
its number (never by what it says), and the others count. A file that cannot be read leaves everything as it was.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
"""

import csv
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from apiserver.auth.user import AUTHENTICATED, User
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0
"""Seconds between two looks at the file."""


class TokenFile:
    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError when the file cannot be read to begin with."""
        self._path = path
        self._clock = clock
        self._looked = clock.monotonic()
        self._stamp = self._look()
        self._users = _read(path)

    def user(self, token: str) -> User | None:
        """Whose token it is."""
        if (now := self._clock.monotonic()) - self._looked >= CHECK_INTERVAL:
            self._looked = now
            self._refresh()
        return self._users.get(_digest(token))

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp, self._users = stamp, _read(self._path)
                log.info("%s has changed: %d tokens", self._path, len(self._users))
        except OSError as error:
            log.error("%s cannot be read, going on with what it was: %s", self._path, error)

    def _look(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino


def _read(path: Path) -> Mapping[bytes, User]:
    """Users by the digest of their token: how long it takes to find one tells nothing about the others."""
    users: dict[bytes, User] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            row = _fields(line)
            if len(row) not in (3, 4) or not row[0] or not row[1]:
                log.error('%s, line %d: expected token,user,uid or token,user,uid,"group1,group2"', path, number)
                continue
            groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) == 4 else ()
            if _digest(row[0]) in users:
                log.error("%s, line %d: this token has been given to another user before", path, number)
                continue
            users[_digest(row[0])] = User(row[1], (*groups, AUTHENTICATED))
    return users


def _fields(line: str) -> list[str]:
    """None, of a line whose quotes do not match: read together, the next line would be the rest of its groups."""
    try:
        return next(csv.reader([line], skipinitialspace=True, strict=True), [])
    except csv.Error:
        return []


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
