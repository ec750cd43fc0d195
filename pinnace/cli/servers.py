"""Finding the server: where it is said to be, and whether anybody answers there. Needs no gRPC, and so is quick."""

import asyncio
from contextlib import suppress

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.client.config import HINT, ClientConfig, ConfigError, load, unusable
from pinnace.client.connection import NO_ANSWER, probe
from pinnace.runtime.tls import TlsFiles, Unusable

CERTIFICATES = (
    "name the cluster's certificates in the configuration (see PINNACE_CONFIG), or make them with `pinnace pki`; "
    "`pinnace doctor` looks into those that there are"
)

BETTER = (
    (
        "does not speak TLS",
        "name the address of an API server: the first that `pinnace status` shows; the second is for probes",
    ),
    ("has expired", "renew it: `pinnace restart` (a local cluster), `pinnace pki` (others); or set this machine's clock"),
    ("not yet valid", "set this machine's clock: it is behind the clock of the machine that created the certificate"),
)
"""What helps when there is no trust and the certificates are not to blame, or not valid now, by what is said of the servers."""


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
    except Unusable as error:
        assert config.tls is not None
        if (ended := _ended(config)) is not None:
            raise ended from None
        why = unusable(config.tls, error)
        raise Failure(f"the certificates cannot be used: {why}", hint=CERTIFICATES, code=ExitCode.USAGE) from None
    attempts = [asyncio.ensure_future(probe(endpoint, secure)) for endpoint in endpoints]
    try:
        for attempt in asyncio.as_completed(attempts):
            if await attempt is None:
                return
    finally:
        for task in attempts:
            task.cancel()
    met = [trouble for task in attempts if (trouble := task.result()) is not None]
    if (ended := _ended(config)) is not None and not any(trouble.distrust for trouble in met):
        raise ended
    tried = ", ".join(f"{endpoint} ({trouble.what})" for endpoint, trouble in zip(endpoints, met, strict=True))
    hint = _trust(tried) if all(trouble.distrust for trouble in met) else _way_out(config, tried)
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


def _trust(tried: str) -> str:
    """When somebody listens, but the certificates will not do."""
    return next((hint for said, hint in BETTER if said in tried), CERTIFICATES)


def _ended(config: ClientConfig) -> Failure | None:
    """That the local cluster of this configuration is gone, or that no process of it runs. None: neither, or not known."""
    from pinnace.cluster.errors import FolderError  # only now: what works must be quick
    from pinnace.cluster.folder import Folder
    from pinnace.cluster.processes import running
    from pinnace.cluster.spec import data_dir_flag

    if (data_dir := config.data_dir) is None:
        return None
    try:
        state = Folder(data_dir).read()
    except FolderError:
        return None
    where = data_dir_flag(data_dir)
    if state is None:
        hint = f"start one with `pinnace up{where}`, or choose another context: `pinnace config get-contexts` lists them"
        return Failure(f"no cluster is running at {data_dir}: there is none", hint=hint, code=ExitCode.UNAVAILABLE)
    if any(map(running, state.processes)) or set(config.endpoints).isdisjoint(state.endpoints):
        return None
    how = "it was stopped" if state.stopped else f"all of its {len(state.processes)} processes have ended"
    hint = f"start it with `pinnace start{where}`: its objects are still there"
    return Failure(f"no cluster is running at {data_dir}: {how}", hint=hint, code=ExitCode.UNAVAILABLE)


def _way_out(config: ClientConfig, tried: str) -> str:
    """When no API server answers."""
    from pinnace.cluster.errors import FolderError  # only now: what works must be quick
    from pinnace.cluster.folder import Folder
    from pinnace.cluster.processes import running
    from pinnace.cluster.spec import APISERVER, data_dir_flag

    data_dir, state = config.data_dir, None
    if data_dir is not None:
        with suppress(FolderError):
            state = Folder(data_dir).read()
    if data_dir is None or state is None or set(config.endpoints).isdisjoint(state.endpoints):
        return HINT
    where = data_dir_flag(data_dir)
    if NO_ANSWER in tried and (stuck := [process.pid for record in state.of(APISERVER) if (process := running(record))]):
        pids = " ".join(map(str, stuck))
        return (
            f"the API servers run but do not answer in time: `pinnace doctor{where}` finds the cause. If they are frozen, "
            f"`kill -9 {pids}` and then `pinnace start{where}`"
        )
    return f"start its processes again with `pinnace start{where}`; `pinnace status{where}` shows which run"
