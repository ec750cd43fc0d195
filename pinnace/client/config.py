"""Where the API servers are, and how one shows them who one is: the client's configuration, in the kubeconfig format.

The servers are looked for in this order: the argument (`--server`), a context that is named (`--context`), $PINNACE_SERVER,
and the current context. The file is the argument (`--kubeconfig`), $PINNACE_CONFIG, or the user's
($XDG_CONFIG_HOME/pinnace/config, by default ~/.config/pinnace/config). Servers that are named replace only those of the
context: all else is as the context has it, as with kubectl. `server` of a cluster may name several API servers, separated by
commas; with the scheme http:// there is no TLS.

    apiVersion: v1
    kind: Config
    clusters: [{name: pinnace, cluster: {server: "127.0.0.1:7443,127.0.0.1:7444", certificate-authority: ca.crt}}]
    contexts: [{name: pinnace, context: {cluster: pinnace, user: pinnace}}]
    users: [{name: pinnace, user: {client-certificate: admin.crt, client-key: admin.key}}]
    current-context: pinnace

A user may have a `token` or a `tokenFile` instead of a certificate; its `server` is then where the API servers take tokens.
Paths are relative to the file. A cluster without `certificate-authority` is talked to without TLS.

A cluster that `pinnace up` started has `extensions`: [{name: pinnace, extension: {dataDir: ...}}] that say where it lives.
Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinnace.api.naturals import natural
from pinnace.client.kubeconfig import ConfigError, config_path, entries, entry, names, read
from pinnace.runtime.tls import TlsFiles, Unusable

_PLAIN = "http://"
DEFAULT_PORT = 7443
EXTENSION = "pinnace"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    endpoints: tuple[str, ...]
    """ "host:port" of each API server."""
    namespace: str = "default"
    data_dir: Path | None = None
    """Of a local cluster that `pinnace up` started."""
    tls: TlsFiles | None = None
    """None: without TLS."""


def load(
    server: str | None = None,
    *,
    context: str | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Raises ConfigError."""
    named = server or ("" if context else environ.get("PINNACE_SERVER", ""))
    path = file or config_path(environ)
    if named and not (file or context or path.exists()):
        return ClientConfig(parse_endpoints(named))
    document = read(path)
    if named and not (context or document.get("current-context")):
        return ClientConfig(parse_endpoints(named))
    return _in_context(document, context, path, named)


def _in_context(document: Mapping[str, Any], context: str | None, path: Path, named: str) -> ClientConfig:
    """`named`: the servers instead of the context's, or ""."""
    name = context or document.get("current-context", "")
    if not name:
        known = names(document, "context")
        if not known:
            raise ConfigError(f"no cluster is configured: {path} has no contexts")
        raise ConfigError(f"{path}: there is no current-context", f"choose one with --context: {', '.join(known)}")
    chosen = entry(document, "context", name, path)
    cluster = entry(document, "cluster", chosen.get("cluster", ""), path)
    servers = named or cluster.get("server")
    if not isinstance(servers, str):
        raise ConfigError(f'{path}: cluster "{chosen.get("cluster")}" has no server')
    tls = None
    if "certificate-authority" in cluster and not servers.startswith(_PLAIN):
        user = entry(document, "user", chosen.get("user", ""), path)
        ca = _path(cluster, "certificate-authority", path)
        if token := _token(user, path):
            tls = TlsFiles(ca, token=token)
        else:
            tls = TlsFiles(ca, _path(user, "client-certificate", path), _path(user, "client-key", path))
    return ClientConfig(parse_endpoints(servers), chosen.get("namespace") or "default", data_dir_of(cluster, path), tls)


def _token(user: Mapping[str, Any], path: Path) -> str:
    """The bearer token of the user, from the file that is named, or as it stands there; "" when there is none."""
    if "tokenFile" not in user:
        return str(user.get("token") or "")
    try:
        return _path(user, "tokenFile", path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the token cannot be read: {error}", f"repair {path}") from None


def _path(where: Mapping[str, Any], key: str, path: Path) -> Path:
    """A file that is named there. Raises ConfigError."""
    named = where.get(key)
    if not isinstance(named, str) or not named:
        instead = f" (`{key}-data` is not supported: name a file)" if f"{key}-data" in where else ""
        raise ConfigError(f"{path}: {key} is missing{instead}", f"repair {path}")
    return path.parent / named


def unusable(tls: TlsFiles, error: Unusable) -> str:
    """Which file is the reason why `tls` cannot be used, also by its key in the configuration, and what is wrong with it."""
    keys = {tls.ca: "certificate-authority", tls.cert: "client-certificate", tls.key: "client-key"}
    return f"{keys[error.path]} {error}"


def parse_endpoints(text: str) -> tuple[str, ...]:
    """ "https://a:7443,b" is ("a:7443", "b:7443"). Raises ConfigError."""
    endpoints = tuple(_endpoint(part.strip()) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ConfigError(f'"{text}" names no API server')
    return endpoints


def _endpoint(text: str) -> str:
    address = text.partition("://")[2] if "://" in text else text
    address = address.rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(DEFAULT_PORT)
    if not host or not 0 < (natural(port) or 0) < 65536 or "/" in address:
        raise ConfigError(f'"{text[:100]}" is not HOST:PORT')
    return f"{host}:{port}"


def data_dir_of(cluster: Mapping[str, Any], path: Path) -> Path | None:
    """Of a cluster of the file `path`; None: it is no local one."""
    for each in entries(cluster, "extension"):
        extension = each.get("extension")
        if each.get("name") == EXTENSION and isinstance(extension, dict) and extension.get("dataDir"):
            named = Path(extension["dataDir"])
            return named if named.is_absolute() else (path.parent / named).resolve()
    return None
