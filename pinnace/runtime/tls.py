"""Mutual TLS with files that can be replaced while the process runs.

gRPC and ssl are imported when they are used: commands that only read the configuration shall start at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    import ssl

    import grpc

    from pinnace.runtime.clock import Clock

Stamp = tuple[tuple[int, int, int] | None, ...]
"""The state of the files. It changes if a file is replaced, written or made readable. None represents a missing file."""
REPLACEMENT_TIMEOUT = 5.0
"""Seconds within which a certificate and its key must be replaced. They are separate files."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The contents of PEM files: a certificate, its key, and the trusted CA. A client with a token has no certificate and no
    key."""

    ca: bytes
    cert: bytes | None
    key: bytes | None
    token: str = ""

    def for_channel(self) -> grpc.ChannelCredentials:
        import grpc

        credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.cert)
        if not self.token:
            return credentials
        return grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(self.token))

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        import grpc

        return grpc.ssl_server_certificate_configuration([(self.key, self.cert)], self.ca)


class UnusableFile(OSError):
    """The file `path` cannot be read or has invalid content."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: the CA that must have issued the peer's certificate, and the certificate and key of this process. A
    client can use a bearer token instead of a certificate."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)

    def stamp(self) -> Stamp:
        return tuple(_file_stamp(path) for path in (self.ca, self.cert, self.key) if path is not None)

    def create_ssl_context(self) -> ssl.SSLContext:
        """Return an SSL context for HTTP/2 clients other than gRPC's. Raises Unusable if a file cannot be read or the key does
        not match the certificate."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, password="")  # disables the password prompt
        except OSError as error:
            raise self._unusable(error) from None
        context.set_alpn_protocols(["h2"])
        return context

    def read(self) -> Credentials:
        """Read the files. Raises Unusable like `create_ssl_context`, and OSError."""
        self.create_ssl_context()
        cert, key = (path.read_bytes() if path is not None else None for path in (self.cert, self.key))
        return Credentials(self.ca.read_bytes(), cert, key, self.token)

    def _unusable(self, met: OSError) -> UnusableFile:
        """Return an error with the invalid file and the reason, which Python's error does not contain."""
        import ssl

        for path in (path for path in (self.ca, self.cert, self.key) if path is not None):
            try:
                path.read_bytes()
                if path != self.key:
                    ssl.create_default_context(cafile=path)
            except ssl.SSLError:
                return UnusableFile(path, "not a PEM certificate")
            except OSError as error:
                return UnusableFile(path, (error.strerror or str(error)).lower())
        other = isinstance(met, ssl.SSLError) and met.reason == "KEY_VALUES_MISMATCH"
        kind = f"the key of {self.cert}" if other else "a PEM private key without a passphrase"
        return UnusableFile(self.key or self.ca, f"not {kind}")


class ReloadingCredentials:
    """The current content of the files, or their last valid content."""

    def __init__(self, files: TlsFiles, clock: Clock | None = None) -> None:
        """Raises OSError if the files cannot be used."""
        from pinnace.runtime.clock import SYSTEM_CLOCK

        self._files = files
        self._clock = clock or SYSTEM_CLOCK
        self._seen = files.stamp()
        self._unusable: tuple[Stamp, float] | None = None
        """The stamp of the latest invalid files, and the monotonic time at which they were first read."""
        self.current = files.read()

    def reload_if_changed(self) -> bool:
        """Read changed files. Return whether the content is new.

        Invalid files are read again at each call. If they are still invalid after REPLACEMENT_TIMEOUT seconds, the error is
        logged once."""
        stamp = self._files.stamp()
        if stamp == self._seen:
            return False
        try:
            current = self._files.read()
        except OSError as error:
            now = self._clock.monotonic()
            if self._unusable is None or self._unusable[0] != stamp:
                self._unusable = stamp, now
            elif now - self._unusable[1] >= REPLACEMENT_TIMEOUT:
                self._seen = stamp
                _credentials_log().error("%s; continuing with the previous certificates", error)
            return False
        from pinnace.runtime.logs import CertificateReloaded

        self._seen, self.current, self._unusable = stamp, current, None
        file = str(self._files.cert or self._files.ca)
        _credentials_log().info("reloaded the certificate %s", file, extra=CertificateReloaded(file).extra)
        return True


def server_credentials(files: TlsFiles, *, ask: bool = True) -> grpc.ServerCredentials:
    """Return the credentials of a single server; see `shared_port_credentials`. Raises OSError."""
    return shared_port_credentials(files, ask=ask)()


def shared_port_credentials(files: TlsFiles, *, ask: bool = True) -> Callable[[], grpc.ServerCredentials]:
    """Return a factory of credentials for servers that share a port. Each handshake uses the current files. With `ask`, clients
    must present a certificate issued by the CA; without `ask`, no client certificate is requested. Raises OSError."""
    import grpc

    renewed = ReloadingCredentials(files)

    def make() -> grpc.ServerCredentials:
        shown = renewed.current

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            renewed.reload_if_changed()
            if shown is renewed.current:
                return None
            shown = renewed.current
            return shown.for_server()

        return grpc.dynamic_ssl_server_credentials(shown.for_server(), fetch, require_client_authentication=ask)

    return make


def _credentials_log() -> logging.Logger:
    import logging

    return logging.getLogger(__name__)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        result = path.stat()
    except OSError:
        return None
    return result.st_ctime_ns, result.st_size, result.st_ino
