"""The manifests in the files of `-f`. All errors of all files are reported together."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pinnace.api.documents import MAX_SIZE
from pinnace.api.manifest import Manifest, ManifestError, Validate, load
from pinnace.api.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
)
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session
from pinnace.cli.terminal import err

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
MAX_OBJECT = 1 << 20
"""Maximum size of an encoded object, in bytes. It must fit into one transaction of etcd."""

_FIRST = (
    NAMESPACES, CLUSTER_ROLES, ROLES, RESOURCE_QUOTAS, LIMIT_RANGES, PRIORITY_CLASSES, STORAGE_CLASSES, PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS, SERVICE_ACCOUNTS, SECRETS, CONFIG_MAPS, NODES,
)  # fmt: skip
"""Kinds that other objects depend on, or that limit them, are applied first, independently of the order of the files."""

ReadSome: TypeAlias = Callable[[int], bytes]


def read(
    filenames: Sequence[str], *, recursive: bool = False, validate: Validate = "strict", named: bool = False
) -> list[Manifest]:
    """Return the manifests in the order of the files. `validate` and `named` are passed to pinnace.api.manifest.load. Prints
    the warnings of all files. Raises ManifestError with the errors of all files, and Failure for an unreadable file."""
    manifests: list[Manifest] = []
    problems: list[str] = []
    for source, read_some in _sources(filenames, recursive):
        try:
            found = load(_text(source, read_some), source, validate=validate, named=named)
        except ManifestError as error:
            problems.extend(error.problems)
        else:
            manifests.extend(found)
            for warning in (each for manifest in found for each in manifest.warnings):
                err(f"Warning: {warning}")
            problems.extend(_too_large(found))
    if problems:
        raise ManifestError(problems)
    if not manifests:
        said = ", ".join("standard input" if name == STDIN else name for name in filenames)
        raise usage(f"no objects in {said}", hint="a manifest contains apiVersion and kind")
    return manifests


def place(manifest: Manifest, session: Session) -> None:
    """Set the namespace of the session on an object without a namespace. Raises ManifestError if `-n` differs from the
    manifest."""
    meta = manifest.obj.metadata
    if not manifest.resource.namespaced:
        return
    if session.named_namespace not in (None, meta.namespace) and meta.namespace:
        message = f'metadata.namespace: "{meta.namespace}" does not match the namespace of -n, "{session.named_namespace}"'
        raise ManifestError([f"{where(manifest)}: {message}"])
    meta.namespace = meta.namespace or session.namespace


def place_all(manifests: Sequence[Manifest], session: Session) -> None:
    """Call `place` for all manifests. Raises ManifestError."""
    for manifest in manifests:
        place(manifest, session)


def where(manifest: Manifest) -> str:
    return f"{manifest.source}:{manifest.line}"


def _text(source: str, read_some: ReadSome) -> str:
    """Return the text of a source. Raises ManifestError, and Failure if it cannot be read."""
    try:
        data = read_some(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise ManifestError([f"{source}:1: exceeds the maximum size of {MAX_SIZE:,} bytes; split the file"])
        return data.decode()
    except OSError as error:
        hint = "download the file, and use `-f -`" if "://" in source else "-f accepts a file, a directory, or - for stdin"
        raise usage(f"{source}: {(error.strerror or str(error)).lower()}", hint=hint) from None
    except UnicodeDecodeError as error:
        raise ManifestError([f"{source}:1: not valid UTF-8: {error.reason} at byte {error.start}"]) from None


def _sources(filenames: Sequence[str], recursive: bool) -> Iterator[tuple[str, ReadSome]]:
    """Yield the name of each source, and a function that reads at most the given number of bytes."""
    for name in _split(filenames):
        if name == STDIN:
            yield "stdin", sys.stdin.buffer.read
        else:
            for path in _files(Path(name), recursive):
                yield name if "://" in name else str(path), partial(_head, path)


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _split(filenames: Sequence[str]) -> list[str]:
    """`-f a,b` means two files, unless a file of that name exists."""
    parts = [[name] if "," not in name or Path(name).exists() else name.split(",") for name in filenames]
    return [part for each in parts for part in each if part]


def _files(path: Path, recursive: bool) -> Sequence[Path]:
    if not path.is_dir():
        return [path] if path.exists() else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) or [path]
    all_ = (path.rglob if recursive else path.glob)("*")
    found = sorted(each for each in all_ if each.suffix in SUFFIXES and (each.is_file() or _leads_nowhere(each)))
    if not found:
        raise usage(f"{path}: no {', '.join(SUFFIXES)} files in this directory", hint="use -R to include subdirectories")
    return found


def _leads_nowhere(path: Path) -> bool:
    """A dangling link is included, so that reading it reports an error."""
    return path.is_symlink() and not path.exists()


def _too_large(manifests: Sequence[Manifest]) -> Iterator[str]:
    for manifest in manifests:
        size = manifest.obj.ByteSize()
        if size > MAX_OBJECT:
            yield f"{where(manifest)}: the object has {size:,} bytes; the maximum is {MAX_OBJECT:,}"


def in_order(manifests: Sequence[Manifest]) -> list[Manifest]:
    return sorted(manifests, key=lambda each: _FIRST.index(each.resource) if each.resource in _FIRST else len(_FIRST))
