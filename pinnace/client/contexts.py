"""The contexts of local clusters in the kubeconfig, which `up` adds and `down` removes.

    up:   cluster, user, context `pinnace` (`pinnace-NAME`) added, current-context set, the previous one remembered
    down: the three removed; current-context restored if ours is still current

Only entries of this cluster are written and removed: its cluster entry has the extension `pinnace.io/cluster` with its data
directory, its user entry has the name of the cluster entry, its contexts refer to the cluster entry. A name that other entries
have is never taken. A context that the user renamed, or added for a namespace, is kept while the cluster exists.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pinnace.client.config import (
    EXTENSION,
    ClientConfig,
    Configuration,
    data_dir_of,
    extension_of,
    read_configuration,
)
from pinnace.client.kubeconfig import CURRENT, Kind, list_entries
from pinnace.client.kubeconfig_file import edit_kubeconfig, file_for_new_entries, kubectl_paths
from pinnace.client.kubeconfig_text import KubeconfigText

_PREVIOUS = "previousContext"
_KINDS: tuple[Kind, ...] = ("cluster", "user", "context")


@dataclass(frozen=True, slots=True)
class WrittenContext:
    """`previous`: the context that was current before, or "". `already`: whether this context was current before."""

    path: Path
    context: str
    previous: str
    already: bool


def write_context(name: str, config: ClientConfig, *, file: Path, embed: bool = False) -> Path:
    """Write cluster, user and context `name` into a file of pinnace's own, and make it current. `embed`: with the data of the
    certificates instead of their paths. Return the path. Raises ConfigError and OSError."""
    with edit_kubeconfig(file) as kubeconfig:
        kubeconfig.put("cluster", name, cluster_entry(config, embed=embed))
        kubeconfig.put("user", name, user_entry(config, embed=embed))
        before = _entry_value(kubeconfig, "context", name) or {}
        kubeconfig.put("context", name, {**before, "cluster": name, "user": name})
        kubeconfig.set_current(name)
    return file


def cluster_entry(config: ClientConfig, *, embed: bool = False, **more: Any) -> dict[str, Any]:
    """Return the cluster for a kubeconfig. `embed`: with the data of the authority instead of its path. `more`: fields of the
    extension. Raises OSError."""
    scheme = "https" if config.tls is not None else "http"
    cluster: dict[str, Any] = {"server": f"{scheme}://{config.gateway or config.endpoints[0]}"}
    if config.tls is not None and embed:
        cluster["certificate-authority-data"] = _encode_file(config.tls.ca)
    elif config.tls is not None:
        cluster["certificate-authority"] = str(config.tls.ca)
    extension: dict[str, Any] = {"servers": list(config.endpoints)}
    if config.data_dir is not None:
        extension["dataDir"] = str(config.data_dir)
    return {**cluster, "extensions": [{"name": EXTENSION, "extension": {**extension, **more}}]}


def user_entry(config: ClientConfig, *, embed: bool = False) -> dict[str, Any]:
    """Return the user for a kubeconfig. `embed`: with the data of certificate and key instead of their paths. Raises
    OSError."""
    if config.tls is None:
        return {}
    if config.tls.token:
        return {"token": config.tls.token}
    assert config.tls.cert is not None
    assert config.tls.key is not None
    if embed:
        return {"client-certificate-data": _encode_file(config.tls.cert), "client-key-data": _encode_file(config.tls.key)}
    return {"client-certificate": str(config.tls.cert), "client-key": str(config.tls.key)}


def _encode_file(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def context_name(data_dir: Path, *, is_default: bool) -> str:
    """Return the name of a new cluster's context: "pinnace", or "pinnace-NAME" after the directory."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", data_dir.name).strip("-.")
    return "pinnace" if is_default or not name else f"pinnace-{name}"


