"""The HTTP of probes and hooks: one GET, from its first byte to the status of its answer; and connections.

Redirects to the same host, at whatever port, are followed, ten requests in all; one that leads elsewhere, be it to an app, is
the answer. Headers of the action take the place of those sent otherwise, in whatever case they are written, and an empty one
takes it away.
Source: Kubernetes, pkg/probe/http
"""

import asyncio
import os
import ssl
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from pinnace.api.core_v1_pb2 import HTTPGetAction, HTTPHeader

REDIRECTS = 10
_FOLLOWED = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_PLAIN = "/%:@!$&'()*+,;=~"
"""What is sent of a path as it is, beside letters and digits: what is escaped already stays so."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL makes of an answer in HTTP: which of them depends on its version."""


class Failed(Exception):
    """The message says how."""


class NotTLS(Failed):
    """The server was asked over TLS, and its answer is none: it may be plain HTTP."""


class _Place(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    """With its query."""

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The path as it is sent: without its fragment, and what may not stand in a request's first line is escaped."""
        path, mark, query = self.path.partition("#")[0].partition("?")
        return f"{quote(path, _PLAIN)}{mark}{quote(query, f'{_PLAIN}?')}"

    def towards(self, location: str) -> "_Place | None":
        """Where a redirect leads; None: to another host. Raises ValueError."""
        found = urlsplit(urljoin(f"{self.scheme}://{self.authority}{self.path}", location))
        if found.hostname != self.host.lower():
            return None
        if found.scheme not in _PORTS:
            raise ValueError(f"unsupported protocol scheme {found.scheme}")
        path = (found.path or "/") + (f"?{found.query}" if found.query else "")
        return _Place(found.scheme, found.hostname, found.port or _PORTS[found.scheme], path)


async def get(action: HTTPGetAction, host: str, agent: str) -> int:
    """The status. `agent`: "probe", or what else asks. Raises Failed, OSError."""
    place = _Place((action.scheme or "http").lower(), host, action.port.intVal, f"/{action.path.lstrip('/')}")
    for _ in range(REDIRECTS):
        try:
            status, location = await _ask(place, action.httpHeaders, agent)
            if status not in _FOLLOWED or not location:
                return status
            there = place.towards(location)
        except ssl.SSLError as error:
            raise _told(error) from None
        except ValueError as error:  # a line without an end, or an address that is none
            raise Failed(f"malformed HTTP response: {error}") from None
        if there is None:
            return status
        place = there
    raise Failed(f"stopped after {REDIRECTS} redirects")


async def connect(
    host: str, port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises Failed, TimeoutError, ssl.SSLError."""
    try:
        return await asyncio.open_connection(host, port, ssl=context)
    except (TimeoutError, ssl.SSLError):  # the latter's errno is OpenSSL's: as one of the system it would say something else
        raise
    except UnicodeError:  # it cannot be a name: an empty label, or one that is too long
        raise Failed(f"dial tcp: lookup {host[:253]}: no such host") from None
    except OSError as error:
        why = f"connect: {os.strerror(error.errno).lower()}" if error.errno else str(error)
        raise Failed(f"dial tcp {host}:{port}: {why}") from None


def _told(error: ssl.SSLError) -> Failed:
    if error.reason in _NOT_TLS:
        return NotTLS("tls: first record does not look like a TLS handshake")
    return Failed(f"tls: {(error.reason or str(error)).replace('_', ' ').lower()}")


async def _ask(place: _Place, headers: Iterable[HTTPHeader], agent: str) -> tuple[int, str]:
    """The status, and where it redirects to. Raises ValueError too."""
    context = _trusts_everybody() if place.scheme == "https" else None
    lines = [f"GET {place.target} HTTP/1.1", *_headers(place, headers, agent), "", ""]
    reader, writer = await connect(place.host, place.port, context)
    try:
        writer.write("\r\n".join(lines).encode())
        version, _, rest = (await reader.readline()).partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/") or not status.isdigit():
            raise Failed("malformed HTTP response")
        return int(status), await _location(reader) if int(status) in _FOLLOWED else ""
    finally:
        writer.close()


def _headers(place: _Place, given: Iterable[HTTPHeader], agent: str) -> list[str]:
    usual = {"Host": place.authority, "User-Agent": f"kube-{agent}/1.36", "Accept": "*/*", "Connection": "close"}
    own = [(each.name.title(), each.value) for each in given if each.value or each.name.lower() != "host"]
    replaced = {name for name, _ in own}
    sent = [*((name, usual[name]) for name in usual if name not in replaced), *own]
    return [f"{name}: {value}" for name, value in sent if value or name not in usual]


async def _location(reader: asyncio.StreamReader) -> str:
    while line := (await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"location":
            return value.strip().decode(errors="replace")
    return ""


@cache
def _trusts_everybody() -> ssl.SSLContext:
    """Whose certificate it is does not matter, as with Kubernetes. (A default context reads whom the machine trusts: 20 ms.)"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
