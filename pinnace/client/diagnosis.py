"""Why there is no connection to a server. Needs no gRPC, which does not say; so it asks by a connection of its own.

Guarantees: connecting never waits for it. Does not promise that what it found is still so: it is as old as PAUSE, at the most,
and as long as a probe takes.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

TIMEOUT = 2.0
"""Seconds that a server is given to accept a connection, and to speak."""
AFTER = 2.0
"""Seconds without a connection after which the servers are asked why."""
SILENT = "no answer"
"""How it is said that a server takes connections, and nothing more."""
PAUSE = 5.0
"""Seconds from one such look to the next."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no connection. `distrust`: somebody listens, but one of the two does not like the other's certificate."""

    what: str
    distrust: bool = False


class Diagnosis:
    """Of all servers that one client knows."""

    def __init__(self, endpoints: Sequence[str], secure: Callable[[], ssl.SSLContext] | None) -> None:
        """`secure` makes a context of the certificates as they are when it is called, or raises OSError; None: no TLS."""
        self._endpoints = endpoints
        self._secure = secure
        self._since: float | None = None
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._found: dict[str, str] = {}

    @property
    def servers(self) -> str:
        """All of them, each with what is known to be wrong with it: "a:1 (connection refused), b:1"."""
        return ", ".join(f"{each} ({self._found[each]})" if each in self._found else each for each in self._endpoints)

    def failed(self) -> None:
        """A server could not be reached."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif self._looking is None and now - self._since >= AFTER and now - self._looked >= PAUSE:
            self._looked = now
            self._looking = asyncio.create_task(self._look())

    def over(self) -> None:
        """One was reached."""
        if self._since is not None:
            self._since = None
            self._found = {}
            self._stop()

    def close(self) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        with suppress(OSError):  # whoever connects goes on with the certificates that there were
            secure = self._secure() if self._secure is not None else None
            met = await asyncio.gather(*(probe(endpoint, secure) for endpoint in self._endpoints))
            self._found = {each: wrong.what for each, wrong in zip(self._endpoints, met, strict=True) if wrong is not None}
        self._looking = None  # who is stopped does not come here


async def probe(endpoint: str, secure: ssl.SSLContext | None) -> Trouble | None:
    """None, or why there is no connection. A server speaks first: so we hear what it has against our certificate, too."""
    host, _, port = endpoint.rpartition(":")
    connected = False
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=secure)
            connected = True
            try:
                if not await reader.read(1):
                    shown = "it does not trust our certificate" if secure else "it wants TLS"
                    return Trouble(f"it hangs up: {shown}", distrust=True)
            finally:
                writer.transport.abort()
    except TimeoutError:
        plain = connected and not secure
        return Trouble(f"{SILENT}{' without TLS' if plain else ''} in {TIMEOUT:.0f} s", distrust=plain)
    except UnicodeError:  # it cannot be a name: an empty label, or one that is too long
        return Trouble("no such host")
    except OSError as error:
        return Trouble(_why(error), distrust=isinstance(error, ssl.SSLError))
    except (ValueError, OverflowError):  # after OSError: errors of certificates are of both kinds
        return Trouble("no such port")
    return None


def _why(error: OSError) -> str:
    """ "connection refused": what the operating system says, whichever of the host's addresses were tried; or why there is no
    trust."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return (os.strerror(int(number[1])) if number else error.strerror or str(error)).lower()
