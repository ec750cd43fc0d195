"""Finding the server: where it is said to be, and whether anybody answers there. Needs no gRPC, and so is quick."""

import asyncio
import os
import re
import ssl
from contextlib import suppress
from dataclasses import dataclass

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.client.config import ClientConfig, load
from pinnace.client.kubeconfig import HINT, ConfigError
from pinnace.runtime.tls import TlsFiles

CONNECT_TIMEOUT = 2.0
CERTIFICATES = (
    "name the cluster's certificates in the configuration (see PINNACE_CONFIG), or make them with `pinnace pki`; "
    "`pinnace doctor` looks into those that there are"
)


def configuration(settings: Settings) -> ClientConfig:
    """Where the API servers are. Raises Failure."""
    try:
        return load(settings.server, context=settings.context)
    except ConfigError as error:
        code = ExitCode.USAGE if settings.server or settings.context else ExitCode.UNAVAILABLE
        raise Failure(str(error), hint=error.hint, code=code) from None


async def reach(config: ClientConfig) -> None:
    """Returns once any API server accepts a connection. Raises Failure when none does: it names them all and the way out.

    Asked before anything else, because the client library would go on trying, as a component must; a person wants to know.
    """
    endpoints = config.endpoints
    try:
        secure = config.tls.context() if config.tls is not None else None
    except OSError as error:
        raise Failure(f"the certificates cannot be used: {error}", hint=CERTIFICATES, code=ExitCode.USAGE) from None
    attempts = [asyncio.ensure_future(_accepts(endpoint, secure)) for endpoint in endpoints]
    try:
        for attempt in asyncio.as_completed(attempts):
            if await attempt is None:
                return
    finally:
        for task in attempts:
            task.cancel()
    met = [trouble for task in attempts if (trouble := task.result()) is not None]
    tried = ", ".join(f"{endpoint} ({trouble.what})" for endpoint, trouble in zip(endpoints, met, strict=True))
    hint = CERTIFICATES if all(trouble.distrust for trouble in met) else _way_out(config)
    raise Failure(f"no API server answers at {tried}", hint=hint, code=ExitCode.UNAVAILABLE)


async def version_of(endpoint: str, tls: TlsFiles | None, timeout: float) -> str:
    """Which build serves there. Raises ApiError, and OSError when the certificates cannot be used."""
    from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo  # with gRPC: only when there is a server to ask
    from pinnace.client.connection import Connection

    connection = Connection([endpoint], tls=tls)
    try:
        answer = await connection.call("/pinnace.v1.Version/Get", GetVersionRequest(), VersionInfo, timeout=timeout)
        return answer.version
    finally:
        await connection.close()


def _way_out(config: ClientConfig) -> str:
    """When no API server answers."""
    from pinnace.cluster.errors import FolderError  # only now: what works must be quick
    from pinnace.cluster.folder import Folder
    from pinnace.cluster.spec import default_data_dir

    data_dir, state = config.data_dir, None
    if data_dir is not None:
        with suppress(FolderError):
            state = Folder(data_dir).read()
    if state is None or set(config.endpoints).isdisjoint(state.endpoints):
        return HINT
    where = "" if data_dir == default_data_dir() else f" --data-dir {data_dir}"
    return f"start its processes again with `pinnace restart{where}`; `pinnace status{where}` shows which run"


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there is no connection. `distrust`: somebody listens, but one of the two does not like the other's certificate."""

    what: str
    distrust: bool = False


async def _accepts(endpoint: str, secure: ssl.SSLContext | None) -> _Trouble | None:
    """None, or why there is no connection. A server speaks first: so we hear what it has against our certificate, too."""
    host, _, port = endpoint.rpartition(":")
    connected = False
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=secure)
            connected = True
            try:
                if not await reader.read(1):
                    shown = "it does not trust our certificate" if secure else "it wants TLS"
                    return _Trouble(f"it hangs up: {shown}", distrust=True)
            finally:
                writer.transport.abort()
    except TimeoutError:
        plain = connected and not secure
        return _Trouble(f"no answer{' without TLS' if plain else ''} in {CONNECT_TIMEOUT:.0f} s", distrust=plain)
    except UnicodeError:  # it cannot be a name: an empty label, or one that is too long
        return _Trouble("no such host")
    except OSError as error:
        return _Trouble(_why(error), distrust=isinstance(error, ssl.SSLError))
    return None


def _why(error: OSError) -> str:
    """ "connection refused": what the operating system says, whichever of the host's addresses were tried; or why there is no
    trust."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return (os.strerror(int(number[1])) if number else error.strerror or str(error)).lower()
