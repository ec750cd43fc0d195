"""The configuration of the client, and the check that an API server is reachable. It does not import gRPC, and is therefore
fast."""

import asyncio
from contextlib import suppress

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.settings import Settings
from pinnace.client.config import HINT, ClientConfig, ConfigError, describe_unusable_file, load_config
from pinnace.client.connection import NO_ANSWER, probe_server
from pinnace.runtime.tls import TlsFiles, UnusableFile

CERTIFICATES = (
    "set the certificates of the cluster in the kubeconfig, or create them with `pinnace pki`; "
    "`pinnace doctor` checks the existing ones"
)

HINTS_BY_ERROR = (
    (
        "does not speak TLS",
        "use the first address that `pinnace status` shows for an API server; the second one is for health checks",
    ),
    (
        "has expired",
        "renew it with `pinnace restart` (local cluster) or `pinnace pki` (others), or correct the clock of this machine",
    ),
    ("not yet valid", "correct the clock of this machine: it is behind the clock of the machine that created the certificate"),
)
"""Hints for TLS errors with another cause than untrusted certificates, by the text of the error."""


def load_configuration(settings: Settings, *, can_impersonate: bool = False) -> ClientConfig:
    """Load the addresses and certificates of the API servers; see `load`. Raises Failure."""
    try:
        return load_config(settings.server, context=settings.context, file=settings.kubeconfig, can_impersonate=can_impersonate)
    except ConfigError as error:
        code = ExitCode.USAGE if settings.server or settings.context else ExitCode.UNAVAILABLE
        raise Failure(str(error), hint=error.hint, code=code) from None


async def connect_to_any_server(config: ClientConfig) -> None:
    """Return when any API server accepts a connection. Raises Failure with all addresses and a hint if none does.
    This check precedes all requests, because the client library retries without limit, while a user needs an immediate error.
    """
    endpoints = config.endpoints
    try:
        secure = config.tls.create_ssl_context() if config.tls is not None else None
    except UnusableFile as error:
        assert config.tls is not None
        if (ended := _stopped_cluster_error(config)) is not None:
            raise ended from None
        why = describe_unusable_file(config.tls, error)
        raise Failure(f"the certificates cannot be used: {why}", hint=CERTIFICATES, code=ExitCode.USAGE) from None
    attempts = [asyncio.ensure_future(probe_server(endpoint, secure)) for endpoint in endpoints]
    try:
        for attempt in asyncio.as_completed(attempts):
            if await attempt is None:
                return
    finally:
        for task in attempts:
            task.cancel()
    met = [trouble for task in attempts if (trouble := task.result()) is not None]
    if (ended := _stopped_cluster_error(config)) is not None and not any(trouble.distrust for trouble in met):
        raise ended
    tried = ", ".join(f"{endpoint} ({trouble.what})" for endpoint, trouble in zip(endpoints, met, strict=True))
    hint = _untrusted_hint(tried) if all(trouble.distrust for trouble in met) else _unreachable_hint(config, tried)
    raise Failure(f"no API server answers at {tried}", hint=hint, code=ExitCode.UNAVAILABLE)


async def get_server_version(endpoint: str, tls: TlsFiles | None, timeout: float) -> str:
    """Return the version of the server. Raises ApiError, and OSError if the certificates cannot be used."""
    from pinnace.api.version_pb2 import GetVersionRequest, VersionInfo  # imports gRPC
    from pinnace.client.connection import Connection

    connection = Connection([endpoint], tls=tls)
    try:
        answer = await connection.call("/pinnace.v1.Version/Get", GetVersionRequest(), VersionInfo, timeout=timeout)
        return answer.version
    finally:
        await connection.close()


def _untrusted_hint(tried: str) -> str:
    """Return the hint for servers that are reachable but not trusted."""
    return next((hint for said, hint in HINTS_BY_ERROR if said in tried), CERTIFICATES)


def _stopped_cluster_error(config: ClientConfig) -> Failure | None:
    """Return the error if the local cluster of this configuration does not exist or has no running process; otherwise None."""
    from pinnace.cluster.errors import FolderError  # only needed for errors
    from pinnace.cluster.folder import ClusterFolder
    from pinnace.cluster.processes import find_running
    from pinnace.cluster.spec import data_dir_flag

    if (data_dir := config.data_dir) is None:
        return None
    try:
        state = ClusterFolder(data_dir).read()
    except FolderError:
        return None
    where = data_dir_flag(data_dir)
    if state is None:
        hint = f"start one with `pinnace up{where}`, or choose another context: `kubectl config get-contexts` lists them"
        return Failure(f"no cluster is running at {data_dir}: it does not exist", hint=hint, code=ExitCode.UNAVAILABLE)
    if any(map(find_running, state.processes)) or set(config.endpoints).isdisjoint(state.endpoints):
        return None
    how = "it is stopped" if state.stopped else f"all of its {len(state.processes)} processes have exited"
    hint = f"start it with `pinnace start{where}`; its objects are kept"
    return Failure(f"no cluster is running at {data_dir}: {how}", hint=hint, code=ExitCode.UNAVAILABLE)


def _unreachable_hint(config: ClientConfig, tried: str) -> str:
    """Return the hint for servers that do not respond."""
    from pinnace.cluster.errors import FolderError  # only needed for errors
    from pinnace.cluster.folder import ClusterFolder
    from pinnace.cluster.processes import find_running
    from pinnace.cluster.spec import APISERVER, data_dir_flag

    data_dir, state = config.data_dir, None
    if data_dir is not None:
        with suppress(FolderError):
            state = ClusterFolder(data_dir).read()
    if data_dir is None or state is None or set(config.endpoints).isdisjoint(state.endpoints):
        return HINT
    where = data_dir_flag(data_dir)
    if NO_ANSWER in tried and (
        stuck := [process.pid for record in state.processes_of(APISERVER) if (process := find_running(record))]
    ):
        pids = " ".join(map(str, stuck))
        return (
            f"the API servers are running but do not respond in time: `pinnace doctor{where}` finds the "
            f"cause. If they are suspended, run `kill -9 {pids}`, then `pinnace start{where}`"
        )
    return f"restart the processes with `pinnace start{where}`; `pinnace status{where}` shows the running ones"
