"""Contexts of the client's configuration: adding, choosing, changing, renaming and removing them (the file: kubeconfig)."""

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
    """Adds or replaces cluster, user and context `name`, makes it the current one, and keeps all others, and the context's
    namespace. The path of the file: `file`, or else the one that is read without it."""
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
    """The name of the context that is used when none is named; "" when there is none."""
    document = found(config_path(environ)) or {}
    return str(document.get(CURRENT) or "")


def data_dirs(*, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The folders of the local clusters that are known, by their contexts. Raises ConfigError."""
    path = config_path(environ)
    document = found(path) or {}
    known = {}
    for context in names(document, "context"):
        with suppress(ConfigError):  # of a context that is none
            cluster = entry(document, "cluster", _cluster_of(document, context, path), path)
            if (data_dir := data_dir_of(cluster, path)) is not None:
                known[context] = data_dir
    return known


def remove_context(name: str, successor: str = "", *, environ: Mapping[str, str] = os.environ) -> bool:
    """Removes cluster, user and context `name`, all contexts of that cluster, and the file when nothing is left in it; what is
    not there is no error. Where one of them was current, `successor` is now, or none if that is ""; whether it was."""
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
    """Raises what `write_context` would, and leaves nothing."""
    path = config_path(environ)
    with changing(path):
        pass
    _tidy(path, environ)


def use_context(name: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Makes it the current one. Raises ConfigError when there is none, as those do that follow."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        document[CURRENT] = name


def set_context(name: str, changes: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> bool:
    """Changes the context's cluster, user or namespace. Whether it is new: then it needs a cluster."""
    path = _present(environ)
    with changing(path) as document:
        is_new = name not in names(document, "context")
        before = {} if is_new else entry(document, "context", name, path)
        if "cluster" not in {**before, **changes}:
            hint = f"name one of its clusters with --cluster: {', '.join(names(document, 'cluster')) or 'there are none'}"
            raise ConfigError(f'{path}: there is no context "{name}" yet, and a new one needs a cluster', hint)
        if "cluster" in changes:
            entry(document, "cluster", changes["cluster"], path)
        if "user" in changes:
            entry(document, "user", changes["user"], path)
        put(document, "context", name, {**before, **changes})
    return is_new


def rename_context(old: str, new: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Its cluster and its user keep their names."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", old, path)
        if new in names(document, "context"):
            raise ConfigError(f'{path}: there is a context "{new}" already', "choose another name, or delete that one first")
        document["contexts"] = [
            {**each, "name": new} if each.get("name") == old else each for each in entries(document, "context")
        ]
        if document.get(CURRENT) == old:
            document[CURRENT] = new


def delete_context(name: str, *, environ: Mapping[str, str] = os.environ) -> bool:
    """Its cluster and its user stay. Whether it was the current one."""
    path = _present(environ)
    with changing(path) as document:
        entry(document, "context", name, path)
        was_current: bool = document.get(CURRENT) == name
        _forget(document, name)
    return was_current


def minified(document: Document, name: str, path: Path) -> Document:
    """Of the document, only what the context is made of. Raises ConfigError."""
    chosen = entry(document, "context", name, path)
    kept = {"clusters": chosen.get("cluster"), "users": chosen.get("user"), "contexts": name}
    parts = {key: [each for each in document.get(key) or [] if each.get("name") == of] for key, of in kept.items()}
    return {**document, **parts, CURRENT: name}


def _tidy(path: Path, environ: Mapping[str, str]) -> None:
    if not environ.get("PINNACE_CONFIG"):  # the folder is ours
        with suppress(OSError):  # and something is kept in it
            path.parent.rmdir()


def _present(environ: Mapping[str, str]) -> Path:
    path = config_path(environ)
    read(path)
    return path


def _cluster_of(document: Document, context: str, path: Path) -> str:
    """ "" when it says nothing, or nothing that can be read."""
    with suppress(ConfigError):
        return str(entry(document, "context", context, path).get("cluster") or "")
    return ""


def current(document: Document, path: Path) -> str:
    """The name of the current context. Raises ConfigError when there is none."""
    if name := document.get(CURRENT):
        return str(name)
    known = ", ".join(names(document, "context")) or "none"
    raise ConfigError(f"{path}: there is no current-context", f"name a context: {known}")


def _forget(document: Document, *contexts: str) -> None:
    drop(document, "context", contexts)
    if document.get(CURRENT) in contexts:
        document[CURRENT] = ""
