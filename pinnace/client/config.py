"""The client's configuration: API servers and credentials, from the kubeconfig that kubectl uses.

The files are, in this order: the argument (`--kubeconfig`), $KUBECONFIG with several paths as for kubectl, ~/.kube/config.
Servers are taken from the first of: the argument (`--server`), a named context (`--context`), $PINNACE_SERVER, the current
context. As with kubectl, `--server` overrides only the servers of the context. The scheme http:// disables TLS.

The `server` of a cluster is the gateway, for kubectl. The extension `pinnace.io/cluster` has what kubectl does not need:

    clusters:
    - name: pinnace
      cluster:
        server: https://127.0.0.1:6443
        certificate-authority-data: LS0t...
        extensions:
        - name: pinnace.io/cluster
          extension:
            servers: [127.0.0.1:7443, 127.0.0.1:7444]   # the API servers (gRPC)
            dataDir: /home/ada/.local/state/pinnace/default   # of a cluster that `pinnace up` started
            previousContext: kind-kind   # the current context that `pinnace down` restores; null: the field was missing
    contexts: [{name: pinnace, context: {cluster: pinnace, user: pinnace}}]
    users: [{name: pinnace, user: {client-certificate: /.../admin.crt, client-key: /.../admin.key}}]

A cluster without this extension belongs to another tool. No command of pinnace uses its address or its credentials. Files of
components (`--kubeconfig`) may name the API servers in `server` instead, separated by commas.

Of a user: client certificates and keys (paths or data), `token`, `tokenFile`, `as` and `as-groups` are supported. With a token,
the servers must be the API servers' token addresses. Paths are relative to the file. TLS is disabled for a cluster without
certificate authority.

For one release, files of earlier versions are read as well, with a warning: $PINNACE_CONFIG, and ~/.config/pinnace/config if
the current context of the kubeconfig is not one of pinnace.
Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import base64
import binascii
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pinnace.api.integers import parse_natural
from pinnace.client.kubeconfig import CURRENT, HINT, ConfigError, Document, Kind, list_entries
from pinnace.client.kubeconfig_file import kubectl_paths, parse_file, read_text
from pinnace.runtime.tls import TlsFiles, UnusableFile

__all__ = ["CURRENT", "HINT", "ClientConfig", "ConfigError", "KubectlContext", "find_kubectl_context", "load_config"]

EXTENSION = "pinnace.io/cluster"
_OLD_EXTENSION = "pinnace"
"""Of earlier versions, with `dataDir` only."""
DEFAULT_PORT = 7443
_PLAIN, _TLS = "http://", "https://"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    endpoints: tuple[str, ...]
    """The API servers as "host:port"."""
    namespace: str = "default"
    data_dir: Path | None = None
    """The data directory of a local cluster that `pinnace up` started."""
    tls: TlsFiles | None = None
    """None disables TLS."""
    gateway: str = ""
    """The gateway as "host:port", for kubectl; "" if there is none."""
    acting_as: str = ""
    """The user to impersonate; "" for none."""
    acting_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """The value of an entry, and the file that contains it."""

    value: Mapping[str, Any]
    path: Path


@dataclass(frozen=True, slots=True)
class Configuration:
    """Files that are merged as by kubectl: the first file that has an entry or the current context wins."""

    paths: tuple[Path, ...]
    documents: Mapping[Path, Document]
    """Of the files that exist."""
    is_old: bool = False
    """Whether it is a file of an earlier version, in which each cluster is one of pinnace."""
    _found: dict[Kind, dict[str, ConfigEntry]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        kinds: tuple[Kind, ...] = ("cluster", "user", "context")
        for kind in kinds:
            result = self._found.setdefault(kind, {})
            for path in self.paths:
                for entry in list_entries(self.documents.get(path, {}), kind):
                    if isinstance(entry.get("name"), str) and isinstance(entry.get(kind), dict):
                        result.setdefault(entry["name"], ConfigEntry(entry[kind], path))

    @property
    def exists(self) -> bool:
        return bool(self.documents)

    @property
    def shown(self) -> str:
        """The paths, for messages."""
        return ":".join(map(str, self.paths))

    @property
    def current(self) -> str:
        """The current context; "" if it is not set."""
        values = (self.documents.get(path, {}).get(CURRENT) for path in self.paths)
        return next((str(value) for value in values if value), "")

    def names(self, kind: Kind) -> list[str]:
        return list(self._found[kind])

    def find(self, kind: Kind, name: str) -> ConfigEntry | None:
        return self._found[kind].get(name)

    def entry(self, kind: Kind, name: str) -> ConfigEntry:
        """Raises ConfigError with the list of known names."""
        if (result := self.find(kind, name)) is not None:
            return result
        known = self.our_contexts() if kind == "context" else self.names(kind)
        hint = f"use a known {kind}, or add it to {self.shown}" if known else HINT
        raise ConfigError(f'{self.shown}: no {kind} "{name}" (known: {", ".join(known) or "none"})', hint)

    def cluster_of(self, context: str) -> str:
        """Return the name of the cluster of a context, or "" if the context is missing or invalid."""
        entry = self.find("context", context)
        name = entry.value.get("cluster") if entry is not None else None
        return name if isinstance(name, str) and self.find("cluster", name) is not None else ""

    def is_ours(self, context: str) -> bool:
        """Whether the cluster of this context is one of pinnace."""
        entry = self.find("cluster", self.cluster_of(context))
        if entry is None:
            return False
        server = entry.value.get("server")
        return self.is_old or bool(extension_of(entry.value)) or (isinstance(server, str) and "://" not in server)

    def our_contexts(self) -> list[str]:
        return [name for name in self.names("context") if self.is_ours(name)]

    def data_dir_of(self, cluster: str) -> Path | None:
        """Return the data directory of a local cluster; None for others."""
        entry = self.find("cluster", cluster)
        return data_dir_of(entry.value, entry.path) if entry is not None else None


def read_configuration(file: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> Configuration:
    """Read the kubeconfig, or only `file`. Raises ConfigError for invalid files; a missing file is not an error."""
    return _read_files([file] if file is not None else kubectl_paths(environ))


def read_old_configuration(environ: Mapping[str, str] = os.environ) -> Configuration:
    """Read the file of earlier versions: $PINNACE_CONFIG, or ~/.config/pinnace/config. Raises ConfigError."""
    if named := environ.get("PINNACE_CONFIG"):
        return _read_files([Path(named)], is_old=True)
    home = environ.get("XDG_CONFIG_HOME")
    folder = Path(home) if home else Path(environ.get("HOME") or Path.home()) / ".config"
    return _read_files([folder / "pinnace" / "config"], is_old=True)


def _read_files(paths: Iterable[Path], *, is_old: bool = False) -> Configuration:
    paths = tuple(paths)
    texts = {path: text for path in paths if (text := read_text(path)) is not None}
    return Configuration(paths, {path: parse_file(path, text).document for path, text in texts.items()}, is_old)


def _select_context(
    context: str | None, file: Path | None, environ: Mapping[str, str], *, warn: bool = True
) -> tuple[Configuration, str]:
    """Return the configuration to use, and the name of the context in it: `context`, or the current one ("" if it is not
    set)."""
    if file is None and environ.get("PINNACE_CONFIG"):
        old = read_old_configuration(environ)
        if warn:
            _warn_once(f"PINNACE_CONFIG is deprecated{'' if old.exists else ' and its file is missing'}: use KUBECONFIG")
        if old.exists:
            return old, context or old.current
    new = read_configuration(file, environ=environ)
    name = context or new.current
    if file is None and not new.is_ours(name):
        old = read_old_configuration(environ)
        chosen = context or old.current
        if old.exists and old.is_ours(chosen):
            if warn:
                _warn_once(f"{old.shown} is deprecated: `pinnace up` writes the kubeconfig; then remove this file")
            return old, chosen
    return new, name


@lru_cache
def _warn_once(text: str) -> None:
    """Print a warning once."""
    print(f"warning: {text}", file=sys.stderr)


def load_config(
    server: str | None = None,
    *,
    context: str | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    can_impersonate: bool = False,
) -> ClientConfig:
    """Load the configuration. Raises ConfigError. `can_impersonate`: whether the caller sends `acting_as` and `acting_groups`
    with its requests. Otherwise, a user with these fields is an error, because requests would have more rights than wanted."""
    named = server or ("" if context else environ.get("PINNACE_SERVER", ""))
    configuration, name = _select_context(context, file, environ)
    if named and not context and (file is None or configuration.exists) and not configuration.is_ours(name):
        return ClientConfig(parse_endpoints(named))
    if not configuration.exists:
        raise ConfigError(f"no configuration has been provided: {configuration.shown} does not exist")
    return _load_context(configuration, _require_our_context(configuration, name), named, can_impersonate=can_impersonate)


def _require_our_context(configuration: Configuration, name: str) -> str:
    """Return the name. Raises ConfigError if there is no context of this name, or if its cluster is not one of pinnace."""
    ours, where = configuration.our_contexts(), configuration.shown
    choice = f"choose a context with --context: {', '.join(ours)}" if ours else HINT
    if not name:
        if not configuration.names("context"):
            raise ConfigError(f"no configuration has been provided: {where} has no contexts")
        raise ConfigError(f"{where}: {CURRENT} is not set", choice)
    context = configuration.entry("context", name)
    configuration.entry("cluster", str(context.value.get("cluster") or ""))
    if not configuration.is_ours(name):
        raise ConfigError(f'{where}: context "{name}" is not the one of a pinnace cluster', choice)
    return name


def _load_context(configuration: Configuration, name: str, named: str, *, can_impersonate: bool) -> ClientConfig:
    """Load a context. `named`: servers that override the servers of the context, or ""."""
    context = configuration.entry("context", name)
    cluster = configuration.entry("cluster", context.value["cluster"])
    server, path = cluster.value.get("server"), cluster.path
    servers = named or ",".join(servers_of(cluster.value)) or server
    if not isinstance(servers, str) or not servers:
        raise ConfigError(f'{path}: cluster "{context.value["cluster"]}" has no server')
    _refuse_fields(cluster, "cluster", "insecure-skip-tls-verify", "proxy-url")
    tls: TlsFiles | None = None
    acting_as, acting_groups = "", tuple[str, ...]()
    if _has_value(cluster, "certificate-authority") and not servers.startswith(_PLAIN):
        user = configuration.entry("user", context.value.get("user", ""))
        tls = _load_credentials(cluster, user)
        acting_as, acting_groups = _impersonated_user(user, can_impersonate=can_impersonate)
    return ClientConfig(
        parse_endpoints(servers),
        context.value.get("namespace") or "default",
        data_dir_of(cluster.value, path),
        tls,
        gateway_of(cluster.value),
        acting_as,
        acting_groups,
    )


def _load_credentials(cluster: ConfigEntry, user: ConfigEntry) -> TlsFiles:
    _refuse_fields(user, "user", "exec", "auth-provider", "username", "password", "as-uid", "as-user-extra")
    ca = _pem_path(cluster, "certificate-authority")
    if token := _read_token(user):
        return TlsFiles(ca, token=token)
    return TlsFiles(ca, _pem_path(user, "client-certificate"), _pem_path(user, "client-key"))


def _refuse_fields(entry: ConfigEntry, kind: Kind, *keys: str) -> None:
    """Raise ConfigError if the entry has one of these fields."""
    if key := next((key for key in keys if entry.value.get(key)), None):
        hint = "authenticate with a client certificate or a token" if kind == "user" else f"remove it from {entry.path}"
        raise ConfigError(f"{entry.path}: {key} of a {kind} is not supported by pinnace (kubectl uses it)", hint)


def _impersonated_user(user: ConfigEntry, *, can_impersonate: bool) -> tuple[str, tuple[str, ...]]:
    acting_as, groups = user.value.get("as") or "", user.value.get("as-groups") or []
    if not isinstance(acting_as, str) or not isinstance(groups, list):
        raise ConfigError(f"{user.path}: `as` must be a name, and `as-groups` a list of names", f"repair {user.path}")
    if groups and not acting_as:
        raise ConfigError(f"{user.path}: as-groups requires as", f"repair {user.path}")
    if acting_as and not can_impersonate:
        raise ConfigError(f"{user.path}: `as` of a user is not supported by this program", "use another user or context")
    return acting_as, tuple(map(str, groups))


def _read_token(user: ConfigEntry) -> str:
    """Return the user's bearer token from `tokenFile` or `token`, or "" if the user has none."""
    if "tokenFile" not in user.value:
        return str(user.value.get("token") or "")
    try:
        return _path_value(user, "tokenFile").read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{user.path}: unable to read the token: {error}", f"repair {user.path}") from None