def write_cluster_context(
    config: ClientConfig,
    name: str,
    is_dead: Callable[[Path], bool],
    *,
    file: Path | None = None,
    make_current: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> WrittenContext:
    """Write the context of a local cluster into the kubeconfig that kubectl uses, or into `file`. Raises ConfigError and
    OSError.

    `name`: of the context if the cluster has none yet. If other entries have this name, a hash of the data directory is
    appended; entries of a cluster that does not exist any more (`is_dead` of its data directory) are replaced."""
    assert config.data_dir is not None
    paths = [file] if file is not None else kubectl_paths(environ)
    configuration = read_configuration(file, environ=environ)
    cluster = _cluster_at(configuration, config.data_dir) or _free_name(configuration, name, config.data_dir, is_dead)
    there = configuration.find("cluster", cluster)
    path = there.path if there is not None else file_for_new_entries(paths)
    first = file_for_new_entries(paths)
    with edit_kubeconfig(path) as kubeconfig:
        configuration = replace(
            configuration, documents={**configuration.documents, path: kubeconfig.document}
        )  # as it is with the lock
        cluster = _cluster_at(configuration, config.data_dir) or _free_name(configuration, name, config.data_dir, is_dead)
        known = [context for context in configuration.names("context") if configuration.cluster_of(context) == cluster]
        before = configuration.find("cluster", cluster)
        if before is not None and (configuration.current in known or not make_current):
            previous = extension_of(before.value).get(_PREVIOUS)
        else:
            previous = configuration.documents.get(first, {}).get(CURRENT)
        kubeconfig.put("cluster", cluster, cluster_entry(config, embed=True, **{_PREVIOUS: previous}))
        kubeconfig.put("user", cluster, user_entry(config))
        if not known:
            name = cluster if configuration.find("context", cluster) is None else _with_hash(cluster, config.data_dir)
            kubeconfig.put("context", name, {"cluster": cluster, "user": cluster})
            known = [name]
        context = next((name for name in (configuration.current, cluster) if name in known), known[0])
        if make_current and path == first:
            kubeconfig.set_current(context)
    if make_current and path != first:
        with edit_kubeconfig(first) as kubeconfig:
            kubeconfig.set_current(context)
    already = configuration.current == context
    return WrittenContext(path, context, "" if already else configuration.current, already)


def has_cluster_context(data_dir: Path, *, file: Path | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the kubeconfig has a context of this local cluster. Raises ConfigError."""
    configuration = read_configuration(file, environ=environ)
    return any(
        configuration.data_dir_of(configuration.cluster_of(context)) == data_dir for context in configuration.names("context")
    )


def files_of_cluster(data_dir: Path, *, file: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that `remove_cluster_context` changes. Raises ConfigError."""
    configuration = read_configuration(file, environ=environ)
    names = {
        name for name in configuration.names("context") if configuration.data_dir_of(configuration.cluster_of(name)) == data_dir
    }
    return [
        path
        for path, document in configuration.documents.items()
        if document.get(CURRENT) in names
        or any(configuration.data_dir_of(name) == data_dir for name in _clusters_in(configuration, path))
    ]


def remove_cluster_context(data_dir: Path, *, file: Path | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Remove the entries of a local cluster from the kubeconfig that kubectl uses, or from `file`. If one of its contexts is
    current, restore the previous one. Return the context that was restored, or "". Raises ConfigError and OSError."""
    configuration = read_configuration(file, environ=environ)
    removed: set[str] = set()
    previous: str | None = ""
    for path in configuration.documents:
        names = [name for name in _clusters_in(configuration, path) if configuration.data_dir_of(name) == data_dir]
        for name in names:
            with edit_kubeconfig(path) as kubeconfig:
                value = _entry_value(kubeconfig, "cluster", name)
                if value is None or data_dir_of(value, path) != data_dir:
                    continue  # another process has changed it
                previous = extension_of(value).get(_PREVIOUS)
                gone = [
                    entry["name"] for entry in list_entries(kubeconfig.document, "context") if _refers_to_cluster(entry, name)
                ]
                kubeconfig.remove("cluster", name)
                kubeconfig.remove("user", name)
                for context in gone:
                    kubeconfig.remove("context", context)
                removed |= set(gone)
                _inherit_previous(kubeconfig, removed, previous)
                if kubeconfig.document.get(CURRENT) in removed:
                    previous = _existing_context(
                        replace(configuration, documents={**configuration.documents, path: kubeconfig.document}), previous
                    )
                    kubeconfig.set_current(previous)
    for path in configuration.paths:  # the current context may be set in another file than the one with the entries
        if removed and configuration.documents.get(path, {}).get(CURRENT) in removed:
            with edit_kubeconfig(path) as kubeconfig:
                if kubeconfig.document.get(CURRENT) in removed:
                    kubeconfig.set_current(_existing_context(read_configuration(file, environ=environ), previous))
    return (previous or "") if configuration.current in removed else ""


def _existing_context(found: Configuration, previous: str | None) -> str | None:
    """Return the previous context, or "" if it does not exist any more."""
    return previous if not previous or (isinstance(previous, str) and found.find("context", previous) is not None) else ""


def _inherit_previous(kubeconfig: KubeconfigText, removed: set[str], previous: str | None) -> None:
    """Let clusters whose previous context is removed remember the one before it."""
    for entry in list_entries(kubeconfig.document, "cluster"):
        value = entry.get("cluster")
        if isinstance(value, dict) and (extension := extension_of(value)) and extension.get(_PREVIOUS) in removed:
            extensions = [
                {**part, "extension": {**extension, _PREVIOUS: previous}} if part.get("name") == EXTENSION else part
                for part in value["extensions"]
            ]
            kubeconfig.put("cluster", entry["name"], {**value, "extensions": extensions})


def _entry_value(kubeconfig: KubeconfigText, kind: Kind, name: str) -> Mapping[str, Any] | None:
    for entry in list_entries(kubeconfig.document, kind):
        if entry.get("name") == name and isinstance(entry.get(kind), dict):
            value: Mapping[str, Any] = entry[kind]
            return value
    return None


def _refers_to_cluster(context: Mapping[str, Any], cluster: str) -> bool:
    value = context.get("context")
    return isinstance(value, dict) and value.get("cluster") == cluster and isinstance(context.get("name"), str)


def _clusters_in(found: Configuration, path: Path) -> list[str]:
    return [name for name in found.names("cluster") if (entry := found.find("cluster", name)) and entry.path == path]


def _cluster_at(found: Configuration, data_dir: Path) -> str:
    """Return the name of the cluster entry with this data directory, or ""."""
    return next((name for name in found.names("cluster") if found.data_dir_of(name) == data_dir), "")


def _free_name(found: Configuration, name: str, data_dir: Path, is_dead: Callable[[Path], bool]) -> str:
    """Return the name, or the name with a hash if entries have it that do not belong to a dead cluster."""
    cluster = found.find("cluster", name)
    if cluster is not None and (old := data_dir_of(cluster.value, cluster.path)) is not None and is_dead(old):
        return name
    if all(found.find(kind, name) is None for kind in _KINDS):
        return name
    return _with_hash(name, data_dir)


def _with_hash(name: str, data_dir: Path) -> str:
    return f"{name}-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:6]}"


def stale_contexts(
    is_dead: Callable[[Path], bool], *, file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Return the contexts of local clusters that do not exist any more, with their data directories. Raises ConfigError."""
    configuration = read_configuration(file, environ=environ)
    known = {name: configuration.data_dir_of(configuration.cluster_of(name)) for name in configuration.our_contexts()}
    stale = {}
    for name, data_dir in known.items():
        with suppress(OSError):  # it cannot be seen
            if data_dir is not None and is_dead(data_dir):
                stale[name] = data_dir
    return stale
