"""Ids of calls. That of a call is in the audit log (auditID), in the lines of the log that were written on its behalf, and in
the trailers that its caller gets: so that a bug that somebody met, or a write that nobody knows the end of, can be looked up.

A caller may choose it, in the metadata `x-request-id`, as with Kubernetes' Audit-ID; what it chooses need not be unique.
"""

import re
from collections.abc import Iterable
from itertools import count

from pinnace.api.wellknown import REQUEST_ID_KEY

_SOUND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,63}")


class RequestIds:
    """`server`: a name that no other server has, nor the same one after a restart."""

    def __init__(self, server: str) -> None:
        self._prefix = f"{server}-"
        self._calls = count(1)

    def of(self, metadata: Iterable[tuple[str, str | bytes]]) -> str:
        """The caller's own, if it is at most 64 characters that harm neither a log nor a shell; else a new one."""
        for key, value in metadata:
            if key == REQUEST_ID_KEY and isinstance(value, str) and _SOUND.fullmatch(value):
                return value
        return f"{self._prefix}{next(self._calls)}"