def _has_value(entry: ConfigEntry, key: str) -> bool:
    return key in entry.value or f"{key}-data" in entry.value


def _pem_path(entry: ConfigEntry, key: str) -> Path:
    """Return the path of a PEM file. Data takes precedence over a path, as for kubectl; its path is the one of a file in
    memory. Raises ConfigError."""
    data = entry.value.get(f"{key}-data")
    if not data:
        return _path_value(entry, key)
    try:
        return _memory_file(base64.b64decode(str(data), validate=True))
    except (binascii.Error, ValueError):
        raise ConfigError(f"{entry.path}: {key}-data is not valid base64", f"repair {entry.path}") from None


@lru_cache
def _memory_file(content: bytes) -> Path:
    """Return the path of a file with this content, for libraries that read files only. It ends with this process, and is never
    on a disk."""
    handle = os.memfd_create("pinnace-kubeconfig")
    os.write(handle, content)
    return Path(f"/proc/self/fd/{handle}")


def _path_value(entry: ConfigEntry, key: str) -> Path:
    """Return the path in a field of the configuration. Raises ConfigError."""
    named = entry.value.get(key)
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{entry.path}: {key} is missing", f"repair {entry.path}")
    return entry.path.parent / named


def describe_unusable_file(tls: TlsFiles, error: UnusableFile) -> str:
    """Describe an invalid file of `tls`: its key in the configuration, and the problem."""
    keys = {tls.ca: "certificate-authority", tls.cert: "client-certificate", tls.key: "client-key"}
    return f"{keys[error.path]} {error}"


