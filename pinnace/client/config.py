"""The client's configuration in the kubeconfig format: API servers and credentials. Contexts can be created,
selected, changed, renamed and deleted.

Servers are taken from the first of: the argument (`--server`), a named context (`--context`), $PINNACE_SERVER, the current
context. The file is the argument (`--kubeconfig`), $PINNACE_CONFIG, or the user's file ($XDG_CONFIG_HOME/pinnace/config, by
default ~/.config/pinnace/config). As with kubectl, `--server` overrides only the servers of the context. The `server` field of
a cluster can list several API servers, separated by commas. The scheme http:// disables TLS.

    apiVersion: v1
    kind: Config
    clusters: [{name: pinnace, cluster: {server: "127.0.0.1:7443,127.0.0.1:7444", certificate-authority: ca.crt}}]
    contexts: [{name: pinnace, context: {cluster: pinnace, user: pinnace}}]
    users: [{name: pinnace, user: {client-certificate: admin.crt, client-key: admin.key}}]
    current-context: pinnace

A user can have a `token` or `tokenFile` instead of a certificate. In this case, the cluster's `server` must be the API servers'
token address. Paths are relative to the file. TLS is disabled for a cluster without `certificate-authority`.

For clusters that `pinnace up` starts, `extensions` contains the data directory: [{name: pinnace, extension: {dataDir: ...}}].
Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pinnace.api.integers import natural
from pinnace.runtime import files
from pinnace.runtime.tls import TlsFiles, Unusable

Kind = Literal["cluster", "user", "context", "extension"]
Document = dict[str, Any]
HINT = "start a local cluster with `pinnace up`, or name an API server with --server HOST:PORT"


class ConfigError(Exception):
    """The configuration is invalid or missing. `hint`: the remedy."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the configuration file: $PINNACE_CONFIG, or the user's file."""
    if named := environ.get("PINNACE_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "pinnace" / "config"


def read(path: Path) -> Document:
    """Read the configuration. Raises ConfigError if it is invalid or the file does not exist."""
    document = found(path)
    if document is None:
        raise ConfigError(f"no configuration has been provided: {path} does not exist")
    return document


def found(path: Path) -> Document | None:
    """Read the configuration. Return None if the file does not exist. Raises ConfigError if it is invalid."""
    from pinnace.api import documents  # the import takes 20 ms, and --help does not need it

    try:
        with path.open(encoding="utf-8") as file:
            read = documents.plain(file.read(documents.MAX_SIZE + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory", "name a file with PINNACE_CONFIG") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", f"repair or remove {path}") from None
    except documents.DocumentError as error:
        raise ConfigError(f"{path}:{error.line}: {error}", f"repair or remove {path}") from None
    document = read[0] if len(read) == 1 else None
    if not isinstance(document, dict) or document.get("kind") != "Config":
        raise ConfigError(f"{path}: not a client configuration (kind: Config)", f"repair or remove {path}")
    return document


def entries(document: Mapping[str, Any], kind: Kind) -> Sequence[Mapping[str, Any]]:
    """Return all entries of a kind. An entry has a `name`, and its value under the name of the kind."""
    return [each for each in document.get(f"{kind}s") or [] if isinstance(each, dict)]


def names(document: Mapping[str, Any], kind: Kind) -> list[str]:
    return [str(each.get("name")) for each in entries(document, kind)]


def entry(document: Mapping[str, Any], kind: Kind, name: str, path: Path) -> Mapping[str, Any]:
    """Return the value of an entry. Raises ConfigError with the list of known names."""
    for each in entries(document, kind):
        if each.get("name") == name and isinstance(each.get(kind), dict):
            value: Mapping[str, Any] = each[kind]
            return value
    known = ", ".join(names(document, kind))
    hint = f"use a known {kind}, or add it to {path}" if known else HINT
    raise ConfigError(f'{path}: no {kind} "{name}" (known: {known or "none"})', hint)


def put(document: Document, kind: Kind, name: str, value: Mapping[str, Any]) -> None:
    """Add an entry, or replace the entry of the same name."""
    new: dict[str, Any] = {kind: dict(value)}
    items = [{**each, **new} if each.get("name") == name else each for each in entries(document, kind)]
    document[f"{kind}s"] = items if name in names(document, kind) else [*items, {"name": name, **new}]


def drop(document: Document, kind: Kind, names: Sequence[str]) -> None:
    """Remove entries. Missing entries are ignored."""
    document[f"{kind}s"] = [each for each in entries(document, kind) if each.get("name") not in names]


@contextmanager
def changing(path: Path) -> Iterator[Document]:
    """Yield the document for changes, and write it if the block succeeds. Raises ConfigError and OSError.

    A missing file and its directory are created. The file is removed if no entries remain. Symbolic links are followed. A lock
    serializes changes of several processes, and the file is replaced atomically. Unknown fields are kept; comments are lost."""
    path = path.resolve()
    with files.locked(path.with_name(f"{path.name}.lock")):
        before = found(path)
        document = dict(before or {"apiVersion": "v1", "kind": "Config"})
        yield document
        if not any(value for key, value in document.items() if key not in ("apiVersion", "kind")):
            path.unlink(missing_ok=True)
        elif document != before:
            _write(path, document)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    import tempfile  # rarely needed

    import yaml

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(dict(document), file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
        raise


_PLAIN = "http://"
DEFAULT_PORT = 7443
EXTENSION = "pinnace"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    endpoints: tuple[str, ...]
    """The API servers as "host:port"."""
    namespace: str = "default"
    data_dir: Path | None = None
    """The data directory of a local cluster that `pinnace up` started."""
    tls: TlsFiles | None = None
    """None disables TLS."""


def load(
    server: str | None = None,
    *,
    context: str | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Load the configuration. Raises ConfigError."""
    named = server or ("" if context else environ.get("PINNACE_SERVER", ""))
    path = file or config_path(environ)
    if named and not (file or context or path.exists()):
        return ClientConfig(parse_endpoints(named))
    document = read(path)
    if named and not (context or document.get("current-context")):
        return ClientConfig(parse_endpoints(named))
    return _in_context(document, context, path, named)


def _in_context(document: Mapping[str, Any], context: str | None, path: Path, named: str) -> ClientConfig:
    """Load a context. `named`: servers that override the servers of the context, or ""."""
    name = context or document.get("current-context", "")
    if not name:
        known = names(document, "context")
        if not known:
            raise ConfigError(f"no configuration has been provided: {path} has no contexts")
        raise ConfigError(f"{path}: current-context is not set", f"choose a context with --context: {', '.join(known)}")
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
    """Return the user's bearer token from `tokenFile` or `token`, or "" if the user has none."""
    if "tokenFile" not in user:
        return str(user.get("token") or "")
    try:
        return _path(user, "tokenFile", path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: unable to read the token: {error}", f"repair {path}") from None


def _path(where: Mapping[str, Any], key: str, path: Path) -> Path:
    """Return the path in a field of the configuration. Raises ConfigError."""
    named = where.get(key)
    if not isinstance(named, str) or not named:
        instead = f" (`{key}-data` is not supported: use a file)" if f"{key}-data" in where else ""
        raise ConfigError(f"{path}: {key} is missing{instead}", f"repair {path}")
    return path.parent / named


def unusable(tls: TlsFiles, error: Unusable) -> str:
    """Describe an invalid file of `tls`: its key in the configuration, and the problem."""
    keys = {tls.ca: "certificate-authority", tls.cert: "client-certificate", tls.key: "client-key"}
    return f"{keys[error.path]} {error}"


def parse_endpoints(text: str) -> tuple[str, ...]:
    """ "https://a:7443,b" is parsed to ("a:7443", "b:7443"). Raises ConfigError."""
    endpoints = tuple(_endpoint(part.strip()) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ConfigError(f'"{text}" contains no API server')
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
    """Return the data directory of a cluster in the file `path`, or None if the cluster is not local."""
    for each in entries(cluster, "extension"):
        extension = each.get("extension")
        if each.get("name") == EXTENSION and isinstance(extension, dict) and extension.get("dataDir"):
            named = Path(extension["dataDir"])
            return named if named.is_absolute() else (path.parent / named).resolve()
    return None


CURRENT = "current-context"


def write_context(
    name: str,
    config: ClientConfig,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Create or replace the cluster, user and context `name`, and make the context current. Other entries and the context's
    namespace are kept. Returns the path of the file that was written."""
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
    with changing(path) as document:
        put(document, "cluster", name, cluster)
        put(document, "user", name, user)
        before = entry(document, "context", name, path) if name in names(document, "context") else {}
        put(document, "context", name, {**before, "cluster": name, "user": name})
        document[CURRENT] = name
    return path


def current_context(*, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the current context, or "" if it is not set."""
    document = found(config_path(environ)) or {}
    return str(document.get(CURRENT) or "")


def data_dirs(*, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the data directories of local clusters by context name. Raises ConfigError."""
    path = config_path(environ)
    document = found(path) or {}
    known = {}
    for context in names(document, "context"):
        with suppress(ConfigError):  # skip invalid contexts
            cluster = entry(document, "cluster", _cluster_of(document, context, path), path)
            if (data_dir := data_dir_of(cluster, path)) is not None:
                known[context] = data_dir
    return known


def remove_context(name: str, successor: str = "", *, environ: Mapping[str, str] = os.environ) -> bool:
    """Remove the cluster, user and context `name`, and all other contexts of the cluster. Missing entries are ignored. The file
    is removed if no entries remain. If a removed context was current, `successor` becomes the current context ("" unsets it).
    Returns whether a removed context was current."""
    path = config_path(environ)
    if not path.exists():
        return False
    with changing(path) as document:
        before = document.get(CURRENT)
        _forget(document, name, *(n for n in names(document, "context") if _cluster_of(document, n, path) == name))
        drop(document, "cluster", [name])
        drop(document, "user", [name])
        was_current = bool(before) and not document.get(CURRENT)
        if was_current:
            document[CURRENT] = successor
    _tidy(path, environ)
    return was_current


def check_writable(*, environ: Mapping[str, str] = os.environ) -> None:
    """Raise the errors that `write_context` would raise, without changing the file."""
    path = config_path(environ)
    with changing(path):
        pass
    _tidy(path, environ)


def use_context(name: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Make a context current. Raises ConfigError if it does not exist; so do the functions below."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        document[CURRENT] = name


def set_context(name: str, changes: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> bool:
    """Set the cluster, user or namespace of a context. A missing context is created; it requires a cluster. Returns whether the
    context was created."""
    path = _present(environ)
    with changing(path) as document:
        is_new = name not in names(document, "context")
        before = {} if is_new else entry(document, "context", name, path)
        if "cluster" not in {**before, **changes}:
            hint = f"specify a cluster with --cluster; known clusters: {', '.join(names(document, 'cluster')) or 'none'}"
            raise ConfigError(f'{path}: no context "{name}"; a new context needs a cluster', hint)
        if "cluster" in changes:
            entry(document, "cluster", changes["cluster"], path)
        if "user" in changes:
            entry(document, "user", changes["user"], path)
        put(document, "context", name, {**before, **changes})
    return is_new


def rename_context(old: str, new: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Rename a context. Its cluster and user are not renamed."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", old, path)
        if new in names(document, "context"):
            raise ConfigError(f'{path}: context "{new}" already exists', "choose another name, or delete that context first")
        document["contexts"] = [
            {**each, "name": new} if each.get("name") == old else each for each in entries(document, "context")
        ]
        if document.get(CURRENT) == old:
            document[CURRENT] = new


def delete_context(name: str, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Delete a context. Its cluster and user are kept. Returns whether it was the current context."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        was_current: bool = document.get(CURRENT) == name
        _forget(document, name)
    return was_current


def minified(document: Document, name: str, path: Path) -> Document:
    """Return the document reduced to one context with its cluster and user. Raises ConfigError."""
    chosen = entry(document, "context", name, path)
    kept = {"clusters": chosen.get("cluster"), "users": chosen.get("user"), "contexts": name}
    parts = {key: [each for each in document.get(key) or [] if each.get("name") == of] for key, of in kept.items()}
    return {**document, **parts, CURRENT: name}


def _tidy(path: Path, environ: Mapping[str, str]) -> None:
    if not environ.get("PINNACE_CONFIG"):  # with PINNACE_CONFIG, the directory may belong to another program
        with suppress(OSError):  # the directory is not empty
            path.parent.rmdir()


def _present(environ: Mapping[str, str]) -> Path:
    path = config_path(environ)
    read(path)
    return path


def _cluster_of(document: Document, context: str, path: Path) -> str:
    """Return the cluster name of a context, or "" if the context is missing or invalid."""
    with suppress(ConfigError):
        return str(entry(document, "context", context, path).get("cluster") or "")
    return ""


def current(document: Document, path: Path) -> str:
    """Return the name of the current context. Raises ConfigError if it is not set."""
    if name := document.get(CURRENT):
        return str(name)
    known = ", ".join(names(document, "context")) or "none"
    raise ConfigError(f"{path}: current-context is not set", f"specify a context: {known}")


def _forget(document: Document, *contexts: str) -> None:
    drop(document, "context", contexts)
    if document.get(CURRENT) in contexts:
        document[CURRENT] = ""


class KubectlContext(NamedTuple):
    """What kubectl needs for our cluster."""

    path: Path | None
    """The kubeconfig. None: kubectl's own default."""
    name: str
    """The context in it."""
    server: str = ""
    """The address of a gateway, such as "https://127.0.0.1:6443"; "" if unknown."""


def find_kubectl_context(context: str | None = None, *, environ: Mapping[str, str] = os.environ) -> KubectlContext:
    """Return the kubeconfig and the context with which kubectl reaches the gateway of a context's cluster; None: the current
    context. Raises ConfigError."""
    path = config_path(environ)
    document = read(path)
    name = context or current(document, path)
    cluster = entry(document, "cluster", _cluster_of(document, name, path), path)
    data_dir = data_dir_of(cluster, path)
    if data_dir is None:
        hint = "name its kubeconfig with --kubeconfig, or a context of a local cluster with --context"
        raise ConfigError(f'{path}: the address of a gateway is not known for context "{name}"', hint)
    kubeconfig = data_dir / "kubeconfig"
    found_document = found(kubeconfig)
    if found_document is None:
        raise ConfigError(f"the cluster in {data_dir} has no gateway", "`pinnace up --fresh` makes a cluster with one")
    own = current(found_document, kubeconfig)
    server = entry(found_document, "cluster", _cluster_of(found_document, own, kubeconfig), kubeconfig).get("server", "")
    return KubectlContext(kubeconfig, own, str(server))
