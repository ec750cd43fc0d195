"""Create, select, change, rename and delete contexts of the client's configuration."""

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
