"""Contexts of the client's configuration: adding, choosing, changing, renaming and removing them."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pinnace.client.config import (
    EXTENSION,
    ClientConfig,
    ConfigError,
    Document,
    changing,
    config_path,
    data_dir_of,
    drop,
    entries,
    entry,
    found,
    names,
    put,
    read,
)

CURRENT = "current-context"


def write_context(
    name: str,
    config: ClientConfig,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Adds or replaces the cluster, user and context `name`, and makes the context current. Other entries and the context's
    namespace are kept. Returns the path of the file: `file`, or the default."""
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
    """The name of the current context; "" if it is not set."""
    document = found(config_path(environ)) or {}
    return str(document.get(CURRENT) or "")


def data_dirs(*, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The data directories of the local clusters in the file, by context. Raises ConfigError."""
    path = config_path(environ)
    document = found(path) or {}
    known = {}
    for context in names(document, "context"):
        with suppress(ConfigError):  # an invalid context
            cluster = entry(document, "cluster", _cluster_of(document, context, path), path)
            if (data_dir := data_dir_of(cluster, path)) is not None:
                known[context] = data_dir
    return known


def remove_context(name: str, successor: str = "", *, environ: Mapping[str, str] = os.environ) -> bool:
    """Removes the cluster, user and context `name`, all contexts of that cluster, and the file if it is empty then. Missing
    entries are no error. If one of the contexts was current, `successor` becomes current ("": none). Returns whether one
    was."""
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
    """Raises what `write_context` would raise, and changes nothing."""
    path = config_path(environ)
    with changing(path):
        pass
    _tidy(path, environ)


def use_context(name: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Makes a context current. Raises ConfigError if it does not exist, as the following functions do."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        document[CURRENT] = name


def set_context(name: str, changes: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> bool:
    """Sets the cluster, user or namespace of a context, which is created if necessary; a new one needs a cluster. Returns
    whether it is new."""
    path = _present(environ)
    with changing(path) as document:
        is_new = name not in names(document, "context")
        before = {} if is_new else entry(document, "context", name, path)
        if "cluster" not in {**before, **changes}:
            hint = f"name a cluster with --cluster; in the file: {', '.join(names(document, 'cluster')) or 'none'}"
            raise ConfigError(f'{path}: no context "{name}"; a new context needs a cluster', hint)
        if "cluster" in changes:
            entry(document, "cluster", changes["cluster"], path)
        if "user" in changes:
            entry(document, "user", changes["user"], path)
        put(document, "context", name, {**before, **changes})
    return is_new


def rename_context(old: str, new: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Renames a context. Its cluster and its user keep their names."""
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
    """Deletes a context. Its cluster and its user stay. Returns whether it was the current context."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        was_current: bool = document.get(CURRENT) == name
        _forget(document, name)
    return was_current


def minified(document: Document, name: str, path: Path) -> Document:
    """The document, reduced to one context with its cluster and user. Raises ConfigError."""
    chosen = entry(document, "context", name, path)
    kept = {"clusters": chosen.get("cluster"), "users": chosen.get("user"), "contexts": name}
    parts = {key: [each for each in document.get(key) or [] if each.get("name") == of] for key, of in kept.items()}
    return {**document, **parts, CURRENT: name}


def _tidy(path: Path, environ: Mapping[str, str]) -> None:
    if not environ.get("PINNACE_CONFIG"):  # otherwise the directory may not be ours
        with suppress(OSError):  # it is not empty
            path.parent.rmdir()


def _present(environ: Mapping[str, str]) -> Path:
    path = config_path(environ)
    read(path)
    return path


def _cluster_of(document: Document, context: str, path: Path) -> str:
    """The cluster of a context; "" if there is none, or it cannot be read."""
    with suppress(ConfigError):
        return str(entry(document, "context", context, path).get("cluster") or "")
    return ""


def current(document: Document, path: Path) -> str:
    """The name of the current context. Raises ConfigError if it is not set."""
    if name := document.get(CURRENT):
        return str(name)
    known = ", ".join(names(document, "context")) or "none"
    raise ConfigError(f"{path}: current-context is not set", f"name a context: {known}")


def _forget(document: Document, *contexts: str) -> None:
    drop(document, "context", contexts)
    if document.get(CURRENT) in contexts:
        document[CURRENT] = ""
