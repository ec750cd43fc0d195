"""What callers show, where a test says who they are."""

from typing import NamedTuple

from pinnace.apiserver.auth.authentication import User


class Shown(NamedTuple):
    """A Credential that is whose it says."""

    owner: User

    def user(self) -> User:
        return self.owner
