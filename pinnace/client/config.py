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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinnace.api.naturals import natural
from pinnace.runtime import filelock
from pinnace.runtime.tls import TlsFiles

_PLAIN = "http://"
HINT = "start a local cluster with `pinnace up`, or name an API server with --server HOST:PORT"
DEFAULT_PORT = 7443
EXTENSION = "pinnace"


class ConfigError(Exception):
    """The configuration cannot be used; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint


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
    document = _read(path)
    if named and not (context or document.get("current-context")):
        return ClientConfig(parse_endpoints(named))
    return _in_context(document, context, path, named)


def _in_context(document: Mapping[str, Any], context: str | None, path: Path, named: str) -> ClientConfig:
    """`named`: the servers instead of the context's, or ""."""
    name = context or document.get("current-context", "")
    if not name:
        known = [str(each.get("name")) for each in _entries(document, "contexts")]
        if not known:
            raise ConfigError(f"no cluster is configured: {path} has no contexts")
        raise ConfigError(f"{path}: there is no current-context", f"choose one with --context: {', '.join(known)}")
    entry = _named(document, "contexts", "context", name, path)
    cluster = _named(document, "clusters", "cluster", entry.get("cluster", ""), path)
    servers = named or cluster.get("server")
    if not isinstance(servers, str):
        raise ConfigError(f'{path}: cluster "{entry.get("cluster")}" has no server')
    tls = None
    if "certificate-authority" in cluster and not servers.startswith(_PLAIN):
        user = _named(document, "users", "user", entry.get("user", ""), path)
        ca = _path(cluster, "certificate-authority", path)
        if token := _token(user, path):
            tls = TlsFiles(ca, token=token)
        else:
            tls = TlsFiles(ca, _path(user, "client-certificate", path), _path(user, "client-key", path))
    return ClientConfig(parse_endpoints(servers), entry.get("namespace") or "default", _data_dir(cluster), tls)


def _token(user: Mapping[str, Any], path: Path) -> str:
    """The bearer token of the user, from the file that is named, or as it stands there; "" when there is none."""
    if "tokenFile" not in user:
        return str(user.get("token") or "")
    try:
        return _path(user, "tokenFile", path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the token cannot be read: {error}", f"repair {path}") from None


def _path(entry: Mapping[str, Any], key: str, path: Path) -> Path:
    """A file that is named there. Raises ConfigError."""
    named = entry.get(key)
    if not isinstance(named, str) or not named:
        instead = f" (`{key}-data` is not supported: name a file)" if f"{key}-data" in entry else ""
        raise ConfigError(f"{path}: {key} is missing{instead}", f"repair {path}")
    return path.parent / named


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file that is read and written: $PINNACE_CONFIG, or the user's."""
    if named := environ.get("PINNACE_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "pinnace" / "config"


def parse_endpoints(text: str) -> tuple[str, ...]:
    """ "https://a:7443,b" is ("a:7443", "b:7443"). Raises ConfigError."""
    endpoints = tuple(_endpoint(part.strip()) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ConfigError(f'"{text}" names no API server')
    return endpoints


def write_context(
    name: str,
    config: ClientConfig,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Adds or replaces cluster, user and context `name`, makes it the current one, and keeps all others. The path of the file:
    `file`, or else the one that is read without it."""
    path = file or config_path(environ)
    cluster: dict[str, Any] = {"server": ",".join(config.endpoints)}
    user: dict[str, Any] = {}
    if config.tls is not None:
        cluster["certificate-authority"] = str(config.tls.ca)
        if config.tls.token:
            user = {"token": config.tls.token}
        else:
            user = {"client-certificate": str(config.tls.cert), "client-key": str(config.tls.key)}
    if config.data_dir is not None:
        cluster["extensions"] = [{"name": EXTENSION, "extension": {"dataDir": str(config.data_dir)}}]
    with _locked(path):
        document = _found(path) or {"apiVersion": "v1", "kind": "Config"}
        _put(document, "clusters", name, {"cluster": cluster})
        _put(document, "users", name, {"user": user})
        _put(document, "contexts", name, {"context": {"cluster": name, "user": name}})
        document["current-context"] = name
        _write(path, document)
    return path


def current_context(*, environ: Mapping[str, str] = os.environ) -> str:
    """The name of the context that is used when none is named; "" when there is none."""
    document = _found(config_path(environ)) or {}
    return str(document.get("current-context") or "")


def remove_context(name: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Removes cluster, user and context `name`, and the file when nothing is left in it; what is not there is no error."""
    path = config_path(environ)
    if not path.exists():
        return
    with _locked(path):
        if (document := _found(path)) is not None:
            _remove(path, document, name)
    if not environ.get("PINNACE_CONFIG"):  # the folder is ours
        with suppress(OSError):  # and something is kept in it
            path.parent.rmdir()


def _remove(path: Path, document: dict[str, Any], name: str) -> None:
    for section in ("clusters", "users", "contexts"):
        document[section] = [entry for entry in _entries(document, section) if entry.get("name") != name]
    if document.get("current-context") == name:
        document["current-context"] = ""
    if any(value for key, value in document.items() if key not in ("apiVersion", "kind")):
        _write(path, document)
    else:
        path.unlink(missing_ok=True)


def _locked(path: Path) -> AbstractContextManager[None]:
    """For as long as the file is read, changed and written: who did so at the same time would undo it. Makes the folder."""
    return filelock.locked(path.with_name(f"{path.name}.lock"))


def _endpoint(text: str) -> str:
    address = text.partition("://")[2] if "://" in text else text
    address = address.rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(DEFAULT_PORT)
    if not host or not 0 < (natural(port) or 0) < 65536 or "/" in address:
        raise ConfigError(f'"{text[:100]}" is not HOST:PORT')
    return f"{host}:{port}"


def _read(path: Path) -> dict[str, Any]:
    document = _found(path)
    if document is None:
        raise ConfigError(f"no cluster to talk to: {path} does not exist")
    return document


def _found(path: Path) -> dict[str, Any] | None:
    """None: there is no file. Raises ConfigError when it is no configuration."""
    import yaml  # 20 ms, which whoever only asks for help does not wait for

    try:
        document = yaml.safe_load(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", f"repair or remove {path}") from None
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise ConfigError(f"{path}: not a client configuration (kind: Config)", f"repair or remove {path}")
    return document


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces the file as a whole: a reader sees the old one or the new one."""
    import tempfile  # few write one

    import yaml

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(dict(document), file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _entries(document: Mapping[str, Any], section: str) -> list[dict[str, Any]]:
    return [entry for entry in document.get(section) or [] if isinstance(entry, dict)]


def _named(document: Mapping[str, Any], section: str, key: str, name: str, path: Path) -> Mapping[str, Any]:
    for entry in _entries(document, section):
        if entry.get("name") == name and isinstance(entry.get(key), dict):
            found: Mapping[str, Any] = entry[key]
            return found
    known = ", ".join(str(entry.get("name")) for entry in _entries(document, section)) or "none"
    raise ConfigError(f'{path}: there is no {key} "{name}" (known: {known})')


def _put(document: dict[str, Any], section: str, name: str, value: Mapping[str, Any]) -> None:
    others = [entry for entry in _entries(document, section) if entry.get("name") != name]
    document[section] = [*others, {"name": name, **value}]


def _data_dir(cluster: Mapping[str, Any]) -> Path | None:
    for entry in _entries(cluster, "extensions"):
        extension = entry.get("extension")
        if entry.get("name") == EXTENSION and isinstance(extension, dict) and extension.get("dataDir"):
            return Path(extension["dataDir"])
    return None