def parse_endpoints(text: str) -> tuple[str, ...]:
    """ "https://a:7443,b" is parsed to ("a:7443", "b:7443"). Raises ConfigError."""
    endpoints = tuple(_parse_endpoint(part.strip()) for part in text.split(",") if part.strip())
    if not endpoints:
        raise ConfigError(f'"{text}" contains no API server')
    return endpoints


def _parse_endpoint(text: str) -> str:
    address = text.partition("://")[2] if "://" in text else text
    address = address.rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon:
        host, port = address, str(DEFAULT_PORT)
    if not host or not 0 < (parse_natural(port) or 0) < 65536 or "/" in address:
        raise ConfigError(f'"{text[:100]}" is not HOST:PORT')
    return f"{host}:{port}"


def extension_of(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of pinnace's extension of a cluster, or {} if the cluster has none."""
    extensions = cluster.get("extensions")
    for name in (EXTENSION, _OLD_EXTENSION):
        for extension in extensions if isinstance(extensions, list) else ():
            if isinstance(extension, dict) and extension.get("name") == name and isinstance(extension.get("extension"), dict):
                result: Mapping[str, Any] = extension["extension"]
                return result
    return {}


def servers_of(cluster: Mapping[str, Any]) -> list[str]:
    """Return the API servers that the extension names."""
    servers = extension_of(cluster).get("servers")
    return [str(server) for server in servers] if isinstance(servers, list) else []


def gateway_of(cluster: Mapping[str, Any]) -> str:
    """Return the gateway's "host:port", or "" if the cluster has none. Then `server` is an API server, which kubectl cannot
    use."""
    server = cluster.get("server")
    servers = servers_of(cluster)
    if not servers or not isinstance(server, str) or not server.startswith(_TLS):
        return ""
    address = server.removeprefix(_TLS).rstrip("/")
    return "" if address in servers else address


def data_dir_of(cluster: Mapping[str, Any], path: Path) -> Path | None:
    """Return the data directory of a cluster in the file `path`, or None if the cluster is not local."""
    named = extension_of(cluster).get("dataDir")
    if not isinstance(named, str) or not named:
        return None
    return Path(named) if Path(named).is_absolute() else (path.parent / named).resolve()


@dataclass(frozen=True, slots=True)
class KubectlContext:
    """What kubectl needs to reach a cluster of pinnace: `kubectl --kubeconfig PATH --context NAME`."""

    path: Path | None
    """The kubeconfig. None: the files that kubectl finds by itself."""
    name: str
    server: str = ""
    """The address of the gateway, such as "https://127.0.0.1:6443"."""


def find_kubectl_context(
    context: str | None, *, file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> KubectlContext:
    """Return the context for kubectl: `context`, or the current one. Raises ConfigError if its cluster is not one of pinnace,
    so that `pinnace delete` never reaches a foreign cluster, or if it has no gateway. `file`: the value of --kubeconfig."""
    configuration, name = _select_context(context, file, environ)
    if not configuration.exists:
        raise ConfigError(f"no configuration has been provided: {configuration.shown} does not exist")
    name = _require_our_context(configuration, name)
    cluster = configuration.entry("cluster", configuration.cluster_of(name))
    if gateway := gateway_of(cluster.value):
        path = cluster.path if configuration.is_old or file is not None else None
        return KubectlContext(path, name, f"{_TLS}{gateway}")
    data_dir = data_dir_of(cluster.value, cluster.path)
    own = data_dir / "kubeconfig" if data_dir is not None else None  # of a cluster that an earlier version started
    if own is not None and (current := read_configuration(own).current):
        return KubectlContext(own, current)
    hint = "`pinnace pki --gateway HOST:PORT` writes a kubeconfig with a gateway; `pinnace up` starts a cluster with one"
    raise ConfigError(f'{cluster.path}: the cluster of context "{name}" has no gateway, which kubectl needs', hint)


def known_contexts(file: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> dict[str, Path | None]:
    """Return the contexts of pinnace clusters, each with the data directory if the cluster is local. Raises ConfigError."""
    configuration = read_configuration(file, environ=environ)
    known = {name: configuration.data_dir_of(configuration.cluster_of(name)) for name in configuration.our_contexts()}
    if file is None:
        old = read_old_configuration(environ)
        known = {name: old.data_dir_of(old.cluster_of(name)) for name in old.our_contexts()} | known
    return known


def current_context(file: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the current context that commands use, or "" if it is not set. Raises ConfigError."""
    return _select_context(None, file, environ, warn=False)[1]


def configuration_in_use(
    context: str | None = None, file: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> tuple[Configuration, str]:
    """Return the files that `load_config` uses, and the name of the context, which may be missing or foreign. Raises
    ConfigError.
    """
    return _select_context(context, file, environ, warn=False)
