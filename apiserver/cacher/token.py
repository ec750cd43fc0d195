"""Continue tokens: where a list goes on, and of which snapshot.

Opaque to clients, the same on all servers. A token says revision, query and last key; it is no secret and no permission: a
forged one reads nothing that a list could not read.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Self

from apiserver.cacher.errors import BadToken
from apiserver.cacher.selection import Selection
from pinnace.api.naturals import natural

MAX_LENGTH = 2048
_HINT = "pass the token as it was given, with the selectors of the list that it belongs to"


@dataclass(frozen=True, slots=True)
class Token:
    """The next page begins after the key `after`, at `revision`."""

    revision: int
    after: str

    def encode(self, selection: Selection) -> str:
        text = f"{self.revision} {selection.digest} {self.after}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, selection: Selection) -> Self:
        """Raises BadToken, also when the token belongs to another selection."""
        try:
            padded = text[:MAX_LENGTH] + "=" * (-len(text) % 4)
            revision, digest, after = base64.b64decode(padded, b"-_", validate=True).decode().split(" ", 2)
        except (binascii.Error, ValueError):  # a UnicodeError is a ValueError
            raise BadToken(f"the continue token is not one that this API gave out: {_HINT}") from None
        if digest != selection.digest:
            raise BadToken(f"the continue token belongs to another list: {_HINT}")
        number = natural(revision)
        if not number or not after.startswith(selection.prefix):
            raise BadToken(f"the continue token is not one that this API gave out: {_HINT}")
        return cls(number, after)
